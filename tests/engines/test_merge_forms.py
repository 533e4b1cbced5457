"""Merges by fields of structs and by expressions, and merges that name columns which the table does not have yet."""

from __future__ import annotations

import duckdb
import pytest
from deltalake import DeltaTable as DeltaRs

from duckrun import DuplicateSourceKeys, InvalidConfig, MergeClause, MergeSpec, SchemaMismatch
from duckrun.session import Session
from tests.lake import rows_of

NESTED = (
    "create table t (info struct(id bigint, part struct(k varchar)), v varchar);"
    "insert into t values ({'id': 1, 'part': {'k': 'a'}}, 'old'), ({'id': 2, 'part': {'k': 'b'}}, 'old'), (null, 'none')"
)
KEYED = "create table t (id bigint, v varchar); insert into t values (1, 'a'), (2, 'b')"


@pytest.mark.parametrize(
    "merge",
    [
        "merge into t using (select 2 as id, 'new' as v union all select 9, 'no') as s on t.info.id = s.id "
        "when matched then update set v = s.v",
        "merge into t using (select '2' as id, 'new' as v) as s on t.info.id = s.id "
        "when matched then delete when not matched by source then update set v = 'gone'",
        "merge into t using (select {'id': 1, 'part': {'k': 'x'}} as info, 'new' as v union all select {'id': 5, 'part': null}, 'add') as s "
        "on t.info.id = s.info.id when matched then update set info = s.info, v = s.v when not matched then insert values (s.info, s.v)",
        "merge into t using (select 'b' as k) as s on s.k = t.info.part.k and t.v = 'old' when matched then update set v = s.k || t.v",
        "merge into t using (select 'B' as k) as s on upper(t.info.part.k) = s.k when matched then delete",
    ],
)
def test_a_merge_by_a_field_of_a_struct_or_an_expression_leaves_the_rows_that_duckdb_would(
    session: Session, merge: str
) -> None:
    native = duckdb.connect()
    native.execute(f"{NESTED}; {merge}")
    session.sql(NESTED)
    session.sql(merge)
    assert rows_of(session.sql("from t")) == rows_of(native.sql("from t").to_arrow_table())


def test_the_builder_and_star_take_fields_of_structs_as_keys(session: Session) -> None:
    session.sql(NESTED)
    changes = session.sql("select {'id': 2, 'part': {'k': 'z'}} as info, 'new' as v").alias("s")
    merge = session.table("t").alias("t").merge(changes, "t.info.id = s.info.id")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    assert rows_of(session.sql("select info.id, info.part.k, v from t where info is not null")) == [
        (1, "a", "old"),
        (2, "z", "new"),
    ]
    start = (
        "merge into t using (values (2, 'x'), {}) as s(id, v) on t.info.id = s.id when matched then update set v = s.v"
    )
    with pytest.raises(DuplicateSourceKeys, match=r"info\.id = 2"):
        session.sql(start.format("(2, 'y')"))
    with pytest.raises(SchemaMismatch, match=r"info\.id cannot hold the value two"):
        session.sql("merge into t using (select 'two' as id) as s on t.info.id = s.id when matched then delete")
    with pytest.raises(InvalidConfig, match="has no key"):
        session.sql("merge into t using (values (2)) as s(id) on t.info.id > s.id when matched then delete")


def test_a_merge_adds_the_columns_that_its_clauses_name_with_the_types_of_the_source(session: Session) -> None:
    session.sql(KEYED)
    session.sql(
        "merge with schema evolution into t using (select 2 as id, 'x' as v, cast(5 as smallint) as z, 1 as other union all "
        "select 3, 'y', cast(6 as smallint), 1) as s on t.id = s.id when matched then update set v = s.v || t.v, z = s.z + 1 "
        "when not matched then insert (id, z) values (s.id, s.z)"
    )
    assert rows_of(session.sql("from t")) == [(1, "a", None), (2, "xb", 6), (3, None, 6)]
    changes = session.sql("select 3 as key, date '2024-01-01' as day, 7 as unused").alias("s")
    merge = session.table("t").alias("t").merge(changes, "t.id = s.key")
    merge.whenMatchedUpdate(set={"day": "s.day"}).withSchemaEvolution().execute()
    clauses = (MergeClause("matched_update", set={"n": "source.n * 2"}),)
    session.execute(
        "t",
        MergeSpec(("id",), clauses, schema_mode="append_new_columns"),
        session.sql("select 1 as id, 4 as n, true as more"),
    )
    fields = DeltaRs(session.table("t").ref.location).schema().fields
    assert [(field.name, field.type.type) for field in fields] == [
        ("id", "long"),
        ("v", "string"),
        ("z", "short"),
        ("day", "date"),
        ("n", "integer"),
    ]
    assert rows_of(session.sql("select id, z, cast(day as varchar), n from t")) == [
        (1, None, None, 8),
        (2, 6, None, None),
        (3, 6, "2024-01-01", None),
    ]
    with pytest.raises(InvalidConfig, match="no column 'q' to set"):
        session.sql(
            "merge with schema evolution into t using (select 1 as id) as s on t.id = s.id when matched then update set q = 1"
        )
    with pytest.raises(InvalidConfig, match="no column 'q' to set"):
        session.sql(
            "merge into t using (select 1 as id, 2 as q) as s on t.id = s.id when matched then update set q = s.q"
        )
