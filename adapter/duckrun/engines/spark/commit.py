"""One commit of Spark's: run a statement with our note in it, and prove that it committed."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from duckrun.engines.data_files import file_properties
from duckrun.engines.spark.errors import errors_about
from duckrun.engines.spark.sql import quote, table_at
from duckrun.errors import CommitConflict, InvalidConfig, StorageError, redacted
from duckrun.formats.commits import WORDS, CommitTaken
from duckrun.run.transaction import Transaction
from duckrun.values.layout import TARGET_FILE_SIZE, Layout, codec_of
from duckrun.values.rows import Commit, RowSpec
from duckrun.values.tables import TableSpec

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from duckrun.engines.spark.engine import SparkEngine
    from duckrun.values.snapshot import Snapshot

log = logging.getLogger(__name__)

_SKIPPING = ("spark.databricks.delta.stats.skipping", "spark.sql.parquet.filterPushdown")
_APP_ID = "spark.databricks.delta.write.txnAppId"
_APP_VERSION = "spark.databricks.delta.write.txnVersion"
_ARBITRARY = "spark.databricks.delta.allowArbitraryProperties.enabled"
_CODEC = "spark.sql.parquet.compression.codec"
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


class SparkCommit:
    """A statement about one table, from the snapshot that the transaction read."""

    reason = "Spark writes its own frames and runs its own statements"

    def __init__(
        self, engine: SparkEngine, spec: RowSpec | TableSpec, transaction: Transaction, snapshot: Snapshot | None
    ) -> None:
        self.engine = engine
        self.spark = engine.spark
        self.mode = spec.mode
        self.fence: int | None = spec.read_version
        self.transaction = transaction
        self.snapshot = snapshot
        self.ref = transaction.ref
        self.location = engine.location_of(transaction.ref.location)
        self.target = table_at(self.location)
        self.token = uuid.uuid4().hex
        present = {} if snapshot is None else snapshot.properties
        self.properties = file_properties(spec, present)
        """Those by which the data files are made."""
        self._arbitrary = TARGET_FILE_SIZE in {**present, **(spec.table_properties if isinstance(spec, Layout) else {})}

    def analyse(self, query: str) -> StructType:
        """Let Spark check a query that names the expressions of a statement, before the statement runs. Their types."""
        with errors_about(f"{self.mode} on table {self.ref}", analysis=InvalidConfig):
            return self.spark.sql(query).schema

    def statement(self, text: str) -> Commit | None:
        log.debug("%s on %s: %s", self.mode, self.ref, redacted(text))
        with self.engine.settings(self.statement_settings() | self.asking_all(text)):
            self.spark.sql(text)
        return None

    def statement_settings(self) -> dict[str, str]:
        settings = {_USER_METADATA: self.note()}
        if codec := codec_of(self.properties):
            settings[_CODEC] = codec
        if self._arbitrary:  # the open Delta does not know that property, and refuses it in a definition
            settings[_ARBITRARY] = "true"
        if self.transaction.app is not None:
            settings |= {_APP_ID: self.transaction.app.app_id, _APP_VERSION: str(self.transaction.app.version)}
        return settings

    def asking_all(self, text: str) -> dict[str, str]:
        """The settings under which Spark leaves out no file, where a text may name a column with values outside its bounds: it would not
        find the rows that are to change.
        """
        names = frozenset[str]() if self.snapshot is None else self.snapshot.rounded()
        found = any(quote(name)[1:-1].lower() in text.lower() for name in names)
        return dict.fromkeys(_SKIPPING, "false") if found else {}

    def note(self) -> str:
        note = self.transaction.note(writer="spark", reason=self.reason, token=self.token)
        return json.dumps({**note.pop(WORDS, {}), "duckrun": note})

    def nothing(self, reason: str) -> Commit:
        """No commit was needed."""
        assert self.snapshot is not None
        return self.transaction.nothing(self.snapshot, reason)

    def committed(self) -> Commit:
        """The commit that carries our token. Spark skips a repeated application version without a word: that must not
        look like success, so it becomes a CommitTaken, upon which the transaction finds the earlier commit."""
        own = self._own()
        if own is not None:
            return own
        app = self.transaction.app
        if self.snapshot is None:
            raise CommitTaken(f"Spark made no commit on table {self.ref}, which does not exist yet")
        held = None if app is None else self.transaction.lake.format.app_version(self.ref, app.app_id)
        if app is not None and held is not None and held >= app.version:
            raise CommitTaken(f"Spark skipped {app.app_id} version {app.version}, which another writer has committed")
        return self.nothing("no row was touched, so Spark made no commit")

    def _own(self) -> Commit | None:
        """The commit that carries our token, if there is one. Raises CommitConflict if the table was dropped meanwhile."""
        form = self.transaction.lake.format
        wanted = version = 0 if self.snapshot is None else self.snapshot.version + 1
        while (record := form.record(self.ref, version)) is not None and record.note.get("token") != self.token:
            version += 1
        form.check_landed(self.snapshot, None if record is None else version, self.token)
        if record is None:
            return None
        if version != wanted:
            self._passed(version)
        return record.as_commit(self.ref, mode=self.mode, engine="spark", writer="spark", reason=self.reason)

    def proved(self, run: Callable[[], Commit | None]) -> Commit:
        """Run statements, and return the commit that they made. One that Spark made counts although it raises: the answer of the store,
        or of a Spark server, was lost.
        """
        try:
            done = run()
        except Exception as error:
            try:
                own = self._own()
            except StorageError as unread:
                log.warning("table %s: whether Spark committed cannot be read: %s", self.ref, unread)
                raise error from None
            if own is None:
                raise
            log.info(
                "table %s: version %s is committed, though Spark raised %s", self.ref, own.version, type(error).__name__
            )
            return own
        return self.committed() if done is None else done

    def _passed(self, version: int) -> None:
        """Others committed first, and Spark put ours on top after its own check of conflicts. It is in the table, so
        running it again would double it; a fenced write has broken its promise and says so."""
        assert self.snapshot is not None
        log.info(
            "table %s: Spark committed on top of versions %s to %s", self.ref, self.snapshot.version + 1, version - 1
        )
        between = [a for a in self.transaction.commits_after(self.snapshot.version) if a.version < version]
        if self.fence is None and not self.transaction.outdated_by(between):
            return
        read = self.transaction.read()
        fence = read.version if self.fence is None and read is not None else self.fence
        raise CommitConflict(
            f"{self.mode} on table {self.ref} was computed from version {fence}, but a writer that does not take the table's lock "
            f"committed in between, which Spark cannot refuse; the rows are in version {version}. Restore version {version - 1} "
            "to take them out."
        )
