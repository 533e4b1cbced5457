"""Names of a module that are imported when they are first used, so that importing the module itself is quick."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def names_from(module: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module; ``homes`` maps each of its names to the module that defines it.

    Example, in ``duckrun/__init__.py``: ``__getattr__ = names_from(__name__, {"connect": "duckrun.session"})``.
    """

    def named(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[module], name, value)
        return value

    return named
