"""An incremental model by the strategies scd1 and scd2: its rows are changes, which are applied to its table by key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dbt.adapters.duckrun.materialize.strategy import (
    CREATE,
    OVERWRITE,
    Write,
    columns_to_write,
    refuse_other_partitions,
    selected,
    whole_write,
)
from dbt.adapters.duckrun.model.config import ModelConfig
from dbt.adapters.duckrun.model.merge_config import parse_merge

from duckrun.changes.applying import Applying, Check
from duckrun.errors import InvalidConfig, SchemaMismatch
from duckrun.sql.names import quote_identifier
from duckrun.values.applying import VALID_FROM, VALID_TO, ApplySpec
from duckrun.values.changes import CHANGE_TYPE
from duckrun.values.rows import NO_TABLE
from duckrun.values.snapshot import Snapshot


def applied_by_type(config: ModelConfig, source: Sequence[str]) -> ApplySpec | None:
    """How the rows of a model are applied that follows a table by key: its rows say by ``_change_type`` what becomes of them, and its config
    says nothing else. None for another model.
    """
    plain = config.merge == parse_merge(config.node, {}) and not config.predicates
    by_key = plain and bool(config.unique_key) and config.strategy in ("merge", "delete+insert")
    typed = any(name.lower() == CHANGE_TYPE for name in source)
    return ApplySpec(config.unique_key) if by_key and typed else None


def plan_applied(
    config: ModelConfig,
    apply: ApplySpec,
    strategy: str,
    *,
    table: str,
    staging: str,
    source: Sequence[str],
    target: Snapshot | None,
    named: str,
    fenced: bool = True,
) -> tuple[Write, Sequence[Check]]:
    """The write of the staged changes, and what to ask of them before. ``named`` is the SQL by which the table is read.

    Raises InvalidConfig and SchemaMismatch, which name the model, before anything is written.
    """
    rows = quote_identifier(staging)
    if config.constraints:
        rows = f"({selected(source, config.constraints, staging)})"
    if strategy in (OVERWRITE, CREATE):
        target = None
    try:
        applying = Applying(table, apply, source, None if target is None else target.schema)
        if target is None:
            whole = whole_write(config, applying.stored, NO_TABLE if strategy == CREATE and fenced else None)
            return Write(whole, applying.states(rows)), applying.checks(rows)
        refuse_other_partitions(config, table, target)
        ends = [] if apply.scd == 1 else [VALID_FROM, VALID_TO]
        given = [*(name for name in applying.stored if name not in ends), *ends]
        columns, schema_mode = columns_to_write(config, table, given, target.schema.names)
        kept = tuple(name for name in columns if name not in ends)
        layout = {**config.layout, "table_properties": {}}  # those are of a table that is made
        apply = replace(apply, columns=kept, schema_mode=schema_mode, **layout, **config.writing)
        applying = Applying(table, apply, source, target.schema)
        return Write(applying.merge(), applying.source(rows, named)), applying.checks(rows)
    except (InvalidConfig, SchemaMismatch) as error:
        if str(error).startswith(config.node):
            raise
        raise type(error)(f"{config.node}: {error}") from error
