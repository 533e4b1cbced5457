"""A table read as a stream: what is new in it since the last time, in batches that are committed exactly once.

Spark keeps how far a stream has read in a checkpoint, which lies in the lake. A batch carries an application transaction of
the stream and its number: one that was committed, but not yet noted in the checkpoint when its process died, comes again
from Spark and is found committed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from duckrun.engines.spark.engine import SparkEngine
from duckrun.engines.spark.errors import errors_about
from duckrun.errors import InvalidConfig, StorageError, UnsupportedFeature
from duckrun.lake.lake import Lake
from duckrun.lake.lakes import Lakes
from duckrun.run.transaction import Transaction
from duckrun.values.lake_format import DUCKLAKE
from duckrun.values.options import known_option
from duckrun.values.rows import AppTransaction, Commit, DeleteInsertSpec, EngineName, MergeSpec, WriteSpec
from duckrun.values.snapshot import Snapshot, TableRef

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OPTIONS = (
    "ignoreChanges", "ignoreDeletes", "skipChangeCommits", "startingVersion", "startingTimestamp", "endingVersion", "endingTimestamp",
    "readChangeFeed", "maxFilesPerTrigger", "maxBytesPerTrigger", "excludeRegex", "failOnDataLoss", "schemaTrackingLocation",
    "withEventTimeOrder",
)  # fmt: skip
"""Those of Delta's source (delta-spark's DeltaOptions)."""
_MEETS_CHANGES = ("DELTA_SOURCE_TABLE_IGNORE_CHANGES", "DELTA_SOURCE_IGNORE_DELETE")

BatchSpec = WriteSpec | MergeSpec | DeleteInsertSpec


class StreamSession(Protocol):
    """What a stream needs of the session that it is started from."""

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
    """Carry what is new in ``source`` over to ``target``, and stop when nothing is left (trigger ``availableNow``).

    ``session`` is one with ``engine="spark"``. ``transform`` makes the target's rows of a batch; ``spec`` says how each
    batch is written (append, unless given; MergeSpec for keys that come again). ``options`` are those of Delta's source:
    ``startingVersion``, ``startingTimestamp``, ``skipChangeCommits``, ``ignoreChanges``, ``ignoreDeletes``, ``readChangeFeed``,
    ``maxFilesPerTrigger`` and others; what each gives is in docs/changes.md. ``checkpoint`` names the stream,
    where several go from one table to another; it lies at ``<schema>/_duckrun/streams/<table>/<checkpoint>``, and removing
    that folder starts the stream anew. Gives the commits of this call, the oldest first.

    Through Spark Connect the batches run on the server, so ``transform`` has to be picklable and duckrun installed there.

    Raises InvalidConfig for another engine, for an option that is none, and where the source has a commit that changed rows and no option
    says what to do with those; TableNotFound for the source, and what writing the target raises.

    Example::

        stream_table(session, "raw.events", "refined.events", lambda rows: rows.where("kind = 'click'"))
    """
    if session.engine_name != "spark":
        raise InvalidConfig(f"A stream is read by Spark; this session is on {session.engine_name}: engine='spark'.")
    if isinstance(spec, WriteSpec) and spec.mode not in ("append", "replace"):
        raise InvalidConfig(
            f"A stream into table {target} commits batch after batch: mode append, replace or a merge, not {spec.mode}."
        )
    given = {known_option(key, _OPTIONS, f"A stream from table {source}"): v for key, v in (options or {}).items()}
    engine: SparkEngine = session.engine_of("spark")
    into, origin = session.ref(target), session.ref(source)
    for ref in (origin, into):
        if ref.format == DUCKLAKE:
            raise UnsupportedFeature(
                f"A stream from {origin} into {into}: table {ref} is a DuckLake table, whose log Spark does not follow. Carry over what is new by a change query "
                "(Table.changes(), apply_changes()), or an incremental asset."
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
        rows = engine.spark.readStream.format("delta").options(**given)
        query = (
            rows.load(engine.location_of(origin.location))
            .writeStream.foreachBatch(writer)
            .option("checkpointLocation", engine.location_of(f"{lake.root}/{folder}"))
            .queryName(f"{origin} into {into}")
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        except BaseException as error:
            query.stop()
            if any(word in str(error) for word in _MEETS_CHANGES):
                raise InvalidConfig(
                    f"The stream from table {origin} into {into} meets a commit that updated or deleted rows, and a stream of rows has no word for them "
                    f"({_first_line(error)}). Take the option readChangeFeed, where the table has kept a feed; skipChangeCommits or ignoreChanges, which leave "
                    "rows out or give some again; or a change query: Table.changes()."
                ) from None
            # What a batch raised in this process says more than Spark, which quotes it.
            if writer.raised:
                raise writer.raised[0] from None
            raise
    return writer.commits_after(lake, before)


def _first_line(error: BaseException) -> str:
    """What Delta says of the commit, without the trace."""
    said = str(error)
    begun = next(word for word in _MEETS_CHANGES if word in said)
    return said[said.index(begun) + len(begun) :].lstrip("] ").partition(". ")[0].partition("\n")[0]


def _checkpoint_folder(lake: Lake, location: str, name: str) -> str:
    """Where a stream's checkpoint is, relative to the lake's root."""
    if not location.startswith(f"{lake.root}/"):
        raise InvalidConfig(
            f"The stream's target at {location} is outside the lake {lake.root}, which keeps its checkpoint."
        )
    schema, _, table = location.removeprefix(f"{lake.root}/").rpartition("/")
    safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in name)
    return "/".join(part for part in (schema, "_duckrun", "streams", table, safe) if part)


@dataclass
class _BatchWriter:
    """Writes one batch after the other; on a Connect server it is a copy, unpickled there."""

    root: str
    storage_options: Mapping[str, str] | None
    target: str
    location: str
    spec: BatchSpec
    transform: Callable[[DataFrame], DataFrame] | None
    checkpoint: str
    raised: list[Exception] = field(default_factory=list)

    def __call__(self, rows: DataFrame, number: int) -> None:
        try:
            written = rows if self.transform is None else self.transform(rows)
            lake = Lake(self.root, storage_options=self.storage_options)
            app = AppTransaction(self.app_id(lake), number)
            schema, name = self.target.split(".")[:2]
            transaction = Transaction(lake, lake.at(self.location, schema=schema, name=name), app=app)
            SparkEngine(lake, rows.sparkSession).execute(replace(self.spec, app=app), written, transaction)
        except Exception as error:
            self.raised.append(error)
            raise

    def app_id(self, lake: Lake) -> str:
        """The stream as one that commits. A checkpoint that was removed and made anew is another stream: its numbers start
        again at 0, and the batches are not those committed before."""
        found = self._stream(lake)
        if found is None:
            raise StorageError(
                f"The checkpoint {lake.root}/{self.checkpoint} names no stream. Remove it to start anew."
            )
        return f"stream/{found}"

    def _stream(self, lake: Lake) -> str | None:
        metadata = lake.storage.read(f"{self.checkpoint}/metadata")
        return None if metadata is None else str(json.loads(metadata)["id"])

    def committed(self, lake: Lake) -> int:
        """The number of the newest batch in the target; -1 where there is none."""
        ref = lake.at(self.location)
        stream = self._stream(lake)
        if stream is None or not lake.format.exists(ref):
            return -1
        found = lake.format.app_version(ref, f"stream/{stream}")
        return -1 if found is None else found

    def commits_after(self, lake: Lake, number: int) -> list[Commit]:
        """The commits of the batches after one of them. A batch that touched no row made none."""
        ref, app_id, last = lake.at(self.location), f"stream/{self._stream(lake)}", self.committed(lake)
        commits = (lake.format.find_commit(ref, AppTransaction(app_id, each)) for each in range(number + 1, last + 1))
        seen: dict[int, Commit] = {commit.version: commit for commit in commits if commit is not None}
        return [seen[version] for version in sorted(seen)]
