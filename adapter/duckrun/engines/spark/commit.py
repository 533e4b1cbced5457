"""One commit by Spark: run a statement with our note in it, and verify that it committed."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from duckrun.engines.data_files import file_properties
from duckrun.engines.spark.access import SparkAccess
from duckrun.engines.spark.errors import errors_about
from duckrun.engines.spark.sql import quote, table_at
from duckrun.errors import CommitConflict, CommitUnknown, InvalidConfig, StorageError, in_branch, redacted
from duckrun.formats.commits import WORDS, CommitTaken
from duckrun.formats.format import logs_of
from duckrun.run.transaction import Transaction
from duckrun.values.layout import TARGET_FILE_SIZE, Layout, codec_of
from duckrun.values.rows import Commit, RowSpec
from duckrun.values.tables import TableSpec

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from duckrun.values.snapshot import Snapshot

log = logging.getLogger(__name__)

_SKIPPING = ("spark.databricks.delta.stats.skipping", "spark.sql.parquet.filterPushdown")
_APP_ID = "spark.databricks.delta.write.txnAppId"
_APP_VERSION = "spark.databricks.delta.write.txnVersion"
_ARBITRARY = "spark.databricks.delta.allowArbitraryProperties.enabled"
_CODEC = "spark.sql.parquet.compression.codec"
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


class SparkCommit:
    """Statement about one table, and its commit.

    Args:
        snapshot: Snapshot that the transaction read; None if there is no table.
    """

    reason = "Spark writes its own frames and runs its own statements"

    def __init__(
        self, access: SparkAccess, spec: RowSpec | TableSpec, transaction: Transaction, snapshot: Snapshot | None
    ) -> None:
        self.access = access
        self.spark = access.spark
        self.spec = spec
        self.transaction = transaction
        self.snapshot = snapshot
        self.ref = transaction.ref
        self.what = in_branch(f"{spec.mode} on table {self.ref}", transaction.lake.branch_name)
        """Subject of errors."""
        self.log = logs_of(transaction.lake.format).log_to_write(transaction.ref, snapshot)
        """Log that Spark commits to."""
        self.location = access.location_of(self.log.location)
        self.target = table_at(self.location)
        self.token = uuid.uuid4().hex
        present = {} if snapshot is None else snapshot.properties
        self.properties = file_properties(spec, present)
        """Table properties that control the data files."""
        self._arbitrary = TARGET_FILE_SIZE in {**present, **(spec.table_properties if isinstance(spec, Layout) else {})}

    def analyse(self, query: str) -> StructType:
        """Let Spark check a statement's expressions in a query beforehand; return their types.

        Raises:
            InvalidConfig: Spark cannot analyse the query.
        """
        with errors_about(self.what, analysis=InvalidConfig):
            return self.access.sql(query).schema

    def statement(self, text: str, settings: Mapping[str, str] = MappingProxyType({})) -> Commit | None:
        """Run a statement with the settings of this commit, and others."""
        log.debug("%s on %s: %s", self.spec.mode, self.ref, redacted(text))
        with self.access.session_with({**settings, **self.statement_settings(), **self.asking_all(text)}) as session:
            session.sql(text)
        return None

    def alone(self, text: str, reason: str, settings: Mapping[str, str] = MappingProxyType({})) -> Commit:
        """Run a statement that is the whole commit, and verify the commit."""
        self.reason = reason

        def run() -> Commit | None:
            with errors_about(self.what, analysis=InvalidConfig):
                return self.statement(text, settings)

        return self.proved(run)

    def statement_settings(self) -> dict[str, str]:
        """Return the session settings of a statement: note, codec, application id."""
        settings = {_USER_METADATA: self.note()}
        if codec := codec_of(self.properties):
            settings[_CODEC] = codec
        if self._arbitrary:  # open-source Delta refuses this property in a definition
            settings[_ARBITRARY] = "true"
        if self.transaction.app is not None:
            settings |= {_APP_ID: self.transaction.app.app_id, _APP_VERSION: str(self.transaction.app.version)}
        return settings

    def asking_all(self, text: str) -> dict[str, str]:
        """Return settings without file skipping, if a text may name a column with rounded bounds.

        With skipping, Spark would miss rows outside these bounds.
        """
        names = frozenset[str]() if self.snapshot is None else self.snapshot.rounded()
        is_named = any(quote(name)[1:-1].lower() in text.lower() for name in names)
        return dict.fromkeys(_SKIPPING, "false") if is_named else {}

    def note(self) -> str:
        """Return the note of the commit, as JSON."""
        reads = self.transaction.reads(self.spec, self.snapshot)
        note = self.transaction.note(writer="spark", reason=self.reason, token=self.token, **reads)
        return json.dumps({**note.pop(WORDS, {}), "duckrun": note})

    def committed(self) -> Commit:
        """Return the commit that carries our token.

        Raises:
            CommitTaken: Spark made no commit, since another writer has this application version.
        """
        commit = self._own()
        if commit is not None:
            return commit
        # Spark skips a repeated application version silently. That must not look like success:
        # upon CommitTaken the transaction finds the earlier commit.
        app = self.transaction.app
        if self.snapshot is None:
            raise CommitTaken(f"Spark made no commit on table {self.ref}, which does not exist yet")
        version = None if app is None else logs_of(self.transaction.lake.format).app_version(self.ref, app.app_id)
        if app is not None and version is not None and version >= app.version:
            raise CommitTaken(f"Spark skipped {app.app_id} version {app.version}, which another writer has committed")
        return self.transaction.nothing(self.snapshot, "no row was touched, so Spark made no commit")

    def _own(self) -> Commit | None:
        """Return the commit that carries our token; None if there is none.

        Raises:
            CommitConflict: The table was dropped meanwhile.
        """
        form = self.transaction.lake.format
        self.log.carry()
        wanted = version = 0 if self.snapshot is None else self.snapshot.version + 1
        while (record := form.record(self.ref, version)) is not None and record.note.get("token") != self.token:
            version += 1
        logs_of(form).check_landed(self.snapshot, None if record is None else version, self.token)
        if record is None:
            return None
        self.transaction.note_commit(version)
        if version != wanted:
            self._passed(version)
        return record.as_commit(self.ref, mode=self.spec.mode, engine="spark", writer="spark", reason=self.reason)

    def proved(self, run: Callable[[], Commit | None]) -> Commit:
        """Run statements, and return the commit that they made.

        A commit that Spark made counts even if Spark raised: the answer of the store or of a Spark
        server was lost.
        """
        with self.log:
            try:
                done = run()
            except Exception as error:
                try:
                    commit = self._own()
                except StorageError as unread:
                    raise CommitUnknown(
                        f"Whether {self.spec.mode} on table {self.ref} was committed by Spark is not known: {error}, "
                        f"and then: {unread}",
                        remedy="Look at the table's history before you run this again",
                    ) from error
                if commit is None:
                    raise
                log.info(
                    "table %s: version %s is committed, though Spark raised %s",
                    self.ref,
                    commit.version,
                    type(error).__name__,
                )
                return commit
            return self.committed() if done is None else done

    def _passed(self, version: int) -> None:
        """Check a commit that Spark put on top of other writers' commits.

        Raises:
            CommitConflict: The write was fenced, or the others changed rows that it was computed
                from.
        """
        assert self.snapshot is not None
        log.info(
            "table %s: Spark committed on top of versions %s to %s", self.ref, self.snapshot.version + 1, version - 1
        )
        # Spark has checked for conflicts itself, and the rows are in the table. Running the write
        # again would add them twice.
        between = [a for a in self.transaction.fence.commits_after(self.snapshot.version) if a.version < version]
        if self.spec.read_version is None and not self.transaction.fence.outdated_by(between):
            return
        read = self.transaction.fence.read()
        fence = read.version if self.spec.read_version is None and read is not None else self.spec.read_version
        raise CommitConflict(
            f"{self.spec.mode} on table {self.ref} was computed from version {fence}, but a writer that does not take "
            f"the table's lock committed in between, which Spark cannot refuse; the rows are in version {version}. "
            f"Restore version {version - 1} to take them out."
        )
