"""Random statements that change rows, over two small tables: t, which changes, and s, whose ids are unique."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.string()), ("v", pa.int32()), ("d", pa.float64())])

ids = st.one_of(st.none(), st.integers(0, 6))
words = st.one_of(st.none(), st.sampled_from(["a", "b", "B", "", "it's", "x;y", "ü"]))
small = st.one_of(st.none(), st.integers(-3, 9))
reals = st.one_of(st.none(), st.sampled_from([-1.5, 0.0, 0.25, 2.0, 7.75]))


@dataclass(frozen=True)
class Statement:
    """SQL with ``{t}`` and ``{s}`` where the names of the tables go. ``kind`` says which engines have it natively."""

    kind: str
    sql: str


@st.composite
def rows(draw: Any, unique: bool = False) -> pa.Table:
    """Rows of either table; ``unique`` ids for a source."""
    size = draw(st.integers(0, 7))
    keys = draw(st.lists(ids, min_size=size, max_size=size, unique=unique))
    return pa.Table.from_pylist(
        [{"id": key, "k": draw(words), "v": draw(small), "d": draw(reals)} for key in keys], schema=SCHEMA
    )


def literal(value: Any) -> str:
    if value is None:
        return "NULL"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)


@st.composite
def number(draw: Any, sides: tuple[str, ...]) -> str:
    """A number over columns of the sides, for an integer column: engines round it or cut it."""
    side = draw(st.sampled_from(sides))
    column = f"{side}.v"
    return draw(
        st.sampled_from([
            column, f"{column} + 1", f"- {column}", f"{column} * 2", f"coalesce({column}, 0)", "7", "NULL",
            f"case when {side}.k = 'a' then 1 else {column} end", f"abs({column})",
            f"{side}.d * 3", "2.5",
        ])
    )  # fmt: skip


@st.composite
def text(draw: Any, sides: tuple[str, ...]) -> str:
    column = f"{draw(st.sampled_from(sides))}.k"
    value = literal(draw(words))
    return draw(
        st.sampled_from([column, f"upper({column})", f"concat({column}, '!')", f"coalesce({column}, 'n')", value])
    )


@st.composite
def condition(draw: Any, sides: tuple[str, ...]) -> str:
    left, right = draw(number(sides)), draw(st.sampled_from(["0", "2", "5"]))
    word = f"{draw(st.sampled_from(sides))}.k"
    tests = [
        f"{left} > {right}", f"{left} = {right}", f"{left} is null", f"{word} = 'a'", f"{word} in ('b', 'x;y')",
        f"not ({left} < {right})", f"{draw(st.sampled_from(sides))}.d >= 1", f"{word} like '%a%'",
    ]  # fmt: skip
    first, second = draw(st.sampled_from(tests)), draw(st.sampled_from(tests))
    return draw(st.sampled_from([first, f"{first} and {second}", f"({first} or {second})"]))


@st.composite
def assignments(draw: Any, sides: tuple[str, ...]) -> str:
    values = {"v": draw(number(sides)), "k": draw(text(sides)), "d": f"{draw(st.sampled_from(sides))}.d + 0.5"}
    chosen = draw(st.lists(st.sampled_from(list(values)), min_size=1, max_size=3, unique=True))
    return ", ".join(f"{column} = {values[column]}" for column in chosen)


@st.composite
def insert(draw: Any) -> Statement:
    row = lambda: f"({literal(draw(ids))}, {literal(draw(words))}, {literal(draw(small))}, {literal(draw(reals))})"  # noqa: E731
    form = draw(st.sampled_from(["values", "select", "columns", "cte", "self"]))
    if form == "values":
        return Statement(
            "insert", f"insert into {{t}} values {', '.join(row() for _ in range(draw(st.integers(1, 3))))}"
        )
    where = draw(condition(("s",)))
    if form == "columns":
        return Statement("insert", f"insert into {{t}} (k, id) select s.k, s.id from {{s}} as s where {where}")
    if form == "self":
        return Statement("insert", "insert into {t} select s.id + 10, s.k, s.v, s.d from {t} as s where s.v > 1")
    query = f"select s.id, s.k, {draw(number(('s',)))}, s.d from {{s}} as s where {where}"
    if form == "cte":
        return Statement("insert", f"insert into {{t}} with q as ({query}) select * from q")
    return Statement("insert", f"insert into {{t}} {query}")


@st.composite
def change(draw: Any) -> Statement:
    form = draw(st.sampled_from(["update", "delete", "update_from", "delete_using", "update_in", "delete_in"]))
    t, both = ("t",), ("t", "s")
    if form == "update":
        return Statement("update", f"update {{t}} as t set {draw(assignments(t))} where {draw(condition(t))}")
    if form == "delete":
        return Statement("delete", f"delete from {{t}} as t where {draw(condition(t))}")
    if form == "update_from":
        where = f"t.id = s.id and {draw(condition(both))}"
        return Statement(
            "update_from", f"update {{t}} as t set {draw(assignments(both))} from {{s}} as s where {where}"
        )
    if form == "delete_using":
        return Statement(
            "delete_using", f"delete from {{t}} as t using {{s}} as s where t.id = s.id and {draw(condition(both))}"
        )
    inner = f"(select s.id from {{s}} as s where {draw(condition(('s',)))} and s.id is not null)"
    if form == "update_in":
        return Statement("update_in", f"update {{t}} as t set {draw(assignments(t))} where t.id in {inner}")
    return Statement("delete_in", f"delete from {{t}} as t where t.id not in {inner} and {draw(condition(t))}")


@st.composite
def merge(draw: Any) -> Statement:
    both = ("t", "s")
    on = "t.id = s.id" + draw(st.sampled_from(["", "", " and t.v > 0", " and s.k = 'a'"]))
    whens = []
    for _ in range(draw(st.integers(0, 2))):
        action = draw(st.sampled_from(["delete", "update", "star"]))
        test = draw(st.one_of(st.just(""), condition(both).map(lambda c: f" and {c}")))
        then = {"delete": "delete", "update": f"update set {draw(assignments(both))}", "star": "update set *"}[action]
        whens.append(f"when matched{test} then {then}")
        if not test:
            break
    if draw(st.booleans()) or not whens:
        test = draw(st.one_of(st.just(""), condition(("s",)).map(lambda c: f" and {c}")))
        then = draw(
            st.sampled_from(
                ["insert *", f"insert (id, k, v) values (s.id, {draw(text(('s',)))}, {draw(number(('s',)))})"]
            )
        )
        whens.append(f"when not matched{test} then {then}")
    if draw(st.integers(0, 3)) == 0:
        test = draw(st.one_of(st.just(""), condition(("t",)).map(lambda c: f" and {c}")))
        whens.append(f"when not matched by source{test} then {draw(st.sampled_from(['delete', 'update set v = 0']))}")
    return Statement("merge", f"merge into {{t}} as t using {{s}} as s on {on} {' '.join(whens)}")


statements = st.one_of(insert(), change(), change(), merge(), merge())
NOT_IN_SPARK = {"update_from", "delete_using", "update_in", "delete_in"}
