"""DuckDB's queries and functions: run natively on plain tables of DuckDB's, and by a session over Delta tables of the same rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb

import duckrun
from duckrun.session import Session
from duckrun.values.lake_format import FormatName

TABLES = {
    "n": """
        select * from (values
            (1, 1, 10::bigint, 1.5::double, 12.34::decimal(10, 2), true), (2, 2, 20, 'nan', -0.01, false),
            (3, 2, null, -2.25, 99999999.99, null), (4, null, 40, 0, null, true), (5, -3, -50, 1e300, 0.5, false)
        ) v(id, i, b, f, m, flag)""",
    "w": """
        select * from (values
            (1, 'abc', 'x y'::blob, '{"a": 1, "b": [1, 2]}'), (2, 'ABC', null, '[]'), (3, '', ''::blob, null), (4, null, 'z', '{"a": null}'),
            (5, 'bca', '\\xAA'::blob, '"x"')
        ) v(id, s, t, j)""",
    "d": """
        select * from (values
            (1, date '2020-02-29', timestamp '2020-02-29 23:59:59.123456', timestamptz '2020-02-29 12:00:00+00', 'month'),
            (2, date '1969-12-31', timestamp '1969-12-31 00:00:00', timestamptz '2021-06-30 22:30:00+00', 'year'),
            (3, null, null, null, 'day')
        ) v(id, d, ts, tz, unit)""",
    "c": """
        select * from (values
            (1, [3, 1, 2], ['a', 'b'], {'a': 1, 'b': 'x'}, map {'x': 1, 'y': 2}), (2, []::int[], [null], {'a': null, 'b': ''}, map {}),
            (3, null, null, null, null), (4, [5], ['é'], {'a': 4, 'b': 'z'}, map {'z': null})
        ) v(id, l, words, st, mp)""",
}


@dataclass(frozen=True)
class Result:
    """The columns with their types, and the rows in any order; or that there is none."""

    columns: tuple[tuple[str, str], ...] = ()
    rows: tuple[str, ...] = ()
    error: str | None = None


class Both:
    """The same rows as tables of a plain DuckDB, and in a lake."""

    def __init__(self, root: Path, format: FormatName = "delta") -> None:
        self.session = duckrun.connect(root, format=format)
        self.plain = duckdb.connect(config={"preserve_insertion_order": "false"})
        self.plain.execute("set global TimeZone = 'UTC'")
        for name, sql in TABLES.items():
            self.session.sql(f"create table main.{name} as {sql}")
            rows = self.session.sql(f"from main.{name}").toArrow()  # noqa: F841  with the types that a lake has
            self.plain.execute(f"create table {name} as from rows")

    def close(self) -> None:
        self.session.close()
        self.plain.close()

    def natively(self, sql: str) -> Result:
        try:
            return _result(self.plain.sql(sql))
        except duckdb.Error as error:
            return Result(error=str(error))

    def by_session(self, sql: str) -> Result:
        return by_session(self.session, sql)


def by_session(session: Session, sql: str) -> Result:
    try:
        return _result(session.sql(sql).native)
    except (duckdb.Error, duckrun.DuckrunError, AttributeError) as error:
        return Result(error=str(error))


def _result(relation: duckdb.DuckDBPyRelation) -> Result:
    columns = tuple(zip(relation.columns, map(str, relation.types), strict=True))
    return Result(columns, tuple(sorted(map(repr, relation.fetchall()))))


# -- calls of functions

# What a function of a volatile name gives, or what it does to the process, cannot be compared.
_LEFT_OUT = (
    "random", "uuid", "setseed", "error", "nextval", "currval", "sleep_ms", "write_log", "current_", "now", "get_current", "today", "stats",
    "transaction_timestamp", "localtime", "txid", "__internal", "getvariable", "in_search_path", "pg_", "has_", "inet_", "version", "query",
    "getenv", "add_parquet_key", "finalize", "combine", "create_sort_key", "reservoir", "approx", "age", "variant", "st_", "geometry", "remap_struct",
    "parse_duckdb_log", "delta_", "vector_type", "storage_info", "is_histogram", "bin_", "json_execute", "from_json_strict",
    "first", "last", "any_value", "arbitrary", "list", "array_agg", "string_agg", "group_concat", "listagg", "histogram_values", "json_group",
    "arg_", "argm", "max_by", "min_by", "mode", "encode_", "sql_auto", "split_statement", "unhex_", "gen_random", "url_", "icu_", "sum", "avg", "mean",
    "favg", "fsum", "kahan", "stddev", "var", "corr", "covar", "regr", "skew", "kurt", "sem", "bitstring_agg", "substr", "product", "entropy", "geo",
)  # fmt: skip

_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "VARCHAR": ("s", "'b'", "unit"),
    "BIGINT": ("b", "2"),
    "INTEGER": ("i", "id"),
    "SMALLINT": ("id::smallint",),
    "TINYINT": ("id::tinyint",),
    "UTINYINT": ("3::utinyint",),
    "USMALLINT": ("3::usmallint",),
    "UINTEGER": ("3::uinteger",),
    "UBIGINT": ("3::ubigint",),
    "HUGEINT": ("b::hugeint",),
    "UHUGEINT": ("3::uhugeint",),
    "DOUBLE": ("f", "0.5"),
    "FLOAT": ("1.5::float",),
    "DECIMAL": ("m",),
    "BOOLEAN": ("flag", "true"),
    "DATE": ("d", "date '2020-01-31'"),
    "TIMESTAMP": ("ts", "timestamp '2020-01-31 10:00:00'"),
    "TIMESTAMP WITH TIME ZONE": ("tz", "timestamptz '2020-01-31 10:00:00+02'"),
    "TIMESTAMP_NS": ("timestamp_ns '2020-01-31 10:00:00.000000001'",),
    "TIME": ("time '10:00:01.5'",),
    "TIME WITH TIME ZONE": ("'10:00:01+02'::timetz",),
    "INTERVAL": ("interval '36 hour'", "interval (id) month"),
    "BLOB": ("t", "'a'::blob"),
    "BIT": ("'10101'::bit",),
    "JSON": ("j::json",),
    "UUID": ("'47183823-2574-4bfd-b411-99ed177d3e43'::uuid",),
    "ANY": ("i", "s", "l"),
    "T": ("i", "s"),
    "K": ("'x'",),
    "V": ("1",),
    "ANY[]": ("l", "words"),
    "T[]": ("l", "words"),
    "T[][]": ("[l, [1]]",),
    "DOUBLE[]": ("[1.5, 2.5]::double[]",),
    "FLOAT[]": ("[1.5, 2.5]::float[]",),
    "BIGINT[]": ("[1, 2]::bigint[]",),
    "VARCHAR[]": ("words", "['a', 'b']"),
    "BOOLEAN[]": ("[true, false]",),
    "FLOAT[3]": ("[1, 2, 3]::float[3]",),
    "DOUBLE[3]": ("[1, 2, 3]::double[3]",),
    "FLOAT[ANY]": ("[1, 2, 3]::float[3]",),
    "DOUBLE[ANY]": ("[1, 2, 3]::double[3]",),
    "MAP(K, V)": ("mp",),
    "STRUCT": ("st",),
    "LAMBDA": ("lambda x: x", "x -> x is not null"),
}
_FROM = "from n join w using (id) left join d using (id) left join c using (id)"


def calls(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Calls of every scalar and aggregate function and macro of DuckDB, and of its operators, with arguments of their types."""
    found = connection.execute(
        "select distinct function_name, parameter_types::varchar[], coalesce(varargs, '') from duckdb_functions() "
        "where function_type in ('scalar', 'aggregate') order by all"
    ).fetchall()
    made = [call for name, types, varargs in found for call in _calls(name, types, varargs)]
    return list(dict.fromkeys(made))


