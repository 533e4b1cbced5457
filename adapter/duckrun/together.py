"""A transaction over several tables of one lake, as a session holds it open."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from duckrun.errors import CommitConflict, DuckrunError, InvalidConfig
from duckrun.formats.commits import CommitTaken
from duckrun.lake.lake import Lake
from duckrun.run.transactions import refuse_without

if TYPE_CHECKING:
    from duckrun.session import Session

_BACK = "The transaction that it was in is rolled back: nothing of that was written."


class OpenTransaction:
    """What a session has begun and not yet ended. The first error in it takes all of it back; it has to be ended all the same."""

    def __init__(self, session: Session, lake: Lake) -> None:
        """Begin. Raises UnsupportedFeature for a lake of format delta, and for an engine that has no such transactions."""
        refuse_without(lake, session.engine_name)
        lake.ensure_writable(lake.schema_ref(lake.default_schema))
        self.lake = lake
        self._session = session
        self._others = [each for each in session.lakes if each is not lake]
        self._log, self._noted = session.log, session.log.noted()
        self._pins = session.fixed_pins
        self._pinned = None if self._pins is None else self._pins.pinned()
        self.failure: BaseException | None = None
        self._ended = False
        engine = session.embedded
        engine.reach(lake)
        self._open = ExitStack()
        try:
            cursor = self._open.enter_context(engine.on_one_cursor())
            self._work: Any = self._open.enter_context(lake.format.together_on(cursor))
        except BaseException:
            self._open.__exit__(*sys.exc_info())
            raise
        lake.in_transaction = True
        for other in self._others:
            other.waits_for = lake.root

    def check(self) -> None:
        """Raise InvalidConfig once something in it has failed."""
        if self.failure is not None:
            raise InvalidConfig(
                f"This transaction of lake {self.lake.root} is rolled back, since a statement in it failed ({_first_line(self.failure)}). Nothing of it was "
                "written, and nothing more can be: ROLLBACK, or leave its block, and run all of it again."
            )

    def fail(self, error: BaseException) -> None:
        """Take all of it back, for an error of a statement in it, which says so from now on."""
        if self.failure is not None:
            return
        self.failure = error
        self._take_back(error)
        if isinstance(error, DuckrunError) and error.args:
            error.args = (f"{error.args[0]} {_BACK}", *error.args[1:])
        else:
            error.add_note(_BACK)

    def commit(self) -> None:
        """Show all of it, as one snapshot. Raises CommitConflict where another program has committed to the lake meanwhile, or something in it
        has failed; nothing of it is there then.
        """
        if self.failure is not None:
            raise CommitConflict(
                f"The transaction of lake {self.lake.root} was rolled back before, since a statement in it failed ({_first_line(self.failure)}): nothing of it was "
                "written. Run all of it again."
            ) from self.failure
        try:
            self._end()
        except BaseException as error:
            self._forget()
            if isinstance(error, CommitTaken):
                raise CommitConflict(
                    f"Another program committed to lake {self.lake.root} while this transaction was open ({error}). Nothing of it was written; run all of it again."
                ) from error
            raise
        if self._pins is not None:
            for ref in self._work.written:
                self._pins.moved(ref, self.lake.snapshot(ref) if self.lake.exists(ref) else None)

    def rollback(self) -> None:
        """Take all of it back."""
        if self.failure is None:
            self._take_back(_RolledBack())

    def _take_back(self, why: BaseException) -> None:
        if not self._ended:
            self._end(why)
            self._forget()

    def _end(self, why: BaseException | None = None) -> None:
        self._ended, self.lake.in_transaction = True, False
        for other in self._others:
            other.waits_for = None
        if why is None:
            self._open.close()
            return
        try:
            self._open.__exit__(type(why), why, why.__traceback__)
        except BaseException as error:
            if error is not why:
                raise

    def _forget(self) -> None:
        """What was read and written in it has not happened."""
        self._log.back_to(self._noted)
        if self._pins is not None and self._pinned is not None:
            self._pins.back_to(self._pinned)


def _first_line(error: BaseException) -> str:
    text = str(error).removesuffix(_BACK).strip()
    return text.splitlines()[0] if text else type(error).__name__


class _RolledBack(Exception):
    """The transaction was taken back as somebody asked for it."""
