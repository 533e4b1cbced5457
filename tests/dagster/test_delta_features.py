"""An asset's metadata asks for features of Delta by Delta's own names, and the embedded engine keeps them run by run."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pyarrow as pa

PROPERTIES = {
    "delta.columnMapping.mode": "name",
    "delta.enableRowTracking": True,
    "delta.enableInCommitTimestamps": "true",
    "delta.checkpointPolicy": "v2",
    "delta.feature.allowColumnDefaults": "supported",
}
FEATURES = {"columnMapping", "rowTracking", "inCommitTimestamp", "v2Checkpoint", "allowColumnDefaults", "clustering"}


def orders(amount: int, **metadata: Any) -> Any:
    @dg.asset(metadata={"cluster_by": ["id"], "table_properties": PROPERTIES, **metadata})
    def orders() -> pa.Table:
        return pa.table({"id": [1, 2], "amount": [amount, amount]})

    return orders


def test_an_asset_asks_for_features_by_delta_s_own_names(shop: Any) -> None:
    for run, metadata in enumerate([{}, {"mode": "merge", "merge_keys": "id"}, {}]):
        shop.run([orders(run, **metadata)])
        snapshot = shop.snapshot("orders")
        assert snapshot.writer_features >= FEATURES and snapshot.cluster_by == (("id",),)
        assert shop.rows("select id, amount from orders order by id") == [(1, run), (2, run)]
