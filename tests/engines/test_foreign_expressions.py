"""Expressions of a log that somebody else wrote, and those that a table is given: computed from the columns of a row, or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

import duckrun
from duckrun import DuckrunError, InvalidConfig, UnsupportedFeature
from duckrun.session import Session
from duckrun.sql.scalar import holds_statements, why_not_scalar, why_not_scalar_in_spark
from tests.lake import rows_of


def _foreign(root: Path, check: str | None = None, metadata: dict[str, str] | None = None) -> Path:
    """A table whose log another writer made, with a constraint or with metadata of its second column."""
    log = root / "main" / "t" / "_delta_log"
    log.mkdir(parents=True)
    fields = [
        {"name": "a", "type": "long", "nullable": True, "metadata": {}},
        {"name": "b", "type": "string", "nullable": True, "metadata": metadata or {}},
    ]
    features = ["checkConstraints", "generatedColumns", "allowColumnDefaults", "appendOnly", "invariants"]
    actions: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}},
        {
            "metaData": {
                "id": "x",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": [],
                "configuration": {} if check is None else {"delta.constraints.c": check},
                "createdTime": 0,
            }
        },
    ]
    (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
    return root


def _writes(session: Session) -> list[Any]:
    return [
        lambda: session.sql("insert into main.t values (1, 'x')"),
        lambda: session.sql("insert into main.t (a) values (1)"),
        lambda: session.sql(
            "merge into main.t using (select 1 as a, 'x' as b) s on t.a = s.a when not matched then insert *"
        ),
        lambda: session.sql("insert overwrite main.t select 1 as a, 'x' as b"),
    ]


HOSTILE = [
    "(select content from read_text('{secret}')) like 'B%'",
    "exists (select 1 from read_csv('{secret}'))",
    "a > (select count(*) from main.t)",
    "getenv('HOME') = b",
    "current_setting('secret_directory') = b",
    "read_text('{secret}') = 'A'",
    "a > random()",
    "row_number() over () > 0",
    "a > sum(a)",
    "a > 0) or (select true",
]


@pytest.mark.parametrize("check", HOSTILE)
def test_a_foreign_check_reads_nothing_but_its_row(tmp_path: Path, check: str) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("A")
    with duckrun.connect(str(_foreign(tmp_path / "lake", check.format(secret=secret)))) as session:
        for write in _writes(session):
            with pytest.raises(DuckrunError) as raised:
                write()
            assert "breaks the constraint" not in str(raised.value)  # which would tell what the file holds
        assert rows_of(session.sql("select * from main.t")) == []
        session.sql("alter table main.t drop constraint c")
        session.sql("insert into main.t values (1, 'x')")


@pytest.mark.parametrize("key", ["delta.generationExpression", "CURRENT_DEFAULT"])
@pytest.mark.parametrize("expression", ["(select content from read_text('{secret}'))", "getenv('HOME')", "version()"])
def test_a_foreign_generated_column_or_default_reads_nothing_but_its_row(
    tmp_path: Path, key: str, expression: str
) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("A")
    lake = _foreign(tmp_path / "lake", metadata={key: expression.format(secret=secret)})
    with duckrun.connect(str(lake)) as session:
        with pytest.raises(UnsupportedFeature, match="Nothing was written"):
            session.sql("insert into main.t (a) values (1)")
        assert rows_of(session.sql("select * from main.t")) == []


def test_a_foreign_check_of_scalars_is_computed(tmp_path: Path) -> None:
    check = "a > 0 AND upper(b) IN ('X', 'Y') AND (b IS NULL OR length(substring(b, 1, 3)) < 4)"
    with duckrun.connect(str(_foreign(tmp_path / "lake", check))) as session:
        session.sql("insert into main.t values (1, 'x')")
        with pytest.raises(duckrun.SchemaMismatch, match="breaks the constraint c"):
            session.sql("insert into main.t values (0, 'x')")


NO_ROW_PASSES = {
    "i > (select 42)": "a subquery",
    "i > sum(i)": "aggregates rows|several rows",
    "row_number() over () > 0": "a window function|several rows",
    "i > random()": "another value each time",
    "c.i < 10": "by their bare names",
    "version() = 'x'": "tells of the session",
}


@pytest.mark.parametrize(("check", "why"), NO_ROW_PASSES.items())
def test_a_check_that_no_row_can_be_judged_by_is_refused_at_its_definition(duck: Session, check: str, why: str) -> None:
    with pytest.raises(InvalidConfig, match=why):
        duck.sql(f"create table main.c (i int, check ({check}))")
    duck.sql("create table main.c (i int)")
    with pytest.raises(InvalidConfig, match=why):
        duck.sql(f"alter table main.c add constraint k check ({check})")
    duck.sql("insert into main.c values (5)")
    assert rows_of(duck.sql("select i from main.c")) == [(5,)]


@pytest.mark.parametrize(
    "check",
    [
        "i between 1 and 10", "i % 2 = 1 and not i is null", "i in (1, 5)", "abs(i) = i", "coalesce(i, 1) > 0", "nullif(i, 1) is not null",
        "case when i > 3 then true else false end", "i::varchar like '5%'", "cast(i as double) > 1.5", "i < 3 or i > 4",
    ],
)  # fmt: skip
def test_a_check_of_scalars_is_what_duckdb_says(duck: Session, check: str) -> None:
    native = duckdb.connect()
    native.sql(f"create table c (i int, check ({check}))")
    duck.sql(f"create table main.c (i int, check ({check}))")
    for value in (5, 4, -1):
        try:
            native.sql(f"insert into c values ({value})")
            passes = True
        except duckdb.ConstraintException:
            passes = False
        if passes:
            duck.sql(f"insert into main.c values ({value})")
        else:
            with pytest.raises(duckrun.SchemaMismatch, match="breaks the constraint"):
                duck.sql(f"insert into main.c values ({value})")
    assert sorted(rows_of(duck.sql("select i from main.c"))) == sorted(native.sql("select i from c").fetchall())


def test_a_view_of_another_runs_no_second_statement(tmp_path: Path, duck: Session) -> None:
    assert holds_statements("select e'\\'; copy (select 1) to ''x'' --'; select 1")
    assert not holds_statements("select ';', $$;$$ -- ;\n;")
    duck.sql("create table main.t as select 1 as a")
    duck.sql("create view main.v as select a from main.t")
    [definition] = [path for path in Path(duck.lake.root).rglob("*.json") if '"sql"' in path.read_text("utf8")]
    whole = json.loads(definition.read_text("utf8"))
    out = tmp_path / "out.csv"
    for text in (
        f"select a from main.t; copy (select 1) to '{out}'",
        f"select a from main.t) ; copy (select 1) to '{out}' ; select (1",
        f"select a from main.t where 'x' <> 'y\\'; copy (select 1) to '{out}' --'",
        f"select a from main.t where 'x' <> e'\\''; copy (select 1) to '{out}'; select '1",
    ):
        definition.write_text(json.dumps({**whole, "sql": text}), "utf8")
        with duckrun.connect(duck.lake.root) as fresh, pytest.raises(DuckrunError):
            fresh.sql("select * from main.v").collect()
    for text in (
        f"select a /* /* */ ) ; copy (select 1) to '{out}' ; -- */ from main.t",
        f"select a from main.t where 'x' <> e'\\'); copy (select 1) to ''{out}''; select (''a'",
    ):
        definition.write_text(json.dumps({**whole, "sql": text}), "utf8")
        with duckrun.connect(duck.lake.root) as fresh:
            assert rows_of(fresh.sql("select * from main.v")) == [(1,)]
    assert not out.exists()


@pytest.mark.parametrize(
    "function", ["current_user", "getvariable('x')", "txid_current()", "nextval('s')", "uuid()", "write_log('x')"]
)
def test_functions_of_the_session_are_no_scalars(function: str) -> None:
    assert why_not_scalar(f"b = {function}", ["b"]) is not None


def test_spark_calls_no_java_for_a_foreign_check(tmp_path: Path, spark: Any) -> None:
    assert why_not_scalar_in_spark("uuid()", is_default=True) is None
    lake = _foreign(tmp_path / "lake", "java_method('java.lang.System', 'getProperty', 'user.home') = b")
    with duckrun.connect(str(lake), engine="spark", spark=spark) as session:
        with pytest.raises(UnsupportedFeature, match="java_method"):
            session.sql("insert into main.t values (1, 'x')")
        with pytest.raises(InvalidConfig, match="another value each time"):
            session.sql("create table main.c (i int, check (i > rand()))", dialect="spark")
