"""Errors about public classes: missing attributes are named with the nearest one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

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

    def __copy__(self) -> Self:
        # copy.copy() would take __reduce__(), which is pickle's.
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def __reduce__(self) -> NoReturn:
        # multiprocessing and Dagster's own file manager pickle what they get.
        raise TypeError(
            f"A {type(self).__name__} belongs to the session of this process and cannot be pickled. Return its rows, "
            "or connect in the other process. In Dagster, write it with the DeltaIOManager, as the resource io_manager "
            "or by io_manager_key."
        )
