"""Small tables are read from their files, without the log: the rows are those of delta_scan(), and no commit is missed."""

from __future__ import annotations

import json
import math
import random
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import duckrun
from duckrun import Session, WriteSpec
from duckrun.engines.duckdb import load_extensions
from duckrun.engines.duckdb.instance import footers
from duckrun.errors import StorageError
from duckrun.formats.delta.files import plain_files
from tests.drawing import seed
from tests.lake import rows_of

NAMES = ("id", "a b", "Größe", "x'y", "count", "filename")
INSTANT = datetime(2024, 2, 29, 23, 30, tzinfo=UTC)
# Delta type -> Arrow types in which files store it, the first as Delta's writers do.
STORED: dict[str, Sequence[pa.DataType]] = {
    "long": (pa.int64(), pa.int32()),
    "integer": (pa.int32(), pa.int16()),
    "short": (pa.int16(), pa.int32()),
    "byte": (pa.int8(),),
    "double": (pa.float64(), pa.float32()),
    "float": (pa.float32(),),
    "string": (pa.string(), pa.large_string(), pa.binary()),
    "binary": (pa.binary(), pa.string()),
    "boolean": (pa.bool_(),),
    "date": (pa.date32(),),
    "decimal(10,2)": (pa.decimal128(10, 2), pa.decimal128(6, 2)),
    "timestamp": (pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC"), pa.timestamp("us"), "INT96"),
    "timestamp_ntz": (pa.timestamp("us"), pa.timestamp("ms"), pa.timestamp("ns")),
    "array<long>": (pa.list_(pa.int64()),),
}


def scan_of(session: Session, name: str = "t") -> str:
    return str(session.engine._scan_sql(session.table(name).snapshot()))  # type: ignore[attr-defined]


def is_by_name(session: Session, name: str = "t") -> bool:
    return "read_parquet" in scan_of(session, name)


def ids(session: Session, query: str = "select id from t") -> list[int]:
    return sorted(row["id"] for row in session.sql(query).collect())


class DeltaScan:
    """Rows that plain DuckDB's Delta scan gives of a table.

    Queries read a copy, since the scan itself takes the bounds of files with NaN for those of all values.
    """

    def __init__(self, location: Path) -> None:
        self._plain = duckdb.connect()
        load_extensions(self._plain)
        self._plain.execute("SET TimeZone = 'UTC'")
        self._error = ""
        try:
            self._plain.execute(f"CREATE TABLE t AS FROM delta_scan('{location}')")
        except duckdb.Error as error:
            self._error = type(error).__name__

    def rows(self, columns: str = "*", where: str = "") -> Any:
        """Rows of a query; its error, or that of the scan, as a text."""
        try:
            return self._error or rows_of(self._plain.sql(f"SELECT {columns} FROM t{where}").to_arrow_table())
        except duckdb.Error as error:
            return type(error).__name__

    def __enter__(self) -> DeltaScan:
        return self

    def __exit__(self, *_: object) -> None:
        self._plain.close()


def by_delta_scan(location: Path) -> Any:
    """All rows of a table by plain DuckDB's Delta scan."""
    with DeltaScan(location) as scan:
        return scan.rows()


def by_foreign_writer(folder: Path, files: Sequence[tuple[pa.Table, bool]], version: int) -> None:
    """Commit files as they are, each with True for timestamps as INT96."""
    actions = []
    for rows, int96 in files:
        name = f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
        pq.write_table(rows, folder / name, use_deprecated_int96_timestamps=int96)
        add = {"path": name, "partitionValues": {}, "size": (folder / name).stat().st_size, "dataChange": True}
        actions.append({"add": {**add, "modificationTime": 0, "stats": json.dumps({"numRecords": rows.num_rows})}})
    (folder / "_delta_log" / f"{version:020d}.json").write_text("\n".join(map(json.dumps, actions)))


def foreign_table(folder: Path, types: dict[str, str]) -> None:
    """An empty table, with reader features where a type needs one."""
    (folder / "_delta_log").mkdir(parents=True)
    ntz = "timestamp_ntz" in types.values()
    features = ["timestampNtz"] if ntz else []
    protocol: dict[str, Any] = {"minReaderVersion": 3 if ntz else 1, "minWriterVersion": 7 if ntz else 2}
    protocol |= {"readerFeatures": features, "writerFeatures": features} if ntz else {}
    element = {"type": "array", "elementType": "long", "containsNull": True}
    fields = [
        {"name": name, "type": element if kind == "array<long>" else kind, "nullable": True, "metadata": {}}
        for name, kind in types.items()
    ]
    schema = json.dumps({"type": "struct", "fields": fields})
    metadata = {"id": str(uuid.uuid4()), "format": {"provider": "parquet", "options": {}}, "schemaString": schema}
    metadata |= {"partitionColumns": [], "configuration": {}, "createdTime": 0}
    actions = [{"protocol": protocol}, {"metaData": metadata}]
    (folder / "_delta_log" / f"{0:020d}.json").write_text("\n".join(map(json.dumps, actions)))


def value(draw: random.Random, kind: str, stored: Any) -> Any:
    if draw.random() < 0.2:
        return None
    number = draw.randrange(-100, 100)
    texts = {"string": draw.choice(["", "é" * 40, "z" * 300, str(number)])}
    values = {
        "double": draw.choice([math.nan, -0.0, math.inf, number / 4]),
        "float": draw.choice([math.nan, number / 4]),
        "boolean": number > 0,
        "date": date(2024, 2, 29) + timedelta(number),
        "decimal(10,2)": Decimal(number) / 4,
        "timestamp": (INSTANT if stored != pa.timestamp("us") else INSTANT.replace(tzinfo=None)) + timedelta(number),
        "timestamp_ntz": INSTANT.replace(tzinfo=None) + timedelta(number),
        "array<long>": [number, None],
        "binary": str(number) if stored == pa.string() else bytes([abs(number), 0, 200]),
    }
    text = texts.get(kind)
    if text is not None:
        return text.encode() if stored == pa.binary() else text
    return values.get(kind, number)


def file_of(draw: random.Random, types: dict[str, str], *, strange: bool) -> tuple[pa.Table, bool]:
    """A file of a table: with ``strange``, columns may be missing, more, of other types, or in another order."""
    count, columns, int96 = draw.randrange(1, 6), {}, False
    names = list(types)
    if strange:
        draw.shuffle(names)
        names = names[: draw.choice([len(names), len(names), max(1, len(names) - 1)])]
    for name in names:
        stored = draw.choice(STORED[types[name]]) if strange else STORED[types[name]][0]
        int96 = int96 or stored == "INT96"
        arrow = pa.timestamp("us", "UTC") if stored == "INT96" else stored
        columns[name] = pa.array([value(draw, types[name], stored) for _ in range(count)], arrow)
    if strange and draw.random() < 0.2:
        columns["more"] = pa.array([1] * count)
    return pa.table(columns), int96


@pytest.mark.drawn(3)
@pytest.mark.parametrize("number", range(24))
def test_rows_are_those_of_delta_scan_whatever_the_files_hold(root: Path, number: int) -> None:
    draw = random.Random(seed() * 1_000_003 + number)
    strange = number % 4 > 0
    kinds = [kind for kind in STORED if kind != "array<long>" or draw.random() < 0.2]
    types = {name: draw.choice(kinds) for name in draw.sample(NAMES, draw.randrange(1, 5))}
    folder = root / "main" / "t"
    foreign_table(folder, types)
    for version in range(1, draw.randrange(2, 4)):
        files = [file_of(draw, types, strange=strange and draw.random() < 0.5) for _ in range(draw.randrange(1, 4))]
        by_foreign_writer(folder, files, version)
    names = [f'"{name}"' for name in types]
    with duckrun.connect(root) as session, DeltaScan(folder) as scan:
        extremes = ", ".join(f"min({name}), max({name}), count({name})" for name in names if "array" not in types)
        for columns, where in (
            ("*", ""),
            ("count(*)", ""),
            (", ".join(reversed(names)), ""),
            (extremes, ""),
            *((name, f" where {name} is null") for name in names),
            *((name, f" where {name} >= (select max({name}) from t)") for name in names),
        ):
            there = scan.rows(columns, where)
            try:
                here: Any = rows_of(session.sql(f"select {columns} from t{where}"))
            except duckrun.DuckrunError:
                here = "error"
            assert here == there or (here == "error" and isinstance(there, str)), (types, columns, where)
        plain = not strange and "array<long>" not in types.values()
        assert not plain or is_by_name(session)


@pytest.mark.parametrize(
    "file",
    [
        pa.table({"id": pa.array([1], pa.int64())}),
        pa.table({"id": pa.array([1], pa.int32()), "v": ["a"]}),
        pa.table({"id": pa.array([1], pa.int64()), "v": ["a"], "more": [1]}),
        pa.table({"id": pa.array([1], pa.int64()), "v": pa.array([b"a"])}),
        pa.table({"id": pa.array([1], pa.int64()), "V": ["a"]}),
    ],
    ids=["lacks a column", "narrower", "has more", "bytes", "letter case"],
)
def test_one_file_with_other_columns_makes_the_scan_go_by_the_log(root: Path, file: pa.Table) -> None:
    folder = root / "main" / "t"
    foreign_table(folder, {"id": "long", "v": "string"})
    alike = pa.table({"v": ["b"], "id": pa.array([2], pa.int64())})
    by_foreign_writer(folder, [(alike, False)], 1)
    with duckrun.connect(root) as session:
        assert is_by_name(session)
        assert ids(session) == [2]
        by_foreign_writer(folder, [(file, False)], 2)
        assert not is_by_name(session)
        assert rows_of(session.sql("select * from t")) == by_delta_scan(folder)


def test_a_deleted_row_a_partition_and_a_renamed_column_make_the_scan_go_by_the_log(root: Path) -> None:
    rows = "as select range as id, 'n' || range as v from range(10)"
    with duckrun.connect(root) as session:
        session.sql(f"create table t tblproperties ('delta.enableDeletionVectors' = 'true') {rows}")
        assert is_by_name(session)
        session.sql("delete from t where id = 3")
        assert ids(session) == [0, 1, 2, *range(4, 10)]
        session.sql(f"create table p partitioned by (v) {rows}")
        assert not is_by_name(session, "p")
        session.sql(f"create table m {rows}")
        session.sql("alter table m set tblproperties ('delta.columnMapping.mode' = 'name')")
        session.sql("alter table m rename column id to key")
        assert not is_by_name(session, "m")
        assert session.sql("select sum(key) as s from m").collect() == [{"s": 45}]


def test_every_statement_sees_the_newest_commit_of_another_writer(root: Path) -> None:
    folder = root / "main" / "t"
    write_deltalake(folder, pa.table({"id": [1]}))
    with duckrun.connect(root) as session:
        assert is_by_name(session)
        for number in range(2, 12):  # more files than are read by name
            write_deltalake(folder, pa.table({"id": [number]}), mode="append")
            assert ids(session) == list(range(1, number + 1))
        assert not is_by_name(session)
        write_deltalake(folder, pa.table({"id": [5]}), mode="overwrite")
        assert (ids(session), is_by_name(session)) == ([5], True)
        DeltaTable(folder).delete("id = 5")
        assert ids(session) == []


def test_a_table_that_is_dropped_and_created_again_is_read_anew(root: Path) -> None:
    with duckrun.connect(root) as session, duckrun.connect(root) as other:
        for number in range(3):
            session.sql(f"create table t as select {number}::bigint as id")
            assert ids(session) == ids(other) == [number]
            other.sql("drop table t")
        session.sql("create table t as select 'a' as id")
        assert [row["id"] for row in other.sql("select id from t").collect()] == ["a"]


def test_vacuum_leaves_the_newest_rows_and_a_frame_of_the_old_files_says_so(root: Path) -> None:
    with duckrun.connect(root) as session:
        session.sql("create table t as select range as id from range(3)")
        old = session.sql("select id from t")
        session.sql("insert overwrite t select 7 as id")
        DeltaTable(root / "main" / "t").vacuum(0, dry_run=False, enforce_retention_duration=False)
        assert ids(session) == [7]
        with pytest.raises(StorageError, match="t"):
            old.collect()


@pytest.mark.parametrize("name", ["5% b", "x[1]*", "q'u\"o", "Größe 1"])
def test_paths_are_taken_literally(tmp_path: Path, name: str) -> None:
    with duckrun.connect(tmp_path / name) as session:
        session.sql("create table t as select range as id from range(3)")
        assert (ids(session), is_by_name(session)) == ([0, 1, 2], True)
        native = session.sql("select id from t").native
        reads = session.engine.reads_of(native).newest
        assert {location: read.version for location, read in reads.items()} == {session.ref("t").location: 0}


def test_a_write_of_a_native_relation_that_another_writer_outdates_is_refused(root: Path) -> None:
    with duckrun.connect(root) as session:
        session.sql("create table t as select 1::bigint as id")
        session.sql("create table copy as select 0::bigint as id")
        rows = session.sql("select id from t").native
        write_deltalake(root / "main" / "t", pa.table({"id": [2]}), mode="append")
        with pytest.raises(duckrun.DuckrunError, match="t"):
            session.execute("t", WriteSpec("overwrite"), rows)
        assert ids(session) == [1, 2]


def test_the_columns_of_many_files_stay_bounded(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footers, "_MOST", 5)
    with duckrun.connect(root) as session:
        for number in range(12):
            session.sql(f"create table t{number} as select {number}::bigint as id")
            assert is_by_name(session, f"t{number}")
            assert len(footers._known) <= 5
        assert [ids(session, f"select id from t{n}") for n in range(12)] == [[n] for n in range(12)]


def test_threads_read_whole_versions_while_another_writer_commits(root: Path) -> None:
    folder = root / "main" / "t"
    write_deltalake(folder, pa.table({"id": [0, 0]}))

    def read(session: Session) -> list[list[int]]:
        return [ids(session) for _ in range(15)]

    with duckrun.connect(root) as one, ThreadPoolExecutor(3) as pool:
        results = [pool.submit(read, one) for _ in range(2)]
        for number in range(1, 15):
            write_deltalake(folder, pa.table({"id": [number] * 2}), mode="overwrite" if number % 4 else "append")
        for result in results:
            versions = result.result()
            assert all(len(rows) in (2, 4) and rows[::2] == rows[1::2] for rows in versions)
            assert [max(rows) for rows in versions] == sorted(max(rows) for rows in versions)
    with duckrun.connect(root) as session:
        assert max(ids(session)) == 14


def test_a_feature_that_is_not_known_makes_the_scan_go_by_the_log(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with duckrun.connect(root) as session:
        session.sql(
            "create table t tblproperties ('delta.enableDeletionVectors' = 'true') as select range as id from range(3)"
        )
        assert is_by_name(session)
        monkeypatch.setattr(plain_files, "_FEATURES", frozenset())
        assert not is_by_name(session)
        assert ids(session) == [0, 1, 2]
