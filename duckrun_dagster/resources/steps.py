"""The sessions of one Dagster step: all its reads of a table are of one version.

This holds in the asset's body and in the IO manager. Dagster copies a resource for each place that
uses it, so shared state is stored here, by run and step. The sessions of a step are closed when the
next step of its run needs one, or when the resource is torn down.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from dagster import OutputContext

from duckrun.changes.cursors import consumer_as_before
from duckrun.errors import InvalidConfig, TableNotFound
from duckrun.lake.lake import Lake
from duckrun.lake.lakes import Lakes
from duckrun.run.pins import Pins
from duckrun.run.reruns import as_before
from duckrun.values.choices import EngineName
from duckrun.values.snapshot import Snapshot, TableRef
from duckrun_dagster.chain import is_rerun, own_works, work_of
from duckrun_dagster.config import parse_table, table_of
from duckrun_dagster.private import StepOutputHandle

if TYPE_CHECKING:
    from duckrun.session import Session


class StepId(NamedTuple):
    """One attempt of one step of one run. A retried step reads new versions."""

    run_id: str
    step_key: str
    attempt: int

    @classmethod
    def of(cls, step: Any) -> StepId:
        return cls(step.run_id, step.step.key, step.previous_attempt_count)


class StepPins(Pins):
    """The versions that a step reads.

    Of a table that older attempts of its work have written, it reads the version before their
    commits.
    """

    advice = "run the step again, which reads anew: with a RetryPolicy, or retries of the run, Dagster does"

    def __init__(self, step_context: Any, lakes: Lakes) -> None:
        super().__init__(lakes)
        self._step = step_context

    def _read_of(self, newest: Snapshot) -> Snapshot | None:
        is_own = own_works(self._step)
        if is_own is None:
            return newest
        lake = self._lakes.of(newest.ref)
        looked_at = islice(lake.format.records_back(newest.ref, newest.version), _LOOKED_AT)
        written_by = {(record.note.get("app_id", ""), record.note.get("work")) for record in looked_at}
        oldest = newest
        for app_id, consumed in written_by:  # commits of a consumer have the consumer's id, and name the work
            if not is_own(consumed or app_id):
                continue
            work = work_of(consumed or app_id, self._step)
            if consumed:
                before = consumer_as_before(lake, newest, app_id, work)
            else:
                before = as_before(lake.format, newest, work)
            if before is None:
                return None
            oldest = min(oldest, before, key=lambda each: each.version)
        return oldest

    def hides(self, ref: TableRef) -> bool:
        if is_rerun(self._step):
            with suppress(TableNotFound):  # it does not exist, or not for this step
                self._pin_of(ref, None)
        return super().hides(ref)

    def hidden(self) -> Iterator[TableRef]:
        written = output_tables(self._step, self._lakes.own) if is_rerun(self._step) else {}
        return (ref for ref in written.values() if self.hides(ref))


@runtime_checkable
class _Stores(Protocol):
    """Protocol of a DeltaIOManager."""

    def ref_of(self, context: OutputContext) -> TableRef: ...


def output_tables(step: Any, lake: Lake) -> dict[str, TableRef]:
    """Return the tables that the outputs of a step are, by the output's name.

    A DeltaIOManager names them. An asset without a value and without a DeltaIOManager is the table
    of ``lake`` that its key and its metadata name.
    """
    tables = {}
    for output in step.step.step_outputs:
        if output.properties.asset_check_key:
            continue
        handle = StepOutputHandle(step.step.key, output.name)
        manager, key = step.get_io_manager(handle), output.properties.asset_key
        with suppress(InvalidConfig):  # an asset that writes its data itself may name no table
            if isinstance(manager, _Stores):
                tables[output.name] = manager.ref_of(step.get_output_context(handle))
            elif key is not None and is_nothing(step, output.name):
                metadata = step.job_def.asset_layer.asset_graph.get(key).metadata
                config = parse_table(key, metadata, default_schema=lake.default_schema)
                if config.lake is None:
                    tables[output.name] = table_of(lake, config)
    return tables


def is_nothing(step: Any, output: str) -> bool:
    """True if an output has no value: the step's function writes its table by itself."""
    return bool(step.op_def.output_def_named(output).dagster_type.is_nothing)


@dataclass
class StepSessions:
    """One session per engine, all with the same pins and on the same lakes."""

    lakes: Lakes
    pins: Pins
    sessions: dict[EngineName, Session] = field(default_factory=dict)

    def close(self) -> None:
        for session in self.sessions.values():
            session.close()


_LOOKED_AT = 200
"""Number of commits of a table that a retried step searches for those of its older attempts."""
_lock = threading.Lock()
_steps: dict[tuple[StepId, str], StepSessions] = {}


def sessions_of(step_context: Any, lakes: Lakes) -> StepSessions:
    """Return the sessions that a step shares on one lake.

    ``lakes`` are used if this is the step's first call. Sessions that earlier steps of its run left
    open in this process are closed.
    """
    step = StepId.of(step_context)
    close_sessions(step.run_id, besides=step)
    with _lock:
        return _steps.setdefault((step, lakes.own.root), StepSessions(lakes, StepPins(step_context, lakes)))


def close_sessions(run_id: str | None, *, besides: StepId | None = None) -> None:
    """Close the sessions that steps of a run left open here, except those of ``besides``."""
    with _lock:
        for key in [key for key in _steps if key[0].run_id == run_id and key[0] != besides]:
            _steps.pop(key).close()
