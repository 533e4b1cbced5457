"""Transactions over several tables of one lake: how a session begins and ends them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

from duckrun.engines.duckdb.engine import DuckDBEngine
from duckrun.errors import ROLLED_BACK, CommitConflict, DuckrunError, InvalidConfig, outcome_of
from duckrun.formats.commits import CommitTaken
from duckrun.lake.lake import Lake
from duckrun.lake.lakes import Lakes
from duckrun.run.pins import Pins
from duckrun.run.transactions import transactions_on
from duckrun.run.work_log import WorkLog
from duckrun.values.choices import EngineName


class TransactionSession(Protocol):
    """Part of a session that a transaction needs."""

    engine_name: EngineName

    def ensure_open(self) -> None: ...
    @property
    def lakes(self) -> Lakes: ...
    @property
    def log(self) -> WorkLog: ...
    @property
    def fixed_pins(self) -> Pins | None: ...
    @property
    def embedded(self) -> DuckDBEngine: ...


class OpenTransaction:
    """An open transaction of a session.

    The first error in it rolls it back. It must be ended all the same.
    """

    def __init__(self, session: TransactionSession, lake: Lake, *, lazily: bool = False) -> None:
        """Begin a transaction.

        Args:
            lazily: Wait for other writers at the first write instead of now.

        Raises:
            UnsupportedFeature: The lake's format or the engine has no such transactions.
        """
        transactions = transactions_on(lake, session.engine_name)
        lake.ensure_writable(lake.schema_ref(lake.default_schema))
        self.lake = lake
        self._session = session
        self._pins = session.fixed_pins
        self._restores = [each.savepoint() for each in (session.log, self._pins) if each is not None]
        """Functions that remove the transaction's reads and writes from the log and the pins."""
        self.failure: BaseException | None = None
        self._ended = False
        engine = session.embedded
        engine.reach(lake)
        with ExitStack() as opening:  # undone if a part of it fails
            cursor = opening.enter_context(engine.on_one_cursor())
            self._work: Any = opening.enter_context(transactions.together_on(cursor, lazily=lazily))
            self._open = opening.pop_all()
        lake.in_transaction = True
        self._let_others_wait(lake.root)

    def enter(self, *, writes: bool) -> None:
        """Prepare for a statement; before the first write, wait for other writers.

        Raises:
            CommitConflict: Another writer committed after the transaction's first read.
        """
        if writes:
            self._work.will_write()
        self._work.has_read = True

    def check(self) -> None:
        """Raise InvalidConfig if a statement of the transaction has failed."""
        if self.failure is not None:
            with outcome_of():
                raise InvalidConfig(
                    f"This transaction of lake {self.lake.root} is rolled back, since a statement in it failed "
                    f"({_first_line(self.failure)})",
                    remedy="ROLLBACK, or leave its block, and run all of it again",
                )

    def fail(self, error: BaseException) -> None:
        """Roll back because a statement failed, and add that to its error."""
        if self.failure is not None:
            return
        self.failure = error
        self._take_back(error)
        if isinstance(error, DuckrunError):
            error.rolled_back = True
        else:
            error.add_note(ROLLED_BACK)

    def commit(self) -> None:
        """Commit all writes as one snapshot.

        Raises:
            CommitConflict: Another program committed to the lake meanwhile, or a statement failed.
                The lake is unchanged then.
        """
        with outcome_of("commit"):
            self._commit()
        if self._pins is not None:
            for ref in self._work.written:
                self._pins.moved(ref, self.lake.snapshot(ref) if self.lake.exists(ref) else None)

    def _commit(self) -> None:
        if self.failure is not None:
            raise CommitConflict(
                f"The transaction of lake {self.lake.root} was rolled back before, since a statement in it failed "
                f"({_first_line(self.failure)})",
                remedy="Run all of it again",
            ) from self.failure
        try:
            self._end()
        except BaseException as error:
            self._forget()
            if isinstance(error, CommitTaken):
                raise CommitConflict(
                    f"Another program committed to lake {self.lake.root} while this transaction was open ({error})",
                    remedy="run all of it again",
                ) from error
            raise

    def rollback(self) -> None:
        """Roll back the transaction."""
        if self.failure is None:
            self._take_back(_RolledBack())

    def _take_back(self, why: BaseException) -> None:
        if not self._ended:
            self._end(why)
            self._forget()

    def _end(self, why: BaseException | None = None) -> None:
        self._ended, self.lake.in_transaction = True, False
        self._let_others_wait(None)
        if why is None:
            self._open.close()
            return
        try:
            self._open.__exit__(type(why), why, why.__traceback__)
        except BaseException as error:
            if error is not why:
                raise

    def _let_others_wait(self, waits_for: str | None) -> None:
        # Lakes that were attached during the transaction wait too.
        for other in self._session.lakes:
            if other is not self.lake:
                other.waits_for = waits_for

    def _forget(self) -> None:
        for restore in self._restores:
            restore()


