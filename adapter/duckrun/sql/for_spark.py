"""DuckDB's meaning in Spark's SQL: what sqlglot passes on although Spark means something else by it or does not know it.

Found by running the same statements on both engines.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp

from duckrun.errors import UnsupportedFeature
from duckrun.sql.written import dialect_of


def for_spark(root: exp.Expr) -> None:
    """Put what Spark has in the place of what it means something else by."""
    for node in reversed(list(root.this.walk())):  # from the leaves up
        if dialect_of(node) == "duckdb":
            rewritten = _rewritten(node)
            if rewritten is not node:
                node.replace(rewritten)
        elif isinstance(node, exp.ParseJSON):
            # Spark's own, which makes a VARIANT; sqlglot writes its argument alone, as other dialects have JSON as text.
            node.replace(_call("parse_json", node.this))


def _rewritten(node: exp.Expr) -> exp.Expr:
    for kind, rewrite in _RULES.items():
        if isinstance(node, kind):
            return rewrite(node)
    return node


def _function(node: Any) -> exp.Expr:
    """Functions that sqlglot does not know by their DuckDB names, and Spark has by others."""
    name, arguments = str(node.this).lower(), node.expressions
    if name == "weekday" and len(arguments) == 1:
        return _day_of_week(arguments[0])
    if name in ("date_part", "datepart") and len(arguments) == 2 and isinstance(arguments[0], exp.Literal):
        return _extract(exp.Extract(this=exp.var(arguments[0].name.upper()), expression=arguments[1]))
    if name in ("list_aggr", "list_aggregate", "array_aggr", "array_aggregate"):
        return _list_aggregate(node)
    if name in _RENAMED:
        return _call(_RENAMED[name], *node.expressions)
    return node


def _call(name: str, *arguments: exp.Expr) -> exp.Anonymous:
    """A call of a function of Spark's, by its name there."""
    return exp.Anonymous(this=name, expressions=list(arguments))


def _untranslated(what: str, otherwise: str = "") -> UnsupportedFeature:
    return UnsupportedFeature(f"{what} is not translated to Spark's SQL; {otherwise}run this with engine: duckdb.")


def _refused(what: str, where: Callable[[Any], object] = lambda node: True) -> Callable[[Any], exp.Expr]:
    def refuse(node: Any) -> exp.Expr:
        if where(node):
            raise _untranslated(what)
        return node

    return refuse


def _counts_table(node: Any) -> bool:
    """``count(t.*)`` counts rows; Spark's those in which no column is NULL."""
    return isinstance(node.this, exp.Column) and isinstance(node.this.this, exp.Star)


def _unnests_several(node: Any) -> bool:
    """Lists side by side end with the longer one; Spark makes every pair of their elements."""
    return sum(each.find(exp.Unnest, exp.Explode) is not None for each in node.expressions) > 1


def _seconds(node: Any) -> exp.Expr:
    """``to_timestamp(1.5)``: Spark's from_unixtime drops the fraction."""
    return node if node.args.get("scale") else _call("timestamp_seconds", node.this)


_RENAMED = {
    "to_binary": "bin",
    "arbitrary": "any_value",
    "error": "raise_error",
    "get_current_timestamp": "current_timestamp",
}


def _day_of_week(node: Any) -> exp.Expr:
    """Sunday is 0 in DuckDB, 1 in Spark."""
    return exp.Paren(this=exp.Sub(this=exp.DayOfWeek(this=node), expression=_number(1)))


def _extract(node: Any) -> exp.Expr:
    part = node.this.name.lower()
    return _day_of_week(node.expression) if part in ("dow", "dayofweek", "weekday") else node


def _date_diff(node: Any) -> exp.Expr:
    """DuckDB counts the boundaries between two times (31 January to 1 February is a month), Spark whole units."""
    unit = node.args.get("unit") or exp.var("DAY")
    part = exp.Literal.string(unit.name)
    cut = [_call("date_trunc", part.copy(), side) for side in (node.expression, node.this)]
    return _call("timestampdiff", exp.var(unit.name), *cut)


