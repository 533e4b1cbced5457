"""Sources of a dbt project that are tables of its own nodes, such as a seed read as a source.

Source and node have the same key [schema, table], and dagster-dbt refuses two resources of one key.
So the source gets a key that no asset has, and readers of the source depend on the node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dagster import AssetDep, AssetKey, AssetSpec

from duckrun_dagster.dbt.private import ASSET_RESOURCE_TYPES


@dataclass(frozen=True)
class TwinSources:
    """The nodes of a manifest that are the tables of sources."""

    nodes: Mapping[str, str]
    """Id of the node by the id of the source."""
    keys: Mapping[str, AssetKey]
    """Asset key of each such node, by the id of the node."""
    unseen: Mapping[AssetKey, str]
    """Id of the source by the key that stands for it."""
    parents: Mapping[str, tuple[str, ...]]
    """Ids of the resources that each node of the project reads."""

    @classmethod
    def of(cls, manifest: Mapping[str, Any], key_of: Callable[[Mapping[str, Any]], AssetKey]) -> TwinSources:
        """Return the twins of a manifest.

        Names of tables are compared without letter case, within one database.

        Args:
            manifest: dbt's manifest.
            key_of: Returns the asset key of a resource, from its properties.
        """
        stored = {
            _name(node, key_of): (unique_id, key_of(node))
            for unique_id, node in manifest["nodes"].items()
            if node["resource_type"] in ASSET_RESOURCE_TYPES
            and node.get("config", {}).get("materialized") != "ephemeral"
        }
        twins = {
            source_id: stored[name]
            for source_id, source in manifest.get("sources", {}).items()
            if (name := _name(source, key_of)) in stored
        }
        return cls(
            nodes={source_id: node_id for source_id, (node_id, _) in twins.items()},
            keys=dict(twins.values()),
            unseen={AssetKey([*key.path, source_id]): source_id for source_id, (_, key) in twins.items()},
            parents={
                unique_id: tuple(node.get("depends_on", {}).get("nodes", []))
                for unique_id, node in (manifest["nodes"].items() if twins else ())
            },
        )

    def applied(self, unique_id: str, spec: AssetSpec) -> AssetSpec:
        """Return the spec with twin sources hidden.

        A twin source gets an unseen key. Another spec gets the nodes as dependencies.
        """
        if unique_id in self.nodes:
            return spec.replace_attributes(key=AssetKey([*self.keys[self.nodes[unique_id]].path, unique_id]))
        if not any(dep.asset_key in self.unseen for dep in spec.deps):
            return spec
        deps: dict[AssetKey, AssetDep] = {}
        for dep in spec.deps:
            source = self.unseen.get(dep.asset_key)
            if source is None:
                deps[dep.asset_key] = dep
            # A node that reads its own table as a source, or the table of a node downstream of it,
            # reads the rows of an earlier run. That is no dependency.
            elif not self._reads(self.nodes[source], unique_id):
                key = self.keys[self.nodes[source]]
                deps.setdefault(key, AssetDep(key, partition_mapping=dep.partition_mapping))
        return spec.replace_attributes(deps=list(deps.values()))

    def _reads(self, node: str, other: str) -> bool:
        """Return True if a node is another one, or reads it directly or through others."""
        seen: set[str] = set()
        queue = [node]
        while queue:
            current = queue.pop()
            if current == other:
                return True
            if current not in seen:
                seen.add(current)
                queue += [self.nodes.get(parent, parent) for parent in self.parents.get(current, ())]
        return False


def _name(props: Mapping[str, Any], key_of: Callable[[Mapping[str, Any]], AssetKey]) -> tuple[str, ...]:
    return (str(props.get("database") or "").lower(), *(part.lower() for part in key_of(props).path))
