"""Change queries: the worked example of docs/changes.md, each row of its table of cases, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import duckrun
from duckrun import (
    DeleteSpec,
    DuckrunError,
    InvalidConfig,
    SchemaMismatch,
    Session,
    StorageError,
    UnsupportedFeature,
    VacuumSpec,
    VersionNotReadable,
    WriteSpec,
)
from duckrun.changes.changes import Changes, ChangeSpec
from duckrun.changes.rule import Question, answer
from duckrun.values.changes import ChangeKind
from tests.formats.test_vectors import in_the_log
from tests.lake import rows_of

FIRST = "select * from (values ('jack', 'apple'), ('sarah', 'orange'), ('john', 'pineapple')) as v(name, fruit)"
EXAMPLE = (
    "update main.fruits set fruit = 'banana' where name = 'jack'",
    "delete from main.fruits where name = 'john'",
    "merge into main.fruits as t using (select * from (values ('sarah', 'kiwi'), ('lena', 'fig')) as v(name, fruit)) as s "
    "on t.name = s.name when matched then update set * when not matched then insert *",
)
VECTORS = {"delta.enableDeletionVectors": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}


def example(session: Session, properties: dict[str, str], feed: str = "off") -> list[int]:
    """main.fruits with the four versions of the worked example: their numbers, which are others where the feed is toggled in between."""
    session.execute("main.fruits", WriteSpec("overwrite", table_properties=properties), duckrun.SQL(FIRST))
    versions = [0]
    for number, statement in enumerate(EXAMPLE):
        if feed == "toggled":  # on for the update and the deletion, off for the merge
            turned = "true" if number == 0 else "false"
            session.sql(f"alter table main.fruits set tblproperties ('delta.enableChangeDataFeed' = '{turned}')")
        versions.append(session.sql(statement).version)
    return versions


def said(session: Session, kind: str, first: int, last: int, **options: Any) -> list[tuple[Any, ...]]:
    """The answer as sorted tuples: without the pair and the time."""
    found = session.table("main.fruits").changes(kind, first, last, **options).toArrow()  # type: ignore[arg-type]
    hidden = ("_pair", "_commit_timestamp")
    columns = [c for c in found.column_names if c not in hidden]
    return sorted(tuple(row[c] for c in columns) for row in found.to_pylist())


PRE, POST = "update_preimage", "update_postimage"
BY_KEY: dict[tuple[str, int, int], list[tuple[Any, ...]]] = {
    ("append_only", -1, 2): [("jack", "banana", 0), ("sarah", "orange", 0)],
    ("append_only", 0, 2): [],
    ("append_only", 2, 3): [("lena", "fig", 3)],
    ("append_only", -1, 3): [("jack", "banana", 0), ("lena", "fig", 3), ("sarah", "kiwi", 0)],
    ("upsert", -1, 2): [("jack", "banana", "insert", 1), ("sarah", "orange", "insert", 0)],
    ("upsert", 0, 2): [("jack", "banana", "update", 1)],
    ("upsert", 2, 3): [("lena", "fig", "insert", 3), ("sarah", "kiwi", "update", 3)],
    ("min_delta", -1, 2): [("jack", "banana", "insert"), ("sarah", "orange", "insert")],
    ("min_delta", 0, 2): [("jack", "apple", PRE), ("jack", "banana", POST), ("john", "pineapple", "delete")],
    ("min_delta", 2, 3): [("lena", "fig", "insert"), ("sarah", "kiwi", POST), ("sarah", "orange", PRE)],
    ("full_delta", -1, 2): [
        ("jack", "apple", "insert", 0),
        ("jack", "apple", PRE, 1),
        ("jack", "banana", POST, 1),
        ("john", "pineapple", "delete", 2),
        ("john", "pineapple", "insert", 0),
        ("sarah", "orange", "insert", 0),
    ],
    ("full_delta", 0, 2): [("jack", "apple", PRE, 1), ("jack", "banana", POST, 1), ("john", "pineapple", "delete", 2)],
    ("full_delta", 2, 3): [("lena", "fig", "insert", 3), ("sarah", "kiwi", POST, 3), ("sarah", "orange", PRE, 3)],
}
WITH_NONE: dict[tuple[str, int, int], list[tuple[Any, ...]]] = {
    ("append_only", 0, 2): [("jack", "banana", 1)],
    ("upsert", 0, 2): [("jack", "banana", "insert", 1)],
    ("min_delta", 0, 2): [("jack", "apple", "delete"), ("jack", "banana", "insert"), ("john", "pineapple", "delete")],
}


def check_example(session: Session, versions: Sequence[int] = (0, 1, 2, 3)) -> None:
    """``versions`` are the numbers of the example's four."""
    at = {-1: -1, **dict(enumerate(versions))}
    for answers, key in ((BY_KEY, ["name"]), (WITH_NONE, [])):
        for (kind, first, last), rows in answers.items():
            versioned = kind != "min_delta"
            expected = sorted((*row[:-1], at[row[-1]]) for row in rows) if versioned else rows
            more = {"commit_version": True} if kind in ("append_only", "upsert") else {}
            assert said(session, kind, at[first], at[last], key=key, **more) == expected, (kind, first, last, key)