def _calls(name: str, types: Sequence[str], varargs: str) -> Iterator[str]:
    if name.lower().startswith(_LEFT_OUT):
        return
    types = [*types, *([varargs] if varargs else [])]
    choices = [_ARGUMENTS.get(kind, ()) for kind in types]
    for arguments in itertools.islice(itertools.product(*choices), 6):
        if name[:1].isalpha() or name[:1] == "_":
            yield f"{name}({', '.join(arguments)})"
        elif len(arguments) == 2:
            yield f"{arguments[0]} {name} {arguments[1]}"
        elif len(arguments) == 1 and name not in ("!",):
            yield f"{name} {arguments[0]}"


def over_all_tables(calls: Sequence[str]) -> str:
    return f"select {', '.join(calls)} {_FROM}"


def queries() -> list[str]:
    """The written queries."""
    lines = (Path(__file__).parent / "queries.sql").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("--")]


def plain_value(value: Any) -> str:
    """A value without the type of number that an engine has for it."""
    if value is None or isinstance(value, bool):
        return repr(value)
    if isinstance(value, int | float | Decimal):
        return "nan" if value != value else f"{float(value):.9g}"
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat()
    if isinstance(value, dict):
        return "{" + ",".join(sorted(f"{key}:{plain_value(part)}" for key, part in value.items())) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(plain_value, value)) + "]"
    return repr(value)
