"""A join of two tables that both change, kept up by differences: the view that is maintained equals the full query, always.

The rule: what comes to a join is the change of one side with the other side as it is after, and the other side's change with the first as it
was before. Source: A. Gupta, I. S. Mumick, V. S. Subrahmanian, Maintaining Views Incrementally, SIGMOD 1993 (the counting algorithm).
"""

from __future__ import annotations

import random
from typing import Any

import duckrun
from duckrun import SQL, Session, WriteSpec
from tests.drawing import everything, seed
from tests.lake import rows_of

FULL = "select i.item, sum(i.n * p.cents) as cents, count(*) as n from items i join prices p using (item) group by 1"
# The weight of a row: one more, or one less.
SIGN = "case when _change_type in ('insert', 'update_postimage') then 1 else -1 end as sign"
DIFFERENCE = f"""
    with d as (
        select i.item, i.sign, i.n * p.cents as cents from (select *, {SIGN} from items_changed) i join prices_after p using (item)
        union all
        select p.item, p.sign, i.n * p.cents as cents from items_before i join (select *, {SIGN} from prices_changed) p using (item)
    )
    select item, sum(sign * cents) as cents, sum(sign) as n from d group by 1
"""
# A group that came and went within the range weighs nothing, and is no row.
MERGE = """
    merge into mart t using difference d on t.item = d.item
    when matched and t.n + d.n = 0 then delete
    when matched then update set cents = t.cents + d.cents, n = t.n + d.n
    when not matched and d.n > 0 then insert (item, cents, n) values (d.item, d.cents, d.n)
"""


def maintain(session: Session, seen: dict[str, int]) -> None:
    """Bring the mart forward by what changed in both tables since it was."""
    items = session.table("items").changes("min_delta", seen["items"], key=["id"])
    prices = session.table("prices").changes("min_delta", seen["prices"], key=["item"])
    for name, frame in (
        ("items_changed", items),
        ("items_before", items.before()),
        ("prices_changed", prices),
        ("prices_after", prices.after()),
    ):
        frame.createOrReplaceTempView(name)
    session.register("difference", session.sql(DIFFERENCE).toArrow())
    session.sql(MERGE)
    seen |= {"items": items.to_version, "prices": prices.to_version}


def happens(session: Session, rng: random.Random) -> None:
    key = rng.randint(0, 12)
    session.sql(
        rng.choice(
            [
                f"update items set n = {rng.randint(1, 5)} where id % 3 = {key % 3}",
                f"update items set item = 'i{rng.randint(0, 5)}' where id = {key}",
                f"delete from items where id = {key}",
                f"insert into items select {100 + rng.randint(0, 10**6)} as id, 'i{rng.randint(0, 5)}' as item, {rng.randint(1, 5)} as n",
                f"update prices set cents = {rng.randint(1, 99)} where item = 'i{rng.randint(0, 5)}'",
                f"delete from prices where item = 'i{rng.randint(0, 5)}'",
                f"merge into prices using (select 'i{rng.randint(0, 5)}' as item, {rng.randint(1, 99)} as cents) s on prices.item = s.item "
                "when matched then update set * when not matched then insert *",
            ]
        )
    )


def test_a_view_maintained_by_differences_equals_the_full_query(session: Session, engine: str) -> None:
    rng = random.Random(seed())
    for mode in ("true", "false") if engine == "duckdb" else ("true",):
        properties: Any = {"delta.enableDeletionVectors": mode}
        items = "select cast(range as int) as id, 'i' || (range % 5) as item, cast(range % 3 + 1 as int) as n from range(13)"
        prices = "select 'i' || range as item, cast(range * 10 + 1 as int) as cents from range(6)"
        session.execute("items", WriteSpec("overwrite", table_properties=properties), SQL(items))
        session.execute("prices", WriteSpec("overwrite", table_properties=properties), SQL(prices))
        session.execute("mart", WriteSpec("overwrite"), SQL(FULL))
        seen = {name: session.table(name).snapshot().version for name in ("items", "prices")}
        for step in range((6 if everything() else 3) if engine == "duckdb" else 2):
            for _ in range(rng.randint(1, 4)):
                happens(session, rng)
            maintain(session, seen)
            assert rows_of(session.sql("select item, cents, n from mart")) == rows_of(session.sql(FULL)), (seed(), step)


def test_the_states_of_a_query_are_in_its_columns_and_rows(duck: Session) -> None:
    duck.execute("t", WriteSpec("overwrite"), SQL("select range as id, range % 2 as p from range(6)"))
    duck.sql("delete from t where id = 1")
    changes = duck.table("t").changes("min_delta", 0, columns=["id"], predicate="p = 1")
    assert (rows_of(changes.before()), rows_of(changes.after())) == ([(1,), (3,), (5,)], [(3,), (5,)])
    assert rows_of(duck.table("t").changes("min_delta", -1, columns=["id"]).before()) == []
    assert duckrun.Frame in type(changes).__mro__