@pytest.mark.parametrize("properties", [{}, VECTORS], ids=["copy_on_write", "vectors"])
def test_the_worked_example(session: Session, properties: dict[str, str]) -> None:
    example(session, properties)
    check_example(session)
    found = session.table("main.fruits").changes("min_delta", 0, key=["name"])
    assert (found.from_version, found.to_version, found.identity) == (0, 3, "key")
    assert dict(found.sources) == {1: "files", 2: "files", 3: "files"}
    assert sorted(found.before().toArrow()["name"].to_pylist()) == ["jack", "john", "sarah"]
    assert sorted(found.after().toArrow()["name"].to_pylist()) == ["jack", "lena", "sarah"]


@pytest.mark.parametrize("properties", [{}, VECTORS], ids=["copy_on_write", "vectors"])
@pytest.mark.parametrize("feed", ["on", "toggled"])
def test_the_worked_example_with_a_feed(session: Session, properties: dict[str, str], feed: str) -> None:
    versions = example(session, properties | (FEED if feed == "on" else {}), feed)
    check_example(session, versions)
    sources = session.table("main.fruits").changes("min_delta", 0, key=["name"]).sources
    assert sources[versions[1]] == "feed" and sources[versions[3]] == ("feed" if feed == "on" else "files")


@pytest.mark.spark
@pytest.mark.parametrize("properties", [{}, VECTORS], ids=["copy_on_write", "vectors"])
@pytest.mark.parametrize("feed", ["off", "on", "toggled"])
@pytest.mark.parametrize("writer", ["duckdb", "spark"])
def test_each_engine_reads_the_example_that_the_other_wrote(
    root: Path, spark: Any, writer: str, feed: str, properties: dict[str, str]
) -> None:
    with duckrun.connect(root, engine="spark", spark=spark) as on_spark, duckrun.connect(root) as duck:
        own, other = (duck, on_spark) if writer == "duckdb" else (on_spark, duck)
        check_example(other, example(own, properties | (FEED if feed == "on" else {}), feed))


@pytest.mark.spark
@pytest.mark.parametrize("properties", [FEED, FEED | VECTORS], ids=["copy_on_write", "vectors"])
@pytest.mark.parametrize("writer", ["duckdb", "spark"])
def test_both_engines_read_a_feed_as_plain_spark_does(
    root: Path, spark: Any, writer: str, properties: dict[str, str]
) -> None:
    with duckrun.connect(root, engine="spark", spark=spark) as on_spark, duckrun.connect(root) as duck:
        own = duck if writer == "duckdb" else on_spark
        example(own, properties)
        location = duck.table("main.fruits").ref.location
        feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1).load(location)
        theirs = sorted(map(tuple, feed.select("name", "fruit", "_change_type", "_commit_version").collect()))
        for session in (duck, on_spark):
            ours = session.sql("select name, fruit, _change_type, _commit_version from table_changes('main.fruits', 1)")
            assert sorted(tuple(row.values()) for row in ours.collect()) == theirs
        own.sql("alter table main.fruits set tblproperties ('delta.enableChangeDataFeed' = 'false')")
        own.sql("update main.fruits set fruit = 'plum' where name = 'lena'")
        for session in (duck, on_spark):
            with pytest.raises(InvalidConfig, match=r"feed was off at versions 4 to 5 of the range from 1 to 5"):
                session.sql("from table_changes('main.fruits', 1)")
            assert said(session, "min_delta", 3, 5, key=["name"]) == [("lena", "fig", PRE), ("lena", "plum", POST)]


# -- the table of cases, by key, by row id and with none

Step = str | Callable[[Session], Any]
ROWS = [("jack", "apple"), ("john", "pineapple"), ("lea", "fig"), ("sarah", "orange")]
ALL_ANEW = sorted((*row, what) for row in ROWS for what in ("delete", "insert"))
SAME = "select * from (values {}) as v(name, fruit)".format(", ".join(map(str, ROWS)))


def overwrite(session: Session) -> None:
    session.execute("main.fruits", WriteSpec("overwrite"), duckrun.SQL(SAME))


def replace_jack(session: Session) -> None:
    rows = duckrun.SQL("select 'jack' as name, 'plum' as fruit")
    session.execute("main.fruits", WriteSpec("replace", predicate="name = 'jack'"), rows)


def restore(session: Session) -> None:
    """To the version before."""
    ref, now = session.ref("main.fruits"), session.table("main.fruits").snapshot()
    if "delta.enableRowTracking" in now.properties:  # what Spark's statement alone does
        spark: Any = session.engine
        spark.spark.sql(f"RESTORE TABLE delta.`{ref.location}` TO VERSION AS OF {now.version - 1}")
    else:
        session.sql(f"restore table main.fruits to version as of {now.version - 1}")


