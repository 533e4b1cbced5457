"""How data files are made for readers: their compression and size, as the table's properties say, on every write and rewrite."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import duckrun
from duckrun import SQL, DeleteSpec, MergeSpec, UpdateSpec, WriteSpec
from duckrun.errors import InvalidConfig
from duckrun.values.tables import OptimizeSpec

ROWS = pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]})


def files(session: duckrun.Session, table: str = "main.t") -> list[Path]:
    snapshot = session.table(table).snapshot()
    return [Path(snapshot.ref.location) / file.path for file in snapshot.files()]


def codecs(paths: list[Path]) -> set[str]:
    found = set()
    for path in paths:
        group = pq.ParquetFile(path).metadata.row_group(0)
        found |= {group.column(i).compression.lower() for i in range(group.num_columns)}
    return found


@pytest.fixture
def session(tmp_path: Path):
    with duckrun.connect(tmp_path / "lake") as opened:
        yield opened


@pytest.mark.parametrize("partition_by", [(), ("v",)], ids=["whole", "partitioned"])
@pytest.mark.parametrize("codec", ["snappy", "zstd"])
def test_every_write_and_rewrite_compresses_as_the_table_says(session, codec: str, partition_by) -> None:
    made = WriteSpec("error", table_properties={"duckrun.compression": codec}, partition_by=partition_by)
    more = pa.table({"id": [3, 4], "v": ["x", "y"]})
    for spec, source in (
        (made, ROWS),
        (WriteSpec("append"), more),
        (WriteSpec("append"), more.to_reader()),
        (WriteSpec("append", writer="delta_rs"), pa.table({"id": [5], "v": ["z"]})),
        (DeleteSpec("id = 5"), None),
        (UpdateSpec({"id": "id + 10"}, "id = 1"), None),
        (DeleteSpec("id = 2"), None),
        (WriteSpec("replace", predicate="id = 11"), pa.table({"id": [11], "v": ["a"]})),
        (WriteSpec("overwrite"), ROWS),
        (MergeSpec(("id",)), more),
        (OptimizeSpec(), None),
    ):
        session.execute("main.t", spec, source)
        present = files(session)
        assert present and codecs(present) == {codec}, spec
        assert all(path.name.endswith(f".{codec}.parquet") for path in present), spec
    assert sorted(session.sql("select id from main.t").toArrow()["id"].to_pylist()) == [1, 2, 3, 4]


def test_a_codec_that_is_none_is_refused_before_anything_is_written(session) -> None:
    with pytest.raises(InvalidConfig, match=r"main\.t.*duckrun\.compression is 'lzo'.*snappy, zstd"):
        session.execute("main.t", WriteSpec("error", table_properties={"duckrun.compression": "lzo"}), ROWS)
    assert session.tables() == []


def test_files_are_as_large_as_the_table_says_and_a_spec_goes_before_it(session) -> None:
    many = SQL("select i, random() as v from range(1500000) t(i)")
    session.execute("main.t", WriteSpec("error", table_properties={"delta.targetFileSize": "2MB"}), many)
    sizes = [path.stat().st_size for path in files(session)]
    assert len(sizes) > 3 and max(sizes) < 8 * 1024**2
    session.execute("main.t", WriteSpec("append"), many)
    assert len(files(session)) > len(sizes) + 3
    session.execute("main.t", WriteSpec("overwrite", target_file_size=1024**3), many)
    assert len(files(session)) <= 2
    assert session.sql("select count(*) n, count(distinct i) d from main.t").collect() == [{"n": 1500000, "d": 1500000}]
