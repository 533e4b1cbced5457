"""Libraries and modules that are imported at their first use.

Start-up is most of a short command such as ``dbt parse`` or ``dbt run`` of one small model. pyarrow
imports numpy, so together they take a tenth of a second. A run without Arrow data needs neither,
and a run of plain models needs no sqlglot.

A module takes a library from here if it uses it in functions and annotations only::

    from duckrun.libraries import pa

A use at module level, such as in a constant, would import the library at once.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the search for cyclic garbage while modules are imported or a long text is parsed.

    While many objects are created, the search visits all objects of the process again and again. In
    a dbt process one visit takes a tenth of a second. Dropped objects are still young afterwards,
    so the collector then finds them cheaply.
    """
    is_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_enabled:
            gc.enable()


class _OnDemand(ModuleType):
    """A module that is imported when one of its names is read.

    It is not entered in ``sys.modules``: DuckDB looks there for libraries whose values it may get.
    """

    def __getattr__(self, name: str) -> Any:
        # Each name is cached, since import_module() takes microseconds, and a wide table asks for
        # the type of each of its columns several times.
        is_loaded = self.__name__ in sys.modules
        with nullcontext() if is_loaded else collector_paused():  # imports create hardly any garbage
            value = self.__dict__[name] = getattr(import_module(self.__name__), name)
        return value


def on_demand(name: str) -> Any:
    """Return a stand-in for a module, which imports it at the first use of one of its names.

    Args:
        name: Qualified name of the module.
    """
    return _OnDemand(name)


if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
    import sqlglot
    from sqlglot import exp
else:
    exp = on_demand("sqlglot.expressions")
    np = on_demand("numpy")
    pa = on_demand("pyarrow")
    pc = on_demand("pyarrow.compute")
    pq = on_demand("pyarrow.parquet")
    sqlglot = on_demand("sqlglot")

__all__ = ["collector_paused", "exp", "np", "on_demand", "pa", "pc", "pq", "sqlglot"]