def purge(session: Session) -> None:
    session.table("main.fruits").purge()


# What happens after version 1, and the rows of min_delta by key, by row id and with none.
CASES: dict[str, tuple[tuple[Step, ...], list[Any], list[Any], list[Any]]] = {
    "delete, then insert with other values": (
        ("delete from main.fruits where name = 'jack'", "insert into main.fruits values ('jack', 'plum')"),
        [("jack", "apple", PRE), ("jack", "plum", POST)],
        [("jack", "apple", "delete"), ("jack", "plum", "insert")],
        [("jack", "apple", "delete"), ("jack", "plum", "insert")],
    ),
    "delete, then insert with the same values": (
        ("delete from main.fruits where name = 'jack'", "insert into main.fruits values ('jack', 'apple')"),
        [],
        [("jack", "apple", "delete"), ("jack", "apple", "insert")],
        [],
    ),
    "update of the key column": (
        ("update main.fruits set name = 'jim' where name = 'jack'",),
        [("jack", "apple", "delete"), ("jim", "apple", "insert")],
        [("jack", "apple", PRE), ("jim", "apple", POST)],
        [("jack", "apple", "delete"), ("jim", "apple", "insert")],
    ),
    "insert, then update": (
        ("insert into main.fruits values ('lena', 'fig')", "update main.fruits set fruit = 'kiwi' where name = 'lena'"),
        [("lena", "kiwi", "insert")],
        [("lena", "kiwi", "insert")],
        [("lena", "kiwi", "insert")],
    ),
    "a to b to a": (
        ("update main.fruits set fruit = 'b' where name = 'jack'", "update main.fruits set fruit = 'apple' where name = 'jack'"),
        [],
        [],
        [],
    ),
    "an update that changes nothing": (("update main.fruits set fruit = fruit where name = 'jack'",), [], [], []),
    "an overwrite with equal rows": ((overwrite,), [], ALL_ANEW, []),
    "a restore": (
        ("update main.fruits set fruit = 'plum' where name = 'jack'", restore),
        [],
        [],
        [],
    ),
    "a replace": (
        (replace_jack,),
        [("jack", "apple", PRE), ("jack", "plum", POST)],
        [("jack", "apple", "delete"), ("jack", "plum", "insert")],
        [("jack", "apple", "delete"), ("jack", "plum", "insert")],
    ),
    "compaction": (("optimize main.fruits",), [], [], []),
    "z-order": (("optimize main.fruits zorder by (name)",), [], [], []),
    "purge": (("delete from main.fruits where name = 'john'", purge), *([[("john", "pineapple", "delete")]] * 3)),
    "a property": (("alter table main.fruits set tblproperties ('note' = 'x')",), [], [], []),
}  # fmt: skip


def happens(session: Session, steps: tuple[Step, ...], properties: dict[str, str]) -> tuple[int, int]:
    """The version before some steps and the one after them, of a table that two commits made."""
    session.execute("main.fruits", WriteSpec("overwrite", table_properties=properties), duckrun.SQL(FIRST))
    session.sql("insert into main.fruits values ('lea', 'fig')")
    first = session.table("main.fruits").snapshot().version
    for step in steps:
        step(session) if callable(step) else session.sql(step)
    return first, session.table("main.fruits").snapshot().version


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("feed", [{}, FEED], ids=["no feed", "feed"])
@pytest.mark.parametrize("properties", [{}, VECTORS], ids=["copy_on_write", "vectors"])
def test_each_case_by_key_and_with_none(
    session: Session, case: str, properties: dict[str, str], feed: dict[str, str]
) -> None:
    steps, by_key, _, with_none = CASES[case]
    first, last = happens(session, steps, properties | feed)
    assert said(session, "min_delta", first, last, key=["name"]) == by_key
    assert said(session, "min_delta", first, last) == with_none
    full = [row[:3] for row in said(session, "full_delta", first, last, key=["name"])]
    if case == "a to b to a":
        pairs = [("jack", "apple", POST), ("jack", "apple", PRE), ("jack", "b", POST), ("jack", "b", PRE)]
        assert full == pairs
    elif len(steps) == 1:
        assert full == by_key


def test_create_or_replace_counts_by_its_states(session: Session) -> None:
    example(session, {})
    session.sql(
        "create or replace table main.fruits as select * from (values ('jack', 'plum'), ('lena', 'fig')) as v(name, fruit)"
    )
    jack = [("jack", "banana", PRE), ("jack", "plum", POST)]
    assert said(session, "min_delta", 3, 4, key=["name"]) == [*jack, ("sarah", "kiwi", "delete")]
    assert said(session, "min_delta", 3, 4) == [
        ("jack", "banana", "delete"),
        ("jack", "plum", "insert"),
        ("sarah", "kiwi", "delete"),
    ]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("properties", [{}, VECTORS], ids=["copy_on_write", "vectors"])
