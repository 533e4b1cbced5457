"""New fields of structs: added with the rows that bring them, NULL in the rows that were there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable as DeltaRs
from pyarrow.dataset import dataset

from duckrun import SQL, DeleteInsertSpec, InvalidConfig, MergeSpec, SchemaMismatch, WriteSpec
from duckrun.session import Session
from tests.lake import by_another, rows_of

pytestmark = pytest.mark.formats

BEFORE = (
    "create table t (id bigint, info struct(a bigint, b struct(c varchar)), l struct(q int)[]);"
    "insert into t values (1, {'a': 1, 'b': {'c': 'x'}}, [{'q': 1}]), (2, null, null)"
)
MORE = (
    "select 2 as id, {'e': 'new', 'a': 3, 'b': {'c': 'y', 'd': cast(4 as smallint)}} as info, [{'q': 5, 'r': true}] as l "
    "union all select 3, {'e': 'w', 'a': null, 'b': null}, []"
)
TYPE = (
    '{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}},{"name":"b","type":{"type":"struct","fields":'
    '[{"name":"c","type":"string","nullable":true,"metadata":{}},{"name":"d","type":"short","nullable":true,"metadata":{}}]},'
    '"nullable":true,"metadata":{}},{"name":"e","type":"string","nullable":true,"metadata":{}}]}'
)
OLD = (1, {"a": 1, "b": {"c": "x", "d": None}, "e": None}, [{"q": 1, "r": None}])
NEW: list[tuple[Any, ...]] = [
    (2, {"a": 3, "b": {"c": "y", "d": 4}, "e": "new"}, [{"q": 5, "r": True}]),
    (3, {"a": None, "b": None, "e": "w"}, []),
]
WRITES = {
    "append": (WriteSpec("append", schema_mode="append_new_columns"), [OLD, (2, None, None), *NEW]),
    "replace": (WriteSpec("replace", predicate="id > 1", schema_mode="append_new_columns"), [OLD, *NEW]),
    "merge": (MergeSpec(("id",), schema_mode="append_new_columns"), [OLD, *NEW]),
    "delete+insert": (DeleteInsertSpec(("id",), schema_mode="append_new_columns"), [OLD, *NEW]),
}


@pytest.mark.parametrize("mode", WRITES)
def test_rows_with_new_fields_add_them_to_the_structs_of_the_table(
    session: Session, mode: str, lake_format: str
) -> None:
    spec, expected = WRITES[mode]
    session.sql(BEFORE)
    with pytest.raises(SchemaMismatch, match="info is"):
        session.execute("t", type(spec)(**{**vars(spec), "schema_mode": "fail"}), SQL(MORE))
    session.execute("t", spec, SQL(MORE))
    assert rows_of(session.sql("from t")) == sorted(expected, key=repr)
    if lake_format == "delta":
        assert DeltaRs(session.table("t").ref.location).schema().fields[1].type.to_json() == TYPE
    assert rows_of(by_another(session, "t")) == sorted(expected, key=repr)


def test_statements_and_builders_with_schema_evolution_add_new_fields(session: Session) -> None:
    session.sql(BEFORE)
    session.sql(
        f"merge with schema evolution into t using ({MORE}) as s on t.id = s.id when matched then update set info = s.info "
        "when not matched then insert (id, info) values (s.id, s.info)"
    )
    assert rows_of(session.sql("select id, info.e, info.b.d from t")) == [
        (1, None, None),
        (2, "new", 4),
        (3, "w", None),
    ]
    few = session.sql("select 4 as id, {'a': 9} as info")
    few.write.mode("append").option("mergeSchema", "true").saveAsTable("t")
    session.sql("insert into t by name select 5 as id, {'a': 9, 'z': 1} as info", schema_mode="append_new_columns")
    assert rows_of(session.sql("select id, info.a, info.z, info.e from t where id > 3")) == [
        (4, 9, None, None),
        (5, 9, 1, None),
    ]
    session.sql("delete from t where info.z = 1")
    assert rows_of(session.sql("select count(*) from t")) == [(4,)]


DEEP = pa.table(
    {
        "id": list(range(10)),
        "v": [None if i == 7 else {"d": {"n": i, "t": {"s": f"text {i}"}, "l": [i, i + 1]}, "p": i} for i in range(10)],
    }
)
SLICES: dict[str, Callable[[pa.Table], Any]] = {
    "table": lambda part: part,
    "batch": lambda part: part.combine_chunks().to_batches()[0],
    "stream": lambda part: part.to_reader(),
    "stream of batches": lambda part: pa.RecordBatchReader.from_batches(part.schema, part.to_batches(max_chunksize=2)),
    "dataset": lambda part: dataset(part),
    "any stream": lambda part: AnyStream(part),
}


class AnyStream:
    """Rows that only Arrow's C interface gives."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._rows.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("form", SLICES)
