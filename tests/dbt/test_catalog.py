"""What `dbt docs generate` says of a project: the same relations, columns and comments as with dbt-duckdb."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

FILES = {
    "dbt_project.yml": (
        "name: shop\nversion: '1.0'\nprofile: shop\nflags: {send_anonymous_usage_stats: false}\n"
        + "".join(
            f"{kind}: {{+persist_docs: {{relation: true, columns: true}}}}\n"
            for kind in ("models", "seeds", "snapshots")
        )
    ),
    "models/schema.yml": """
        models:
          - {name: whole, description: "It's the table\\nof \\"all\\"", columns: [{name: id, description: The number}]}
          - {name: grown, description: grows, columns: [{name: id, description: The number}]}
          - {name: shown, description: a view, columns: [{name: id, description: Seen}, {name: name, description: Who}]}
          - {name: made, description: by Python, columns: [{name: id, description: counted}]}
          - name: silent
            description: not kept
            config: {persist_docs: {relation: false, columns: false}}
            columns: [{name: id, description: not kept}]
        seeds:
          - {name: sown, description: a seed, columns: [{name: id, description: of the seed}]}
    """,
    "models/whole.sql": "{{ config(materialized='table') }} select 1 as id, 'a' as name",
    "models/silent.sql": "{{ config(materialized='table') }} select 1 as id",
    "models/grown.sql": "{{ config(materialized='incremental', unique_key='id') }} select 1 as id, 2.5::decimal(9, 2) as price",
    "models/shown.sql": "{{ config(materialized='view') }} select * from {{ ref('whole') }}",
    "models/made.py": "def model(dbt, session):\n    return session.sql('select 1 as id')\n",
    "seeds/sown.csv": "id\n1\n",
    "snapshots/kept.yml": """
        snapshots:
          - name: kept
            description: over time
            columns: [{name: id, description: of then}]
            relation: ref('whole')
            config: {strategy: check, unique_key: id, check_cols: all}
    """,
}


def test_relations_columns_and_comments_are_those_of_dbt_duckdb(
    make_project: Callable[..., Any], tmp_path: Path
) -> None:
    ours, theirs = make_project(FILES), make_project(FILES, "theirs")
    theirs.profile = {"type": "duckdb", "path": str(tmp_path / "dev.duckdb"), "threads": 2}
    told = []
    for project in (ours, theirs):
        project.run("build")
        project.run("docs", "generate")
        catalog = json.loads((project.root / "target" / "catalog.json").read_text())
        told.append({
            name: ({**node["metadata"], "database": ""}, node["columns"])
            for name, node in catalog["nodes"].items()
        })  # fmt: skip
    assert told[0] == told[1]
    assert told[0]["model.shop.whole"][0]["comment"] == 'It\'s the table\nof "all"'
    assert told[0]["model.shop.shown"][1]["name"]["comment"] == "Who"
    assert told[0]["model.shop.silent"][0]["comment"] is None
