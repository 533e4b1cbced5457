"""Checks of a table from its log and by the engine."""

from datetime import timedelta
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from duckrun.errors import InvalidConfig
from duckrun_dagster import table_checks


def goods(rows: Any, **metadata: Any) -> dg.AssetsDefinition:
    @dg.asset(key=["shop", "goods"], metadata=metadata)
    def _goods() -> pa.Table:
        return rows

    return _goods


ROWS = pa.table({"id": [1, 2, 2, None, None], "till": ["a", "a", "b", "a", "a"]})
EVERYTHING: dict[str, Any] = {
    "min_rows": 1,
    "max_rows": 5,
    "not_null": ["till", "id"],
    "unique": ["id", ["id", "till"]],
    "max_age": timedelta(hours=1),
}


def results(shop: Any, assets: list[Any]) -> dict[str, dg.AssetCheckEvaluation]:
    found = shop.run(assets).get_asset_check_evaluations()
    return {each.check_name: each for each in found}


def test_each_check_says_what_it_found(shop: Any) -> None:
    found = results(shop, [goods(ROWS), table_checks(["shop", "goods"], **EVERYTHING)])
    assert {name: each.passed for name, each in found.items()} == {
        "schema_is_unchanged": True,
        "row_count_is_within_bounds": True,
        "not_null_till": True,
        "not_null_id": False,
        "unique_id": False,
        "unique_id__till": True,
        "is_fresh": True,
    }
    assert found["not_null_id"].metadata["rows"].value == 2
    assert found["unique_id"].metadata["rows"].value == 2
    assert found["row_count_is_within_bounds"].metadata["rows"].value == 5
    assert found["unique_id"].severity == dg.AssetCheckSeverity.ERROR
    assert found["is_fresh"].severity == dg.AssetCheckSeverity.WARN


def test_bounds_and_age_fail(shop: Any) -> None:
    checks = table_checks(["shop", "goods"], schema_change=False, min_rows=6, max_age=timedelta(0))
    assert {name: each.passed for name, each in results(shop, [goods(ROWS), checks]).items()} == {
        "row_count_is_within_bounds": False,
        "is_fresh": False,
    }


def test_a_changed_schema_warns_once_and_says_what_changed(shop: Any) -> None:
    checks = table_checks(["shop", "goods"])
    assert results(shop, [goods(ROWS), checks])["schema_is_unchanged"].passed
    other = pa.table({"id": [1.5], "new": [1]})
    changed = results(shop, [goods(other), checks])["schema_is_unchanged"]
    assert not changed.passed
    found = {key: value.value for key, value in changed.metadata.items() if key in ("added", "removed", "changed")}
    assert found == {"added": ["new"], "removed": ["till"], "changed": ["id: long -> double"]}
    assert results(shop, [goods(other), checks])["schema_is_unchanged"].passed


def test_a_column_that_is_not_there_is_an_error_with_those_that_are(shop: Any) -> None:
    checks = table_checks(["shop", "goods"], unique=["idd"])
    assert "has no column idd; it has id, till" in shop.error([goods(ROWS), checks])


def test_a_blocking_check_stops_what_is_downstream(shop: Any) -> None:
    @dg.asset(ins={"goods": dg.AssetIn(["shop", "goods"])})
    def report(goods: pa.Table) -> pa.Table:
        return goods

    checks = table_checks(["shop", "goods"], not_null=["id"], blocking=True)
    result = shop.run([goods(ROWS), checks, report], fails=True)
    assert not result.asset_materializations_for_node("report")


def test_checks_of_nothing_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="checks nothing"):
        table_checks("goods", schema_change=False)


def test_names_of_columns_become_names_of_checks(shop: Any) -> None:
    rows = pa.table({"a b": [1], "ä'\"": [2]})
    found = results(shop, [goods(rows), table_checks(["shop", "goods"], not_null=["a b", "ä'\""], unique=["ä'\""])])
    assert len(found) == 4 and all(each.passed for each in found.values())
