"""The constraints of an enforced model contract, on every row or on the table as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dbt.adapters.duckrun.model.expressions import target_sql
from dbt.adapters.duckrun.model.values import match, unquoted
from dbt.adapters.events.logging import AdapterLogger

from duckrun.errors import InvalidConfig
from duckrun.libraries import exp
from duckrun.sql.on_demand import alike, dialects, placing
from duckrun.values.frozen import frozen
from duckrun.values.rows import TableConstraints

logger = AdapterLogger("Duckrun")


@frozen
class Constraints:
    """The constraints of a model."""

    not_null: tuple[str, ...] = ()
    checks: tuple[tuple[str, str], ...] = ()
    """Pairs of a name and SQL over the table's columns."""
    unique: tuple[tuple[str, ...], ...] = ()
    """One tuple of columns for each key."""

    def __bool__(self) -> bool:
        return bool(self.not_null or self.checks or self.unique)


def parse_constraints(node: str, model: Mapping[str, Any]) -> Constraints:
    """Return the constraints of a model and its columns; empty if no contract is enforced.

    dbt warns of foreign keys and custom constraints (see unsupported_constraints).

    Raises:
        InvalidConfig: A check has no expression, or its SQL cannot be parsed.
    """
    contract = (model.get("config") or {}).get("contract") or {}
    if not contract.get("enforced"):
        return Constraints()
    not_null: list[str] = []
    checks: dict[str, str] = {}
    unique: list[tuple[str, ...]] = []
    for kind, constraint, columns in _all(model):
        if kind in ("not_null", "primary_key"):
            not_null += columns
        if kind in ("unique", "primary_key") and columns:
            unique.append(tuple(columns))
        if kind == "check":
            text = constraint.get("expression")
            if not text:
                raise InvalidConfig(f"{node}: a check constraint has no expression.")
            name = constraint.get("name") or f"check_{'_'.join(columns) or 'row'}"
            name = name if name not in checks else f"{name}_{len(checks)}"
            checks[name] = target_sql(node, f"constraint {name}", text)
    return Constraints(tuple(dict.fromkeys(not_null)), tuple(checks.items()), tuple(dict.fromkeys(unique)))


def unsupported_constraints(model: Mapping[str, Any]) -> list[str]:
    """Return the kinds of constraints in an enforced contract that nothing enforces.

    Constraints with ``warn_unsupported: false`` are left out.
    """
    config = model.get("config") or {}
    if not (config.get("contract") or {}).get("enforced") or config.get("materialized") == "view":
        return []  # dbt itself warns of all constraints of a view
    kinds = [kind for kind, constraint, _ in _all(model) if constraint.get("warn_unsupported", True)]
    return [kind for kind in dict.fromkeys(kinds) if kind in ("foreign_key", "custom")]


def kept_in_table(node: str, constraints: Constraints, source: Sequence[str]) -> TableConstraints:
    """Return the constraints that the table imposes on every writer, in its column names."""
    checks = {}
    for name, check in constraints.checks:
        tree = dialects.tree_in(check, "duckdb")
        columns = list(tree.find_all(exp.Column))
        # A condition that writers may evaluate differently is checked by the model's writes alone.
        if not alike.is_same_in_all(tree) or not columns or any(match(c.name, source) is None for c in columns):
            logger.debug(
                f"{node}: the check {name} ({check}) is held by this model's writes, and not kept in its table."
            )
            continue
        for column in columns:
            placing.set_part(column, "this", exp.to_identifier(match(column.name, source), quoted=True))
        # A NULL condition passes SQL's CHECK, but not Delta's.
        checks[name] = f"coalesce({dialects.text_in(tree, 'duckdb')}, true)"
    not_null = tuple(spelled for name in constraints.not_null if (spelled := match(name, source)) is not None)
    return TableConstraints(not_null, checks)


def _all(model: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], list[str]]]:
    """Yield each constraint of the columns and the model, with its kind and its columns."""
    columns = (model.get("columns") or {}).values()
    listed = [(each, [column["name"]]) for column in columns for each in column.get("constraints") or []]
    listed += [(each, [unquoted(n) for n in each.get("columns") or []]) for each in model.get("constraints") or []]
    for constraint, names in listed:
        kind = constraint.get("type")
        yield str(getattr(kind, "value", kind)), constraint, names
