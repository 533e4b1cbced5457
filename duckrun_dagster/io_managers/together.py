"""``publish: together``: the tables of one step become one snapshot of their lake.

They are published once all outputs exist and the step's blocking checks have passed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from copy import copy
from functools import wraps
from typing import Any, TypeVar

from dagster import (
    AssetCheckResult,
    AssetCheckSeverity,
    AssetsDefinition,
    DynamicOutput,
    MaterializeResult,
    OpDefinition,
    OpExecutionContext,
    Output,
    OutputContext,
)

from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun_dagster.io_managers.manager import DeltaIOManager
from duckrun_dagster.io_managers.outcome import keep
from duckrun_dagster.private import (
    DagsterAssetCheckFailedError,
    DecoratedOpFunction,
    NoValueSentinel,
    StepOutputHandle,
    do_type_check,
    validate_and_coerce_op_result_to_iterator,
)

Definition = TypeVar("Definition", AssetsDefinition, OpDefinition)
_MARK = "__duckrun_together__"


def publish_together(definition: Definition) -> Definition:
    """Publish all tables of an asset, multi-asset or op as one snapshot of their lake, or none.

    The function runs to its end first, and the values that it yields are held in memory. Nothing is
    written if it fails, if an output is missing, or if one of its own blocking checks has failed.
    ``check_definitions()`` does this for assets whose metadata has ``publish: together``.

    Raises:
        UnsupportedFeature: The definition is a graph, whose ops are separate steps.

    Example::

        @publish_together
        @dg.multi_asset(
            outs={
                "orders": dg.AssetOut(key=["sales", "orders"]),
                "totals": dg.AssetOut(key=["sales", "totals"]),
            }
        )
        def sales(): ...
    """
    node: Any = definition.node_def if isinstance(definition, AssetsDefinition) else definition
    if not isinstance(node, OpDefinition) or not isinstance(node.compute_fn, DecoratedOpFunction):
        raise UnsupportedFeature(
            f"{getattr(node, 'name', definition)} cannot be published together: "
            "it is no function of one step. Make it a multi_asset."
        )
    function = node.compute_fn.decorated_fn
    if getattr(function, _MARK, False):
        return definition
    gathered = copy(node)
    gathered._compute_fn = DecoratedOpFunction(_gathering(node, function))
    if isinstance(definition, OpDefinition):
        return gathered
    return AssetsDefinition.dagster_internal_init(**{**definition.get_attributes_dict(), "node_def": gathered})


def _gathering(op: OpDefinition, function: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
    """Return a function that publishes the events of ``function`` and then yields them.

    It has the same arguments as ``function``.
    """
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise UnsupportedFeature(f"{op.name} cannot be published together: it is asynchronous.")

    @wraps(function)
    def gathered(*args: Any, **kwargs: Any) -> Iterator[Any]:
        context = OpExecutionContext.get()
        result = function(*args, **kwargs)
        events = list(validate_and_coerce_op_result_to_iterator(result, context, op.output_defs))
        yield from _Publication(context.get_step_execution_context(), op, events).events()

    setattr(gathered, _MARK, True)
    return gathered


class _Publication:
    """The events of one step that are being published."""

    def __init__(self, step: Any, op: OpDefinition, events: Sequence[Any]) -> None:
        self.step, self.op, self.given = step, op, events
        self.asset: AssetsDefinition | None = step.job_def.asset_layer.get_assets_def_for_node(step.node_handle)

    def events(self) -> Iterator[Any]:
        """Publish the tables, then yield the events of the function."""
        failed = self._failed_checks()
        if failed:
            yield from self._checks()
            raise DagsterAssetCheckFailedError(
                f"{len(failed)} blocking asset check{'s' if len(failed) > 1 else ''} failed with ERROR severity: "
                f"{', '.join(failed)}. Nothing of "
                f"{self.op.name} was published."
            )
        outputs = self._outputs()
        mistyped = [
            event
            for event, name, value in outputs
            if not do_type_check(
                self.step.for_type(kind := self.op.output_def_named(name).dagster_type), kind, value
            ).success
        ]
        if mistyped:
            yield mistyped[0]  # Dagster reports the wrong type
            return
        self._refuse_missing()
        self._publish(outputs)
        yield from self.given

    def _checks(self) -> Iterator[AssetCheckResult]:
        for event in self.given:
            if isinstance(event, AssetCheckResult):
                yield event
            elif isinstance(event, MaterializeResult):
                for each in event.check_results or []:
                    yield each if each.asset_key is not None else each._replace(asset_key=event.asset_key)

    def _failed_checks(self) -> list[str]:
        evaluations = [each.to_asset_check_evaluation(self.step) for each in self._checks()]
        return [
            f"{each.asset_key.to_user_string()} {each.check_name}"
            for each in evaluations
            if each.blocking and not each.passed and each.severity == AssetCheckSeverity.ERROR
        ]

    def _outputs(self) -> list[tuple[Any, str, Any]]:
        """Return the events with rows to store, each with the name of its output and its value."""
        outputs = []
        for event in self.given:
            if isinstance(event, DynamicOutput):
                raise UnsupportedFeature(f"{self.op.name} cannot be published together: its outputs are dynamic.")
            if isinstance(event, Output) or isinstance(event, MaterializeResult) and event.value is not NoValueSentinel:
                outputs.append((event, self._name(event), event.value))
        return outputs

    def _name(self, event: Output[Any] | MaterializeResult[Any]) -> str:
        if isinstance(event, Output):
            return event.output_name
        assert self.asset is not None, "Dagster takes MaterializeResult of assets alone"
        return self.asset.get_output_name_for_asset_key(event.asset_key or self.asset.key)

    def _refuse_missing(self) -> None:
        checks = {name for name in self.step.selected_output_names if self._is_check(name)}
        yielded = {self._name(event) for event in self.given if isinstance(event, Output | MaterializeResult)}
        missing = [
            each.name
            for each in self.op.output_defs
            if each.is_required and each.name in self.step.selected_output_names and each.name not in yielded | checks
        ]
        if missing:
            raise InvalidConfig(
                f"{self.op.name} gave no {' and no '.join(missing)}, and its tables are published together."
            )

    def _is_check(self, name: str) -> bool:
        return bool(self.step.step.step_output_named(name).properties.asset_check_key)

    def _publish(self, outputs: Sequence[tuple[Any, str, Any]]) -> None:
        """Write all tables in one transaction, and remember the outcome of each."""
        stored: list[tuple[str, OutputContext, DeltaIOManager, Any]] = []
        for event, name, value in outputs:
            handle = StepOutputHandle(self.step.step.key, name)
            context = self.step.get_output_context(handle, event.metadata)
            if self._is_check(name) or context.dagster_type.is_nothing:
                continue
            manager = self.step.get_io_manager(handle)
            if not isinstance(manager, DeltaIOManager):
                raise InvalidConfig(
                    f"{self.op.name} cannot be published together: output {name!r} is stored by "
                    f"{type(manager).__name__}, whose writes are in no "
                    "transaction of a lake."
                )
            stored.append((name, context, manager, value))
        if not stored:
            return
        with self._transaction(stored):
            outcomes = [
                (name, manager.write(context, value, together=True)) for name, context, manager, value in stored
            ]
        for name, outcome in outcomes:
            keep(self.step, name, outcome)

    def _transaction(
        self, stored: Sequence[tuple[str, OutputContext, DeltaIOManager, Any]]
    ) -> AbstractContextManager[object]:
        lakes = {}
        for _, context, manager, _ in stored:
            table = manager.duckrun.stored(manager.config_of(context))
            lakes[table.lake.root] = (manager, table.config.lake)
        if len(lakes) > 1:
            raise UnsupportedFeature(
                f"{self.op.name} cannot be published together: its tables are in {len(lakes)} lakes "
                f"({', '.join(lakes)}), and a transaction is of one."
            )
        manager, name = next(iter(lakes.values()))
        return manager.duckrun.step_session(self.step, "duckdb").transaction(name)