def test_each_case_by_row_id(root: Path, spark: Any, properties: dict[str, str]) -> None:
    tracked = properties | {"delta.enableRowTracking": "true"}
    with duckrun.connect(root, engine="spark", spark=spark) as on_spark, duckrun.connect(root) as duck:
        for case, (steps, _, by_row_id, _) in CASES.items():
            first, last = happens(on_spark, steps, tracked)
            for session in (duck, on_spark):
                assert said(session, "min_delta", first, last) == by_row_id, (case, session.engine_name)
                assert session.table("main.fruits").changes("min_delta", first, last).identity == "row_id"
                inserted = sorted((name, fruit) for name, fruit, what in by_row_id if what == "insert")
                assert said(session, "append_only", first, last) == inserted, (case, session.engine_name)


@pytest.mark.spark
@pytest.mark.parametrize("properties", [{}, VECTORS], ids=["copy_on_write", "vectors"])
def test_inserts_by_row_id_read_new_files_alone(root: Path, spark: Any, properties: dict[str, str]) -> None:
    tracked = properties | {"delta.enableRowTracking": "true"}
    with duckrun.connect(root, engine="spark", spark=spark) as on_spark, duckrun.connect(root) as duck:
        on_spark.execute("main.fruits", WriteSpec("overwrite", table_properties=tracked), duckrun.SQL(FIRST))
        on_spark.sql("insert into main.fruits values ('lena', 'fig'), ('jim', 'date')")
        on_spark.sql("update main.fruits set fruit = 'kiwi' where name = 'jack'")
        on_spark.sql("delete from main.fruits where name = 'sarah'")
        on_spark.sql("delete from main.fruits where name = 'jim'")
        before = {file.path for file in duck.table("main.fruits").snapshot(0).files()}
        now = {file.path for file in duck.table("main.fruits").snapshot().files()}
        form, ref = duck.lake.format, duck.table("main.fruits").ref

        def asked(**other: Any) -> tuple[list[Any], set[str]]:
            found = Changes(form, ref, ChangeSpec("append_only", from_version=0, **other))
            return sorted(tuple(row.values()) for row in found.rows(duck.engine).collect()), {
                each.file.path for step in found.steps for each in step.files
            }

        rows, read = asked()
        assert rows == [("lena", "fig")] and read == now - before
        assert asked(predicate="fruit <> 'fig'")[0] == []
        by_key, all_read = asked(key=("name",))
        assert by_key == rows and all_read & before, "by key the files of before are read too"
        for version in (0, 4):
            spark.sql(f"restore table delta.`{ref.location}` to version as of {version}")
        assert asked()[0] == rows, "rows that a restore brings back are not new, whatever their ids"


@pytest.mark.spark
@pytest.mark.parametrize("properties", [{}, VECTORS], ids=["copy_on_write", "vectors"])
def test_row_ids_are_those_that_spark_reads(root: Path, spark: Any, properties: dict[str, str]) -> None:
    with duckrun.connect(root, engine="spark", spark=spark) as on_spark, duckrun.connect(root) as duck:
        example(on_spark, properties | {"delta.enableRowTracking": "true"})
        on_spark.sql("insert into main.fruits values ('jim', 'fig')")
        on_spark.sql("optimize main.fruits")
        on_spark.sql("update main.fruits set fruit = 'date' where name = 'jack'")
        location = duck.table("main.fruits").ref.location
        for version in range(duck.table("main.fruits").snapshot().version + 1):
            plain = spark.read.format("delta").option("versionAsOf", version).load(location)
            ids = plain.selectExpr("name", "fruit", "_metadata.row_id", "_metadata.row_commit_version")
            theirs = sorted(map(tuple, ids.collect()))
            for session in (duck, on_spark):
                found = session.table("main.fruits").toDF(version=version, row_ids=True)
                assert found.columns == ["name", "fruit", "_row_id", "_row_commit_version"]
                assert sorted(tuple(row.values()) for row in found.collect()) == theirs, (version, session.engine_name)
        duck.sql("create table main.plain as select 1 as id")
        with pytest.raises(InvalidConfig, match="does not track rows"):
            duck.table("main.plain").toDF(row_ids=True)


