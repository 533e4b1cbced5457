"""Frames that polars reads from a table's files, beside the same rows as DuckDB reads them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from polars.testing import assert_frame_equal

from duckrun import DuckrunError, ReadSpec, Session, WriteSpec
from duckrun.values.rows import DeleteSpec
from tests.engines.writers.test_columnar import OTHERS

Reads = list[str]


@pytest.fixture
def by_polars(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """Number of files of each read by polars."""
    reads: Reads = []
    read = pl.read_parquet

    def counted(files: Any, **options: Any) -> pl.DataFrame:
        frame = read(files, **options)
        reads.append(f"{len(files)} files")
        return frame

    monkeypatch.setattr(pl, "read_parquet", counted)
    return reads


def both(session: Session, name: str, spec: ReadSpec = ReadSpec()) -> tuple[pl.DataFrame, pl.DataFrame]:
    """A table as pl() returns it, and as DuckDB's Arrow rows."""
    rows = session.scan(name, spec)
    duckdbs = pl.from_arrow(rows.toArrow())
    assert isinstance(duckdbs, pl.DataFrame)
    read = rows.pl()
    assert isinstance(read, pl.DataFrame)
    return read, duckdbs


def by_deltalake(session: Session, name: str, frame: pl.DataFrame) -> None:
    write_deltalake(session.ref(name).location, frame.to_arrow(), mode="append")


def by_us(session: Session, name: str, frame: pl.DataFrame) -> None:
    session.execute(name, WriteSpec("append"), frame)


@pytest.mark.parametrize("write", [by_us, by_deltalake])
@pytest.mark.parametrize("name", OTHERS)
def test_each_type_is_read_as_duckdb_reads_it(
    duck: Session, by_polars: Reads, name: str, write: Callable[[Session, str, pl.DataFrame], None]
) -> None:
    if write is by_deltalake and name in ("byte", "short", "unsigned"):
        pytest.skip("deltalake casts unsigned numbers to signed ones of the same size")
    write(duck, "t", pl.DataFrame({"id": [1, 2, 3], name: OTHERS[name]}))
    read, duckdbs = both(duck, "t")
    assert_frame_equal(read, duckdbs)
    assert by_polars == ["1 files"]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_instants_have_the_zone_of_the_session(duck: Session, by_polars: Reads, zone: str) -> None:
    by_us(duck, "t", pl.DataFrame({"at": OTHERS["berlin"]}))
    duck.engine.connection.execute(f"SET GLOBAL TimeZone = '{zone}'")
    read, duckdbs = both(duck, "t")
    assert_frame_equal(read, duckdbs)
    assert by_polars


def test_chosen_columns_come_in_the_asked_order_from_many_files(duck: Session, by_polars: Reads) -> None:
    for number in range(12):
        by_us(
            duck, "t", pl.DataFrame({"id": [number], "v": [str(number)], "w": [None]}, schema_overrides={"w": pl.Int8})
        )
    read, duckdbs = both(duck, "t", ReadSpec(columns=("v", "id")))
    assert_frame_equal(read.sort("id"), duckdbs.sort("id"))
    assert read.columns == ["v", "id"]
    assert by_polars == ["12 files"]


def test_an_older_version_has_its_own_files(duck: Session, by_polars: Reads) -> None:
    by_us(duck, "t", pl.DataFrame({"id": [1]}))
    by_us(duck, "t", pl.DataFrame({"id": [2]}))
    assert both(duck, "t", ReadSpec(version=0))[0]["id"].to_list() == [1]
    assert sorted(both(duck, "t")[0]["id"]) == [1, 2]
    assert by_polars == ["1 files", "2 files"]


def _deleted(session: Session) -> None:
    session.execute("t", DeleteSpec("id = 1", merge_mode="deletion_vectors"))


def _wider(session: Session) -> None:
    session.execute("t", WriteSpec("append", schema_mode="append_new_columns"), pl.DataFrame({"id": [3], "new": [1]}))


def _mapped(session: Session) -> None:
    session.sql("ALTER TABLE t SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')", dialect="spark")
    session.sql("ALTER TABLE t RENAME COLUMN v TO w")


def _padded(session: Session) -> None:
    session.sql("CREATE OR REPLACE TABLE t (id BIGINT, v CHAR(5))", dialect="spark")
    session.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")


def _parted(session: Session) -> None:
    session.execute("t", WriteSpec("overwrite", partition_by=("id",)), pl.DataFrame({"id": [1, 2], "v": ["a", "b"]}))


def _nested(session: Session) -> None:
    session.execute("t", WriteSpec("overwrite"), pl.DataFrame({"id": [1, 2], "v": [["a"], []]}))


@pytest.mark.parametrize("change", [_deleted, _wider, _mapped, _padded, _parted, _nested])
def test_duckdb_reads_a_table_whose_files_alone_are_not_its_rows(
    duck: Session, by_polars: Reads, change: Callable[[Session], None]
) -> None:
    by_us(duck, "t", pl.DataFrame({"id": [1, 2], "v": ["a", "b"]}))
    change(duck)
    read, duckdbs = both(duck, "t")
    assert_frame_equal(read.sort("id"), duckdbs.sort("id"))
    assert not by_polars


def test_duckdb_filters_rows(duck: Session, by_polars: Reads) -> None:
    by_us(duck, "t", pl.DataFrame({"id": [1, 2]}))
    assert both(duck, "t", ReadSpec(predicate="id > 1"))[0]["id"].to_list() == [2]
    assert duck.scan("t", ReadSpec()).limit(1).pl().height == 1  # type: ignore[union-attr]
    assert not by_polars


def test_a_dictionary_of_another_writer_is_read_as_text(duck: Session, by_polars: Reads) -> None:
    """The footer says that the column was a dictionary, which polars would return as a category."""
    rows = pa.table({"id": [1, 2], "v": pa.array(["a", "b"]).dictionary_encode()})
    write_deltalake(duck.ref("t").location, rows)
    read, duckdbs = both(duck, "t")
    assert_frame_equal(read, duckdbs)
    assert read.schema["v"] == pl.String


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"no parquet")])
def test_a_lost_or_damaged_file_is_reported_as_by_any_read(duck: Session, damage: Callable[[Path], Any]) -> None:
    by_us(duck, "t", pl.DataFrame({"id": [1]}))
    assert duck.scan("t", ReadSpec()).pl().height == 1  # type: ignore[union-attr]
    damage(next(Path(duck.ref("t").location).glob("*.parquet")))
    with pytest.raises(DuckrunError, match="main.t"):
        duck.scan("t", ReadSpec()).pl()
