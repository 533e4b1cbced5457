"""The constraints of a model whose contract is enforced: what every row, or the table as a whole, must satisfy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dbt.adapters.duckrun.values import target_sql, unquoted

from duckrun.errors import InvalidConfig


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

    Foreign keys and custom constraints are not enforced, as dbt warns by the adapter's CONSTRAINT_SUPPORT.
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


def _all(model: Mapping[str, Any]) -> Iterable[tuple[Mapping[str, Any], list[str]]]:
    for column in (model.get("columns") or {}).values():
        for constraint in column.get("constraints") or []:
            yield constraint, [column["name"]]
    for constraint in model.get("constraints") or []:
        yield constraint, [unquoted(name) for name in constraint.get("columns") or []]
