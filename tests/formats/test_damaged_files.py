"""A data file or a deletion vector that is gone or damaged: a change says which, and leaves the table and its folder as they were."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import duckrun
from duckrun import DeleteInsertSpec, DeleteSpec, MergeSpec, Session, UpdateSpec, WriteSpec
from duckrun.errors import StorageError

SOURCE = pa.table({"id": [5, 105, 999], "v": ["a", "b", "c"]})
CHANGES: dict[str, tuple[Any, Any]] = {
    "merge": (MergeSpec(("id",)), SOURCE),
    "delete+insert": (DeleteInsertSpec(("id",)), SOURCE),
    "delete": (DeleteSpec("id IN (5, 105)"), None),
    "update": (UpdateSpec({"v": "'z'"}, "id IN (5, 105)"), None),
}
TROUBLE: dict[str, Callable[[Path], Any]] = {
    "gone": Path.unlink,
    "damaged": lambda path: path.write_bytes(bytes(range(1, 201))),
    "damaged, cut off": lambda path: path.write_bytes(path.read_bytes()[:30]),
}


@pytest.fixture(params=["data of a plain table", "data of a table with vectors", "vector"])
def hurt(duck: Session, root: Path, request: pytest.FixtureRequest) -> Path:
    """One file of a table that a change of ids 5 and 105 has to read."""
    vectors = request.param != "data of a plain table"
    properties = {"delta.enableDeletionVectors": str(vectors).lower()}
    for first in (0, 100):
        rows = duckrun.SQL(f"SELECT range AS id, 'v' AS v FROM range({first}, {first + 100})")
        duck.execute("t", WriteSpec("append", table_properties=properties if first == 0 else {}), rows)
    if vectors:
        duck.execute("t", DeleteSpec("id % 10 = 3"))
    folder = root / "main" / "t"
    return sorted(folder.glob("*.bin" if request.param == "vector" else "*.parquet"))[0]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("trouble", TROUBLE)
def test_a_change_that_needs_it_says_which_file_and_does_nothing(
    duck: Session, root: Path, hurt: Path, change: str, trouble: str
) -> None:
    kept = hurt.read_bytes()
    TROUBLE[trouble](hurt)
    before = sorted((root / "main" / "t").rglob("*"))
    spec, source = CHANGES[change]
    with pytest.raises(StorageError, match=rf"main\.t.*{hurt.name}.*{trouble.split(',')[0]}.*Nothing was written"):
        duck.execute("t", spec, source)
    assert sorted((root / "main" / "t").rglob("*")) == before
    hurt.write_bytes(kept)
    assert duck.execute("t", spec, source).version == duck.table("t").snapshot().version > 0
