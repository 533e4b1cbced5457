"""The data files of a version, which may be a hundred thousand: each is made into an object when it is asked for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from duckrun.values.data_files import place_of
from duckrun.values.rows import ScanFile


class Files(Sequence[ScanFile]):
    """The data files of one version, in no order that means anything."""

    @abstractmethod
    def named(self, names: Collection[str]) -> dict[str, ScanFile]:
        """Those of some names, as the log spells them, by these; without those that are not there."""

    @abstractmethod
    def at(self, places: Collection[str]) -> dict[str, ScanFile]:
        """Those that lie at some places, as DuckDB's ``filename`` says them, by these; without those that are not there."""


@dataclass(frozen=True)
class GivenFiles(Files):
    """Files that somebody has named, as those of a scan, of a table at ``location``."""

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

    def named(self, names: Collection[str]) -> dict[str, ScanFile]:
        wanted = set(names)
        return {file.spelled: file for file in self.files if file.spelled in wanted}

    def at(self, places: Collection[str]) -> dict[str, ScanFile]:
        wanted = set(places)
        found = ((place_of(self.location, file), file) for file in self.files)
        return {place: file for place, file in found if place in wanted}
