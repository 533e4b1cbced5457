"""Errors about missing attributes of public classes: they name the nearest one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from duckrun.values.nearest import nearest


class NamesAttributes:
    """Base of public classes that users know by names of other libraries."""

    _INSTEAD: ClassVar[str] = ""
    """Sentence for an attribute that has no near one."""

    if not TYPE_CHECKING:  # mypy would take every attribute for known

        def __getattr__(self, name: str) -> Any:
            kind = type(self)
            if hasattr(kind, name):
                return object.__getattribute__(self, name)  # a property that failed: raises its own error
            reason = f"{kind.__name__} has no attribute {name!r}."
            if name.startswith("_"):  # notebooks and copy() look for these
                raise AttributeError(reason)
            public = [each for each in dir(kind) if not each.startswith("_")]
            near = [each for each in public if each.lower().startswith(name.lower())]
            near = near[:3] or nearest(name, public, cutoff=0.7)
            hint = f"Did you mean {', '.join(near)}?" if near else kind._INSTEAD
            raise AttributeError(f"{reason} {hint}".rstrip())
