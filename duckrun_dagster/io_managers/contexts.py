"""Values from Dagster's contexts, also from a context that a test has built without a run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

from dagster import (
    DagsterInvariantViolationError,
    InputContext,
    OutputContext,
    PartitionKeyRange,
    build_input_context,
)

from duckrun.errors import DuckrunError


def output_name(context: OutputContext, step: Any | None) -> str:
    """Return the name of an output for errors."""
    if context.has_asset_key:
        return f"Asset {context.asset_key.to_user_string()}"
    try:
        return f"Output {context.name!r} of op {context.op_def.name}"
    except DagsterInvariantViolationError:  # a context that a test has built
        return f"Output {context.name!r}"


def of_upstream(context: InputContext) -> InputContext:
    """Complete an input that a test has built from nothing but an output.

    It becomes the input of that output's asset and partitions.
    """
    upstream = context.upstream_output
    if context.has_asset_key or upstream is None or not upstream.has_asset_key or step_of(context) is not None:
        return context
    keys = list(upstream.asset_partition_keys) if upstream.has_asset_partitions else []
    if context.has_partition_key:
        keys = [context.partition_key]
    return build_input_context(
        name=context.name if context.has_input_name else None,
        asset_key=upstream.asset_key,
        definition_metadata=context.definition_metadata,
        upstream_output=upstream,
        dagster_type=_known(lambda: context.dagster_type),
        partition_key=keys[0] if len(keys) == 1 else None,
        asset_partition_key_range=PartitionKeyRange(keys[0], keys[-1]) if keys else None,
        asset_partitions_def=_known(lambda: upstream.asset_partitions_def),
        instance=_known(lambda: context.instance),
    )


def _known(value: Callable[[], Any]) -> Any:
    """Return a property of a context; None if a test has built the context without it."""
    try:
        return value()
    except DagsterInvariantViolationError:
        return None


def annotation_of(context: OutputContext | InputContext) -> Any:
    """Return the annotated type of an input or output; Any if a test's context has none."""
    try:
        return context.dagster_type.typing_type
    except DagsterInvariantViolationError:
        return Any


def description_of(context: OutputContext) -> str | None:
    """Return the asset's description; None for an op's output, or in a test's context."""
    try:
        return context.asset_spec.description
    except DagsterInvariantViolationError:
        return None


def materialized_partitions(context: InputContext) -> Collection[str]:
    """Return the partitions that Dagster knows; none in a test's context without an instance."""
    try:
        return context.instance.get_materialized_partitions(context.asset_key)
    except DagsterInvariantViolationError:
        return ()


def step_of(context: OutputContext | InputContext) -> Any | None:
    """Return the step of a context; None if a value is loaded or stored outside of a run."""
    try:
        return context.step_context
    except DagsterInvariantViolationError:
        return None


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Put ``what`` in front of an error of the lake, which knows the table only."""
    try:
        yield
    except DuckrunError as error:
        error.name(what)
        raise
