"""Filters of a table of several writers' files: the rows are those of plain DuckDB over the same values, for each type."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from duckrun import DeleteSpec, ReadSpec, Scan, Session, WriteSpec
from duckrun.sql.quoting import quote_literal
from tests.engines.writers import test_columnar

VALUES: dict[str, list[str]] = {
    "TINYINT": ["-128", "-1", "0", "127"],
    "BIGINT": ["-9223372036854775808", "9007199254740992", "9007199254740993", "0", "9223372036854775807"],
    "FLOAT": ["-inf", "-0.1", "-0.0", "0.0", "0.1", "3.4028235e38", "inf", "nan"],
    "DOUBLE": ["-inf", "-1e308", "-0.0", "0.0", "5e-324", "0.1", "inf", "nan"],
    "DECIMAL(15,15)": ["-0.000000000000001", "0.1", "0.999999999999999"],
    "DECIMAL(18,3)": ["-999999999999999.999", "0.001", "123456789012345.678", "999999999999999.999"],
    "DECIMAL(38,10)": ["-9999999999999999999999999999.9999999999", "0.0000000001", "9223372036854775807.0000000001"],
    "DATE": ["0001-01-01", "1582-10-04", "1582-10-15", "1969-12-31", "2024-02-29", "9999-12-31"],
    "TIMESTAMP": [
        "0001-01-01 00:00:00", "1582-10-04 23:59:59.999999", "1969-12-31 23:59:59.999999", "2024-02-29 01:02:03.004005",
        "2024-02-29 01:02:03.004999", "9999-12-31 23:59:59.999", "9999-12-31 23:59:59.999999",
    ],
    "TIMESTAMP WITH TIME ZONE": [
        "0001-01-01 00:00:00+00", "1969-12-31 23:59:59.999999+00", "2024-02-29 01:02:03.004005+00",
        "9999-12-31 23:59:59.999999+00",
    ],
    "VARCHAR": ["", "a", "A", "x%", "xyz" * 30, "xyz" * 30 + "a", "\U0010ffff" * 33, "\ud7ff" * 40, "é", "e\u0301", "ı", "İ", "'"],
    "BLOB": ["", "\\x00", "\\x00\\xFF", "abc", "\\xFF" * 70],
    "BOOLEAN": ["true", "false"],
}  # fmt: skip
MORE: dict[str, list[str]] = {
    "FLOAT": ["v > 0", "v = 0.1", "v::DOUBLE >= 0.1", "isnan(v)", "NOT isnan(v)"],
    "DOUBLE": ["v > 0", "v >= 0.1", "v <> 0", "isnan(v)", "NOT isnan(v)"],
    "BIGINT": ["v > 4.5", "v >= 9007199254740993", "v::DOUBLE = 9007199254740992", "v + 0 = 0"],
    "DECIMAL(18,3)": ["v > 123456789012345", "v::DOUBLE >= 0.001", "v < 1e3"],
    "DATE": ["v >= '1970-01-01'", "v < TIMESTAMP '1970-01-01 00:00:01'", "year(v) = 1582", "v < 'infinity'"],
    "TIMESTAMP": ["v > '2024-02-29 01:02:03.0045'", "v::DATE = '2024-02-29'", "v >= '9999-12-31 23:59:59.9995'"],
    "VARCHAR": ["v LIKE 'x%'", "v LIKE 'xy_%'", "v LIKE '%a'", "v ILIKE 'A'", "lower(v) = 'a'", "starts_with(v, 'x')"],
}
WRITERS = ("polars", "arrow", "duckdb", "delta_rs", "deltalake")


def conditions(kind: str) -> Iterator[str]:
    values = [f"CAST({quote_literal(text)} AS {kind})" for text in VALUES[kind]]
    for value in values:
        yield from (f"v {operator} {value}" for operator in ("=", "<", ">="))
    yield from (f"{values[0]} < v", f"v <> {values[0]}", f"NOT (v = {values[-1]})", f"v IN ({values[0]}, {values[-1]})")
    yield from (f"v BETWEEN {values[0]} AND {values[1]}", f"v = {values[0]} OR v IS NULL", "v IS NULL", "v IS NOT NULL")
    yield from (f"v IS DISTINCT FROM {values[0]}", f"v > {values[0]} AND id > 3", *MORE.get(kind, ()))


def append(session: Session, writer: str, rows: pa.Table) -> None:
    if writer == "deltalake":
        write_deltalake(session.ref("t").location, rows, mode="append")
        return
    spec = WriteSpec("append", writer="delta_rs" if writer == "delta_rs" else "auto")
    # delta_rs streams the rows, whatever the frame.
    with test_columnar.writer("duckdb" if writer == "delta_rs" else writer):
        session.execute("t", spec, rows)


@pytest.mark.drawn(4)
@pytest.mark.parametrize("kind", VALUES)
def test_a_filter_finds_the_rows_of_plain_duckdb(duck: Session, kind: str) -> None:
    random = Random(kind)
    duck.sql(f"CREATE TABLE t (id BIGINT, v {kind})")
    with duckdb.connect() as plain:
        plain.execute(f"SET TimeZone = 'UTC'; CREATE TABLE t (id BIGINT, v {kind})")
        for file, writer in enumerate(random.sample(WRITERS, len(WRITERS)) + ["polars", "duckdb"]):
            texts = [random.choice([*VALUES[kind], None]) for _ in range(random.choice([1, 1, 3]))]
            rows = [
                f"({file * 10 + n}, CAST({'NULL' if t is None else quote_literal(t)} AS {kind}))"
                for n, t in enumerate(texts)
            ]
            plain.execute(
                f"CREATE OR REPLACE TEMP TABLE new (id BIGINT, v {kind}); INSERT INTO new VALUES {', '.join(rows)}"
            )
            append(duck, writer, plain.sql("FROM new").to_arrow_table())
            plain.execute("INSERT INTO t FROM new")
        duck.execute("t", DeleteSpec("id % 10 = 1", merge_mode="deletion_vectors"))
        plain.execute("DELETE FROM t WHERE id % 10 = 1")
        snapshot = duck.table("t").snapshot()
        for condition in conditions(kind):
            expected = sorted(id for (id,) in plain.execute(f"SELECT id FROM t WHERE {condition}").fetchall())
            assert sorted(duck.sql(f"SELECT id FROM t WHERE {condition}").toArrow()["id"].to_pylist()) == expected, (
                condition
            )
            parts = [Scan.from_json(part.to_json()) for part in snapshot.scan(ReadSpec(predicate=condition)).split(2)]
            rows_of_parts: list[Any] = [id for part in parts for id in duck.open(part).toArrow()["id"].to_pylist()]
            assert sorted(rows_of_parts) == expected, condition
