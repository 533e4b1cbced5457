"""Projects written for dbt-duckdb, built by it and by duckrun with nothing but the profile swapped: the same rows in each table."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml

import duckrun
from tests.dbt.conftest import in_process

pytestmark = pytest.mark.differential
PROJECTS = Path(__file__).parent / "projects"
# When a snapshot looks is in these, for a strategy that has no time of its own.
CLOCKS = ("dbt_scd_id", "dbt_updated_at", "dbt_valid_from", "dbt_valid_to")


class Built:
    """One project, built by one adapter in a folder of its own."""

    def __init__(self, name: str, folder: Path, adapter: str, variables: Mapping[str, str]) -> None:
        self.root = folder / adapter
        shutil.copytree(PROJECTS / name, self.root)
        self.file, self.lake = folder / "dev.duckdb", folder / "lake"
        profiles = {
            "duckdb": {"type": "duckdb", "path": str(self.file), "threads": 2},
            "duckrun": {"type": "duckrun", "root_path": str(self.lake), "schema": "main", "threads": 2},
        }
        profiles["spark"] = {**profiles["duckrun"], "engine": "spark"}
        outputs = {"comparison": {"target": "dev", "outputs": {"dev": profiles[adapter]}}}
        (self.root / "profiles.yml").write_text(yaml.safe_dump(outputs))
        self.variables = yaml.safe_dump({**variables, "exports": str(self.root)})

    def build(self) -> None:
        place = ["--project-dir", str(self.root), "--profiles-dir", str(self.root), "--vars", self.variables]
        success, text = in_process(["build", *place, "--no-use-colors"], self.root, {})
        assert success, text


@pytest.fixture
def both(tmp_path: Path) -> Callable[..., tuple[Built, Built]]:
    """A function that copies a project once for each adapter."""

    def make(name: str, adapter: str = "duckrun", **variables: str) -> tuple[Built, Built]:
        ours, theirs = (Built(name, tmp_path, one, variables) for one in (adapter, "duckdb"))
        return ours, theirs

    return make


def compare(ours: Built, theirs: Built, *, clocks: Iterable[str] = ()) -> set[str]:
    """Assert that every table and view of dbt-duckdb's database is in the lake with the same rows; their names."""
    with duckdb.connect(str(theirs.file)) as connection, duckrun.connect(ours.lake) as session:
        names = {row[0] for row in connection.execute("select table_name from information_schema.tables").fetchall()}
        assert names == {name.removeprefix("main.") for name in session.tables()}
        for name in names:
            expected = connection.execute(f'select * from main."{name}"').to_arrow_table()
            found = session.sql(f'select * from main."{name}"').toArrow()
            assert found.column_names == expected.column_names, name
            left_out = CLOCKS if name in clocks else ()
            assert _sorted(found.to_pylist(), left_out) == _sorted(expected.to_pylist(), left_out), name
    return names


def _sorted(rows: list[dict[str, Any]], left_out: Iterable[str]) -> list[Any]:
    found = [{k: _plain(v) if k not in left_out else v is None for k, v in row.items()} for row in rows]
    return sorted((tuple(sorted(row.items())) for row in found), key=repr)


def _plain(value: Any) -> Any:
    """A value by what it means: 3 and Decimal('3.00') are one number (Delta keeps a HUGEINT as a decimal)."""
    if isinstance(value, Decimal | int) and not isinstance(value, bool):
        return Decimal(value).normalize()
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, list):
        return tuple(_plain(v) for v in value)
    if isinstance(value, dict):
        return tuple((k, _plain(v)) for k, v in value.items())
    return value


