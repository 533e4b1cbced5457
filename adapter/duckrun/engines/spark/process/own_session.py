"""Copies of a user's Spark session: one for each statement, with settings of its own.

Delta takes the note and the application id of an SQL statement from the settings of its session.
Other statements of that session would carry them too. Delta skips an append whose application id
and version are committed already, so its rows would be lost.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from duckrun.errors import UnsupportedFeature

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_copies: WeakKeyDictionary[Any, list[Any]] = WeakKeyDictionary()
"""Copies of Connect sessions, in which statements run."""


@contextmanager
def session_with(session: SparkSession, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """Yield a copy of a session with settings that no other session has.

    The copy has the settings, temporary views, functions and current database of this moment. Its
    SparkContext and cached rows are those of the session.

    Args:
        session: A classic session, or one of Spark Connect on a server of Apache Spark.
        settings: Settings that differ from those of the session.

    Raises:
        UnsupportedFeature: The Connect server is older than Spark 4.1.
    """
    with (_of_connect if _is_connect(session) else _of_classic)(session) as copied:
        for key, value in settings.items():
            copied.conf.set(key, value)
        yield copied


@contextmanager
def tagged(session: SparkSession, tag: str) -> Iterator[None]:
    """Tag the operations that this thread starts in a session and its copies."""
    # A tag of a classic session is known only to threads that inherit it; a job's tag is not.
    if _is_connect(session):
        add, remove = session.addTag, session.removeTag
    else:
        add, remove = session.sparkContext.addJobTag, session.sparkContext.removeJobTag
    add(tag)
    try:
        yield
    finally:
        remove(tag)


def interrupt(session: SparkSession, tag: str) -> None:
    """Stop the operations with a tag of ``tagged()``, in any thread."""
    if not _is_connect(session):
        session.sparkContext.cancelJobsWithTag(tag)
        return
    for each in (session, *_copies.get(session, ())):
        each.interruptTag(tag)


def _is_connect(session: SparkSession) -> bool:
    return "connect" in type(session).__module__


@contextmanager
def _of_classic(session: Any) -> Iterator[SparkSession]:
    # The constructor would make RDD.toDF() use the copy.
    copied: Any = object.__new__(type(session))
    for name in ("_sc", "_jsc", "_jvm", "_profiler_collector"):
        setattr(copied, name, getattr(session, name))
    copied._jsparkSession = session._jsparkSession.cloneSession()
    # The session's interruptAll() stops jobs with this tag.
    copied._jsparkSession.managedJobTags().get().put("duckrun", session._jsparkSession.sessionJobTag())
    yield copied


@contextmanager
def _of_connect(session: Any) -> Iterator[SparkSession]:
    from pyspark.errors import PySparkException

    # cloneSession() of PySpark opens another channel. Closing that one would end the threads that
    # release the results of every session, and its client would stay in memory.
    copied: Any = object.__new__(_borrowing())
    copied._client = copy.copy(session.client)
    copied._client._session_id = copied._session_id = _copied_on_server(session)
    copied._client._server_session_id = None  # the next answer has it
    # PySpark releases the results of a statement in another thread, maybe after the session. The
    # server would log that as an error, with a stack trace. Closing the session releases them too.
    copied._client._internal_stub = copy.copy(copied._client._internal_stub)
    copied._client._internal_stub.ReleaseExecute = lambda *_, **__: None
    copies = _copies.setdefault(session, [])
    copies.append(copied)
    try:
        yield copied
    finally:
        copies.remove(copied)
        # The outcome of the statement stands. A server that does not answer now ends the copy
        # itself, when it is idle for an hour.
        copied._client.set_retry_policies([])
        try:
            copied._client.release_session()
        except PySparkException as error:
            log.debug("the server did not release the copy of a session: %s", error)


def _copied_on_server(session: Any) -> str:
    """Let a Connect server copy a session, and return the id of the copy."""
    from grpc import RpcError, StatusCode
    from pyspark.sql.connect.proto import CloneSessionRequest

    client = session.client
    request = CloneSessionRequest(session_id=client._session_id, client_type="python")
    if client._user_id is not None:
        request.user_context.user_id = client._user_id
    try:
        for attempt in client._retrying():
            with attempt:
                answer = client._stub.CloneSession(request, metadata=client._builder.metadata())
    except RpcError as error:
        if getattr(error, "code", lambda: None)() is not StatusCode.UNIMPLEMENTED:
            raise
        raise UnsupportedFeature(
            f"The Spark Connect server is version {session.version}, which cannot copy a session",
            remedy="Use a server of Spark 4.1, or engine: duckdb",
        ) from error
    return str(answer.new_session_id)


@cache
def _borrowing() -> type[Any]:
    from pyspark.sql.connect.session import SparkSession

    class Borrowing(SparkSession):
        """Session on the channel of another one."""

        def __del__(self) -> None:
            """Leave the channel open."""

    return Borrowing
