"""DuckDB's date and time arithmetic in Spark's SQL."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from duckrun.sql.building import call, number, spark_rule, spark_sql, untranslated
from duckrun.sql.dates import gives_days

MONTHS = {"month": 1, "quarter": 3, "year": 12, "decade": 120, "century": 1200}
_PLACES = {"week": 0, "day": 0, "hour": 1, "minute": 2, "second": 3}  # in make_dt_interval
_MADE = ("make_ym_interval", "make_dt_interval", "make_interval")
_TIMES = (
    exp.DataType.Type.TIMESTAMP,
    exp.DataType.Type.TIMESTAMPTZ,
    exp.DataType.Type.TIMESTAMPLTZ,
    exp.DataType.Type.TIMESTAMPNTZ,
)


_UNITS = frozenset(
    ("microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year")
)
"""Units that Spark truncates and counts by; another one gives NULL or a different error."""


def day_of_week(node: Any) -> exp.Expr:
    """Return the day of the week with Sunday as 0; Spark's Sunday is 1."""
    return spark_sql("(dayofweek(x) - 1)", x=node)


iso_day_of_week = spark_rule("(weekday(x) + 1)")
"""Return the day of the week with Monday as 1; sqlglot's formula starts on Sunday."""


def extract(node: Any) -> exp.Expr:
    part = node.this.name.lower()
    if part in ("dow", "dayofweek", "weekday"):
        return day_of_week(node.expression)
    # Spark's part has the fraction of the second, too.
    return call("second", node.expression) if part in ("second", "seconds", "sec", "s") else node


def date_diff(node: Any) -> exp.Expr:
    """Count the boundaries between two times, as DuckDB does.

    31 January to 1 February is one month; Spark counts whole units. For weeks both count whole ones
    of seven days, DuckDB from midnight to midnight.
    """
    unit = node.args.get("unit") or exp.var("DAY")
    _refuse_unit("date_diff", unit)
    if unit.name.lower() == "week":
        return spark_sql("(datediff(a, b) DIV 7)", a=node.this, b=node.expression)
    part = exp.Literal.string(unit.name)
    cut = [call("date_trunc", part.copy(), side) for side in (node.expression, node.this)]
    return call("timestampdiff", exp.var(unit.name), *cut)


def _refuse_unit(name: str, unit: exp.Expr) -> None:
    if unit.name.lower() not in _UNITS:
        raise untranslated(f"{name} with the unit {unit.name.lower()}")


def date_add(node: Any) -> exp.Expr:
    """Translate ``date_add(d, interval …)``: Spark's function takes a number of days."""
    interval = node.expression
    return exp.Paren(this=plus(exp.Add(this=node.this, expression=interval))) if is_interval(interval) else node


def interval(node: Any) -> exp.Expr:
    """Translate ``interval (n) day``: Spark's interval literal needs a literal number."""
    amount = node.this.unnest() if node.this is not None else None
    if amount is None or node.args.get("unit") is None:
        return node
    if isinstance(amount, exp.Literal):
        node.set("this", exp.Literal.string(amount.name))
        return node
    return interval_of(amount, node.args["unit"].name)


def interval_of(amount: exp.Expr, unit: str) -> exp.Expr:
    """Return an interval of a computed number."""
    unit = unit.lower().removesuffix("s")
    if unit in MONTHS:
        return call("make_ym_interval", number(0), _times(amount, MONTHS[unit]))
    if unit not in _PLACES:
        raise untranslated(f"interval … {unit} of an amount that is computed")
    return call(
        "make_dt_interval", *(number(0) for _ in range(_PLACES[unit])), _times(amount, 7 if unit == "week" else 1)
    )


def _times(amount: exp.Expr, factor: int) -> exp.Expr:
    return amount if factor == 1 else exp.Mul(this=exp.Paren(this=amount), expression=number(factor))


def truncated(node: Any) -> exp.Expr:
    """Translate ``date_trunc``: DuckDB's has no zone for a date or a zoneless timestamp.

    Spark's result always has a zone. A branch that never runs gives the result its type.
    """
    _refuse_unit("date_trunc", node.unit)
    part = call("date_trunc", exp.Literal.string(node.unit.name), node.this)
    return spark_sql("if(FALSE, x, CAST(part AS TIMESTAMP_NTZ))", x=node.this, part=part)


def plus(node: Any) -> exp.Expr:
    """Translate a date plus or minus an interval: DuckDB gives a timestamp, also for days."""
    left, right = node.this, node.expression
    if is_interval(right) and not is_interval(left):
        node.set("this", as_timestamp(left))
    elif isinstance(node, exp.Add) and is_interval(left) and not is_interval(right):
        node.set("expression", as_timestamp(right))
    elif gives_days(node):
        return exp.cast(call("datediff", left, right), "bigint")
    return node


def as_timestamp(value: Any) -> exp.Expr:
    """Return a date as the timestamp at its midnight; a timestamp stays unchanged.

    Column types are unknown here, but not to Spark: a date and a timestamp have the timestamp's
    type in common.
    """
    if _is_time(value) or isinstance(value, exp.Literal):
        return value.copy()
    return spark_sql("coalesce(x, CAST(NULL AS TIMESTAMP_NTZ))", x=value)


def is_interval(node: Any) -> bool:
    """Return True for an expression whose form shows an interval; no table has such a column."""
    match node:
        case exp.Interval():
            return True
        case exp.Paren() | exp.Neg():
            return is_interval(node.this)
        case exp.Mul() | exp.Div():
            return is_interval(node.this) or is_interval(node.expression)
        case exp.Add() | exp.Sub():
            return is_interval(node.this) and is_interval(node.expression)
        case exp.Cast():
            return bool(node.to.this in exp.DataType.Type.__members__.values() and "INTERVAL" in node.to.this.name)
        case exp.Anonymous():
            return str(node.this).lower() in _MADE
    return False


def may_hold_months(node: exp.Expr) -> bool:
    """Return True unless an interval has days or shorter units only."""
    for part in node.walk():
        if isinstance(part, exp.Interval):
            unit = part.args.get("unit")
            if unit is None or unit.name.lower().removesuffix("s") not in _PLACES:
                return True
        elif isinstance(part, exp.Anonymous) and str(part.this).lower() == "make_ym_interval":
            return True
    return False


def _is_time(node: Any) -> bool:
    match node:
        case exp.Paren():
            return _is_time(node.this)
        case exp.Cast():
            return node.to.this in _TIMES
        case exp.CurrentTimestamp():
            return True
        case exp.Add() | exp.Sub():
            return is_interval(node.this) != is_interval(node.expression)
        case exp.Coalesce():
            return _is_time(node.expressions[-1])
    return False