def _date_add(node: Any) -> exp.Expr:
    """``date_add(d, interval …)``: Spark's function takes a number of days."""
    interval = node.expression
    return exp.Paren(this=exp.Add(this=node.this, expression=interval)) if isinstance(interval, exp.Interval) else node


def _interval(node: Any) -> exp.Expr:
    """``interval (n) day``: Spark's literal takes a literal."""
    amount = node.this.unnest() if node.this is not None else None
    if amount is None or node.args.get("unit") is None:
        return node
    if isinstance(amount, exp.Literal):
        node.set("this", exp.Literal.string(amount.name))
        return node
    unit = node.args["unit"].name.lower().removesuffix("s")
    if unit in _MONTHS:
        count = (
            amount if _MONTHS[unit] == 1 else exp.Mul(this=exp.Paren(this=amount), expression=_number(_MONTHS[unit]))
        )
        return _call("make_ym_interval", _number(0), count)
    place = {"week": 0, "day": 0, "hour": 1, "minute": 2, "second": 3}.get(unit)
    if place is None:
        raise _untranslated(f"interval … {unit} of an amount that is computed")
    if unit == "week":
        amount = exp.Mul(this=exp.Paren(this=amount), expression=_number(7))
    return _call("make_dt_interval", *(_number(0) for _ in range(place)), amount)


_MONTHS = {"month": 1, "quarter": 3, "year": 12, "decade": 120, "century": 1200}


def _number(value: int) -> exp.Expr:
    return exp.Literal.number(value)


def _regexp_replace(node: Any) -> exp.Expr:
    """DuckDB replaces the first match unless told ``'g'``, and refers to groups by ``\\1``; Spark all, by ``$1``."""
    flags = node.args.get("modifiers")
    if flags is None or "g" not in flags.name:
        raise UnsupportedFeature(
            "regexp_replace without the option 'g' replaces the first match only, which Spark's does not do; add 'g', or run "
            "this with engine: duckdb."
        )
    replacement = node.args.get("replacement")
    if isinstance(replacement, exp.Literal):
        text = replacement.name.replace("$", "\\$")
        for digit in "0123456789":
            text = text.replace(f"\\{digit}", f"${digit}")
        replacement = exp.Literal.string(text)
    others = flags.name.replace("g", "")
    pattern = node.expression
    if others:
        pattern = exp.Concat(expressions=[exp.Literal.string(f"(?{others})"), pattern])
    return _call("regexp_replace", node.this, pattern, replacement or exp.Literal.string(""))


def _qualify(node: Any) -> exp.Expr:
    """sqlglot filters by a column that it adds to an inner query, and a ``*`` would take that column along."""
    if node.parent is not None and node.parent.is_star:
        raise UnsupportedFeature(
            "QUALIFY beside a * is not translated to Spark's SQL; name the columns, or filter the window function in an "
            "outer query."
        )
    return node


def _regexp_like(node: Any) -> exp.Expr:
    """``regexp_matches(s, 'a', 'i')``: Spark takes options in the pattern."""
    flags = node.args.get("flag")
    if flags is None:
        return node
    if not isinstance(flags, exp.Literal) or set(flags.name) - set("ism"):
        raise _untranslated(f"regexp_matches with the options {flags.sql()}")
    pattern = exp.Concat(expressions=[exp.Literal.string(f"(?{flags.name})"), node.expression])
    return exp.RegexpLike(this=node.this, expression=pattern)


def _within_group(node: Any) -> exp.Expr:
    """``percentile_cont(0.5) within group (order by x)``, which sqlglot writes as Spark's approximate function."""
    order = node.expression.expressions if isinstance(node.expression, exp.Order) else []
    if isinstance(node.this, exp.PercentileDisc) and order and order[0].args.get("desc"):
        raise _untranslated("percentile_disc over a descending order")
    if not isinstance(node.this, exp.PercentileCont) or len(order) != 1:
        return node
    part = node.this.this
    if order[0].args.get("desc"):
        part = exp.Paren(this=exp.Sub(this=_number(1), expression=part))
    return _call("percentile", order[0].this, part)


