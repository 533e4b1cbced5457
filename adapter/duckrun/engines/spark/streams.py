"""A table read as a stream, in batches that are committed exactly once.

Spark records the position of a stream in a checkpoint in the lake. A batch carries an application
transaction with the stream and the batch number. If a process dies between the commit and the
checkpoint, Spark repeats the batch, and it is found committed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from duckrun.engines.spark.engine import SparkEngine
from duckrun.engines.spark.errors import errors_about
from duckrun.engines.spark.process.conditions import condition_of, text_of
from duckrun.errors import InvalidConfig, StorageError, UnsupportedFeature
from duckrun.formats.format import logs_of
from duckrun.lake.lake import Lake
from duckrun.lake.lakes import Lakes
from duckrun.run.transaction import Transaction
from duckrun.values.choices import EngineName
from duckrun.values.lake_format import DUCKLAKE
from duckrun.values.options import known_option
from duckrun.values.rows import AppTransaction, Commit, DeleteInsertSpec, MergeSpec, WriteSpec
from duckrun.values.snapshot import Snapshot, TableRef

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OPTIONS = (
    "ignoreChanges", "ignoreDeletes", "skipChangeCommits", "startingVersion", "startingTimestamp", "endingVersion",
    "endingTimestamp", "readChangeFeed", "maxFilesPerTrigger", "maxBytesPerTrigger", "excludeRegex", "failOnDataLoss",
    "schemaTrackingLocation", "withEventTimeOrder",
)  # fmt: skip
"""Options of Delta's source (delta-spark's DeltaOptions)."""
_MEETS_CHANGES = ("DELTA_SOURCE_TABLE_IGNORE_CHANGES", "DELTA_SOURCE_IGNORE_DELETE")

BatchSpec = WriteSpec | MergeSpec | DeleteInsertSpec


class StreamSession(Protocol):
    """Part of a session that a stream needs."""

    engine_name: EngineName

    @property
    def lakes(self) -> Lakes: ...
    def engine_of(self, name: EngineName) -> Any: ...
    def ref(self, name: str) -> TableRef: ...
    def snapshot(self, name: str) -> Snapshot: ...


def stream_table(
    session: StreamSession,
    source: str,
    target: str,
    transform: Callable[[DataFrame], DataFrame] | None = None,
    *,
    spec: BatchSpec | None = None,
    options: Mapping[str, Any] | None = None,
    checkpoint: str | None = None,
) -> list[Commit]:
    """Write the new rows of ``source`` to ``target``, and stop when none is left.

    The trigger is ``availableNow``. Through Spark Connect the batches run on the server, so
    ``transform`` must be picklable and duckrun must be installed there.

    Args:
        session: A session with ``engine="spark"``.
        transform: Computes the target's rows from a batch.
        spec: Write of each batch; append by default. MergeSpec is for keys that repeat.
        options: Options of Delta's source, such as ``startingVersion``, ``startingTimestamp``,
            ``skipChangeCommits``, ``ignoreChanges``, ``ignoreDeletes``, ``readChangeFeed`` and
            ``maxFilesPerTrigger``. docs/changes.md describes them.
        checkpoint: Name of the stream, if several connect the same tables. The checkpoint is at
            ``<schema>/_duckrun/streams/<table>/<checkpoint>``. To restart the stream, remove it.

    Returns:
        The commits of this call, oldest first.

    Raises:
        InvalidConfig: The session has another engine, or an option is unknown. Or the source has a
            commit that changed rows, and no option tells how to read it.
        UnsupportedFeature: One of the tables is a DuckLake table, or is read in a branch.
        TableNotFound: The source does not exist. The errors of ``spec`` are raised as well.

    Example::

        stream_table(
            session, "raw.events", "refined.events", lambda rows: rows.where("kind = 'click'")
        )
    """
    if session.engine_name != "spark":
        raise InvalidConfig(f"A stream is read by Spark; this session is on {session.engine_name}: engine='spark'.")
    if isinstance(spec, WriteSpec) and spec.mode not in ("append", "replace"):
        raise InvalidConfig(
            f"A stream into table {target} commits batch after batch: mode append, replace or a merge, not {spec.mode}."
        )
    source_options = {
        known_option(key, _OPTIONS, f"A stream from table {source}"): v for key, v in (options or {}).items()
    }
    engine: SparkEngine = session.engine_of("spark")
    into, origin = session.ref(target), session.ref(source)
    for ref in (origin, into):
        if ref.format == DUCKLAKE:
            raise UnsupportedFeature(
                f"A stream from {origin} into {into}: table {ref} is a DuckLake table, whose log Spark does not "
                "follow. Carry over what is new by a change query (Table.changes(), apply_changes()), or an "
                "incremental asset."
            )
    for ref in (origin, into):
        if (branch := session.lakes.of(ref).branch_name) is not None:
            raise UnsupportedFeature(
                f"A stream from {origin} into {into}: branch {branch} has no stream, since Spark follows the log in "
                f"the folder of {ref}, which is main's",
                remedy="Carry over what is new by a change query: Table.changes(), apply_changes()",
            )
    origin = session.snapshot(source).ref
    lake = session.lakes.of(into)
    lake.ensure_writable(into)
    folder = _checkpoint_folder(lake, into.location, checkpoint or f"{origin.schema}.{origin.name}")
    writer = _BatchWriter(
        root=lake.root,
        storage_options=lake.storage.delta_options(),
        target=f"{into.schema}.{into.name}",
        location=into.location,
        spec=spec or WriteSpec("append"),
        transform=transform,
        checkpoint=folder,
    )
    before = writer.committed(lake)
    with errors_about(f"stream from {origin} into table {into}", analysis=InvalidConfig):
        rows = engine.spark.readStream.format("delta").options(**source_options)
        query = (
            rows.load(engine.access.location_of(origin.location))
            .writeStream.foreachBatch(writer)
            .option("checkpointLocation", engine.access.location_of(f"{lake.root}/{folder}"))
            .queryName(f"{origin} into {into}")
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        except BaseException as error:
            query.stop()
            if condition := condition_of(error, *_MEETS_CHANGES):
                raise InvalidConfig(
                    f"The stream from table {origin} into {into} meets a commit that updated or deleted rows, and a "
                    f"stream of rows has no word for them ({_described(error, condition)}). Take the option "
                    "readChangeFeed, where the table has kept a feed; skipChangeCommits or ignoreChanges, which "
                    "leave rows out or give some again; or a change query: Table.changes()."
                ) from None
            # The error of a batch in this process says more than Spark's, which quotes it.
            if writer.raised:
                raise writer.raised[0] from None
            raise
    return writer.commits_after(lake, before)


def _described(error: BaseException, condition: str) -> str:
    """Return Delta's description of the commit, without the trace."""
    return text_of(error).partition(condition)[2].lstrip("] ").partition(". ")[0].partition("\n")[0]


