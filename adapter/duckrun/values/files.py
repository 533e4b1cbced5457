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


class _Listed(Files):
    """Files of a table at ``location``, as objects."""

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
        by_place = ((place_of(self.location, file), file) for file in self.files)
        return {place: file for place, file in by_place if place in wanted}


@dataclass(frozen=True)
class GivenFiles(_Listed):
    """An explicit list of files of a table at ``location``, such as those of a scan."""

    location: str
    files: tuple[ScanFile, ...]


class AskedFiles(_Listed):
    """Files of a table at ``location``, listed and counted by callbacks at first use."""

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
