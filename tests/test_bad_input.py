"""What is refused: the error says which table and what to do, and nothing is written."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import duckrun
from duckrun import (
    SQL,
    CommitConflict,
    DuckrunError,
    DuplicateSourceKeys,
    InvalidConfig,
    MergeClause,
    MergeSpec,
    ReadOnlyLake,
    ReadSpec,
    RowsOutsidePartition,
    SchemaMismatch,
    Session,
    StorageError,
    TableNotFound,
    UnsupportedFeature,
    VersionNotReadable,
    WriteSpec,
)
from duckrun.values.rows import AppTransaction, DeleteInsertSpec, DeleteSpec, UpdateSpec
from tests import lake
from tests.ducklake import plain

pytestmark = pytest.mark.formats(20)


@pytest.fixture
def session(duck: Session) -> Session:
    """A lake with main.t, partitioned by p, at version 0."""
    duck.execute("t", WriteSpec("append", partition_by=("p",)), ROWS)
    return duck


ROWS = pa.table({"id": [1, 2, 3], "p": ["a", "a", "b"], "v": ["x", "y", "z"]})
APPEND = WriteSpec("append")


def rows(**changes: Any) -> pa.Table:
    """Two rows that fit the table, with some columns changed; None takes one out."""
    columns: dict[str, Any] = {"id": [4, 5], "p": ["a", "b"], "v": ["n", "m"], **changes}
    return pa.table({name: values for name, values in columns.items() if values is not None})


def state(root: Path) -> tuple[list[int], set[str]]:
    """The versions of main.t, the first being 0, and everything in the lake that looks like a table."""
    if lake.FORMAT == "ducklake":
        return catalog_state(root)
    log = root / "main" / "t" / "_delta_log"
    versions = sorted(int(file.stem) for file in log.glob("*.json"))
    return versions, {str(path.parent.relative_to(root)) for path in root.rglob("_delta_log")}


def catalog_state(root: Path) -> tuple[list[int], set[str]]:
    """The same of a DuckLake whose commits are all of main.t, as its catalog has it."""
    if not (root / "catalog.sqlite").exists():
        return [], set()
    with plain.attached(root) as own:
        versions = own.sql("SELECT snapshot_id FROM ducklake_snapshots('lake') ORDER BY 1").fetchall()
        tables = own.sql("SELECT schema_name || '/' || table_name FROM duckdb_tables() WHERE database_name = 'lake' AND schema_name <> '_duckrun'").fetchall()  # fmt: skip
    return [number - lake.nth(0) for (number,) in versions if number >= lake.nth(0)], {name for (name,) in tables}


# -- roots


@pytest.mark.parametrize("empty", ["", "   "])
def test_an_empty_root_is_refused_before_anything_else(empty: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidConfig, match="root_path is empty; set it to a folder or to an s3://"):
        duckrun.connect(empty)
    assert list(tmp_path.iterdir()) == []


def test_an_unset_root_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"connect\(\): root_path is None, a NoneType; give text or a PathLike"):
        duckrun.connect(None)  # type: ignore[arg-type]


def test_a_root_with_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"ftp://.*known are local paths and s3://"):
        duckrun.connect("ftp://host/lake")


def test_a_root_below_a_file_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with duckrun.connect(tmp_path / "file" / "lake") as session:
        assert session.tables() == []
        for write in (lambda: session.execute("t", APPEND, ROWS), lambda: session.stage("t", ROWS)):
            with pytest.raises(StorageError, match=r"root_path .*file/lake cannot be used: .*file is a file"):
                write()
    assert (tmp_path / "file").read_text() == "not a folder"


@pytest.mark.skipif(os.geteuid() == 0, reason="the root user may write everywhere")
def test_a_root_without_permission_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    with duckrun.connect(tmp_path / "closed") as session, pytest.raises(StorageError, match=r"closed.*no permission"):
        session.execute("t", APPEND, ROWS)
    assert list((tmp_path / "closed").iterdir()) == []


def test_a_file_where_tables_would_lie_is_refused_by_name(root: Path, duck: Session, lake_format: str) -> None:
    """The folder of a schema, and that of all data of a DuckLake."""
    root.mkdir()
    place = root / {"delta": "main", "ducklake": "data"}[lake_format]
    place.write_text("in the way")
    with pytest.raises(StorageError, match={"delta": r"main\.t cannot be written", "ducklake": r"data"}[lake_format]):
        duck.execute("t", APPEND, ROWS)
    assert place.read_text() == "in the way"


def test_an_unknown_engine_is_refused_with_the_known_ones(root: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"engine is 'polars'; it takes one of duckdb, spark"):
        duckrun.connect(root, engine="polars")  # type: ignore[arg-type]


def test_an_unknown_engine_of_one_write_is_refused_with_the_known_ones(session: Session, root: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"'polars'.*duckdb, spark"):
        session.execute("t", APPEND, rows(), engine="polars")  # type: ignore[arg-type]
    assert state(root) == ([0], {"main/t"})


@pytest.mark.parametrize("limit", ["lots", "", "-1GB"])
def test_a_memory_limit_that_is_no_size_is_refused(root: Path, limit: str) -> None:
    with pytest.raises(InvalidConfig, match="not a memory size"):
        duckrun.connect(root, memory_limit=limit)


# -- names


@pytest.mark.parametrize("name", ["../t", "main.../x", "a/b", "..", "main.", "", "_duckrun.x", "main._x", "a\\b", "../../etc.passwd"])  # fmt: skip
def test_a_name_that_leaves_its_folder_is_refused(root: Path, duck: Session, name: str) -> None:
    for use in (
        lambda: duck.execute(name, APPEND, ROWS),
        lambda: duck.table(name),
        lambda: duck.scan(name),
        lambda: duck.stage(name, ROWS),
    ):
        with pytest.raises(InvalidConfig, match="name"):
            use()
    assert not root.exists() or state(root) == ([], set())
    assert [path.name for path in root.parent.iterdir()] in ([], ["lake"])


def test_a_name_that_is_quoted_in_sql_does_not_leave_the_root(root: Path, session: Session) -> None:
    write_deltalake(str(root.parent / "outside"), ROWS)
    with pytest.raises(DuckrunError):
        session.sql('SELECT * FROM "../../outside"').collect()


# -- reading


def test_a_table_that_is_not_there_is_named_with_the_nearest(session: Session) -> None:
    with pytest.raises(TableNotFound, match=r"main\.tt.*Did you mean main\.t\?"):
        session.table("tt")
    with pytest.raises(TableNotFound, match=r"main\.tt"):
        session.sql("SELECT * FROM main.tt")


@pytest.mark.only_format("delta", "a folder is a table")
@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("laek", r"There is no folder .*laek\."),
        ("lake/main", r"lake/main is the folder of a schema, with table t\. The root of its lake is the folder above"),
        ("lake/main/t", r"lake/main/t is the folder of a table\. The root of its lake is two folders above"),
    ],
)
def test_a_wrong_root_is_named_where_a_table_is_missing(
    session: Session, root: Path, folder: str, message: str
) -> None:
    with duckrun.connect(root.parent / folder) as other, pytest.raises(TableNotFound, match=message):
        other.table("t")


def test_a_file_in_the_place_of_a_table_is_named_with_the_function_that_reads_it(session: Session) -> None:
    with pytest.raises(TableNotFound, match=r"Read a file by read_csv\('orders\.csv'\)"):
        session.sql("from 'orders.csv'")
    with pytest.raises(InvalidConfig, match=r"Read a file by read_parquet\('in/orders\.parquet'\)"):
        session.sql("from 'in/orders.parquet'")


def test_statements_may_copy_what_belongs_to_a_session(session: Session) -> None:
    session.sql("create table copied (id int)")
    session.sql("insert into copied values (60)")
    assert session.sql("from copied").collect() == [{"id": 60}]


def test_what_belongs_to_a_session_is_not_pickled(session: Session) -> None:
    frame, table = session.sql("from main.t"), session.table("t")
    for value in (session, frame, table, frame.write, table.optimize()):
        with pytest.raises(TypeError, match=rf"A {type(value).__name__} belongs to the session"):
            pickle.dumps(value)


def test_a_missing_attribute_is_named_with_the_one_to_use(session: Session) -> None:
    frame, table = session.sql("from main.t"), session.table("t")
    for use, message in (
        (lambda: frame.to_pandas(), r"Frame has no attribute 'to_pandas'\. Did you mean toPandas\?"),
        (lambda: frame.filter("id = 1"), r"Transforms are SQL; .*native is the DuckDB relation"),
        (lambda: frame.write.partition_by("p"), r"Did you mean partitionBy\?"),
        (lambda: table.show(), r"toDF\(\) is the frame of its rows"),
        (lambda: table.restore(0), r"Did you mean restoreToTimestamp, restoreToVersion\?"),
        (lambda: session.query("select 1"), r"Session has no attribute 'query'\. sql\(\) runs statements"),
    ):
        with pytest.raises(AttributeError, match=message):
            use()


@pytest.mark.only_format("delta", "a folder is a table")
def test_a_folder_without_a_log_is_no_table(root: Path, duck: Session) -> None:
    (root / "main" / "raw").mkdir(parents=True)
    (root / "main" / "raw" / "part.parquet").write_bytes(b"PAR1")
    assert duck.tables() == []
    with pytest.raises(TableNotFound, match=r"main/raw is not a Delta table: it holds files \(such as part\.parquet\).*Convert it, or give table main\.raw another location"):  # fmt: skip
        duck.table("raw")
    assert sorted(path.name for path in (root / "main" / "raw").iterdir()) == ["part.parquet"]


@pytest.mark.only_format("delta", "a folder is a table; of data/ tests/ducklake/test_catalogs.py asks the same")
@pytest.mark.parametrize("name", ["part.parquet", "data.csv", "_SUCCESS", "sub/part-of-a-book.txt"])
def test_a_table_is_not_made_among_files_of_somebody_else(root: Path, name: str, engine: str, request) -> None:
    other = root / "main" / "raw" / name
    other.parent.mkdir(parents=True)
    other.write_bytes(b"PAR1")
    spark = request.getfixturevalue("spark") if engine == "spark" else None
    with (
        duckrun.connect(root, engine=engine, spark=spark) as s,
        pytest.raises(StorageError, match=rf"main\.raw.*{name}"),
    ):
        s.execute("raw", WriteSpec("overwrite"), pa.table({"id": [1]}))
    assert [path for path in (root / "main" / "raw").rglob("*") if path.is_file()] == [other]


def test_what_a_killed_first_write_left_is_no_hindrance(root: Path, duck: Session) -> None:
    duck.stage("raw", pa.table({"id": [1], "day": ["mon"]}), partition_by=("day",))
    duck.execute("raw", WriteSpec("overwrite"), pa.table({"id": [2], "day": ["tue"]}))
    assert duck.scan("raw").collect() == [{"id": 2, "day": "tue"}]


def test_a_version_that_is_not_there_is_named_with_those_that_are(
    session: Session, root: Path, lake_format: str
) -> None:
    there = {
        "delta": r"Version 7 of table main\.t .*versions 0 to 0",
        "ducklake": r"Table main\.t has no version 7: the newest snapshot of its lake is 2",
    }
    with pytest.raises(VersionNotReadable, match=there[lake_format]):
        session.scan("t", ReadSpec(version=7)).collect()
    with pytest.raises(VersionNotReadable, match=r"[Vv]ersion 7") as raised:
        session.table("t").restoreToVersion(7)
    assert "main.t" in str(raised.value)
    with pytest.raises(VersionNotReadable, match=r"main\.t has no version at 1999"):
        session.scan("t", ReadSpec(timestamp="1999-01-01")).collect()
    assert state(root) == ([0], {"main/t"})


def test_an_unknown_column_is_named_with_those_that_are(session: Session) -> None:
    with pytest.raises(InvalidConfig, match=r"main\.t has no column price; it has id, p, v"):
        session.scan("t", ReadSpec(columns=("id", "price")))


# -- rows that do not fit

Case = tuple[Any, Any, type[DuckrunError], str]
CASES: dict[str, Case] = {
    "missing column": (APPEND, rows(v=None), SchemaMismatch, r"missing in the data: v"),
    "new column": (APPEND, rows(extra=[1, 2]), SchemaMismatch, r"not in the table: extra.*append_new_columns"),
    "other type": (APPEND, rows(id=["four", "five"]), SchemaMismatch, r"id is BIGINT in the table and VARCHAR"),
    "no columns": (APPEND, pa.table({}), SchemaMismatch, r"column"),
    "no columns, overwrite": (WriteSpec("overwrite"), pa.table({}), SchemaMismatch, r"column"),
    "type that Delta has not": (WriteSpec("overwrite"), SQL("SELECT TIME '12:00' AS t"), SchemaMismatch, r"'t'.*TIME.*cast it"),
    "type that a DuckLake has not": (WriteSpec("overwrite"), SQL("SELECT TIMETZ '12:00+01' AS t"), SchemaMismatch, r"'t'.*TIME WITH TIME ZONE.*cannot store; use TIME"),
    "names that differ in case": (WriteSpec("overwrite"), SQL('SELECT 1 AS a, 2 AS "A"'), SchemaMismatch, r"differ in case only"),
    "value too large": (APPEND, SQL("SELECT 9223372036854775808 AS id, 'a' AS p, 'v' AS v"), SchemaMismatch, r"id cannot hold the value 9223372036854775808|value does not fit"),
    "partition column missing": (WriteSpec("overwrite", partition_by=("p",)), rows(p=None), SchemaMismatch, r"partitioned by p, which the data has not"),
    "other partitioning": (WriteSpec("append", partition_by=("v",)), rows(), InvalidConfig, r"partitioned by p, not by v"),
    "partition value of no text": (APPEND, rows(p=["", "a"]), SchemaMismatch, r"partition column p holds an empty string"),
    "rows outside a predicate": (WriteSpec("replace", predicate="p = 'a'"), rows(), RowsOutsidePartition, r"outside the part being replaced \(p = 'a'\): id = 5, p = b"),
    "predicate on an unknown column": (WriteSpec("replace", predicate="q = 1"), rows(), InvalidConfig, r"q"),
    "table exists": (WriteSpec("error"), rows(), CommitConflict, r"exists already, at version FIRST"),
    "stale read": (WriteSpec("safeappend", read_version=5), rows(), CommitConflict, r"version 5.*version FIRST"),
    "unknown sort column": (WriteSpec("append", sort_by=("w",)), rows(), InvalidConfig, r"sort_by names w"),
    "duplicate keys": (MergeSpec(("id",)), rows(id=[9, 9]), DuplicateSourceKeys, r"id = 9 \(2 times\).*remove the duplicates"),
    "key not in the data": (MergeSpec(("id",)), rows(id=None), InvalidConfig, r"key id is not a column of the data"),
    "key not in the table": (MergeSpec(("n",)), rows(n=[1, 2]), InvalidConfig, r"no key column n"),
    "delete+insert key not in the data": (DeleteInsertSpec(("n",)), rows(), InvalidConfig, r"key n is not a column"),
    "merge that sets an unknown column": (MergeSpec(("id",), (MergeClause("matched_update", set={"w": "1"}),)), rows(), InvalidConfig, r"no column w"),
    "merge with a broken condition": (MergeSpec(("id",), (MergeClause("matched_update", "source.nope > 1"),)), rows(), InvalidConfig, r"nope"),
    "update of an unknown column": (UpdateSpec({"w": "1"}), None, InvalidConfig, r"no column w to update"),
    "update to another type": (UpdateSpec({"id": "v"}), None, SchemaMismatch, r"value does not fit|conver"),
    "not a table": (APPEND, object(), InvalidConfig, r"object cannot be written as a table"),
}  # fmt: skip

ONLY = {
    "type that Delta has not": ("delta", "a DuckLake has it"),
    "type that a DuckLake has not": ("ducklake", "on Delta no TIME at all"),
    "partition value of no text": ("delta", "a DuckLake keeps it"),
}


def each(names: Iterable[str]) -> pytest.MarkDecorator:
    """Some of the cases, each on the formats that refuse it."""
    marked = [
        pytest.param(name, marks=[pytest.mark.only_format(*ONLY[name])] if name in ONLY else []) for name in names
    ]
    return pytest.mark.parametrize("case", marked)


@each(CASES)
def test_rows_that_do_not_fit_leave_the_table_as_it_was(session: Session, root: Path, case: str) -> None:
    spec, source, kind, message = CASES[case]
    with pytest.raises(kind, match=message.replace("FIRST", str(lake.nth(0)))) as caught:
        session.execute("t", spec, source)
    assert "main.t" in str(caught.value)
    assert state(root) == ([0], {"main/t"})
    assert session.sql("SELECT * FROM main.t ORDER BY id").toArrow().to_pylist() == ROWS.to_pylist()


NEW = {
    case: CASES[case]
    for case in ("no columns", "type that Delta has not", "type that a DuckLake has not", "names that differ in case", "not a table", "duplicate keys", "key not in the data")
}  # fmt: skip


@each(NEW)
def test_rows_that_do_not_fit_do_not_begin_a_table(duck: Session, root: Path, case: str) -> None:
    spec, source, kind, _ = NEW[case]
    with pytest.raises(kind, match=r"main\.new"):
        duck.execute("new", spec, source)
    assert duck.tables() == [] and state(root) == ([], set())


@pytest.mark.parametrize("spec", [DeleteSpec("id = 1"), UpdateSpec({"id": "1"})])
def test_a_change_of_a_table_that_is_not_there_is_refused(duck: Session, root: Path, spec: Any) -> None:
    with pytest.raises(TableNotFound, match=r"no table main\.new to"):
        duck.execute("new", spec)
    assert state(root) == ([], set())


def failing() -> Iterator[pa.RecordBatch]:
    yield ROWS.to_batches()[0]
    raise RuntimeError("the source broke down")


@pytest.mark.parametrize("spec", [APPEND, WriteSpec("overwrite"), WriteSpec("replace"), MergeSpec(("id",))], ids=lambda s: s.mode)  # fmt: skip
def test_a_source_that_fails_half_way_leaves_the_table_as_it_was(session: Session, root: Path, spec: Any) -> None:
    for name in ("t", "new"):
        with pytest.raises(Exception, match="the source broke down"):
            session.execute(name, spec, pa.RecordBatchReader.from_batches(ROWS.schema, failing()))
    assert state(root) == ([0], {"main/t"})
    assert session.execute("t", APPEND, rows()).version == lake.nth(1)


@pytest.mark.only_format("delta", "a folder is no table of a catalog")
@pytest.mark.parametrize("mode", ["error", "append", "overwrite"])
def test_a_first_write_that_fails_leaves_the_table_that_another_writer_made_meanwhile(
    duck: Session, root: Path, mode: Any
) -> None:
    def overtaken() -> Iterator[pa.RecordBatch]:
        yield ROWS.to_batches()[0]
        write_deltalake(str(root / "main" / "new"), ROWS)
        raise RuntimeError("the source broke down")

    with pytest.raises(Exception, match="the source broke down"):
        duck.execute("new", WriteSpec(mode), pa.RecordBatchReader.from_batches(ROWS.schema, overtaken()))
    assert DeltaTable(str(root / "main" / "new")).to_pyarrow_table().num_rows == ROWS.num_rows


# -- specs that cannot work, before any table is looked at


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WriteSpec("upsert"), r"WriteSpec: mode is 'upsert'; it takes one of error, overwrite"),  # type: ignore[arg-type]
        (lambda: WriteSpec("append", schema_mode="any"), r"WriteSpec: schema_mode is 'any'"),  # type: ignore[arg-type]
        (lambda: WriteSpec("append", predicate="id = 1"), r"predicate goes with mode 'replace'"),
        (lambda: WriteSpec("safeappend"), r"needs the version that was read"),
        (lambda: MergeSpec(()), r"at least one key"),
        (lambda: MergeSpec(("id",), ()), r"at least one clause"),
        (lambda: ReadSpec(version=1, timestamp="2024-01-01"), r"a version or a timestamp, not both"),
    ],
)
def test_a_spec_that_cannot_work_is_refused_where_it_is_made(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        make()


# -- read-only


def test_a_read_only_lake_refuses_every_change_by_name(root: Path, session: Session) -> None:
    files = session.stage("t", rows())
    with duckrun.connect(root, read_only=True) as reading:
        changes: list[Callable[[], Any]] = [
            lambda: reading.execute("t", APPEND, rows()),
            lambda: reading.execute("t", DeleteSpec()),
            lambda: reading.execute("t", WriteSpec("append", app=AppTransaction("a")), rows()),
            lambda: reading.stage("t", rows()),
            lambda: reading.commit_staged("t", files, APPEND),
            lambda: reading.table("t").restoreToVersion(0),
            lambda: reading.lake.drop_table(reading.lake.parse("t")),
        ]
        for change in changes:
            with pytest.raises(ReadOnlyLake, match=r"read-only; table main\.t was not changed"):
                change()
        assert reading.sql("SELECT count(*) AS n FROM t").collect() == [{"n": 3}]
    assert state(root) == ([0], {"main/t"})


# -- staged files


def test_staged_files_that_do_not_belong_together_are_refused(root: Path, session: Session) -> None:
    files = session.stage("t", rows())
    other = session.stage("u", pa.table({"id": [1]}))
    for given, spec, message in (
        ((*files, *other), APPEND, r"main\.t.*different schemas"),
        (other, APPEND, r"main\.t"),
        (files, WriteSpec("replace"), r"append, overwrite or error"),
        ((), APPEND, r"main\.t"),
    ):
        with pytest.raises(DuckrunError, match=message):
            session.commit_staged("t", given, spec)
    assert state(root)[0] == [0]
    assert session.tables() == ["main.t"]


@pytest.mark.only_format("delta", "its protocol has features")
def test_a_table_with_a_feature_we_cannot_write_is_left_alone(root: Path, duck: Session) -> None:
    location = str(root / "main" / "t")
    write_deltalake(location, ROWS)
    log = root / "main" / "t" / "_delta_log" / f"{1:020d}.json"
    log.write_text(
        '{"protocol":{"minReaderVersion":1,"minWriterVersion":7,"writerFeatures":["quantumLeap","domainMetadata"]}}\n'
    )
    assert DeltaTable(location).version() == 1
    with pytest.raises(UnsupportedFeature, match=r"main\.t uses .*quantumLeap.*"):
        duck.execute("t", APPEND, rows())
    assert state(root)[0] == [0, 1]


@pytest.mark.only_format("delta", "its protocol has features")
@pytest.mark.parametrize(
    ("protocol", "words"),
    [
        ({"minReaderVersion": 3, "readerFeatures": ["quantumLeap"]}, "table feature quantumLeap"),
        ({"minReaderVersion": 3, "readerFeatures": ["geospatial"]}, "table feature geospatial"),
        ({"minReaderVersion": 3, "readerFeatures": ["catalogManaged"]}, "table feature catalogManaged"),
        ({"minReaderVersion": 5}, "reader version 5"),
    ],
)
def test_a_table_that_neither_engine_can_read_is_named_with_its_feature(
    root: Path, engine: Any, protocol: dict[str, Any], words: str, request: pytest.FixtureRequest
) -> None:
    location = root / "main" / "t"
    write_deltalake(str(location), ROWS)
    action = {"minWriterVersion": 7, "writerFeatures": protocol.get("readerFeatures", []), **protocol}
    (location / "_delta_log" / f"{1:020d}.json").write_text(json.dumps({"protocol": action}) + "\n")
    spark = request.getfixturevalue("spark") if engine == "spark" else None
    with duckrun.connect(root, engine=engine, spark=spark) as s:
        for use in (
            lambda: s.sql("SELECT * FROM main.t").collect(),
            lambda: s.scan("t").collect(),
            lambda: s.execute("t", APPEND, rows()),
            lambda: s.execute("t", WriteSpec("overwrite"), rows()),
        ):
            with pytest.raises(UnsupportedFeature, match=rf"main\.t .*{words}.*neither engine"):
                use()
    assert state(root)[0] == [0, 1]
