"""What a context of Dagster's says, also one that a test has built without a run."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from dagster import DagsterInvariantViolationError, InputContext, OutputContext


def output_name(context: OutputContext, step: Any | None) -> str:
    """What an output is called in errors."""
    if context.has_asset_key:
        return f"Asset {context.asset_key.to_user_string()}"
    try:
        return f"Output {context.name!r} of op {context.op_def.name}"
    except DagsterInvariantViolationError:  # a context that a test has built
        return f"Output {context.name!r}"


def annotation_of(context: OutputContext | InputContext) -> Any:
    """The type that an input or output is annotated with; Any where a test has built a context of none."""
    try:
        return context.dagster_type.typing_type
    except DagsterInvariantViolationError:
        return Any


def description_of(context: OutputContext) -> str | None:
    """What the asset says of itself; nothing of an op's output, or in a context that a test has built."""
    try:
        return context.asset_spec.description
    except DagsterInvariantViolationError:
        return None


def materialized_partitions(context: InputContext) -> Collection[str]:
    """The partitions that Dagster knows of; none in a context that a test has built without an instance."""
    try:
        return context.instance.get_materialized_partitions(context.asset_key)
    except DagsterInvariantViolationError:
        return ()


def step_of(context: OutputContext | InputContext) -> Any | None:
    """The step that a context belongs to; None where somebody loads or stores a value outside of a run."""
    try:
        return context.step_context
    except DagsterInvariantViolationError:
        return None
