"""The constraints of a model whose contract is enforced: what every row, or the table as a whole, must satisfy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dbt.adapters.duckrun.model.values import match, target_sql, unquoted
from dbt.adapters.events.logging import AdapterLogger
from sqlglot import exp

from duckrun.errors import InvalidConfig
from duckrun.sql.alike import is_same_in_all
from duckrun.sql.dialects import text_in, tree_in
from duckrun.sql.written import keep_place
from duckrun.values.rows import TableConstraints

logger = AdapterLogger("Duckrun")


@dataclass(frozen=True)
class Constraints:
    """``checks`` maps names to SQL over the table's columns; ``unique`` holds one tuple of columns for each key."""

    not_null: tuple[str, ...] = ()
    checks: tuple[tuple[str, str], ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.not_null or self.checks or self.unique)


def parse_constraints(node: str, model: Mapping[str, Any]) -> Constraints:
    """Those of a model's columns and of the model as a whole; none where no contract is enforced.

    Of foreign keys and custom constraints dbt warns (unsupported_constraints).
    """
    contract = (model.get("config") or {}).get("contract") or {}
    if not contract.get("enforced"):
        return Constraints()
    not_null: list[str] = []
    checks: dict[str, str] = {}
    unique: list[tuple[str, ...]] = []
    for constraint, columns in _all(model):
        kind = str(getattr(constraint.get("type"), "value", constraint.get("type")))
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
    """The kinds of constraints in an enforced contract that nothing enforces, without those that say ``warn_unsupported: false``."""
    config = model.get("config") or {}
    if not (config.get("contract") or {}).get("enforced") or config.get("materialized") == "view":
        return []  # dbt itself warns of all constraints of a view
    kinds = [
        str(getattr(constraint.get("type"), "value", constraint.get("type")))
        for constraint, _ in _all(model)
        if constraint.get("warn_unsupported", True)
    ]
    return [kind for kind in dict.fromkeys(kinds) if kind in ("foreign_key", "custom")]


def kept_in_table(node: str, constraints: Constraints, source: Sequence[str]) -> TableConstraints:
    """The constraints that the Delta table can hold every writer to, with its columns as they are spelled in it."""
    checks = {}
    for name, check in constraints.checks:
        tree = tree_in(check, "duckdb")
        columns = list(tree.find_all(exp.Column))
        # A condition that writers may take for different ones is held by the model's writes alone.
        if not is_same_in_all(tree) or not columns or any(match(c.name, source) is None for c in columns):
            logger.debug(
                f"{node}: the check {name} ({check}) is held by this model's writes, and not kept in its table."
            )
            continue
        for column in columns:
            keep_place(column)
            column.set("this", exp.to_identifier(match(column.name, source), quoted=True))
        # SQL's CHECK lets a condition pass that is NULL, and Delta's does not.
        checks[name] = f"coalesce({text_in(tree, 'duckdb')}, true)"
    not_null = tuple(found for name in constraints.not_null if (found := match(name, source)) is not None)
    return TableConstraints(not_null, checks)


def _all(model: Mapping[str, Any]) -> Iterable[tuple[Mapping[str, Any], list[str]]]:
    for column in (model.get("columns") or {}).values():
        for constraint in column.get("constraints") or []:
            yield constraint, [column["name"]]
    for constraint in model.get("constraints") or []:
        yield constraint, [unquoted(name) for name in constraint.get("columns") or []]