def _checkpoint_folder(lake: Lake, location: str, name: str) -> str:
    """Return the folder of a stream's checkpoint, relative to the lake's root."""
    if not location.startswith(f"{lake.root}/"):
        raise InvalidConfig(
            f"The stream's target at {location} is outside the lake {lake.root}, which keeps its checkpoint."
        )
    schema, _, table = location.removeprefix(f"{lake.root}/").rpartition("/")
    safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in name)
    return "/".join(part for part in (schema, "_duckrun", "streams", table, safe) if part)


@dataclass
class _BatchWriter:
    """Writes one batch after another; a Connect server unpickles a copy of it."""

    root: str
    storage_options: Mapping[str, str] | None
    target: str
    location: str
    spec: BatchSpec
    transform: Callable[[DataFrame], DataFrame] | None
    checkpoint: str
    raised: list[Exception] = field(default_factory=list)
    """Errors of batches in this process."""

    def __call__(self, rows: DataFrame, number: int) -> None:
        try:
            written = rows if self.transform is None else self.transform(rows)
            lake = Lake(self.root, storage_options=self.storage_options)
            app_id = self._app_id(lake)
            if app_id is None:
                raise StorageError(
                    f"The checkpoint {lake.root}/{self.checkpoint} names no stream. Remove it to start anew."
                )
            app = AppTransaction(app_id, number)
            schema, name = self.target.split(".")[:2]
            transaction = Transaction(lake, lake.at(self.location, schema=schema, name=name), app=app)
            SparkEngine(lake, rows.sparkSession).execute(replace(self.spec, app=app), written, transaction)
        except Exception as error:
            self.raised.append(error)
            raise

    def _app_id(self, lake: Lake) -> str | None:
        """Return the application id of the stream; None if the checkpoint names none."""
        # The id is that of the checkpoint. A new checkpoint is another stream: its numbers start
        # at 0 again, and its batches are not those committed before.
        metadata = lake.storage.read(f"{self.checkpoint}/metadata")
        return None if metadata is None else f"stream/{json.loads(metadata)['id']}"

    def committed(self, lake: Lake) -> int:
        """Return the number of the newest batch in the target; -1 if there is none."""
        ref, app_id = lake.at(self.location), self._app_id(lake)
        if app_id is None or not lake.format.exists(ref):
            return -1
        version = logs_of(lake.format).app_version(ref, app_id)
        return -1 if version is None else version

    def commits_after(self, lake: Lake, number: int) -> list[Commit]:
        """Return the commits of the batches after a number.

        A batch that touched no row has none.
        """
        ref, app_id, last = lake.at(self.location), str(self._app_id(lake)), self.committed(lake)
        commits = (lake.format.find_commit(ref, AppTransaction(app_id, each)) for each in range(number + 1, last + 1))
        seen: dict[int, Commit] = {commit.version: commit for commit in commits if commit is not None}
        return [seen[version] for version in sorted(seen)]
