"""Table properties: unknown ones are refused by name, versions are those that Delta has, names are as Delta spells them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from duckrun import (
    AlterSpec,
    ColumnSpec,
    CreateSpec,
    DuckrunError,
    InvalidConfig,
    Session,
    UnsupportedFeature,
    WriteSpec,
)
from duckrun.values.tables import SetProperties, UnsetProperties
from tests.lake import rows_of

ROWS = pa.table({"id": [1]})
SETTERS: dict[str, Callable[[Session, dict[str, str]], Any]] = {
    "create": lambda s, given: s.execute("main.new", CreateSpec((ColumnSpec("id", "BIGINT"),), table_properties=given)),
    "write": lambda s, given: s.execute("main.new", WriteSpec("error", table_properties=given), ROWS),
    "overwrite": lambda s, given: s.execute("main.t", WriteSpec("overwrite", table_properties=given), ROWS),
    "redefine": lambda s, given: s.execute(
        "main.t", WriteSpec("overwrite", redefine=True, table_properties=given), ROWS
    ),
    "alter": lambda s, given: s.execute("main.t", AlterSpec((SetProperties(given),))),
    "sql": lambda s, given: s.sql(
        "alter table t set tblproperties (" + ", ".join(f"'{k}' = '{v}'" for k, v in given.items()) + ")",
        dialect="spark",
    ),
}
REFUSED = [
    ({"delta.bogus": "x"}, "delta.bogus"),
    ({"DELTA.Bogus": "x"}, "delta.Bogus"),
    ({"delta.appendOnli": "true"}, "delta.appendOnly"),
    ({"delta.minReaderVersion": "3"}, "minReaderVersion"),
    ({"delta.minReaderVersion": "4", "delta.minWriterVersion": "7"}, "minReaderVersion"),
    ({"delta.minWriterVersion": "8"}, "minWriterVersion"),
    ({"delta.minWriterVersion": "abc"}, "minWriterVersion"),
    ({"delta.minwriterversion": "0"}, "minWriterVersion"),
    ({"delta.feature.deletionVectors": "off"}, "deletionVectors"),
    ({"delta.appendOnly": "true", "DELTA.APPENDONLY": "false"}, "named twice"),
]


@pytest.fixture
def before(duck: Session) -> Session:
    """A lake with one table that has a property."""
    duck.execute("main.t", WriteSpec("error", table_properties={"delta.checkpointInterval": "7"}), ROWS)
    return duck


@pytest.mark.parametrize("setter", SETTERS)
@pytest.mark.parametrize(("properties", "named"), REFUSED)
def test_properties_that_delta_does_not_have_are_refused_by_name_and_nothing_is_written(
    before: Session, setter: str, properties: dict[str, str], named: str
) -> None:
    with pytest.raises((InvalidConfig, UnsupportedFeature), match=named):
        SETTERS[setter](before, properties)
    assert before.tables() == ["main.t"]
    snapshot = before.table("t").snapshot()
    assert (snapshot.version, snapshot.properties) == (0, {"delta.checkpointInterval": "7"})
    assert rows_of(before.scan("main.t")) == [(1,)]
    before.execute("main.new", CreateSpec((ColumnSpec("id", "BIGINT"),)))  # no half of a table is in its way


@pytest.mark.parametrize("setter", SETTERS)
def test_a_property_in_another_letter_case_is_the_one_that_delta_knows(before: Session, setter: str) -> None:
    commit = SETTERS[setter](before, {"DELTA.appendonly": "true", "Owner": "Ann"})
    table = commit.table.removeprefix("main.")
    properties = DeltaTable(before.table(table).ref.location).metadata().configuration
    assert properties["delta.appendOnly"] == "true" and properties["Owner"] == "Ann"
    assert "DELTA.appendonly" not in properties
    if table == "t":
        with pytest.raises(DuckrunError, match="append"):
            before.sql("delete from t where id = 1")


def test_a_property_is_unset_in_any_letter_case(before: Session) -> None:
    before.execute("main.t", AlterSpec((UnsetProperties(("Delta.CHECKPOINTINTERVAL",)),)))
    assert before.table("t").snapshot().properties == {}


@pytest.mark.parametrize(("reader", "writer"), [(1, 4), (2, 5), (3, 7)])
def test_versions_that_delta_has_upgrade_the_table_which_stays_readable_and_writable(
    before: Session, reader: int, writer: int
) -> None:
    versions = {"delta.minReaderVersion": str(reader), "delta.minWriterVersion": str(writer)}
    before.execute("main.t", AlterSpec((SetProperties(versions),)))
    before.execute("main.t", WriteSpec("append"), ROWS)
    table = DeltaTable(before.table("t").ref.location)
    assert (table.protocol().min_reader_version, table.protocol().min_writer_version) == (reader, writer)
    assert table.to_pyarrow_table().num_rows == 2
    assert "delta.minReaderVersion" not in table.metadata().configuration
    before.sql("restore table t to version as of 0", dialect="spark")
    assert rows_of(before.scan("main.t")) == [(1,)]


def test_unknown_properties_that_a_table_has_stay(before: Session) -> None:
    """Another writer set one that no commit of ours sets."""
    log = Path(before.table("t").ref.location) / "_delta_log"
    actions = [json.loads(line) for line in (log / f"{0:020d}.json").read_text().splitlines()]
    metadata = next(action["metaData"] for action in actions if "metaData" in action)
    metadata["configuration"] |= {"delta.ofAnother": "x"}
    (log / f"{1:020d}.json").write_text(json.dumps({"metaData": metadata}))
    before.execute("main.t", WriteSpec("overwrite"), ROWS)
    before.execute("main.t", WriteSpec("overwrite", table_properties={"delta.ofAnother": "x", "a": "b"}), ROWS)
    before.execute("main.t", AlterSpec((SetProperties({"delta.ofAnother": "x", "c": "d"}),)))
    kept = {"delta.checkpointInterval": "7", "delta.ofAnother": "x", "a": "b", "c": "d"}
    assert before.table("t").snapshot().properties == kept
    with pytest.raises(UnsupportedFeature, match=r"delta\.ofAnother"):
        before.execute("main.t", AlterSpec((SetProperties({"delta.ofAnother": "y"}),)))


@pytest.mark.parametrize(
    "words", [{"table_properties": {"delta.logRetentionDuration": "interval 9 days"}}, {"description": "orders"}]
)
def test_writer_delta_rs_refuses_what_it_would_drop_from_a_table(before: Session, words: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig, match="delta_rs"):
        before.execute("main.t", WriteSpec("overwrite", writer="delta_rs", **words), ROWS)
    commit = before.execute("main.t", WriteSpec("overwrite", **words), ROWS)
    snapshot = before.table("t").snapshot()
    assert commit.writer == "staged" and snapshot.properties["delta.checkpointInterval"] == "7"
    assert snapshot.description == words.get("description")
