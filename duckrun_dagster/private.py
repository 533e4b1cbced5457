"""Names of Dagster outside of its public interface.

They may move in any release of Dagster, so every use of them is found here; ruff's TID251 refuses
them elsewhere. The pins in pyproject.toml name the releases that they were tried with.
"""

from __future__ import annotations

from dagster._config.field_utils import IntEnvVar
from dagster._config.pythonic_config.resource import ConfigurableResourceFactory
from dagster._core.definitions.data_version import extract_data_version_from_entry
from dagster._core.definitions.decorators.op_decorator import DecoratedOpFunction
from dagster._core.definitions.definition_config_schema import DefinitionConfigSchema
from dagster._core.definitions.utils import NoValueSentinel
from dagster._core.errors import DagsterAssetCheckFailedError, DagsterInvalidPropertyError
from dagster._core.execution.context.system import StepExecutionContext
from dagster._core.execution.plan.compute_generator import validate_and_coerce_op_result_to_iterator
from dagster._core.execution.plan.execute_step import do_type_check
from dagster._core.execution.plan.outputs import StepOutputHandle
from dagster._core.execution.stats import StepEventStatus
from dagster._core.snap.execution_plan_snapshot import ExecutionStepSnap
from dagster._utils.env import environ
