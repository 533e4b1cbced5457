"""Outcomes of stored outputs, which are reported to Dagster once they are published."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dagster import DataVersion, OutputContext

from duckrun.errors import DuckrunError
from duckrun.libraries import pa
from duckrun.sql.char_types import padded_columns
from duckrun.sql.typed import plain_type
from duckrun.values.rows import Commit, ReadSpec, counted_rows
from duckrun.values.snapshot import Snapshot, TableRef
from duckrun_dagster import metadata as meta
from duckrun_dagster.config import TableConfig
from duckrun_dagster.contexts import naming, step_of
from duckrun_dagster.data_version import data_version
from duckrun_dagster.io_managers.incremental import Consumer, forget
from duckrun_dagster.partitions.partitions import PartitionSlice
from duckrun_dagster.resources.steps import StepId

if TYPE_CHECKING:
    from duckrun.session import Session

_PREVIEW_ROWS = 10
_PREVIEW_BYTES = 64 * 1024 * 1024
_MOST_COUNTED = 100
"""Limit of the partitions of a step that queries count if the log does not hold their rows."""


_published: dict[tuple[StepId, str], Outcome] = {}


def keep(step: Any, output: str, outcome: Outcome) -> None:
    """Remember the outcome of an output that is published before Dagster stores it."""
    _published[StepId.of(step), output] = outcome


def published(context: OutputContext) -> Outcome | None:
    """Return the outcome of an output that was published already, once; None for any other."""
    step = step_of(context)
    return None if step is None else _published.pop((StepId.of(step), context.name), None)


@dataclass(frozen=True)
class Head:
    """First rows of a frame in memory."""

    rows: pa.Table
    count: int
    """Number of rows of the frame."""

    def is_of(self, snapshot: Snapshot, commit: Commit) -> bool:
        """Return True if a commit wrote all rows of the table from the frame, unchanged."""
        is_whole = commit.rows_inserted == self.count == counted_rows(snapshot.files())
        if commit.replayed or not is_whole or padded_columns(snapshot.schema):
            return False
        return self.rows.schema.names == snapshot.schema.names and all(
            map(_is_stored_unchanged, self.rows.schema.types, snapshot.schema.types)
        )


def head_of(frame: Any) -> Head | None:
    """Return the first rows of an Arrow table or a polars frame; None for any other value."""
    if isinstance(frame, pa.Table):
        return Head(frame.slice(0, _PREVIEW_ROWS), frame.num_rows)
    if type(frame).__module__.startswith("polars.") and type(frame).__name__ == "DataFrame":
        return Head(frame.head(_PREVIEW_ROWS).to_arrow(), len(frame))
    return None


def _is_stored_unchanged(kind: pa.DataType, stored: pa.DataType) -> bool:
    """True if values of a type look alike in the table."""
    zones = {getattr(each, "tz", None) for each in (kind, stored)}
    return plain_type(kind) is not None and plain_type(kind) == plain_type(stored) and len(zones) == 1


@dataclass(frozen=True)
class Unwritten:
    """An output without rows."""

    consumer: Consumer | None
    message: str

    def report(self, output: OutputContext) -> None:
        """Add metadata to the materialization, and a line to the log of the run."""
        _report_consumer(self.consumer, output, step_of(output))
        output.log.info(self.message)


@dataclass(frozen=True)
class Written:
    """An output whose rows are in a commit."""

    what: str
    """Name of the output in messages."""
    consumer: Consumer | None
    session: Session
    ref: TableRef
    commit: Commit
    config: TableConfig
    partitions: PartitionSlice | None
    preview: bool
    """True to show the first rows of a small table."""
    head: Head | None
    """First rows of a frame that is written as it is; None for other writes."""

    def report(self, output: OutputContext) -> None:
        """Add metadata to the materialization, and a line to the log of the run."""
        step = step_of(output)
        with naming(self.what):
            _report_consumer(self.consumer, output, step)
            self._report(output, step)

    def _report(self, context: OutputContext, step: Any | None) -> None:
        """Add the commit as metadata of the materialization and as its data version."""
        session, ref, commit = self.session, self.ref, self.commit
        config, partitions = self.config, self.partitions
        lake = session.lakes.of(ref)
        snapshot = lake.snapshot(ref, commit.version)  # cached in the lake by the write
        described = meta.declared_descriptions(context.definition_metadata or {})
        values = meta.table_metadata(lake, snapshot, described, commit)
        is_small = values["table_bytes"] <= _PREVIEW_BYTES
        if partitions is not None:
            counts = meta.partition_row_counts(snapshot, partitions, config.partition_column())
            if values.get("dagster/row_count") != counted_rows(snapshot.files()):  # some rows are inlined in a catalog
                counts = {}
            replaced = commit.rows_inserted if commit.mode == "replace" and len(partitions.keys) == 1 else None
            if not counts and replaced is not None:
                counts = {partitions.keys[0]: replaced}
            if not counts and is_small and len(partitions.keys) <= _MOST_COUNTED:
                counts = _counted(context, session, snapshot, partitions, config)
            if step is not None:
                for key, rows in counts.items():
                    step.add_asset_metadata({"dagster/partition_row_count": rows}, context.asset_key, key)
        if self.preview and is_small:
            try:
                if self.head is not None and self.head.is_of(snapshot, commit):
                    rows = self.head.rows
                else:
                    rows = session.engine.scan(snapshot, ReadSpec()).limit(_PREVIEW_ROWS).toArrow()
                values["preview"] = meta.preview(rows)
            except Exception as error:  # the rows are written already, so a missing preview must not fail the step
                context.log.debug(f"No preview of table {ref}: {error}")
        if step is not None and context.has_asset_key and not step.has_data_version(context.asset_key):
            column = config.partition_column()
            version = data_version(lake, snapshot, commit=commit, partition=partitions, column=column)
            step.set_data_version(context.asset_key, DataVersion(version))
        context.add_output_metadata(meta.beside_the_assets_own(values, context.output_metadata or {}))
        context.log.info(
            f"{commit.mode} {ref}: version {commit.version} by {commit.engine} ({commit.writer}) in "
            f"{commit.seconds:.2f} s"
            + (", committed before by this chain and not written again" if commit.replayed else "")
            + (f"; it takes back version {commit.retracted.version} of an earlier attempt" if commit.retracted else "")
        )


Outcome = Unwritten | Written
"""A stored output, which reports itself."""


def _report_consumer(consumer: Consumer | None, output: OutputContext, step: Any | None) -> None:
    """Report what a step with changes has read, and drop its consumer."""
    if consumer is not None:
        output.add_output_metadata(consumer.metadata())
        if step is not None:
            forget(step)


def _counted(
    context: OutputContext, session: Session, snapshot: Snapshot, partitions: PartitionSlice, config: TableConfig
) -> dict[str, int]:
    """Return the rows of each partition, counted in the table; empty if they cannot be counted."""
    asset = context.asset_key.to_user_string()
    try:
        each = ((key, replace(partitions, keys=(key,))) for key in partitions.keys)
        predicates = {key: one.predicate(config, snapshot.schema, asset) for key, one in each}
        engine = session.engine
        return {key: engine.scan(snapshot, ReadSpec(predicate=sql)).count() for key, sql in predicates.items()}
    except DuckrunError as error:  # the rows are written already, so missing counts must not fail the step
        context.log.debug(f"No counts of the partitions of {snapshot.ref}: {error}")
        return {}
