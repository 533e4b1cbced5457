"""A VOID column, Spark's type of nothing but NULL, which Delta Kernel does not know. Budget: a minute."""

from __future__ import annotations

from typing import Any

import pytest

from duckrun import SQL, MergeSpec, SchemaMismatch, UnsupportedFeature, WriteSpec
from duckrun.session import Session
from tests.lake import by_another, rows_of

pytestmark = [pytest.mark.only_format("delta", "it is a type of Delta's"), pytest.mark.spark]


def test_a_table_with_a_void_column_is_read_changed_and_rid_of_it(duck: Session, spark: Any) -> None:
    at = f"delta.`{duck.ref('t').location}`"
    spark.sql(f"create table {at} using delta as select 1 as id, null as v, 'a' as x")
    assert rows_of(duck.sql("from t")) == [(1, None, "a")]
    assert rows_of(duck.sql("select id from t where v is null")) == [(1,)]
    duck.sql("insert into t values (2, null, 'b'), (3, null, 'c'); insert into t (id) values (4)")
    duck.sql("update t set x = 'u' where id = 2; delete from t where id = 3")
    duck.execute("t", MergeSpec(("id",)), SQL("select 5 as id, null as v, 'm' as x"))
    expected = [(1, None, "a"), (2, None, "u"), (4, None, None), (5, None, "m")]
    assert rows_of(duck.sql("from t")) == expected == rows_of(by_another(duck, "t"))
    assert sorted(tuple(row) for row in spark.sql(f"select * from {at} where x is not null").collect()) == [
        expected[0],
        expected[1],
        expected[3],
    ]
    with pytest.raises(SchemaMismatch, match="v is"):
        duck.execute("t", WriteSpec("append"), SQL("select 6 as id, 7 as v, 'x' as x"))
    duck.sql("alter table t drop column v")
    assert rows_of(duck.sql("from t")) == [(id, x) for id, _, x in expected] == rows_of(by_another(duck, "t"))


def test_one_beside_nested_columns_is_refused_by_its_name(duck: Session, spark: Any) -> None:
    spark.sql(f"create table delta.`{duck.ref('t').location}` using delta as select array(1) as a, null as v")
    with pytest.raises(UnsupportedFeature, match=r"main\.t: column v is VOID.*engine: spark"):
        duck.sql("from t").collect()
