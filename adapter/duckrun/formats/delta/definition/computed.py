"""Columns whose values writers compute, as the log describes them.

Source: Delta protocol, Generated Columns, Identity Columns, Default Columns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from duckrun.errors import InvalidConfig
from duckrun.libraries import pa
from duckrun.sql.on_demand import sql_names
from duckrun.values.columns import DEFAULT
from duckrun.values.computed import ComputedColumn, NumberedBy

GENERATED = "delta.generationExpression"
START, STEP, EXPLICIT, MARK = (
    f"delta.identity.{name}" for name in ("start", "step", "allowExplicitInsert", "highWaterMark")
)
KEYS = (GENERATED, DEFAULT, START, STEP, EXPLICIT, MARK)
_FEATURES = {GENERATED: "generatedColumns", DEFAULT: "allowColumnDefaults", START: "identityColumns"}


def computing(schema: pa.Schema) -> dict[str, ComputedColumn]:
    """Return the computed columns of a table by name."""
    columns = {field.name: _computed(field.name, field.metadata or {}) for field in schema}
    return {name: column for name, column in columns.items() if column is not None}


def _computed(name: str, metadata: Mapping[bytes, bytes]) -> ComputedColumn | None:
    text = {key.decode(): value.decode() for key, value in metadata.items()}
    if GENERATED in text:
        return ComputedColumn(name, generated=text[GENERATED])
    if START in text:
        mark = text.get(MARK)
        # GENERATED ALWAYS unless the column allows explicit values. Without a mark, no number has
        # been given yet (Delta protocol, Identity Columns).
        always = text.get(EXPLICIT, "false").lower() != "true"
        by = NumberedBy(int(text[START]), int(text.get(STEP, 1)), None if mark is None else int(mark), always)
        return ComputedColumn(name, numbered=by)
    return ComputedColumn(name, default=text[DEFAULT]) if DEFAULT in text else None


def columns_read(expression: str) -> set[str]:
    """Return the columns that a Spark SQL expression reads, in lower case.

    If the expression cannot be parsed, all names in it count.
    """
    try:
        return {name.lower() for _, name in sql_names.columns_of(expression, "spark")}
    except InvalidConfig:
        return set(re.findall(r"\w+", expression.lower()))


def fills(field: Mapping[str, Any]) -> bool:
    """True for a generated, identity or default column: rows may come without a value for it."""
    return not {GENERATED, START, DEFAULT}.isdisjoint(field["metadata"])


def features(fields: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the table features that the columns need."""
    return {feature for field in fields for key, feature in _FEATURES.items() if key in field["metadata"]}


def kinds_of(fields: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the Delta types of columns; a nested type is its JSON."""
    return {f["name"]: f["type"] if isinstance(f["type"], str) else json.dumps(f["type"]) for f in fields}
