"""Transactions over several tables of one lake, as a session begins them, holds them open and ends them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Self

from duckrun.errors import CommitConflict, DuckrunError, InvalidConfig
from duckrun.formats.commits import CommitTaken
from duckrun.lake.lake import Lake
from duckrun.run.transactions import whole_on
from duckrun.sessions.opened import Opened

_BACK = "The transaction that it was in is rolled back: nothing of that was written."


class OpenTransaction:
    """What a session has begun and not yet ended. The first error in it takes all of it back; it has to be ended all the same."""

    def __init__(self, session: Opened, lake: Lake, *, lazily: bool = False) -> None:
        """Begin; ``lazily`` waits for other writers at the first write. Raises UnsupportedFeature for a lake of format delta, and for an engine that has no such transactions."""
        whole = whole_on(lake, session.engine_name)
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
            self._work: Any = self._open.enter_context(whole.together_on(cursor, lazily=lazily))
        except BaseException:
            self._open.__exit__(*sys.exc_info())
            raise
        lake.in_transaction = True
        for other in self._others:
            other.waits_for = lake.root

    def enter(self, *, writes: bool) -> None:
        """Before a statement of it: one that writes waits for other writers. Raises CommitConflict if they have committed since something was read."""
        if writes:
            self._work.will_write()
        self._work.has_read = True

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


class Together(Opened):
    """The part of a Session that makes one commit of the writes to several tables, where the lake's format has such commits."""

    _together: OpenTransaction | None = None

    @contextmanager
    def transaction(self, lake: str | None = None) -> Iterator[Self]:
        """A block whose writes are one snapshot of the lake, or none: nobody sees one of them before all are there, and an error takes all
        back. What it reads is of the moment at which it began, with its own writes. ``lake`` names an attached one.

        Raises UnsupportedFeature for a lake of format delta, whose tables have a log each. Example::

            with s.transaction() as t:
                t.sql("insert into sales.orders values (7, 'fig', 2.5)")
                t.sql("update sales.totals set price = price + 2.5")
        """
        opened = self._begun(lake, lazily=False)  # it is there to write
        try:
            yield self
        except BaseException as error:
            self._together = None
            opened.fail(error)
            raise
        self.commit()

    def begin(self, lake: str | None = None) -> OpenTransaction:
        """Begin a transaction over several tables, which commit() or rollback() ends: what ``BEGIN`` does. Other writers wait from its first write on.
        Raises as transaction() does, InvalidConfig where one is open.
        """
        return self._begun(lake, lazily=True)

    def _begun(self, lake: str | None, *, lazily: bool) -> OpenTransaction:
        self.ensure_open()
        if self._together is not None:
            raise InvalidConfig(
                f"A transaction of lake {self._together.lake.root} is open in this session already; COMMIT or ROLLBACK it first."
            )
        of = self.lakes.lake if lake is None else self.lakes.named(lake, "transaction()")
        self._together = OpenTransaction(self, of, lazily=lazily)
        return self._together

    def commit(self) -> None:
        """Commit the open transaction. Raises InvalidConfig where none is, CommitConflict where it cannot be: nothing of it is there then."""
        self._ended_transaction("COMMIT").commit()

    def rollback(self) -> None:
        """Take back what the open transaction has done. Raises InvalidConfig where none is open."""
        self._ended_transaction("ROLLBACK").rollback()

    def _ended_transaction(self, word: str) -> OpenTransaction:
        self.ensure_open()
        opened, self._together = self._together, None
        if opened is None:
            raise InvalidConfig(f"{word} without BEGIN: no transaction is open in this session.")
        return opened

    @property
    def in_transaction(self) -> bool:
        """True while a transaction over several tables is open."""
        return self._together is not None

    def enter_statement(self, *, writes: bool) -> None:
        """Before a statement: of the open transaction, where there is one."""
        if self._together is not None and self._together.failure is None:
            self._together.enter(writes=writes)

    @contextmanager
    def _inside(self) -> Iterator[None]:
        """A statement, of the open transaction where there is one: an error of it takes all of that back."""
        opened = self._together
        if opened is None:
            yield
            return
        opened.check()
        try:
            yield
        except BaseException as error:
            opened.fail(error)
            raise

    def refuse_failed(self) -> None:
        """Raise InvalidConfig where the open transaction has failed already."""
        if self._together is not None:
            self._together.check()

    def close(self) -> None:
        """See Opened; a transaction that is open is rolled back."""
        opened, self._together = self._together, None
        if opened is not None:
            opened.rollback()
        super().close()


def _first_line(error: BaseException) -> str:
    text = str(error).removesuffix(_BACK).strip()
    return text.splitlines()[0] if text else type(error).__name__


class _RolledBack(Exception):
    """The transaction was taken back as somebody asked for it."""
