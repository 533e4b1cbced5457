"""The data files of a version, which may be a hundred thousand: each is made into an object when it is asked for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

from duckrun.values.data_files import place_of
from duckrun.values.rows import ScanFile


class Files(Sequence[ScanFile]):
    """The data files of one version, in no order that means anything."""

    @abstractmethod
    def weight(self) -> tuple[int, int]:
        """How many there are, and their bytes; none is made into an object."""

    @abstractmethod
    def paths(self) -> Iterator[str]:
        """The path of each, relative to the table where it lies within it; none is made into an object."""

    @abstractmethod
    def named(self, names: Collection[str]) -> dict[str, ScanFile]:
        """Those of some names, as the log spells them, by these; without those that are not there."""

    @abstractmethod
    def at(self, places: Collection[str]) -> dict[str, ScanFile]:
        """Those that lie at some places, as DuckDB's ``filename`` says them, by these; without those that are not there."""


class _Listed(Files):
    """Files as objects, of a table at ``location``."""

    location: str
    files: tuple[ScanFile, ...]

    def __len__(self) -> int:
        return len(self.files)

    def __iter__(self) -> Iterator[ScanFile]:
        return iter(self.files)

    @overload
    def __getitem__(self, index: int) -> ScanFile: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[ScanFile, ...]: ...

    def __getitem__(self, index: int | slice) -> ScanFile | tuple[ScanFile, ...]:
        return self.files[index]

    def weight(self) -> tuple[int, int]:
        return len(self.files), sum(file.size for file in self.files)

    def paths(self) -> Iterator[str]:
        return (file.path for file in self.files)

    def named(self, names: Collection[str]) -> dict[str, ScanFile]:
        wanted = set(names)
        return {file.spelled: file for file in self.files if file.spelled in wanted}

    def at(self, places: Collection[str]) -> dict[str, ScanFile]:
        wanted = set(places)
        found = ((place_of(self.location, file), file) for file in self.files)
        return {place: file for place, file in found if place in wanted}


@dataclass(frozen=True)
class GivenFiles(_Listed):
    """Files that somebody has named, as those of a scan, of a table at ``location``."""

    location: str
    files: tuple[ScanFile, ...]


class AskedFiles(_Listed):
    """Files of a table at ``location`` that are listed, and weighed, by questions, each when it is first needed."""

    def __init__(
        self, location: str, listed: Callable[[], Iterable[ScanFile]], weight: Callable[[], tuple[int, int]]
    ) -> None:
        self.location = location
        self._listed, self._weight = listed, weight

    @cached_property
    def files(self) -> tuple[ScanFile, ...]:  # type: ignore[override]
        return tuple(self._listed())

    def weight(self) -> tuple[int, int]:
        return self._weight()
