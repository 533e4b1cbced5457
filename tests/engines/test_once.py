"""A write with an application's id and version is done once, on both engines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from duckrun.values.rows import (
    AppTransaction,
    DeleteInsertSpec,
    DeleteSpec,
    MergeSpec,
    UpdateSpec,
    WriteSpec,
)
from tests.lake import ORDERS, OneTable, nth

pytestmark = pytest.mark.formats(10)

# -- exactly once

EVERY_SPEC = [
    WriteSpec("append"),
    WriteSpec("overwrite"),
    WriteSpec("replace"),
    WriteSpec("replace", predicate="id < 100"),
    MergeSpec(("id",)),
    DeleteInsertSpec(("id",)),
    DeleteSpec("id = 1"),
    UpdateSpec({"v": "v + 1"}),
]


@pytest.mark.parametrize("spec", EVERY_SPEC, ids=lambda spec: spec.mode)
def test_the_same_application_version_commits_once(orders: OneTable, spec: Any) -> None:
    source = None if isinstance(spec, DeleteSpec | UpdateSpec) else ORDERS
    first = orders.run(replace(spec, app=AppTransaction("run-1/orders", 3)), source)
    rows = orders.rows()
    again = orders.run(replace(spec, app=AppTransaction("run-1/orders", 3)), source)
    assert (first.version, first.replayed) == (nth(1), False)
    assert (again.version, again.replayed, again.mode, orders.version) == (nth(1), True, spec.mode, nth(1))
    assert (again.rows_inserted, again.rows_updated, again.rows_deleted) == (
        first.rows_inserted, first.rows_updated, first.rows_deleted,
    )  # fmt: skip
    assert orders.rows() == rows
    versions = [
        orders.lake.format.find_commit(orders.ref, AppTransaction("run-1/orders", version)) is not None
        for version in (3, 4)
    ]
    assert versions == [True, False]
    # and the id does not leak into what runs after it
    assert orders.run(WriteSpec("append"), ORDERS).version == nth(2)
    assert not orders.lake.format.record(orders.ref, nth(2)).transactions  # type: ignore[union-attr]
