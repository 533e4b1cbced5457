"""The log of a Delta table set aside while its files become another lake's, and put away, or brought back, after. Local paths only: one rename each."""

from __future__ import annotations

from pathlib import Path

from duckrun.errors import StorageError
from duckrun.formats.delta.log import LOG
from duckrun.storage.storage import Storage
from duckrun.storage.trouble import said
from duckrun.values.snapshot import TableRef

ASIDE, AWAY = f"{LOG}.adopting", f"{LOG}.adopted"
"""Names that no Delta reader looks for."""
_WHOSE = "adopted_by.json"


class Logs:
    """The logs of one lake's tables, as TableLogs says."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def set_aside(self, ref: TableRef, whose: str) -> None:
        """Hide a table: whoever looks finds no log. ``whose`` says into which lake it goes. Raises StorageError."""
        log, aside = Path(ref.location, LOG), Path(ref.location, ASIDE)
        if aside.exists() or Path(ref.location, AWAY).exists():
            raise StorageError(
                f"{ref.location} has a log that an adoption has put away already: {aside.name} or {AWAY}. Nothing was moved."
            )
        try:
            (log / _WHOSE).write_text(whose, encoding="utf-8")
            log.rename(aside)
        except OSError as error:
            raise StorageError(f"Table {ref} cannot be adopted: {said(error)}. It is as it was.") from error

    def whose(self, ref: TableRef) -> str | None:
        """Into which lake a table goes whose log is aside; None where it is not."""
        file = Path(ref.location, ASIDE, _WHOSE)
        return file.read_text(encoding="utf-8") if file.is_file() else None

    def bring_back(self, ref: TableRef, *, away: bool) -> None:
        """Put a log away for good, or (``away`` False) make it the table's again."""
        aside = Path(ref.location, ASIDE)
        if away:
            aside.rename(aside.with_name(AWAY))
            return
        aside.rename(aside.with_name(LOG))
        Path(ref.location, LOG, _WHOSE).unlink(missing_ok=True)

    def all_aside(self) -> list[TableRef]:
        """The tables of the lake whose log an adoption has set aside, and did not put away."""
        if not self.storage.is_local:
            return []
        found = [path for depth in ("*", "*/*") for path in Path(self.storage.root).glob(f"{depth}/{ASIDE}")]
        return [TableRef(path.parent.parent.name, path.parent.name, path.parent.as_posix()) for path in found]