@pytest.mark.spark
def test_rows_with_variants_have_ids_and_cannot_be_compared(root: Path, spark: Any) -> None:
    json = """'{"b": [1, null, 2.50], "a": "x"}'::json::variant"""
    with duckrun.connect(root, engine="spark", spark=spark) as on_spark, duckrun.connect(root) as duck:
        duck.sql("create table main.v (id bigint, v variant) tblproperties ('delta.enableRowTracking' = 'true')")
        for session in (duck, on_spark):
            assert session.table("main.v").toDF(row_ids=True).count() == 0
        for session in (duck, on_spark):
            # DuckDB's JSON is what it says in a VARIANT, on either engine, and its null is NULL.
            number = session.table("main.v").snapshot().version * 10
            session.sql(f"insert into main.v select {number} as id, {json} as v")
            session.sql(
                f"insert into main.v values ({number + 1}, 'null'::json::variant), ({number + 2}, 'x'::variant)"
            )
        duck.sql("update main.v set id = -id")
        location = duck.table("main.v").ref.location
        ids = "_metadata.row_id as _row_id", "_metadata.row_commit_version as _row_commit_version"
        texts = "id", "left(schema_of_variant(v), 6) as kind", "to_json(v) as v"
        plain = spark.read.format("delta").load(location).selectExpr(*texts, *ids)
        theirs = sorted(tuple(row) for row in plain.collect())
        assert [row[1:3] for row in theirs] == [
            *[("STRING", '"x"'), (None, None), ("OBJECT", '{"a":"x","b":[1,null,2.5]}')]
        ] * 2
        on_spark.table("main.v").toDF(row_ids=True).createOrReplaceTempView("with_ids")
        found = on_spark.sql(f"select {', '.join(texts)}, _row_id, _row_commit_version from with_ids", dialect="spark")
        assert sorted(tuple(row.values()) for row in found.collect()) == theirs
        duck.table("main.v").toDF(row_ids=True).createOrReplaceTempView("with_ids")
        found = duck.sql("select id, v::json::varchar as v, _row_id, _row_commit_version from with_ids")
        assert [
            (r["id"], r["_row_id"], r["_row_commit_version"]) for r in sorted(found.collect(), key=lambda r: r["id"])
        ] == [(row[0], *row[3:]) for row in theirs]
        for session in (duck, on_spark):
            with pytest.raises(UnsupportedFeature, match="column v is a VARIANT, whose values cannot be compared"):
                session.table("main.v").changes("min_delta", 0).collect()
            assert session.table("main.v").changes("min_delta", 0, columns=["id"]).count() == 6


def test_a_restore_and_an_overwrite_count_by_their_states(session: Session) -> None:
    example(session, {})
    table = session.table("main.fruits")
    table.restoreToVersion(0)
    assert said(session, "min_delta", 3, 4, key=["name"]) == [
        ("jack", "apple", POST),
        ("jack", "banana", PRE),
        ("john", "pineapple", "insert"),
        ("lena", "fig", "delete"),
        ("sarah", "kiwi", PRE),
        ("sarah", "orange", POST),
    ]
    assert said(session, "min_delta", 0, 4, key=["name"]) == []
    session.execute("main.fruits", WriteSpec("overwrite"), duckrun.SQL(FIRST))
    assert said(session, "min_delta", 4, 5) == []


def test_what_did_not_change_is_counted(session: Session) -> None:
    """Several times each: how Spark plans it depends on what of it is done first."""
    example(session, {})
    for kind in ("append_only", "upsert", "min_delta", "full_delta"):
        for _ in range(3):
            assert session.table("fruits").changes(kind, 3, key=["name"]).count() == 0, kind


def test_columns_come_and_go_within_a_range(session: Session) -> None:
    example(session, {})
    session.sql("alter table main.fruits add column price double")
    session.sql("update main.fruits set price = 2.5 where name = 'lena'")
    assert said(session, "min_delta", 2, 5, key=["name"]) == [
        ("lena", "fig", 2.5, "insert"),
        ("sarah", "kiwi", None, POST),
        ("sarah", "orange", None, PRE),
    ]
    assert said(session, "min_delta", 0, 5, key=["name"], columns=["name"]) == [("john", "delete"), ("lena", "insert")]
    assert said(session, "min_delta", 0, 5, key=["name"], predicate="fruit <> 'fig'") == [
        ("jack", "apple", None, PRE),
        ("jack", "banana", None, POST),
        ("john", "pineapple", None, "delete"),
        ("sarah", "kiwi", None, POST),
        ("sarah", "orange", None, PRE),
    ]


@pytest.mark.parametrize("kind", ["in the log", "at an absolute path"])
def test_vectors_in_the_log_and_at_absolute_paths(duck: Session, root: Path, kind: str) -> None:
    """As others write them; ours lie in files beside the table's."""
    duck.execute("main.t", WriteSpec("overwrite"), duckrun.SQL("select range as id from range(100)"))
    duck.execute("main.t", DeleteSpec("id < 5", merge_mode="deletion_vectors"))
    folder = root / "main" / "t"
    commit = folder / "_delta_log" / f"{1:020d}.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    vector = next(action["add"]["deletionVector"] for action in actions if "add" in action)
    if kind == "in the log":
        other = in_the_log(set(range(5)))
    else:
        elsewhere = root / "elsewhere é.bin"
        next(folder.glob("*.bin")).rename(elsewhere)
        other = {**vector, "storageType": "p", "pathOrInlineDv": elsewhere.as_uri()}
    for action in actions:
        if "add" in action:
            action["add"]["deletionVector"] = other
    commit.write_text("\n".join(map(json.dumps, actions)))
    with duckrun.connect(root) as later:
        table = later.table("main.t")
        deleted = [(n, "delete") for n in range(5)]
        assert rows_of(table.changes("min_delta", 0)) == deleted
        later.sql("delete from main.t where id between 5 and 7")
        assert rows_of(table.changes("min_delta", 1)) == [(n, "delete") for n in (5, 6, 7)]
        assert rows_of(table.changes("min_delta", 0)) == [(n, "delete") for n in range(8)]
        assert rows_of(table.changes("full_delta", 0), "id", "_commit_version") == [
            *((n, 1) for n in range(5)), *((n, 2) for n in (5, 6, 7)),
        ]  # fmt: skip


