"""Names of DuckDB's built-in functions."""

from __future__ import annotations

import duckdb

COMMON = frozenset((
    "abs", "all", "any", "any_value", "arg_max", "arg_min", "array_agg", "avg", "cast", "ceil", "coalesce",
    "concat", "concat_ws", "contains", "count", "date_diff", "date_part", "date_trunc", "day", "dense_rank",
    "ends_with", "epoch", "epoch_ms", "exists", "exp", "extract", "first", "first_value", "flatten", "floor",
    "generate_series", "get_current_timestamp", "greatest", "group_concat", "hash", "hour", "if", "ifnull", "in",
    "instr", "lag", "last", "last_value", "lead", "least", "left", "len", "length", "list", "list_aggregate",
    "list_contains", "list_filter", "list_sort", "list_transform", "list_value", "ln", "log", "lower", "lpad",
    "ltrim", "make_date", "make_timestamp", "map", "max", "md5", "median", "min", "minute", "mod", "month", "now",
    "ntile", "nullif", "position", "power", "quantile", "quantile_cont", "quarter", "random", "range", "rank",
    "read_csv", "read_json", "read_parquet", "regexp_extract", "regexp_matches", "regexp_replace", "repeat",
    "replace", "reverse", "right", "round", "row", "row_number", "rpad", "rtrim", "second", "sha256", "sign",
    "split_part", "sqrt", "starts_with", "stddev", "strftime", "string_agg", "string_split", "strptime",
    "struct_extract", "struct_pack", "substr", "substring", "sum", "today", "trim", "trunc", "try_cast", "typeof",
    "unnest", "upper", "uuid", "values", "variance", "week", "year",
))  # fmt: skip
"""Names that most statements call. No catalog is searched for a macro of such a name."""


def is_of_duckdb(name: str) -> bool:
    """Return True for the name, in any case, of a function or macro that every DuckDB has.

    >>> is_of_duckdb("Upper"), is_of_duckdb("net_price")
    (True, False)
    """
    if name.lower() in COMMON:
        return True
    with duckdb.connect(config={"threads": "1"}) as alone:
        sql = "SELECT count(*) FROM duckdb_functions() WHERE lower(function_name) = lower($1)"
        row = alone.execute(sql, [name]).fetchone()
    return row is not None and row[0] > 0