def _percentile(node: Any) -> exp.Expr:
    if node.expression is None:  # WITHIN GROUP, which Spark writes alike
        return node
    return _call("percentile", node.this, node.expression)


_FIRST_COLUMN = {True: "range", False: "generate_series"}  # by is_end_exclusive: DuckDB's names


def _table(node: Any) -> exp.Expr:
    """``from range(10) as t(i)``: Spark takes a series as rows in a SELECT only."""
    series = node.this
    if not isinstance(series, exp.GenerateSeries):
        return node
    alias = node.args.get("alias")
    columns = [] if alias is None else alias.columns
    name = columns[0].name if columns else _FIRST_COLUMN[bool(series.args.get("is_end_exclusive"))]
    rows: Any = exp.Explode(this=series)
    subquery = exp.Select(expressions=[exp.alias_(rows, name, quoted=True)]).subquery()
    called = alias.this if alias is not None and alias.this is not None else exp.to_identifier("_series", quoted=True)
    subquery.set("alias", exp.TableAlias(this=called))
    return subquery


def _name_of_day(node: Any) -> exp.Expr:
    """DuckDB's full names; Spark's functions give three letters."""
    pattern = "EEEE" if isinstance(node, exp.Dayname) else "MMMM"
    return _call("date_format", node.this, exp.Literal.string(pattern))


def _json(node: Any) -> exp.Expr:
    """``'…'::json``: JSON is text in a Delta table, as DuckDB stores it. Spark has no TIME."""
    if node.to.this in (exp.DataType.Type.TIME, exp.DataType.Type.TIMETZ):
        raise _untranslated("The type TIME")
    return exp.cast(node.this, "text") if node.to.this == exp.DataType.Type.JSON else node


def _array_agg(node: Any) -> exp.Expr:
    """``array_agg(x order by y)`` keeps NULLs and the order; Spark's collect_list has neither, so that it collects rows."""
    wrappers = (exp.Filter, exp.Window)
    if isinstance(node.parent, wrappers) and node.arg_key == "this":
        return node  # goes with what is around it
    outer = node.copy()
    call = outer
    while isinstance(call, wrappers):
        call = call.this
    if not isinstance(call, exp.ArrayAgg):
        return node
    value, order = call.this, []
    if isinstance(value, exp.Order):
        value, order = value.this, value.expressions
    distinct = isinstance(value, exp.Distinct)
    if distinct and order:
        raise _untranslated("array_agg(distinct … order by …)", "use list_sort(array_agg(distinct …)), or ")
    if distinct:
        (value,) = value.expressions
    parts = [("v", value), *((f"k{i}", key.this) for i, key in enumerate(order))]
    row: Any = _call(
        "named_struct", *(part for name, child in parts for part in (exp.Literal.string(name), child.copy()))
    )
    rows = _call("collect_list", exp.Distinct(expressions=[row]) if distinct else row)
    if call is outer:
        outer = rows
    else:
        call.replace(rows)
    if order:
        compared: exp.Expr = _number(0)
        for i, key in reversed(list(enumerate(order))):
            compared = _comparison(f"k{i}", key, compared)
        by = exp.Lambda(this=compared, expressions=[exp.to_identifier("l"), exp.to_identifier("r")])
        outer = _call("array_sort", outer, by)
    taken = exp.Lambda(this=exp.column("v", "item"), expressions=[exp.to_identifier("item")])
    return _call("transform", outer, taken)