@pytest.mark.spark
def test_a_shallow_clone(root: Path, spark: Any) -> None:
    """Its files and their vectors lie in the folder of the table that was cloned."""
    with duckrun.connect(root, engine="spark", spark=spark) as on_spark, duckrun.connect(root) as duck:
        example(duck, VECTORS)
        here, there = (duck.ref(name).location for name in ("main.fruits", "main.cloned"))
        spark.sql(f"create table delta.`{there}` shallow clone delta.`{here}`")
        spark.sql(f"update delta.`{there}` set fruit = 'plum' where name = 'lena'")
        spark.sql(f"delete from delta.`{there}` where name = 'jack'")
        for session in (duck, on_spark):
            found = session.table("main.cloned").changes("min_delta", 0, key=["name"])
            assert rows_of(found, "name", "fruit", "_change_type") == [
                ("jack", "banana", "delete"), ("lena", "fig", PRE), ("lena", "plum", POST),
            ]  # fmt: skip
            whole = session.table("main.cloned").changes("upsert", -1, key=["name"])
            assert rows_of(whole, "name", "fruit") == [("lena", "plum"), ("sarah", "kiwi")]


def test_the_types_of_what_is_added_are_those_of_a_feed(session: Session) -> None:
    example(session, FEED)
    for first in (0, 3):  # also where nothing changed
        found = session.table("main.fruits").changes("full_delta", first, key=["name"]).toArrow().schema
        assert [str(found.field(name).type) for name in ("_pair", "_commit_version")] == ["int64", "int64"]
        assert pa.types.is_timestamp(found.field("_commit_timestamp").type) and found.field("_commit_timestamp").type.tz
        found = session.table("main.fruits").changes("upsert", first, commit_version=True).toArrow().schema
        assert str(found.field("_commit_version").type) == "int64"
    feed = session.sql("from table_changes('main.fruits', 1)", dialect="duckdb").toArrow().schema
    assert str(feed.field("_commit_version").type) == "int64"


def test_maps_and_nan_are_equal_to_themselves(session: Session) -> None:
    kind = pa.map_(pa.string(), pa.float64())

    def rows(*maps: list[tuple[str, float]]) -> pa.Table:
        return pa.table({"id": [1, 2], "m": pa.array(maps, kind), "s": [{"x": float("nan"), "l": [0.0]}] * 2})

    nan = float("nan")
    session.execute("main.fruits", WriteSpec("overwrite"), rows([("a", 1.0), ("b", nan)], [("a", 1.0)]))
    session.execute("main.fruits", WriteSpec("overwrite"), rows([("b", nan), ("a", 1.0)], [("a", 2.0)]))
    found = session.table("main.fruits").changes("min_delta", 0, key=["id"]).collect()
    assert sorted((row["id"], row["_change_type"]) for row in found) == [(2, POST), (2, PRE)]


def test_sql_asks_the_same(session: Session) -> None:
    example(session, {})
    asked = "select name, _change_type from changes('main.fruits', 'upsert', from_version => 2, key => {}) as c order by name"
    expected = [{"name": "lena", "_change_type": "insert"}, {"name": "sarah", "_change_type": "update"}]
    assert session.sql(asked.format("['name']")).collect() == expected
    assert session.sql(asked.format("array('name')"), dialect="spark").collect() == expected
    session.sql("create temp view new as select * from changes('main.fruits', 'append_only', 2)")
    assert session.sql("select name from new order by name").collect() == [{"name": "lena"}, {"name": "sarah"}]
    session.sql("create table main.kept as select * from changes('main.fruits', 'min_delta', 0, 2, key => ['name'])")
    assert session.table("main.kept").toDF().count() == 3
    joined = "with c as (from changes('fruits', 'min_delta', 0, 2)) select count(*) as n from c join main.fruits using (name)"
    assert session.sql(joined).collect() == [{"n": 2}]


def test_a_notebook_shows_the_rows_by_type(session: Session) -> None:
    example(session, {})
    found = session.table("main.fruits").changes("min_delta", 0, 2, key=["name"])
    assert found.counts() == {"delete": 1, POST: 1, PRE: 1}
    shown = found._repr_html_()
    for text in ("min_delta of main.fruits", "after 0, up to 2", "<td>delete</td><td>1</td>", "pineapple"):
        assert text in shown
    assert session.table("main.fruits").changes("append_only", -1, key=["name"]).counts() == {"insert": 3}


