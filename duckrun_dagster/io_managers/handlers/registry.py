"""The handler of each type, imported with its library at the first value of the type."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pkgutil import resolve_name
from typing import Any, get_origin

from duckrun.errors import InvalidConfig
from duckrun.values.checked import unknown_word
from duckrun_dagster.io_managers.handlers.handler import TypeHandler

_HERE = "duckrun_dagster.io_managers.handlers"
# The package that defines a type -> its handler. A class of another package belongs to the handler
# of its first base class that is listed here.
_HANDLERS = {
    "builtins": f"{_HERE}.rows_handler:RowsHandler",
    "pyarrow": f"{_HERE}.pyarrow_handler:PyArrowHandler",
    "pandas": f"{_HERE}.pandas_handler:PandasHandler",
    "polars": f"{_HERE}.polars_handler:PolarsHandler",
    "duckdb": f"{_HERE}.native_handlers:DuckDBHandler",
    "_duckdb": f"{_HERE}.native_handlers:DuckDBHandler",
    "pyspark": f"{_HERE}.native_handlers:PySparkHandler",
    "deltalake": f"{_HERE}.table_handler:DeltaTableHandler",
    "duckrun": f"{_HERE}.table_handler:DuckrunHandler",
}
# Extra of this package that installs a library; the other libraries are dependencies.
_EXTRAS = {"pandas": "pandas", "pyspark": "spark"}
_NAMES = {
    "pyarrow": "pyarrow:Table",
    "pyarrow_reader": "pyarrow:RecordBatchReader",
    "pyarrow_dataset": "pyarrow.dataset:Dataset",
    "pandas": "pandas:DataFrame",
    "pyarrow_batch": "pyarrow:RecordBatch",
    "pandas_series": "pandas:Series",
    "polars": "polars:DataFrame",
    "polars_series": "polars:Series",
    "polars_lazy": "polars:LazyFrame",
    "duckdb": "duckdb:DuckDBPyRelation",
    "pyspark": "pyspark.sql:DataFrame",
    "deltalake": "deltalake:DeltaTable",
    "duckrun": "duckrun:Frame",
    "duckrun_table": "duckrun:Table",
    "rows": "builtins:list",
}


def handler_of(declared: Any, handlers: Sequence[TypeHandler[Any]], what: str) -> TypeHandler[Any]:
    """Return the handler of a type.

    Args:
        declared: The type.
        handlers: Handlers of the IO manager's subclass, which come first.
        what: The subject of the error text.

    Raises:
        InvalidConfig: No handler knows the type; the text lists the known types.
    """
    for handler in handlers:
        if handler.handles(declared):
            return handler
    origin = get_origin(declared) or declared
    for base in origin.__mro__ if isinstance(origin, type) else ():
        path = _HANDLERS.get(base.__module__.partition(".")[0])
        if path is not None and (handler := _made(path)).handles(declared):
            return handler
    known = [type_name(each) for handler in handlers for each in handler.types]
    known += [path.replace(":", ".") for name, path in _NAMES.items() if name != "rows"]
    raise InvalidConfig(
        f"{what} has type {type_name(declared)}, which DeltaIOManager does not know. "
        f"It knows {', '.join([*known, 'duckrun.SQL', 'list[dict]'])}, and Optional[T], dict[str, "
        "T] and list[T] of these."
    )


def named_type(name: str, handlers: Sequence[TypeHandler[Any]], what: str) -> Any:
    """Return the type of a name. ``handlers`` come before the built-in names.

    Raises:
        InvalidConfig: The name is unknown, or its library is not installed.
    """
    names = {each: as_type for handler in handlers for each, as_type in handler.names.items()}
    if name in names:
        return names[name]
    if name not in _NAMES:
        raise unknown_word(what, name, type_names(handlers))
    try:
        return resolve_name(_NAMES[name])
    except ImportError as error:
        extra = _EXTRAS.get(_NAMES[name].partition(":")[0].partition(".")[0])
        remedy = f'Install it with: pip install "duckrun-dagster[{extra}]"' if extra else ""
        raise InvalidConfig(f"{what} {name!r} cannot be imported: {error}", remedy=remedy) from error


def type_names(handlers: Sequence[TypeHandler[Any]]) -> list[str]:
    """Return the names of types that ``named_type`` knows."""
    return [*(each for handler in handlers for each in handler.names), *_NAMES]


def type_name(declared: Any) -> str:
    """Return a type as a user writes it."""
    if not isinstance(declared, type):
        return str(declared)
    module = declared.__module__.split(".")[0].lstrip("_")
    return declared.__name__ if module == "builtins" else f"{module}.{declared.__name__}"


@cache
def _made(path: str) -> TypeHandler[Any]:
    return resolve_name(path)()
