"""Ends the writes of this process at one of them, as the end of the process would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from duckrun.storage.storage import Storage


class Killed(BaseException):
    """Ends a process at one of its writes."""


def killed_at(monkeypatch: pytest.MonkeyPatch, number: int) -> list[int]:
    """Let the writes of this process fail from the n-th on, and return the count of writes."""
    count = [0]

    def dying(name: str, write: Callable[..., Any]) -> None:
        def instead(*arguments: Any, **options: Any) -> Any:
            count[0] += 1
            if count[0] > number:
                raise Killed
            return write(*arguments, **options)

        monkeypatch.setattr(Storage, name, instead)

    for name in ("put_at", "put_new", "remove", "remove_files"):
        dying(name, getattr(Storage, name))
    return count
