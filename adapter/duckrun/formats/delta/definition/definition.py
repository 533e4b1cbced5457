"""Definition of a Delta table, apart from its rows: columns, partitioning, properties, constraints.

Source: Delta protocol, Change Metadata.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any, Self

from deltalake import Schema

from duckrun.errors import InvalidConfig, SchemaMismatch
from duckrun.formats.definitions import TableDefinition
from duckrun.formats.delta.definition import computed, mapping, types
from duckrun.formats.delta.definition.properties import (
    CHECKPOINTS,
    FEATURES_OF,
    WIDENING,
    checks_of,
    is_on,
)
from duckrun.formats.delta.definition.protocol import CLUSTERING, DOMAINS
from duckrun.formats.delta.definition.statistics import Statistics
from duckrun.formats.nested import part_of
from duckrun.libraries import pa
from duckrun.sql.on_demand import sql_names
from duckrun.values.frozen import frozen

_UNORDERED = ("binary", "boolean")
"""Types without bounds in the log."""


@frozen
class DeltaDefinition(TableDefinition):
    """The ``metaData`` action of a table as a value."""

    fields: tuple[dict[str, Any], ...]
    """Columns in the form of the log's schema."""
    partition_columns: tuple[str, ...] = ()
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    name: str | None = None
    created_time: int | None = None
    requested: frozenset[str] = frozenset()
    """Requested table features, in addition to those that the definition needs."""
    versions: tuple[int, int] = (1, 1)
    """Minimum protocol versions for readers and writers."""
    cluster_by: tuple[tuple[str, ...], ...] | None = None
    """Paths of the clustering columns; None for a table without liquid clustering."""

    @cached_property
    def schema(self) -> pa.Schema:
        """Columns as an Arrow schema."""
        return pa.schema(Schema.from_json(self.schema_json).to_arrow())

    @property
    def checks(self) -> dict[str, str]:
        """CHECK constraints: name -> Spark SQL."""
        return checks_of(self.properties)

    def action(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.name,
            "description": self.description,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": self.schema_json,
            "partitionColumns": list(self.partition_columns),
            "configuration": dict(self.properties),
            "createdTime": self.created_time or int(time.time() * 1000),
        }

    @property
    def variants(self) -> frozenset[str]:
        """Columns of type VARIANT. Source: Delta protocol, Variant Data Type."""
        return frozenset(f["name"] for f in self.fields if f["type"] == "variant")

    @property
    def variants_inside(self) -> frozenset[str]:
        """Columns that contain VARIANT in a list, a map or a struct."""
        return frozenset(f["name"] for f in self.fields if types.holds(f["type"], "variant")) - self.variants

    @property
    def is_mapped(self) -> bool:
        """True if the files have physical names for the columns."""
        return mapping.is_mapped(self.properties)

    @property
    def is_widening(self) -> bool:
        """True if widening a column's type leaves the files unchanged.

        Source: Delta protocol, Type Widening.
        """
        return is_on(self.properties, WIDENING)

    def features(self) -> set[str]:
        """Return the table features that this definition needs to be read correctly."""
        needed = {name for key, names in FEATURES_OF.items() if is_on(self.properties, key) for name in names}
        if self.is_mapped:
            needed.add("columnMapping")
        needed |= computed.features(self.fields)
        if self.cluster_by is not None:
            needed |= {CLUSTERING, DOMAINS}
        if self.properties.get(CHECKPOINTS, "").lower() == "v2":
            needed.add("v2Checkpoint")
        if self.checks:
            needed.add("checkConstraints")
        if any(not f["nullable"] or types.is_required(f["type"]) for f in self.fields):
            # NOT NULL is an invariant (Delta protocol, Column Invariants).
            needed.add("invariants")
        for kind, feature in (("timestamp_ntz", "timestampNtz"), ("variant", "variantType")):
            if any(types.holds(f["type"], kind) for f in self.fields):
                needed.add(feature)
        return needed | self.requested

    def in_place_of(self, other: DeltaDefinition, *, keep: bool) -> Self:
        """Return this definition with the identity of the table that ``other`` defines.

        Args:
            keep: Keep the properties and the description that only ``other`` has.
        """
        properties = {**other.properties, **self.properties} if keep else self.properties
        description = self.description if self.description is not None or not keep else other.description
        return replace(
            self,
            # Streams and pins take another id for another table.
            id=other.id,
            name=other.name,
            created_time=other.created_time,
            properties=properties,
            description=description,
        )

    # -- liquid clustering: rows with similar values in the clustering columns lie near each other

    def clustered(self, columns: Sequence[str]) -> Self:
        """Return the definition with other clustering columns. A dot in a name leads into a struct.

        Raises:
            SchemaMismatch: A column is missing.
            InvalidConfig: The table is partitioned, or a column has no order or no statistics.
        """
        if columns and self.partition_columns:
            raise InvalidConfig(
                f"a table is partitioned ({', '.join(self.partition_columns)}) or clustered ({', '.join(columns)}), "
                "not both (Delta protocol, Clustered Table)"
            )
        kinds = [self._path_and_type(name) for name in columns]
        counted = set(Statistics(self.schema, self.properties).wanted)
        for path, kind in kinds:
            if not isinstance(kind, str) or kind in _UNORDERED:
                raise InvalidConfig(
                    f"rows cannot be clustered by {'.'.join(path)}, whose type has no bounds in the log"
                )
            if path not in counted:
                raise InvalidConfig(
                    f"rows cannot be clustered by {'.'.join(path)}, which has no statistics: "
                    "delta.dataSkippingStatsColumns or delta.dataSkippingNumIndexedCols leave it out"
                )
        if len(columns) > 4:  # the limit of delta-spark
            raise InvalidConfig(f"rows are clustered by 4 columns at most, and these are {len(columns)}")
        return replace(self, cluster_by=tuple(path for path, _ in kinds))

    def _path_and_type(self, name: str) -> tuple[tuple[str, ...], types.DeltaType]:
        """Return the path of a column in the table's spelling, and its type."""
        whole = part_of(self.fields, name)
        if whole is not None:
            return (whole["name"],), whole["type"]
        path: list[str] = []
        kind: types.DeltaType = ""
        fields: Sequence[dict[str, Any]] = self.fields
        for part in name.split("."):
            field = part_of(fields, part)
            if field is None:
                raise SchemaMismatch(f"cluster_by names {name}; the columns are {', '.join(self.names)}")
            path.append(field["name"])
            kind = field["type"]
            fields = kind["fields"] if isinstance(kind, dict) and kind["type"] == "struct" else ()
        return tuple(path), kind

    # -- columns

    def users_of(self, path: Sequence[str]) -> list[str]:
        """Return the uses of a column or field that prevent its removal.

        They are clustering, partitioning, sort order, constraints, and generated columns.
        """
        wanted = [name.lower() for name in path]
        clustered = any([name.lower() for name in each[: len(wanted)]] == wanted for each in self.cluster_by or ())
        users = ["the clustering"] if clustered else []
        return users + super().users_of(path) + self.checks_of(path) + self.generated_from(path[0])

    def checks_of(self, path: Sequence[str]) -> list[str]:
        """Return the constraints that read a column or a field, each with its condition."""
        wanted = [name.lower() for name in path]
        return [
            f"the constraint {check} ({condition})"
            for check, condition in self.checks.items()
            if any(
                all(a == b.lower() for a, b in zip(wanted, names, strict=False))
                for names in sql_names.paths_of(condition, "spark")
            )
        ]

    def generated_from(self, name: str) -> list[str]:
        """Return the generated columns that read a column, each with its expression."""
        return [
            f"the generated column {field['name']} ({expression})"
            for field in self.fields
            if (expression := field["metadata"].get(computed.GENERATED)) is not None
            and name.lower() in computed.columns_read(expression)
        ]
