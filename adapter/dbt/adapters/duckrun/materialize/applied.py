"""Strategies scd1 and scd2: a model's rows are changes, applied to its table by key.

Both are strategies of incremental models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dbt.adapters.duckrun.materialize.strategy import (
    Staged,
    Write,
    columns_to_write,
    refuse_other_partitions,
    selected,
)
from dbt.adapters.duckrun.model.config import ModelConfig
from dbt.adapters.duckrun.model.merge_config import parse_merge

from duckrun.changes.applying import Applying, Check
from duckrun.errors import InvalidConfig, SchemaMismatch
from duckrun.sql.quoting import quote_identifier
from duckrun.values.applying import VALID_FROM, VALID_TO, ApplySpec
from duckrun.values.changes import CHANGE_TYPE


def applied_by_type(config: ModelConfig, source: Sequence[str]) -> ApplySpec | None:
    """Return how to apply the rows of a model that follows a table's changes by key.

    Returns None for another model.

    The model's rows have a ``_change_type``, and its config sets nothing but the key.
    """
    plain = config.merge == parse_merge(config.node, {}) and not config.predicates
    by_key = plain and bool(config.unique_key) and config.strategy in ("merge", "delete+insert")
    typed = any(name.lower() == CHANGE_TYPE for name in source)
    return ApplySpec(config.unique_key) if by_key and typed else None


def plan_applied(
    config: ModelConfig, apply: ApplySpec, strategy: str, staged: Staged, *, named: str
) -> tuple[Write, Sequence[Check]]:
    """Return the write of the staged changes, and the checks to run before it.

    Args:
        config: The model's config.
        apply: How changes are applied.
        strategy: The strategy of this write.
        staged: The changes and their table.
        named: The SQL name of the table.

    Raises:
        InvalidConfig: The config does not fit the table. Raised before anything is written.
        SchemaMismatch: The columns do not fit the table.
    """
    table, source, target, rows = staged.table, staged.columns, staged.target, quote_identifier(staged.name)
    if config.constraints:
        rows = f"({selected(source, config.constraints, staged.name)})"
    try:
        applying = Applying(table, apply, source, None if target is None else target.schema)
        if target is None:
            whole = staged.whole_write(config, strategy, applying.stored)
            return Write(whole, applying.states(rows)), applying.checks(rows)
        refuse_other_partitions(config, table, target)
        ends = [] if apply.scd == 1 else [VALID_FROM, VALID_TO]
        names = [*(name for name in applying.stored if name not in ends), *ends]
        columns, schema_mode = columns_to_write(config, table, names, target.schema.names)
        stored = tuple(name for name in columns if name not in ends)
        layout = {**config.layout, "table_properties": {}}  # properties are set only on a new table
        apply = replace(apply, columns=stored, schema_mode=schema_mode, **layout, **config.writing)
        applying = Applying(table, apply, source, target.schema)
        return Write(applying.merge(), applying.source(rows, named)), applying.checks(rows)
    except (InvalidConfig, SchemaMismatch) as error:
        error.name(config.node)
        raise
