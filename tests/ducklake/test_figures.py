"""What the catalog says of columns: no value lies outside, in files of either engine's and in rows of the catalog; assets show it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pyarrow as pa
import pytest

import duckrun
from duckrun import SQL, WriteSpec
from duckrun_dagster import DeltaIOManager, DuckrunResource
from tests.formats.test_bounds import MORE, ROWS

FILES = ("files_added", "files_removed", "files_marked", "bytes_added")
PLAIN = ("i", "s", "day", "time", "m")


def check(session: duckrun.Session, version: int | None = None) -> None:
    """Hold the figures of a version against its rows."""
    table = session.table("t")
    rows = table.toDF(version=version).toArrow()
    found = table.session.lake.format.snapshot(table.ref, version).column_figures()
    assert "p" not in found and (found["l"].low, found["raw"].low) == (None, None)
    assert (found["n"].low, found["n"].high) == (None, None)
    with duckdb.connect() as plain:
        plain.register("given", rows)
        for name in PLAIN:
            kind = plain.sql(f"select {name} from given").types[0]
            low, high = found[name].low, found[name].high
            assert low is not None and high is not None
            inside = plain.execute(f"select bool_and({name} between ?::{kind} and ?::{kind}) from given", [low, high])
            assert inside.fetchone() == (True,), name
            assert found[name].nulls in (None, rows.column(name).null_count), name


def test_no_value_is_outside_of_its_bounds(tmp_path: Path) -> None:
    with duckrun.connect(tmp_path / "lake", format="ducklake", inline_rows=1) as session:
        session.execute("t", WriteSpec("overwrite", partition_by=("p",)), ROWS)
        check(session)
        first = session.table("t").snapshot().version
        session.execute("t", WriteSpec("append"), MORE)  # in the catalog
        found = session.table("t").snapshot().column_figures()
        assert found["i"].nulls == 2 and (found["i"].low, found["i"].high) == ("-7", "5")
        assert (found["day"].low, found["day"].high) == ("0001-01-01", "2026-01-01")
        session.execute("t", WriteSpec("append"), ROWS.slice(0, 1).set_column(0, "i", pa.array([1000])))
        assert session.table("t").snapshot().column_figures()["i"].high == "1000"
        check(session)
        session.sql("delete from t where i = 5")
        assert session.table("t").snapshot().column_figures()["i"].nulls is None
        check(session)
        session.upkeep.flush()
        session.upkeep.merge_files()
        session.sql("alter table t add column late integer")
        assert session.table("t").snapshot().column_figures()["late"].low is None
        check(session)
        check(session, first)


def test_an_asset_shows_what_one_of_delta_does_and_the_snapshot(tmp_path: Path) -> None:
    def fruit() -> pa.Table:
        return pa.table({"id": [1, 2, None], "item": ["fig", "kiwi", "nut"]})

    told = {}
    for name in ("delta", "ducklake"):
        lake = DuckrunResource(root_path=str(tmp_path / name), format=name)
        done = dg.materialize([dg.asset(fruit)], resources={"io_manager": DeltaIOManager(duckrun=lake)})
        told[name] = done.asset_materializations_for_node("fruit")[0].metadata
    assert set(told["ducklake"]) - {"snapshot_id", "catalog"} == set(told["delta"]) - {"dagster/uri"}
    shown = [[record.data for record in told[name]["column_statistics"].records] for name in ("delta", "ducklake")]
    assert shown[0] == shown[1] and shown[0][0] == {"column": "id", "nulls": 1, "at_least": "1", "at_most": "2"}
    for key in ("dagster/row_count", "table_files", "rows_inserted", "files_added", "files_removed", "files_marked"):
        assert told["ducklake"][key].value == told["delta"][key].value, key
    assert told["ducklake"]["bytes_added"].value == told["ducklake"]["table_bytes"].value
    assert told["ducklake"]["snapshot_id"].value == told["ducklake"]["version"].value


@pytest.mark.drawn(4)
@pytest.mark.parametrize("inline_rows", [0, 10])
def test_each_materialization_says_which_files_came_and_went(tmp_path: Path, inline_rows: int) -> None:
    """Held against the files on disk, and against what plain DuckDB lists; rows in the catalog are no files."""
    root = tmp_path / "lake"
    lake = DuckrunResource(root_path=str(root), format="ducklake", inline_rows=inline_rows)

    def materialize(**metadata: Any) -> dict[str, Any]:
        rows = metadata.pop("rows")

        @dg.asset(metadata=metadata)
        def fruit() -> SQL:
            return SQL(rows)

        done = dg.materialize([fruit], resources={"io_manager": DeltaIOManager(duckrun=lake)})
        found = done.asset_materializations_for_node("fruit")[0].metadata
        return {name: getattr(found.get(name), "value", None) for name in FILES}

    def on_disk() -> dict[Path, int]:
        return {path: path.stat().st_size for path in (root / "data").rglob("*.parquet") if "-delete" not in path.name}

    many, few = "select range as id, 'a' as item from range(100)", "select 7 as id, 'b' as item"
    first = materialize(rows=many)
    there = on_disk()
    assert first == {"files_added": 1, "files_removed": 0, "files_marked": 0, "bytes_added": sum(there.values())}
    merged = materialize(rows=few, mode="merge", merge_keys=["id"])
    came = sum(size for path, size in on_disk().items() if path not in there)
    assert merged == {
        "files_added": int(not inline_rows),
        "files_removed": 0,
        "files_marked": 1 - bool(inline_rows),
        "bytes_added": came,
    }
    again = materialize(rows=many)
    changed = (again["files_added"], again["files_removed"], again["files_marked"])
    assert changed == ((1, 0, 1) if inline_rows else (1, 2, 0)), "behind deletes in the catalog DuckLake marks the rest"
    nothing = materialize(rows=f"{few} where false", mode="merge", merge_keys=["id"])
    assert nothing == dict.fromkeys(FILES, 0)
