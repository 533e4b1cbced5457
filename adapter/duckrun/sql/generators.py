"""DuckDB's unnest() and series as Spark's generators.

Spark allows one generator per SELECT, and none inside an expression.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlglot import exp

from duckrun.sql.building import call, number, spark_sql, untranslated
from duckrun.sql.layers import Layers, named
from duckrun.sql.times import as_timestamp, is_interval, may_hold_months


def lifted(select: exp.Select) -> exp.Expr:
    """Return a SELECT whose generators stand alone, as Spark requires.

    A SELECT with several generators, or with generators inside expressions, becomes three queries.
    The inner one computes the lists. The next one turns them into rows. The outer one computes the
    expressions over the elements. Several lists are read side by side; NULL fills up the shorter
    ones.
    """
    count = sum(len(list(_generators(item))) for item in select.expressions)
    alone = count == 1 and any(isinstance(item.unalias(), exp.Explode) for item in select.expressions)
    if count == 0 or (alone and not _over_rows(select)):
        return select
    return _Lifting(select).outer()


def _over_rows(select: exp.Select) -> bool:
    """Return True if a SELECT list has a window function.

    Window functions run before unnest() in DuckDB, and after it in Spark.
    """
    return any(item.find(exp.Window) is not None for item in select.expressions)


def _generators(node: exp.Expr) -> Iterator[exp.Explode]:
    """Yield the generators of an expression, without those of inner queries."""
    for part in node.walk(prune=lambda n: isinstance(n, exp.Query | exp.Explode)):
        if isinstance(part, exp.Explode):
            yield part


def generates(node: exp.Expr) -> bool:
    """Return True for an expression that contains a generator."""
    return next(_generators(node), None) is not None


class _Lifting:
    """The three queries that one SELECT with generators becomes."""

    def __init__(self, select: exp.Select) -> None:
        stars = sum(item.is_star for item in select.expressions)
        if stars > 1:
            raise untranslated("unnest() inside of an expression beside several *", "name the columns, or ")
        self.select, self.has_star = select, bool(stars)
        self.layers = Layers(select)
        self.layers.inner.set("expressions", [])
        self.lists: list[exp.Expr] = []

    def outer(self) -> exp.Expr:
        inner = self.layers.inner
        places: dict[int, int] = {}
        results: list[exp.Expr] = []
        for place, item in enumerate(self.select.expressions, 1):
            results.append(self._item(item))
            places[place] = len(inner.expressions)
        _renumber(inner.args.get("group"), places)
        outer = self.layers.outer(results, inner)
        lists = [self.layers.added(each) for each in self.lists]
        elements = [exp.to_identifier(_element(i), quoted=True) for i in range(len(lists))]
        if len(lists) == 1:
            rows: exp.Expr = exp.alias_(call("explode", *lists), elements[0])
        else:  # arrays_zip() of a NULL list is NULL
            filled = [call("coalesce", each, exp.Array()) for each in lists]
            rows = exp.Aliases(this=call("inline", call("arrays_zip", *filled)), expressions=elements)
        source = outer.args["from_"].this
        source.set("this", exp.Select(expressions=[exp.Star(), rows]).from_(inner.subquery("_lists")))
        for star in results:
            if isinstance(star, exp.Star):
                hidden = [*self.layers.names, *(_element(i) for i in range(len(lists)))]
                star.set("except_", [named(name) for name in hidden])
        return outer

    def _item(self, item: Any) -> exp.Expr:
        if item.is_star:
            self.layers.inner.append("expressions", item.copy())
            return exp.Star()
        name = item.alias_or_name or item.sql("duckdb")
        if generates(item):
            value = self.layers.over(item.unalias(), self._instead)
        elif self.has_star:
            value = self.layers.added(item.unalias())
        else:  # keeps its name, which GROUP BY may use
            self.layers.inner.append("expressions", exp.alias_(item.unalias().copy(), name, quoted=True))
            return named(name)
        return exp.alias_(value, name, quoted=True)

    def _instead(self, node: Any) -> exp.Expr | None:
        if isinstance(node, exp.Explode):
            if node.expressions:
                raise untranslated("unnest() with options inside of an expression")
            self.lists.append(node.this.copy())
            return named(_element(len(self.lists) - 1))
        is_whole = not generates(node) and node.find(exp.Column, exp.AggFunc, exp.Query) is not None
        return self.layers.added(node) if is_whole else None


def _element(index: int) -> str:
    return f"_element_{index}"


def _renumber(group: Any, places: dict[int, int]) -> None:
    """Adapt the column numbers of GROUP BY to the inner query."""
    for key in [] if group is None else group.expressions:
        if isinstance(key, exp.Literal) and key.is_int:
            key.replace(number(places[int(key.name)]))


# -- series


def series(node: Any) -> exp.Expr:
    """Translate ``generate_series(a, b, step)`` and ``range(…)``.

    They are empty if the step leads away from the end; Spark's sequence() counts down by itself, or
    fails.
    """
    step = node.args.get("step") or number(1)
    if is_interval(step):
        return _series_of_times(node, step)
    start, end = (_whole(node.args[key]) for key in ("start", "end"))
    down = isinstance(step, exp.Neg)
    if not isinstance(step.this if down else step, exp.Literal):
        step = _whole(step)
        if node.args.get("is_end_exclusive"):
            end = spark_sql("CAST(b - sign(step) AS BIGINT)", b=end, step=step)
        away = spark_sql("(step > 0 AND b < a OR step < 0 AND b > a)", a=start, b=end, step=step)
    else:
        if node.args.get("is_end_exclusive"):
            end = _plus(end, 1 if down else -1)
        compare: Any = exp.LT if down else exp.GT
        away = compare(this=start, expression=end)
        known = isinstance(start, exp.Literal) and isinstance(end, exp.Literal) and not down
        if known and int(start.name) <= int(end.name):
            return call("sequence", *(exp.cast(each, "bigint") for each in (start, end)), *_unless_one(step))
    rows = call("sequence", start.copy(), end.copy(), *_unless_one(step))
    return spark_sql(
        "CASE WHEN away THEN CAST(array() AS ARRAY<BIGINT>) WHEN NOT away THEN rows END", away=away, rows=rows
    )


def _unless_one(step: exp.Expr) -> list[exp.Expr]:
    return [] if isinstance(step, exp.Literal) and step.name == "1" else [step.copy()]


def _plus(value: exp.Expr, more: int) -> exp.Expr:
    if isinstance(value, exp.Literal):
        return number(int(value.name) + more)
    return exp.Add(this=value, expression=number(more))


def _whole(value: Any) -> exp.Expr:
    return value if isinstance(value, exp.Literal) and value.is_int else exp.cast(value.copy(), "bigint")


def _series_of_times(node: Any, step: exp.Expr) -> exp.Expr:
    """Translate a series of timestamps or dates.

    DuckDB adds the step again and again; Spark multiplies it. The days differ where a month is too
    short.
    """
    start, end = as_timestamp(node.args["start"]), as_timestamp(node.args["end"])
    there = "((b >= a AND a + step > a) OR (b <= a AND a + step < a))"
    rows = "sequence(a, b, step)"
    if node.args.get("is_end_exclusive"):
        rows = f"filter({rows}, t -> t <> b)"
    late = ""
    if may_hold_months(step):
        words = "a series by months from a day after the 28th is another one on Spark: run this with engine: duckdb"
        late = f"WHEN extract(DAY FROM a) > 28 THEN raise_error('{words}') "
    return spark_sql(
        f"CASE {late}WHEN {there} THEN {rows} WHEN NOT {there} THEN array() END", a=start, b=end, step=step
    )


_FIRST_COLUMN = {True: "range", False: "generate_series"}  # by is_end_exclusive: DuckDB's names


def series_table(node: Any) -> exp.Expr:
    """Translate ``from range(10) as t(i)``: Spark allows a series as rows in a SELECT only."""
    alias = node.args.get("alias")
    name = _FIRST_COLUMN[bool(node.this.args.get("is_end_exclusive"))]
    return _rows([series(node.this)], alias, [name], "_series", joined=isinstance(node.parent, exp.Join))


def unnest_table(node: Any) -> exp.Expr:
    """Translate ``join unnest(t.list) as u(x) on …``.

    sqlglot would drop the join's condition, and whether it is an outer join.
    """
    if node.args.get("offset"):
        raise untranslated("WITH ORDINALITY")
    if not isinstance(node.parent, exp.Join):
        return node
    return _rows(node.expressions, node.args.get("alias"), ["unnest"] * len(node.expressions), "_unnest", joined=True)


def _rows(lists: list[exp.Expr], alias: Any, names: list[str], table: str, *, joined: bool) -> exp.Expr:
    aliases = [] if alias is None else [column.name for column in alias.columns]
    names = [*aliases, *names[len(aliases) :]]
    columns = [
        exp.alias_(exp.Explode(this=each.copy()), name, quoted=True) for each, name in zip(lists, names, strict=True)
    ]
    called = alias.this if alias is not None and alias.this is not None else exp.to_identifier(table, quoted=True)
    query: Any = lifted(exp.Select(expressions=columns))
    rows = query.subquery()
    if joined:  # only LATERAL may use columns of the preceding tables
        return exp.Lateral(this=rows, alias=exp.TableAlias(this=called))
    rows.set("alias", exp.TableAlias(this=called))
    return rows
