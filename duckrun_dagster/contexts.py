"""Values from Dagster's contexts, also from a context that a test has built without a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dagster import (
    DagsterInvariantViolationError,
    InputContext,
    OpExecutionContext,
    OutputContext,
    PartitionKeyRange,
    build_input_context,
)

from duckrun.errors import DuckrunError


def known(value: Callable[[], Any], otherwise: Any = None) -> Any:
    """Return a property of a context; ``otherwise`` if the context has none.

    Such a context is one that a test has built, or that of a value which is loaded or stored
    outside of a run.
    """
    try:
        return value()
    except DagsterInvariantViolationError:
        return otherwise


def step_of(context: OutputContext | InputContext) -> Any | None:
    """Return the step of a context; None if a value is loaded or stored outside of a run."""
    return known(lambda: context.step_context)


def current_step() -> Any | None:
    """Return the step context of the running asset or op; None outside of one."""
    return known(lambda: OpExecutionContext.get().get_step_execution_context())


def annotation_of(context: OutputContext | InputContext) -> Any:
    """Return the annotated type of an input or output; Any if a test's context has none."""
    return known(lambda: context.dagster_type.typing_type, Any)


def output_name(context: OutputContext) -> str:
    """Return the name of an output for errors."""
    if context.has_asset_key:
        return f"Asset {context.asset_key.to_user_string()}"
    return f"Output {context.name!r}" + known(lambda: f" of op {context.op_def.name}", "")


def input_name(context: InputContext) -> str:
    """Return the name of an input for errors."""
    name = f"Input {context.name!r}" if context.has_input_name else ""
    if not context.has_asset_key:
        return name or "Input"
    asset = context.asset_key.to_user_string()
    return f"{name} (asset {asset})" if name else f"Asset {asset}"


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
        dagster_type=known(lambda: context.dagster_type),
        partition_key=keys[0] if len(keys) == 1 else None,
        asset_partition_key_range=PartitionKeyRange(keys[0], keys[-1]) if keys else None,
        asset_partitions_def=known(lambda: upstream.asset_partitions_def),
        instance=known(lambda: context.instance),
    )


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Put ``what`` in front of an error of the lake, which knows the table only."""
    try:
        yield
    except DuckrunError as error:
        error.name(what)
        raise
    except Exception as error:  # of the code that a write runs, such as the plan of a LazyFrame
        error.add_note(f"This was {what}.")
        raise
