"""Log of a Delta table that is hidden while another lake adopts the table's files.

After that, the log is put away for good or brought back. This works on local paths only, where each
step is one rename.
"""

from __future__ import annotations

from pathlib import Path

from duckrun.errors import StorageError
from duckrun.formats.delta.log.entries import LOG
from duckrun.storage.storage import Storage
from duckrun.storage.trouble import said
from duckrun.values.snapshot import TableRef

ASIDE, AWAY = f"{LOG}.adopting", f"{LOG}.adopted"
"""Folder names that no Delta reader looks for."""
_WHOSE = "adopted_by.json"


class Logs:
    """Logs of one lake's tables that can be hidden; see LogTables."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def set_aside(self, ref: TableRef, whose: str) -> None:
        """Hide a table: readers find no log.

        Args:
            whose: Description of the lake that adopts the table.

        Raises:
            StorageError: The table has a hidden log already, or it cannot be renamed.
        """
        log, aside = Path(ref.location, LOG), Path(ref.location, ASIDE)
        if aside.exists() or Path(ref.location, AWAY).exists():
            raise StorageError(
                f"{ref.location} has a log that an adoption has put away already: {aside.name} or {AWAY}"
            )
        try:
            # Written before the rename: a hidden log always names the adopting lake.
            (log / _WHOSE).write_text(whose, encoding="utf-8")
            log.rename(aside)
        except OSError as error:
            raise StorageError(f"Table {ref} cannot be adopted: {said(error)}") from error

    def whose(self, ref: TableRef) -> str | None:
        """Return the lake that adopts a table; None if the table's log is not hidden."""
        file = Path(ref.location, ASIDE, _WHOSE)
        return file.read_text(encoding="utf-8") if file.is_file() else None

    def bring_back(self, ref: TableRef, *, away: bool) -> None:
        """Put a hidden log away for good, or make it the table's log again if not ``away``."""
        aside = Path(ref.location, ASIDE)
        if away:
            aside.rename(aside.with_name(AWAY))
            return
        aside.rename(aside.with_name(LOG))
        Path(ref.location, LOG, _WHOSE).unlink(missing_ok=True)

    def all_aside(self) -> list[TableRef]:
        """Return the tables of the lake whose log an unfinished adoption has hidden."""
        if not self.storage.is_local:
            return []
        logs = [path for depth in ("*", "*/*") for path in Path(self.storage.root).glob(f"{depth}/{ASIDE}")]
        return [TableRef(path.parent.parent.name, path.parent.name, path.parent.as_posix()) for path in logs]
