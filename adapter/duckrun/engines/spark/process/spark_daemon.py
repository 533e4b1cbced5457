"""Program that runs Python functions on Spark's workers, and reports arguments of failed calls.

It extends PySpark's own daemon. Spark starts it by name (setting ``spark.python.daemon.module``) in
each executor. On a cluster it is sent there as one file, so it must not import duckrun.
"""

from __future__ import annotations

import itertools
import os
import reprlib
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import IO, Any

import pyspark
from pyspark import daemon, util, worker

_OF_PYSPARK = os.path.dirname(pyspark.__file__)
_VARARGS, _VARKEYWORDS = 0x04, 0x08  # inspect.CO_VARARGS, CO_VARKEYWORDS
_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = 120
_short.maxdict = _short.maxlist = _short.maxtuple = _short.maxset = 20


def run() -> None:
    """Run PySpark's daemon (``python -m pyspark.daemon``), with this module's error handler."""
    worker.handle_worker_exception = _telling  # forked workers look it up by this name
    daemon.manager()


def _telling(e: BaseException, outfile: IO[Any], hide_traceback: bool | None = None) -> None:
    called = called_with(e)
    if called:
        e.add_note(f"Called with {called}")
    util.handle_worker_exception(e, outfile, hide_traceback)


def called_with(error: BaseException) -> str | None:
    """Return the arguments of the outermost function, outside PySpark, that raised an exception.

    None if it has none.

    >>> def halved(n, *, by=2):
    ...     return n / by
    >>> try:
    ...     halved(3, by=0)
    ... except ZeroDivisionError as error:
    ...     print(called_with(error.with_traceback(error.__traceback__.tb_next)))
    n=3, by=0
    """
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(_OF_PYSPARK):
        traceback = traceback.tb_next
    if traceback is None:
        return None
    frame = traceback.tb_frame
    return ", ".join(f"{name}={_shown(frame.f_locals[name])}" for name in _arguments(frame)) or None


def _arguments(frame: FrameType) -> Iterator[str]:
    """Yield the names of a function's arguments, except for self, cls and iterators of rows."""
    code: CodeType = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & _VARARGS) + bool(code.co_flags & _VARKEYWORDS)
    for name in itertools.islice(code.co_varnames, count):
        value = frame.f_locals.get(name)
        if name in frame.f_locals and name not in ("self", "cls") and not isinstance(value, Iterator):
            yield name


def _shown(value: Any) -> str:
    """Return a value in one line of some hundred characters; a batch of rows by its size."""
    kind = type(value)
    if kind.__module__.partition(".")[0] in ("pandas", "pyarrow") and hasattr(value, "take"):
        return f"<{kind.__name__} of {len(value)}>"
    return " ".join(_short.repr(value).split())


if __name__ == "__main__":
    run()
