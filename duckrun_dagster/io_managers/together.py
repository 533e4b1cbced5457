"""``publish: together``: the tables of one step as one snapshot of their lake, once all of it is there and its checks have passed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
from dagster._core.definitions.decorators.op_decorator import DecoratedOpFunction
from dagster._core.definitions.utils import NoValueSentinel
from dagster._core.errors import DagsterAssetCheckFailedError
from dagster._core.execution.plan.compute_generator import validate_and_coerce_op_result_to_iterator
from dagster._core.execution.plan.execute_step import do_type_check
from dagster._core.execution.plan.outputs import StepOutputHandle

from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun_dagster.io_managers.manager import DeltaIOManager
from duckrun_dagster.io_managers.published import Report, keep

Definition = TypeVar("Definition", AssetsDefinition, OpDefinition)
_MARK = "__duckrun_together__"


def publish_together(definition: Definition) -> Definition:
    """The same asset, multi-asset or op, whose tables are published as one snapshot of their lake, or none of them.

    Its function runs to its end first, and what it yields is kept. Nothing is written where it fails, where an output is missing, or where
    one of its own checks that blocks has failed. ``check_definitions()`` does this for assets whose metadata has ``publish: together``.

    Raises UnsupportedFeature for a graph, whose ops are steps of their own. Example::

        @publish_together
        @dg.multi_asset(outs={"orders": dg.AssetOut(key=["sales", "orders"]), "totals": dg.AssetOut(key=["sales", "totals"])})
        def sales(): ...
    """
    node: Any = definition.node_def if isinstance(definition, AssetsDefinition) else definition
    if not isinstance(node, OpDefinition) or not isinstance(node.compute_fn, DecoratedOpFunction):
        raise UnsupportedFeature(
            f"{getattr(node, 'name', definition)} cannot be published together: it is no function of one step. Make it a multi_asset."
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
    """A function of the same arguments that publishes what the other one gives, and then yields it."""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise UnsupportedFeature(f"{op.name} cannot be published together: it is asynchronous.")

    @wraps(function)
    def gathered(*args: Any, **kwargs: Any) -> Iterator[Any]:
        context = OpExecutionContext.get()
        found = function(*args, **kwargs)
        events = list(validate_and_coerce_op_result_to_iterator(found, context, op.output_defs))
        yield from _Publication(context.get_step_execution_context(), op, events).events()

    setattr(gathered, _MARK, True)
    return gathered


class _Publication:
    """What one step gave, on its way to be published."""

    def __init__(self, step: Any, op: OpDefinition, events: Sequence[Any]) -> None:
        self.step, self.op, self.given = step, op, events
        self.asset: AssetsDefinition | None = step.job_def.asset_layer.get_assets_def_for_node(step.node_handle)

    def events(self) -> Iterator[Any]:
        """The events of the function, once its tables are published."""
        failed = self._failed_checks()
        if failed:
            yield from self._checks()
            raise DagsterAssetCheckFailedError(
                f"{len(failed)} blocking asset check{'s' if len(failed) > 1 else ''} failed with ERROR severity: {', '.join(failed)}. Nothing of "
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
            yield mistyped[0]  # Dagster says what is wrong with it
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
        found = [each.to_asset_check_evaluation(self.step) for each in self._checks()]
        return [
            f"{each.asset_key.to_user_string()} {each.check_name}"
            for each in found
            if each.blocking and not each.passed and each.severity == AssetCheckSeverity.ERROR
        ]

    def _outputs(self) -> list[tuple[Any, str, Any]]:
        """The events that have rows to store, with the name of the output and the value."""
        found = []
        for event in self.given:
            if isinstance(event, DynamicOutput):
                raise UnsupportedFeature(f"{self.op.name} cannot be published together: its outputs are dynamic.")
            if isinstance(event, Output) or isinstance(event, MaterializeResult) and event.value is not NoValueSentinel:
                found.append((event, self._name(event), event.value))
        return found

    def _name(self, event: Output[Any] | MaterializeResult[Any]) -> str:
        if isinstance(event, Output):
            return event.output_name
        assert self.asset is not None, "Dagster takes MaterializeResult of assets alone"
        return self.asset.get_output_name_for_asset_key(event.asset_key or self.asset.key)

    def _refuse_missing(self) -> None:
        checks = {name for name in self.step.selected_output_names if self._is_check(name)}
        given = {self._name(event) for event in self.given if isinstance(event, Output | MaterializeResult)}
        missing = [
            each.name
            for each in self.op.output_defs
            if each.is_required and each.name in self.step.selected_output_names and each.name not in given | checks
        ]
        if missing:
            raise InvalidConfig(f"{self.op.name} gave no {' and no '.join(missing)}, so nothing of it was published.")

    def _is_check(self, name: str) -> bool:
        return bool(self.step.step.step_output_named(name).properties.asset_check_key)

    def _publish(self, outputs: Sequence[tuple[Any, str, Any]]) -> None:
        """Write all tables in one transaction, and keep how each is reported."""
        stored: list[tuple[str, OutputContext, DeltaIOManager, Any]] = []
        for event, name, value in outputs:
            handle = StepOutputHandle(self.step.step.key, name)
            context = self.step.get_output_context(handle, event.metadata)
            if self._is_check(name) or context.dagster_type.is_nothing:
                continue
            manager = self.step.get_io_manager(handle)
            if not isinstance(manager, DeltaIOManager):
                raise InvalidConfig(
                    f"{self.op.name} cannot be published together: output {name!r} is stored by {type(manager).__name__}, whose writes are in no "
                    "transaction of a lake."
                )
            stored.append((name, context, manager, value))
        if not stored:
            return
        reports: list[tuple[str, Report]] = []
        with self._transaction(stored):
            for name, context, manager, value in stored:
                reports.append((name, manager.write(context, value, together=True)))
        for name, report in reports:
            keep(self.step, name, report)

    @contextmanager
    def _transaction(self, stored: Sequence[tuple[str, OutputContext, DeltaIOManager, Any]]) -> Iterator[None]:
        lakes = {}
        for _, context, manager, _ in stored:
            config = manager.config_of(context)
            lake = manager.duckrun.lake(config.lake)
            lakes[lake.root] = (manager, config.lake)
        if len(lakes) > 1:
            raise UnsupportedFeature(
                f"{self.op.name} cannot be published together: its tables are in {len(lakes)} lakes ({', '.join(lakes)}), and a transaction is of one."
            )
        manager, name = next(iter(lakes.values()))
        with manager.duckrun.step_session(self.step, "duckdb").transaction(name):
            yield