def test_a_slice_of_structs_in_structs_has_its_own_rows(session: Session, form: str) -> None:
    """DuckDB 1.5.5 reads the inner structs of such a slice from the beginning of the array."""
    part = DEEP.slice(4, 5)
    session.execute("t", WriteSpec("overwrite"), SLICES[form](part))
    assert session.scan("t").toArrow().sort_by("id").to_pylist() == part.to_pylist()
    session.register("given", part)
    assert session.sql("select id, v from given order by id").collect() == part.to_pylist()


def _sliced(kind: str) -> pa.Array:
    """Three values around a slice of structs, the third to the last of ten."""
    flat = pa.array([{"n": i, "t": f"text {i}"} for i in range(10)]).slice(2)
    deep = pa.array([{"d": {"n": i}} for i in range(10)]).slice(2)
    starts = pa.array([0, 2, 4, 8], pa.int32())
    return {
        "list": lambda: pa.ListArray.from_arrays(starts, flat),
        "list of structs in structs": lambda: pa.ListArray.from_arrays(starts, deep),
        "slice of a list": lambda: pa.ListArray.from_arrays(pa.array([0, 1, 2, 4, 8], pa.int32()), flat).slice(1),
        "large list": lambda: pa.LargeListArray.from_arrays(starts.cast(pa.int64()), flat),
        "fixed list": lambda: pa.FixedSizeListArray.from_arrays(flat.slice(0, 6), 2),
        "map": lambda: pa.MapArray.from_arrays(starts, pa.array(list("abcdefgh")), flat),
        "list in a struct": lambda: pa.StructArray.from_arrays([pa.ListArray.from_arrays(starts, flat)], ["l"]),
        "list of lists": lambda: pa.ListArray.from_arrays(
            pa.array([0, 1, 2, 3], pa.int32()), pa.ListArray.from_arrays(starts, deep)
        ),
    }[kind]()


@pytest.mark.parametrize(
    "kind",
    [
        "list",
        "list of structs in structs",
        "slice of a list",
        "large list",
        "fixed list",
        "map",
        "list in a struct",
        "list of lists",
    ],
)
@pytest.mark.parametrize("form", ["table", "stream"])
def test_a_slice_of_structs_inside_of_anything_has_its_own_rows(duck: Session, kind: str, form: str) -> None:
    part = pa.table({"id": [1, 2, 3], "v": _sliced(kind)})
    duck.execute("t", WriteSpec("overwrite"), SLICES[form](part))
    assert duck.scan("t").toArrow().sort_by("id").to_pylist() == part.to_pylist()


OTHER_ORDER = [
    "insert into t (id, s, l) select 2, {'b': '1', 'a': 2}, [{'q': 3, 'p': 4}]",
    "insert into t (id, s) values (3, {'b': '5', 'a': 6}), (4, {'a': 7, 'b': '8'}), (5, null), (6, {'B': 'x'})",
    "insert into t (id, s) values (7, {'b': '5', 'a': 6, 'more': 9})",
    "update t set s = {'b': '11', 'a': 12} where id = 1",
    "merge into t using (select 1 as id, {'b': '9', 'a': 8} as s) as new on t.id = new.id when matched then update set s = new.s",
    "merge into t using (select 1 as k) as new on t.id = new.k when matched then update set s = {'b': '3', 'a': new.k}",
    "update t set s = new.s from (select 1 as id, {'b': '31', 'a': 32} as s) as new where new.id = t.id",
]


def test_fields_of_structs_go_by_their_names_in_every_statement(session: Session) -> None:
    made = "create table t (id int, s struct(a int, b varchar), l struct(p int, q int)[]); insert into t values (1, null, null)"
    native = duckdb.connect()
    native.execute(made)
    session.sql(made)
    for text in OTHER_ORDER:
        native.execute(text)
        session.sql(text)
        assert rows_of(session.sql("from t")) == rows_of(native.sql("from t").to_arrow_table()), text
    version = session.table("t").snapshot().version
    for text in ("insert into t (id, s) select 9, {'x': 1}", "update t set s = {'x': 1} where id = 1"):
        with pytest.raises(
            (SchemaMismatch, InvalidConfig), match="(?i)fields? x has none of a, b|at least one matching"
        ):
            session.sql(text)
    assert session.table("t").snapshot().version == version
