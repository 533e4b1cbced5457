"""dbt-duckdb's merge configuration as the clauses of one merge.

Its shapes are those of dbt-duckdb's macros (incremental_strategy/merge.sql), so a project keeps its
meaning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dbt.adapters.duckrun.model.expressions import merge_sql
from dbt.adapters.duckrun.model.values import mapping, match, names, one_of, texts, unquoted

from duckrun.errors import InvalidConfig, MergeRefused
from duckrun.sql.quoting import quote_identifier, quote_literal, quoted_names
from duckrun.sql.raising import raising
from duckrun.values.frozen import frozen
from duckrun.values.rows import MergeClause

_BASIC = (
    "merge_update_condition", "merge_insert_condition", "merge_update_columns", "merge_exclude_columns",
    "merge_update_set_expressions",
)  # fmt: skip
_CLAUSE_KEYS = ("action", "mode", "condition", "by", "update", "insert", "set_expressions", "error_message")
_MODES = ("by_name", "by_position", "star", "explicit")
_ACTIONS = {
    "matched": ("update", "delete", "do_nothing", "error"),
    "not_matched": ("insert", "do_nothing", "error"),
    "not_matched_by_source": ("update", "delete", "do_nothing", "error"),
}


_UNMATCHED = {"target": "not_matched", "source": "not_matched_by_source"}  # the side without a match


@frozen
class MergeAction:
    """One WHEN as the user wrote it; its columns are known only when the model has run."""

    side: str  # matched, not_matched or not_matched_by_source
    action: str
    mode: str = "by_name"
    condition: str | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    set: tuple[tuple[str, str], ...] = ()
    error_message: str | None = None


def parse_merge(node: str, config: Mapping[str, Any]) -> tuple[MergeAction, ...]:
    """Return the WHENs of a model's config, in their order.

    Raises:
        InvalidConfig: A key is invalid; the text names it.
    """
    clauses = config.get("merge_clauses")
    if not clauses:
        return _basic(node, config)
    clashing = [key for key in _BASIC if config.get(key)]
    if clashing:
        raise InvalidConfig(
            f"{node}: {', '.join(clashing)} and merge_clauses exclude each other; say it all in merge_clauses."
        )
    clauses = mapping(node, "merge_clauses", clauses)
    for key in clauses:
        one_of(node, "key in merge_clauses", key, ("when_matched", "when_not_matched"))
    matched = _listed(node, "when_matched", clauses, [{"action": "update"}])
    unmatched = _listed(node, "when_not_matched", clauses, [{"action": "insert"}])
    return (
        *(_action(node, "matched", clause) for clause in matched),
        *(_action(node, _unmatched_side(node, clause), clause) for clause in unmatched),
    )


def _unmatched_side(node: str, clause: Mapping[str, Any]) -> str:
    by = str(clause.get("by") or "target").lower()
    return _UNMATCHED[one_of(node, "by in merge_clauses", by, tuple(_UNMATCHED))]


def _basic(node: str, config: Mapping[str, Any]) -> tuple[MergeAction, ...]:
    include, exclude = config.get("merge_update_columns"), config.get("merge_exclude_columns")
    if include and exclude:
        raise InvalidConfig(f"{node}: merge_update_columns and merge_exclude_columns exclude each other; keep one.")
    expressions = _set(node, "merge_update_set_expressions", config.get("merge_update_set_expressions"))
    update = MergeAction(
        "matched",
        "update",
        "explicit" if include or exclude or expressions else "by_name",
        _condition(node, "merge_update_condition", config.get("merge_update_condition")),
        names(node, "merge_update_columns", include),
        names(node, "merge_exclude_columns", exclude),
        expressions,
    )
    condition = _condition(node, "merge_insert_condition", config.get("merge_insert_condition"))
    return update, MergeAction("not_matched", "insert", condition=condition)


def _listed(
    node: str, key: str, clauses: Mapping[str, Any], default: list[dict[str, str]]
) -> Sequence[Mapping[str, Any]]:
    if key not in clauses:
        return default
    value = clauses[key]
    if not isinstance(value, list | tuple) or not value or not all(isinstance(v, Mapping) for v in value):
        raise InvalidConfig(f"{node}: merge_clauses.{key} must be a list of mappings, one a clause, not {value!r}.")
    return value


def _action(node: str, side: str, clause: Mapping[str, Any]) -> MergeAction:
    for key in clause:
        one_of(node, "key in merge_clauses", key, _CLAUSE_KEYS)
    action = one_of(node, f"action of a {side} clause", clause.get("action"), _ACTIONS[side])
    mode = one_of(node, "mode in merge_clauses", clause.get("mode") or "by_name", _MODES)
    update, insert = mapping(node, "update", clause.get("update")), mapping(node, "insert", clause.get("insert"))
    expressions = _set(node, "set_expressions", update.get("set_expressions") or clause.get("set_expressions"))
    include = names(node, "update.include", update.get("include"))
    if action == "insert" and mode == "explicit":
        columns, values = names(node, "insert.columns", insert.get("columns")), insert.get("values") or []
        if not columns or len(columns) != len(values):
            raise InvalidConfig(
                f"{node}: an explicit insert needs insert.columns and as many insert.values; it has {len(columns)} and "
                f"{len(values)}."
            )
        expressions = tuple(
            (column, merge_sql(node, "insert.values", str(value)))
            for column, value in zip(columns, values, strict=True)
        )
    if side == "not_matched_by_source" and action == "update" and not expressions:
        raise InvalidConfig(f"{node}: an update by source has no source row to take values from; give set_expressions.")
    return MergeAction(
        side,
        action,
        mode,
        _condition(node, "condition in merge_clauses", clause.get("condition")),
        include,
        names(node, "update.exclude", update.get("exclude")),
        expressions,
        clause.get("error_message"),
    )


def _condition(node: str, key: str, value: Any) -> str | None:
    conditions = [merge_sql(node, key, text) for text in texts(node, key, value)]
    if len(conditions) < 2:
        return conditions[0] if conditions else None
    return " and ".join(f"({c})" for c in conditions)


def _set(node: str, key: str, value: Any) -> tuple[tuple[str, str], ...]:
    pairs = mapping(node, key, value).items()
    return tuple((unquoted(column), merge_sql(node, key, str(text))) for column, text in pairs)


# -- clauses


def clauses_of(
    actions: Sequence[MergeAction], columns: Sequence[str], target: Sequence[str]
) -> tuple[MergeClause, ...]:
    """Return the clauses of a merge.

    Args:
        actions: The WHENs.
        columns: The columns of the source.
        target: The table's columns in their order, which `by_position` and `star` count (DuckDB:
            `UPDATE SET *` is by position).
    """
    clauses: list[MergeClause] = []
    ended: dict[str, list[str]] = {}  # conditions of the do_nothing clauses so far, which exclude their rows
    for action in actions:
        before = ended.setdefault(action.side, [])
        condition = " and ".join(
            [*([] if action.condition is None else [f"({action.condition})"]), *(f"({c}) is not true" for c in before)]
        )
        if action.action == "do_nothing":
            before.append(action.condition or "true")
            continue
        clauses.append(_clause(action, condition or None, columns, target))
    # A merge that does nothing has one clause that never applies.
    return tuple(clauses) or (MergeClause("matched_update", condition="false"),)


def _clause(action: MergeAction, condition: str | None, columns: Sequence[str], target: Sequence[str]) -> MergeClause:
    doing = action.action
    values: dict[str, Any] = {}
    if doing == "error":
        doing = "insert" if action.side == "not_matched" else "update"
        message = action.error_message or f"a row is {action.side.replace('_', ' ')}, for which merge_clauses say error"
        values = {"set": {target[0]: raising(MergeRefused, quote_literal(message))}}
    elif doing != "delete":
        values = _assignments(action, columns, target)
    kind: Any = f"{action.side}_{doing}"
    return MergeClause(kind, condition, **values)


def _assignments(action: MergeAction, columns: Sequence[str], target: Sequence[str]) -> dict[str, Any]:
    """Return the columns or the expressions that a clause sets."""

    def spelled(name: str) -> str:
        return match(name, target) or match(name, columns) or name

    if action.mode in ("by_position", "star"):
        pairs = zip(target, columns, strict=False)
        return {"set": {name: f"source.{quote_identifier(taken)}" for name, taken in pairs}}
    if action.side == "not_matched_by_source" or (action.action == "insert" and action.set):
        return {"set": {spelled(name): text for name, text in action.set}}
    excluded = {name.lower() for name in action.exclude}
    chosen = [spelled(name) for name in action.include] or [c for c in columns if c.lower() not in excluded]
    if not action.set:
        return {"columns": tuple(chosen)} if action.include or action.exclude else {}
    return {"set": quoted_names(chosen, "source") | {spelled(name): text for name, text in action.set}}