def _vacuumed(session: Session) -> None:
    session.execute("main.fruits", VacuumSpec(retention_hours=0, enforce_retention=False))


def _cleaned(session: Session) -> None:
    """Versions 4 to 9, of which the log holds those from 8 on."""
    for number in range(4, 9):
        session.sql(f"insert into fruits values ('n{number}', 'x')")
    session.table("fruits").checkpoint()
    session.sql("insert into fruits values ('n9', 'x')")
    for file in Path(session.ref("fruits").location, "_delta_log").glob("*.*"):
        if file.name.split(".")[0].isdigit() and int(file.name.split(".")[0]) < 8:
            file.unlink()


BAD: dict[str, tuple[Callable[[Session], Any], type[DuckrunError], str]] = {
    "past the newest": (lambda s: said(s, "min_delta", 0, 9), VersionNotReadable, "9"),
    "from past the newest": (lambda s: s.table("fruits").changes("min_delta", 9), VersionNotReadable, "no version 9 to begin after; the newest is 3"),
    "a range past the newest": (lambda s: said(s, "min_delta", 9, 9), VersionNotReadable, "Version 9 of table main.fruits.*0 to 3"),
    "a version that is no number": (lambda s: s.table("fruits").changes("upsert", "1"), InvalidConfig, "from_version is '1'"),  # type: ignore[arg-type]
    "columns that are none": (lambda s: said(s, "upsert", 0, 1, columns=[]), InvalidConfig, "main.fruits: columns is empty"),
    "a predicate that is none": (lambda s: said(s, "upsert", 0, 1, predicate="fruit ="), InvalidConfig, "main.fruits: the predicate"),
    "backwards": (lambda s: said(s, "min_delta", 3, 1), InvalidConfig, "from version 3 to 1, which is backwards"),
    "unknown kind": (lambda s: said(s, "net", 0, 1), InvalidConfig, "min_delta"),
    "key of no column": (lambda s: said(s, "upsert", 0, 1, key=["id"]), SchemaMismatch, "id.*name, fruit"),
    "key outside of columns": (lambda s: said(s, "upsert", 0, 1, key=["name"], columns=["fruit"]), InvalidConfig, "name"),
    "no beginning": (lambda s: s.table("fruits").changes("upsert"), InvalidConfig, "from_version"),
    "key of several rows": (
        lambda s: (s.sql("insert into fruits values ('zoe', 'a'), ('zoe', 'b')"), said(s, "upsert", 3, 4, key=["name"])),
        InvalidConfig,
        "main.fruits: the key .name. is not unique .* 1 keys are those of several rows, such as name = zoe",
    ),
    "feed that is off": (lambda s: s.sql("from table_changes('fruits', 1, 2)"), InvalidConfig, "feed was off at versions 1 to 2 of"),
    "a view": (
        lambda s: (s.sql("create view v as select * from fruits"), s.sql("from changes('v', 'upsert', 0)")),
        InvalidConfig,
        "is a view",
    ),
    "in a view of the lake": (
        lambda s: s.sql("create view v as select * from changes('fruits', 'upsert', 0)"),
        UnsupportedFeature,
        "CREATE TEMP VIEW",
    ),
    "an argument that is none": (lambda s: s.sql("from changes('fruits', 'upsert', 0, id => 1)"), InvalidConfig, "no argument id"),
    "a name that is taken": (
        lambda s: (s.sql("create table fruits2 as select 1 as _change_type"), s.table("fruits2").changes("upsert", -1, commit_version=True)),
        SchemaMismatch,
        "_change_type",
    ),
    "vacuumed files": (
        lambda s: (_vacuumed(s), said(s, "full_delta", 0, 3)),
        StorageError,
        r"main\.fruits from version 0 to 3: \d of the data files .* gone, such as .* No later from_version works: read the table whole",
    ),
    "some vacuumed files": (
        lambda s: (s.sql("insert into fruits values ('zoe', 'a')"), s.sql("insert into fruits values ('joe', 'a')"), _vacuumed(s), said(s, "full_delta", 0, 5)),
        StorageError,
        "oldest from_version that works is 3",
    ),
    "files that a restore needs between": (
        lambda s: (s.table("fruits").restoreToVersion(1), s.table("fruits").restoreToVersion(3), _vacuumed(s), said(s, "full_delta", 1, 5)),
        StorageError,
        "No later from_version works",
    ),
    "a log that was cleaned": (lambda s: (_cleaned(s), said(s, "full_delta", 0, 9, key=["name"])), VersionNotReadable, "oldest from_version that works is 8"),
    "a state of a log that was cleaned": (lambda s: (_cleaned(s), said(s, "upsert", 2, 9)), VersionNotReadable, "Version 2.*oldest from_version that works is 8"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_is_refused(duck: Session, case: str) -> None:
    example(duck, {})
    ask, error, words = BAD[case]
    with pytest.raises(error, match=words):
        ask(duck)


def test_a_key_may_be_one_name(duck: Session) -> None:
    example(duck, {})
    assert said(duck, "min_delta", 2, 3, key="name", columns=["name", "fruit"]) == said(
        duck, "min_delta", 2, 3, key=["name"]
    )


ODD = "a lake [1] {x} 'é +#"


def _on_a_store(session: Session, duck: Session) -> None:
    """A table with vectors, odd partitions and a compaction; the answers of a session are those on a local disk."""
    rows = "select range as id, case when range % 2 = 0 then 'o''x %' else 'é/ü=1' end as day, 'v' || range as v from range(40)"
    made = WriteSpec("error", partition_by=("day",), table_properties=VECTORS)
    duck.execute("main.t", made, duckrun.SQL(rows))
    duck.sql("delete from main.t where id = 3")
    duck.sql("update main.t set v = 'new' where id in (4, 5)")
    duck.sql("insert into main.t select 100, 'é/ü=1', 'more'")
    duck.table("main.t").optimize().executeCompaction()
    duck.sql("delete from main.t where id = 6")
    found = session.table("main.t").changes("min_delta", 0, key=["id"]).collect()
    assert sorted((row["id"], row["v"], row["_change_type"]) for row in found) == [
        (3, "v3", "delete"),
        (4, "new", POST),
        (4, "v4", PRE),
        (5, "new", POST),
        (5, "v5", PRE),
        (6, "v6", "delete"),
        (100, "more", "insert"),
    ]
    full = session.table("main.t").changes("full_delta", 0, key=["id"]).collect()
    assert sorted({(row["_commit_version"], row["id"]) for row in full}) == [(1, 3), (2, 4), (2, 5), (3, 100), (5, 6)]


@pytest.mark.s3
def test_changes_of_a_table_on_s3(s3_options: dict[str, str], s3_bucket: Callable[[str], str]) -> None:
    with duckrun.connect(s3_bucket("changes") + "/lake", storage_options=s3_options) as duck:
        _on_a_store(duck, duck)


@pytest.mark.spark
@pytest.mark.s3
def test_spark_answers_on_s3(spark: Any, s3_options: dict[str, str], s3_bucket: Callable[[str], str]) -> None:
    root = s3_bucket("changes-on-spark") + "/lake"
    with (
        duckrun.connect(root, storage_options=s3_options, engine="spark", spark=spark) as on_spark,
        duckrun.connect(root, storage_options=s3_options) as duck,
    ):
        _on_a_store(on_spark, duck)


def test_changes_in_a_folder_of_an_odd_name(tmp_path: Path) -> None:
    with duckrun.connect(tmp_path / ODD) as duck:
        _on_a_store(duck, duck)


@pytest.mark.spark
def test_spark_answers_in_a_folder_of_an_odd_name(tmp_path: Path, spark: Any) -> None:
    with (
        duckrun.connect(tmp_path / ODD, engine="spark", spark=spark) as on_spark,
        duckrun.connect(tmp_path / ODD) as duck,
    ):
        _on_a_store(on_spark, duck)


@pytest.mark.parametrize("kind", ["append_only", "upsert", "min_delta", "full_delta"])
def test_a_query_by_key_aggregates_no_more_for_more_columns(kind: ChangeKind) -> None:
    """DuckDB plans aggregates over each column in a time that grows with the square of their number."""

    def aggregates(columns: int) -> int:
        names = dict.fromkeys(f"c{number}" for number in range(columns))
        return answer(Question("t", kind, names, ["c0"], "weight", "step"), "rows").count(" FILTER ")

    assert aggregates(500) == aggregates(5) > 0


@pytest.mark.parametrize("kind", ["append_only", "upsert"])
@pytest.mark.parametrize("columns", [None, ["id", "p"]])
def test_a_key_of_several_deleted_rows_is_refused_where_no_row_came(
    session: Session, kind: Any, columns: list[str] | None
) -> None:
    """DuckDB knows from the weights of such commits that no row can be an answer, and would look at none."""
    session.sql(
        "create table main.keyed (id bigint, p varchar, d date) using delta partitioned by (d)", dialect="spark"
    )
    rows = (
        "select * from (values (1, 'a', null), (1, 'b', date '2024-02-29'), (0, 'c', null), (4, 'd', null)) v(id, p, d)"
    )
    session.execute("main.keyed", WriteSpec("append"), session.sql(rows))
    deleted = DeleteSpec("id = 1", merge_mode="deletion_vectors")
    version = session.execute("main.keyed", deleted).version
    asked = {"key": ["id"], **({} if columns is None else {"columns": columns})}
    with pytest.raises(InvalidConfig, match=r"the key .id. is not unique .* such as id = 1"):
        session.table("main.keyed").changes(kind, version - 1, version, **asked).toArrow()
