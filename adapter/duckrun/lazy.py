"""Names of a module that are imported when they are first used, so that importing the module itself is quick."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def names_from(module: str, homes: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module; ``homes`` maps other modules to the names that it takes from each.

    Example, in ``duckrun/__init__.py``: ``__getattr__ = names_from(__name__, {"duckrun.session": ("connect",)})``.
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def named(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = getattr(import_module(home_of[name]), name)
        setattr(sys.modules[module], name, value)
        return value

    return named
