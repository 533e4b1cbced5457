"""A model's config asks for features of Delta by Delta's own names, and the embedded engine keeps them build by build."""

from __future__ import annotations

import duckrun
from tests.lake import rows_of

FEED = "id,amount\n1,10\n2,20\n"
MODEL = """
{{{{ config(
    materialized='incremental', incremental_strategy='merge', unique_key='id', {word}='id',
    {properties}={{
        'delta.columnMapping.mode': 'name', 'delta.enableRowTracking': 'true', 'delta.enableInCommitTimestamps': 'true',
        'delta.checkpointPolicy': 'v2', 'delta.feature.allowColumnDefaults': 'supported',
    }},
) }}}}
select * from {{{{ ref('feed') }}}}
"""
FEATURES = {"columnMapping", "rowTracking", "inCommitTimestamp", "v2Checkpoint", "allowColumnDefaults", "clustering"}


def test_a_model_asks_for_features_by_delta_s_own_names(make_project):
    one = make_project(
        {
            "seeds/feed.csv": FEED,
            "models/orders.sql": MODEL.format(word="cluster_by", properties="table_properties"),
            "models/others.sql": MODEL.format(word="liquid_clustered_by", properties="tblproperties"),
        }
    )
    one.run("build")
    one.write({"seeds/feed.csv": FEED.replace("20", "25")})
    assert one.run("build").response("orders")["mode"] == "merge"
    one.run("build", "--full-refresh")
    with duckrun.connect(one.lake) as session:
        for name in ("orders", "others"):
            snapshot = session.table(name).snapshot()
            assert snapshot.writer_features >= FEATURES and snapshot.cluster_by == (("id",),)
            assert rows_of(session.sql(f"select id, amount from {name}")) == [(1, 10), (2, 25)]