def change(built: Built, file: str, old: str, new: str) -> None:
    path = built.root / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def test_seeds_views_marts_hooks_contracts_python_and_snapshots(both: Any) -> None:
    ours, theirs = both("shop")
    for built in (ours, theirs):
        built.build()
    names = compare(ours, theirs, clocks=["orders_checked"])
    assert {"customers", "orders", "daily", "stg_orders", "customers_over_time", "top"} <= names
    for built in (ours, theirs):
        change(built, "seeds/raw_customers.csv", "2,Grace,H.,2026-01-02 09:30:00", "2,Grace,Hopper,2026-03-01 00:00:00")
        change(built, "seeds/raw_orders.csv", "7,,2026-02-09,placed", "7,2,2026-02-09,shipped\n8,3,2026-02-09,placed")
        change(built, "seeds/raw_orders.csv", "2,3,2026-02-02,completed\n", "")
        built.build()
    compare(ours, theirs, clocks=["orders_checked"])


def test_parquet_sources_delete_and_insert_scd2_and_external_files(both: Any, tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    (landing / "clicks").mkdir(parents=True)
    (landing / "accounts").mkdir()
    with duckdb.connect() as connection:

        def land(name: str, part: int, sql: str) -> None:
            connection.execute(f"copy ({sql}) to '{landing}/{name}/{part}.parquet'")

        clicks = "select timestamp '2026-01-01' + interval (i * 7) hour as moment, i % 5 as account_id, (i * 0.37)::decimal(9, 3) as price"
        land("clicks", 1, f"{clicks} from range(40) t(i)")
        land(
            "accounts",
            1,
            "select i as account_id, 'free' as plan, timestamp '2026-01-01' as changed_at from range(5) t(i)",
        )
        ours, theirs = both("events", landing=str(landing))
        for built in (ours, theirs):
            built.build()
        compare(ours, theirs)
        land("clicks", 2, f"{clicks} from range(38, 60) t(i)")
        land("accounts", 2, "select 2 as account_id, 'paid' as plan, timestamp '2026-01-10' as changed_at")
        for built in (ours, theirs):
            built.build()
    assert {"clicks", "accounts_scd2", "spent", "exported", "from_export"} <= compare(ours, theirs)


def test_unit_tests(both: Any) -> None:
    ours, theirs = both("tested")
    for built in (ours, theirs):
        built.build()
    for built in (ours, theirs):
        change(built, "seeds/people.csv", "3,,1930-05-11", "3,,1930-05-11\n4,new@example.org,1999-09-09")
        built.build()
    assert compare(ours, theirs) == {"people", "valid_people", "ages"}


@pytest.mark.parametrize("adapter", ["duckrun", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.whole])])
def test_macros_of_packages_are_dispatched_and_their_tests_pass(both: Any, adapter: str, request: Any) -> None:
    if adapter == "spark":
        request.getfixturevalue("spark")
    ours, theirs = both("packaged", adapter)
    for built in (ours, theirs):
        built.build()
    names = compare(ours, theirs)
    assert {"keyed", "pivoted", "days", "months", "latest", "long", "together"} <= names
    for built in (ours, theirs):
        change(built, "seeds/sales.csv", "2026-01-31,north,pen,5", "2026-02-02,north,it's,5")
        change(built, "models/schema.yml", "min_value: 6", "min_value: 5")
        built.build()
    compare(ours, theirs)


def test_own_materializations_hooks_versions_and_snapshots_of_each_kind(both: Any) -> None:
    ours, theirs = both("shapes")
    for built in (theirs, ours):
        built.build()
    clocks = ["people", "times"]
    names = compare(ours, theirs, clocks=clocks)
    assert {
        "swapped",
        "logged",
        "merged",
        "in_sql",
        "priced_v2",
        "audit",
    } <= names
    assert not [name for name in names if "dbt_tmp" in name or "dbt_backup" in name]
    for built in (theirs, ours):
        change(built, "seeds/events.csv", "2,2026-01-01 23:30:00,bob,3.25,", "2,2026-01-03 00:30:00,bob,4.25,z")
        change(built, "seeds/events.csv", "1,2026-01-01 08:00:00,ann,10.50,a|b\n", "")
        change(built, "seeds/events.csv", "c|a|c\n", "c|a|c\n5,2026-01-04 00:00:00,eve,1.00,d\n")
        built.build()
    compare(ours, theirs, clocks=clocks)
