"""Data files of a version. There may be a hundred thousand, so objects are created lazily."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

from duckrun.values.data_files import place_of
from duckrun.values.rows import ScanFile


class Files(Sequence[ScanFile]):
    """Data files of one version, in no meaningful order."""

    @overload
    def __getitem__(self, index: int) -> ScanFile: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[ScanFile, ...]: ...

    def __getitem__(self, index: int | slice) -> ScanFile | tuple[ScanFile, ...]:
        return tuple(self)[index]

    @abstractmethod
    def weight(self) -> tuple[int, int]:
        """Return their number and total bytes, without creating objects."""

    @abstractmethod
    def paths(self) -> Iterator[str]:
        """Yield their paths, relative to the table if inside it, without creating objects."""

    @abstractmethod
    def named(self, names: Collection[str]) -> dict[str, ScanFile]:
        """Return the files of some names, spelled as in the log; unknown names are left out."""

    @abstractmethod
    def at(self, places: Collection[str]) -> dict[str, ScanFile]:
        """Return the files at some places, as DuckDB's ``filename`` reports them.

        Unknown ones are left out.
        """


@dataclass(eq=False)
class ListedFiles(Files):
    """Files of a table at ``location``, listed and counted by callbacks at first use."""

    location: str
    list_files: Callable[[], Iterable[ScanFile]]
    weigh: Callable[[], tuple[int, int]] | None = None
    """Returns their number and total bytes; None if the list is at hand."""

    @cached_property
    def _files(self) -> tuple[ScanFile, ...]:
        return tuple(self.list_files())

    def __len__(self) -> int:
        return len(self._files)

    def __iter__(self) -> Iterator[ScanFile]:
        return iter(self._files)

    def weight(self) -> tuple[int, int]:
        return (len(self), sum(file.size for file in self)) if self.weigh is None else self.weigh()

    def paths(self) -> Iterator[str]:
        return (file.path for file in self)

    def named(self, names: Collection[str]) -> dict[str, ScanFile]:
        wanted = set(names)
        return {file.spelled: file for file in self if file.spelled in wanted}

    def at(self, places: Collection[str]) -> dict[str, ScanFile]:
        wanted = set(places)
        by_place = ((place_of(self.location, file), file) for file in self)
        return {place: file for place, file in by_place if place in wanted}
