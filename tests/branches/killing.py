"""Ends the writes of this process at one of them, or lets another session work before one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from duckrun.storage.storage import Storage


class Killed(BaseException):
    """Ends a process at one of its writes."""


def _before_writes(monkeypatch: pytest.MonkeyPatch, act: Callable[[int], None]) -> list[int]:
    """Call a function with the number of each write before it, and return the count of writes."""
    count = [0]

    def patched(name: str, write: Callable[..., Any]) -> None:
        def instead(*arguments: Any, **options: Any) -> Any:
            count[0] += 1
            act(count[0])
            return write(*arguments, **options)

        monkeypatch.setattr(Storage, name, instead)

    for name in ("put_at", "put_new", "remove", "remove_files"):
        patched(name, getattr(Storage, name))
    return count


def killed_at(monkeypatch: pytest.MonkeyPatch, number: int) -> list[int]:
    """Let the writes of this process fail from the n-th on, and return the count of writes."""

    def die(count: int) -> None:
        if count > number:
            raise Killed

    return _before_writes(monkeypatch, die)


def interrupted_at(monkeypatch: pytest.MonkeyPatch, number: int, work: Callable[[], None]) -> list[int]:
    """Let other work be done before the n-th write of this process, and return the count of writes."""

    def interrupt(count: int) -> None:
        if count == number:
            monkeypatch.undo()
            work()

    return _before_writes(monkeypatch, interrupt)