class Transactions:
    """The open transaction of a session, if any.

    Copies of a session share it (``Opened.on``), so it has no reference to one.
    """

    def __init__(self) -> None:
        self.opened: OpenTransaction | None = None

    def begin(self, session: TransactionSession, lake: str | None, *, lazily: bool) -> OpenTransaction:
        """Begin a transaction of a lake by name; None is the session's own.

        Raises:
            InvalidConfig: A transaction is open already.
            UnsupportedFeature: The lake has format delta.
        """
        session.ensure_open()
        if self.opened is not None:
            raise InvalidConfig(
                f"A transaction of lake {self.opened.lake.root} is open in this session already; COMMIT or "
                "ROLLBACK it first."
            )
        of = session.lakes.lake if lake is None else session.lakes.named(lake, "transaction()")
        self.opened = OpenTransaction(session, of, lazily=lazily)
        return self.opened

    def end(self, session: TransactionSession, word: str) -> OpenTransaction:
        """Return the open transaction, which the caller commits or rolls back.

        Raises:
            InvalidConfig: No transaction is open, or the session is closed.
        """
        session.ensure_open()
        opened, self.opened = self.opened, None
        if opened is None:
            raise InvalidConfig(f"{word} without BEGIN: no transaction is open in this session.")
        return opened

    @contextmanager
    def block(self, session: TransactionSession, lake: str | None) -> Iterator[None]:
        """Commit a transaction at the end of the block; an error rolls it back."""
        opened = self.begin(session, lake, lazily=False)  # the block is meant to write
        try:
            yield
        except BaseException as error:
            self.opened = None
            opened.fail(error)
            raise
        self.end(session, "COMMIT").commit()

    @contextmanager
    def statements(self) -> Iterator[None]:
        """Run statements; an error rolls back their transaction, and ends it if they began it."""
        before = self.opened
        try:
            yield
        except BaseException as error:
            if (opened := self.opened) is not None:
                opened.fail(error)
                self.opened = before if opened is before else None
            raise

    @contextmanager
    def write(self) -> Iterator[None]:
        """Run a write in the open transaction, if any; an error rolls it back."""
        self.refuse_failed()
        with self.statements():
            self.enter_statement(writes=True)
            yield

    def enter_statement(self, *, writes: bool) -> None:
        """Prepare the open transaction, if any, for a statement."""
        if self.opened is not None and self.opened.failure is None:
            self.opened.enter(writes=writes)

    def refuse_failed(self) -> None:
        """Raise InvalidConfig if the open transaction has failed."""
        if self.opened is not None:
            self.opened.check()

    def close(self) -> None:
        """Roll back the open transaction, if any."""
        opened, self.opened = self.opened, None
        if opened is not None:
            opened.rollback()


def _first_line(error: BaseException) -> str:
    text = error.reason if isinstance(error, DuckrunError) else str(error)
    return text.splitlines()[0].rstrip(".") if text else type(error).__name__


class _RolledBack(Exception):
    """Ends a transaction's context on request, without an error."""