def _comparison(name: str, key: Any, equal: exp.Expr) -> exp.Expr:
    """-1, 1 or what decides between equal ones: of a key of the rows ``l`` and ``r``, as ORDER BY has it."""
    left, right = exp.column(name, "l"), exp.column(name, "r")
    first, last = (1, -1) if key.args.get("desc") else (-1, 1)
    nulls = -1 if key.args.get("nulls_first") else 1
    return (
        exp.case()
        .when(exp.LT(this=left.copy(), expression=right.copy()), _number(first))
        .when(exp.GT(this=left.copy(), expression=right.copy()), _number(last))
        .when(exp.and_(left.is_(exp.null()), exp.not_(right.is_(exp.null()))), _number(nulls))
        .when(exp.and_(exp.not_(left.is_(exp.null())), right.is_(exp.null())), _number(-nulls))
        .else_(equal)
    )


def _bracket(node: Any) -> exp.Expr:
    """``list[2:3]``: Spark's slice() takes a start and a length. ``list[2]`` counts from 1, from the end where it is
    negative, and is NULL where nothing is there.
    """
    part = node.expressions[0] if len(node.expressions) == 1 else None
    if not isinstance(part, exp.Slice):
        return node if part is None or part.is_string else _element(node.this, part)
    start, end = part.this or _number(1), part.expression
    whole = all(isinstance(n, exp.Literal) and not n.is_string and n.name.isdigit() for n in (start, end))
    if not whole or int(start.name) < 1 or part.args.get("step"):
        raise _untranslated("A slice of a list whose ends are not two positive numbers")
    length = max(int(end.name) - int(start.name) + 1, 0)
    return _call("slice", node.this, start, _number(length))


def _element(whole: exp.Expr, index: Any) -> exp.Expr:
    """An element by its number, or of a map by its key. sqlglot has taken 1 from a number that is written out."""
    if index.is_int:
        number = int(index.to_py()) + 1
        index = exp.Neg(this=_number(-number)) if number < 0 else _number(number)
    return _call("try_element_at", whole, index)


def _list_aggregate(node: Any) -> exp.Expr:
    """``list_aggr(list, 'name', …)``: Spark has functions for some of the names."""
    name = node.expressions[1].name.lower() if len(node.expressions) > 1 else ""
    others = [node.expressions[0], *node.expressions[2:]]
    if name not in _OF_LISTS:
        raise _untranslated(f"list_aggr(…, {name!r})")
    return _call(_OF_LISTS[name], *others)


_OF_LISTS = {"string_agg": "array_join", "min": "array_min", "max": "array_max"}


_RULES: dict[type[exp.Expr], Callable[[Any], exp.Expr]] = {
    exp.Anonymous: _function,
    exp.ArrayAgg: _array_agg,
    exp.Bracket: _bracket,
    exp.Cast: _json,
    exp.Count: _refused("count(table.*)", _counts_table),
    exp.DayOfWeek: lambda node: _day_of_week(node.this),
    exp.Extract: _extract,
    exp.DateDiff: _date_diff,
    exp.DateAdd: _date_add,
    exp.Filter: _array_agg,
    exp.Interval: _interval,
    exp.RegexpReplace: _regexp_replace,
    exp.PercentileCont: _percentile,
    exp.RegexpLike: _regexp_like,
    exp.WithinGroup: _within_group,
    exp.Qualify: _qualify,
    exp.Table: _table,
    exp.Select: _refused("unnest() of several lists in one SELECT", _unnests_several),
    exp.Skewness: _refused("skewness(), which Spark computes by another formula,"),
    exp.Kurtosis: _refused("kurtosis(), which Spark computes by another formula,"),
    exp.UnixToTime: _seconds,
    exp.ToBinary: lambda node: _call("bin", node.this),
    exp.Unnest: _refused("WITH ORDINALITY", lambda node: node.args.get("offset")),
    exp.Dayname: _name_of_day,
    exp.Monthname: _name_of_day,
    exp.Window: _array_agg,
    exp.Week: lambda node: _call("weekofyear", node.this),
}
