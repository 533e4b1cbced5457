"""What one type of value needs to know: how an engine writes it, and how it comes out of a scan. Nothing else."""

from __future__ import annotations

import types
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, TypeVar, Union, get_args, get_origin

from duckrun.frame import Frame
from duckrun.specs import EngineName

Value = TypeVar("Value")


class TypeHandler(ABC, Generic[Value]):
    """One family of types. A handler knows nothing of partitions, modes, metadata or engines.

    The types are those between the brackets::

        class PolarsHandler(TypeHandler[pl.DataFrame | pl.LazyFrame]): ...

    ``names`` are what ``default_type`` of the IO manager calls them. ``engine`` is set by a type that only one engine
    can read or write.
    """

    types: ClassVar[tuple[type, ...]] = ()
    names: ClassVar[dict[str, type]] = {}
    engine: ClassVar[EngineName | None] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for base in getattr(cls, "__orig_bases__", ()):
            if get_origin(base) is TypeHandler:
                declared = get_args(base)[0]
                union = get_origin(declared) in (Union, types.UnionType)
                cls.types = tuple(t for t in (get_args(declared) if union else (declared,)) if isinstance(t, type))

    def handles(self, declared: Any) -> bool:
        """Whether values of this type are this handler's."""
        return isinstance(declared, type) and issubclass(declared, self.types)

    @abstractmethod
    def to_source(self, value: Value) -> Any:
        """A value as what an engine can write: an Arrow table or stream, a lazy frame, SQL, a Spark frame."""

    @abstractmethod
    def from_scan(self, frame: Frame, as_type: type) -> Value:
        """The rows of a pinned and pruned scan as the type that was asked for."""
