"""A field of a struct that may not be NULL, in a table that another writer made."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import DeltaTable as DeltaRs, Schema

from duckrun import SQL, MergeSpec, SchemaMismatch, WriteSpec
from duckrun.session import Session
from tests.lake import rows_of

pytestmark = pytest.mark.formats

INFO = pa.struct([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.string())])
GOOD = "select 1 as id, {'a': cast(1 as bigint), 'b': 'x'} as info"
BAD = "select 1 as id, {'a': cast(null as bigint), 'b': 'y'} as info"


@pytest.mark.only_format("delta", "a DuckLake has no NOT NULL inside of types")
def test_a_null_in_a_field_that_is_not_null_fails_each_write_and_an_overwrite_keeps_the_constraint(
    session: Session,
) -> None:
    location = session.ref("t").location
    DeltaRs.create(location, Schema.from_arrow(pa.schema([pa.field("id", pa.int32()), pa.field("info", INFO)])))
    session.execute("t", WriteSpec("append"), SQL(GOOD))
    session.execute("t", WriteSpec("append"), SQL("select 2 as id, {'a': 2, 'b': null} as info"))
    none = SQL("select 3 as id, cast(null as struct(a bigint, b varchar)) as info")
    with pytest.raises(SchemaMismatch, match=r"(?s)table main\.t.*(info\.a|NOT_NULL)"):  # as Spark and delta_rs have it
        session.execute("t", WriteSpec("append"), none)
    specs = (WriteSpec("append"), MergeSpec(("id",)), WriteSpec("overwrite"))
    for spec in specs:
        with pytest.raises(SchemaMismatch, match=r"(?s)table main\.t.*(info\.a|NOT.NULL)"):
            session.execute("t", spec, SQL(BAD))
    with pytest.raises(SchemaMismatch, match=r"(?s)table main\.t.*(info\.a|NOT.NULL)"):
        session.sql("update t set info = {'a': null, 'b': 'y'} where id = 1")
    assert rows_of(session.sql("from t")) == [(1, {"a": 1, "b": "x"}), (2, {"a": 2, "b": None})]
    session.execute("t", specs[1], SQL("select 2 as id, {'a': 5, 'b': 'z'} as info"))
    session.execute("t", specs[2], SQL(GOOD))
    assert rows_of(session.sql("from t")) == [(1, {"a": 1, "b": "x"})]
    assert '{"name":"a","type":"long","nullable":false' in DeltaRs(location).schema().to_json()
    with pytest.raises(SchemaMismatch):
        session.execute("t", specs[0], SQL(BAD))
