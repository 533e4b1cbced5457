"""Decisions about a write, made alike by every engine and format."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from duckrun import InvalidConfig, Session, WriteSpec
from tests.lake import rows_of


@pytest.fixture
def parted(session: Session) -> Session:
    session.execute("t", WriteSpec("overwrite", partition_by=("Region",)), rows("north", 1))
    return session


def rows(region: str, n: int) -> Any:
    return pa.table({"Region": [region], "n": [n]})


def test_an_append_may_spell_the_partition_column_in_another_case(parted: Session) -> None:
    parted.execute("t", WriteSpec("append", partition_by=("region",)), rows("south", 2))
    assert rows_of(parted.table("t").toDF(), "Region", "n") == [("north", 1), ("south", 2)]
    assert parted.snapshot("t").partition_columns == ("Region",)


def test_an_append_with_other_partitions_is_refused_by_name(parted: Session) -> None:
    with pytest.raises(InvalidConfig, match=r"main\.t is partitioned by Region, not by n; only mode overwrite"):
        parted.execute("t", WriteSpec("append", partition_by=("n",)), rows("south", 2))
    assert parted.snapshot("t").version == 0
