"""Import paths that earlier versions documented: they go on working, with a DeprecationWarning that names the new path."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

FORMER = {
    "duckrun.engines.spark_connect": "duckrun.spark",
    "duckrun.engines.spark_jars": "duckrun.spark",
    "duckrun.engines.spark_session": "duckrun.spark",
    "duckrun.engines.spark_streams": "duckrun.spark",
    "duckrun.specs": "duckrun",
    "duckrun.table_specs": "duckrun",
}
"""Modules that are no more, and the one whose public names each of them gives."""


def names_now_in(new: str, old: str) -> Callable[[str], Any]:
    """The ``__getattr__`` of the module ``old``: the public names of ``new``, with a warning."""

    def named(name: str) -> Any:
        module = import_module(new)
        if name not in module.__all__:
            raise AttributeError(f"module {old!r} has no attribute {name!r}")
        warnings.warn(f"{old}.{name} is {new}.{name} now", DeprecationWarning, stacklevel=2)
        return getattr(module, name)

    return named


class _Finder:
    """Finds the modules of FORMER, after every other finder (PEP 302)."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name in FORMER else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__getattr__"] = names_now_in(FORMER[module.__name__], module.__name__)


def install() -> None:
    """Let this process import the modules of FORMER."""
    sys.meta_path.append(_Finder())
