"""Which classes of dbt's suite do not apply, each with its reason. What applies and fails is fixed, never listed here."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

import dbt.tests.adapter

_GRANTS = "a lake is files: it has no users to grant to; the adapter leaves grants out with one debug line"
_FUNCTIONS = "a lake holds tables and views: a function has no place in it where another process would find it"
_MATERIALIZED_VIEWS = (
    "a lake has no engine that would refresh a materialized view; the materialization is refused by name"
)
_POSTGRES_DEBUG = "its targets are Postgres connections (a wrong user, a missing password)"
_CLONES = "tables are cloned by the platforms that share files between tables; as in dbt-duckdb and dbt-postgres, a clone is a view"
_NO_SEED_EMPTY = "`dbt seed --empty` is not in the version of dbt-core that this adapter is for"

ALL_ENGINES: dict[str, str] = {
    "caching.test_caching:BaseCachingUppercaseModel": "for platforms that fold names to capitals (Snowflake)",
    "dbt_clone.test_dbt_clone:BaseClonePossible": _CLONES,
    "dbt_clone.test_dbt_clone:BaseCloneSameSourceAndTarget": _CLONES,
    "dbt_debug.test_dbt_debug:BaseDebugPostgres": _POSTGRES_DEBUG,
    "empty.test_empty:BaseTestEmptySeedFlag": _NO_SEED_EMPTY,
    "functions.test_js_udfs:BasicJSAggregateUDF": _FUNCTIONS,
    "functions.test_js_udfs:BasicJSUDF": _FUNCTIONS,
    "functions.test_js_udfs:JSAggregateUDFVolatilityIgnored": _FUNCTIONS,
    "functions.test_js_udfs:JSUDFDefaultArgSupport": _FUNCTIONS,
    "functions.test_js_udfs:JSUDFDeterministicVolatility": _FUNCTIONS,
    "functions.test_js_udfs:JSUDFMultiLineBody": _FUNCTIONS,
    "functions.test_js_udfs:JSUDFNonDeterministicVolatility": _FUNCTIONS,
    "functions.test_js_udfs:JSUDFStableVolatilityWarns": _FUNCTIONS,
    "functions.test_udafs:BasicPythonUDAF": _FUNCTIONS,
    "functions.test_udafs:BasicSQLUDAF": _FUNCTIONS,
    "functions.test_udafs:PythonUDAFDefaultArgSupport": _FUNCTIONS,
    "functions.test_udfs:CanFindScalarFunctionRelation": _FUNCTIONS,
    "functions.test_udfs:DeterministicUDF": _FUNCTIONS,
    "functions.test_udfs:ErrorForUnsupportedType": _FUNCTIONS,
    "functions.test_udfs:NonDeterministicUDF": _FUNCTIONS,
    "functions.test_udfs:PythonUDFDefaultArgSupport": _FUNCTIONS,
    "functions.test_udfs:PythonUDFEntryPointRequired": _FUNCTIONS,
    "functions.test_udfs:PythonUDFNotSupported": _FUNCTIONS,
    "functions.test_udfs:PythonUDFRuntimeVersionRequired": _FUNCTIONS,
    "functions.test_udfs:PythonUDFSupported": _FUNCTIONS,
    "functions.test_udfs:PythonUDFVolatilitySupport": _FUNCTIONS,
    "functions.test_udfs:PythonUDFWithPackagesSupported": _FUNCTIONS,
    "functions.test_udfs:SqlUDFDefaultArgSupport": _FUNCTIONS,
    "functions.test_udfs:StableUDF": _FUNCTIONS,
    "functions.test_udfs:UDFsBasic": _FUNCTIONS,
    "grants.test_incremental_grants:BaseIncrementalGrants": _GRANTS,
    "grants.test_invalid_grants:BaseInvalidGrants": _GRANTS,
    "grants.test_model_grants:BaseModelGrants": _GRANTS,
    "grants.test_seed_grants:BaseSeedGrants": _GRANTS,
    "grants.test_snapshot_grants:BaseSnapshotGrants": _GRANTS,
    "materialized_view.basic:MaterializedViewBasic": _MATERIALIZED_VIEWS,
    "materialized_view.changes:MaterializedViewChanges": _MATERIALIZED_VIEWS,
    "materialized_view.changes:MaterializedViewChangesApplyMixin": _MATERIALIZED_VIEWS,
    "materialized_view.changes:MaterializedViewChangesContinueMixin": _MATERIALIZED_VIEWS,
    "materialized_view.changes:MaterializedViewChangesFailMixin": _MATERIALIZED_VIEWS,
    "simple_copy.test_copy_uppercase:BaseSimpleCopyUppercase": "it connects to a Postgres database of mixed case",
    "utils.test_current_timestamp:BaseCurrentTimestampNaive": "one of two: now() has a time zone, which BaseCurrentTimestampAware tests",
    "utils.test_escape_single_quotes:BaseEscapeSingleQuotesBackslash": "one of two: SQL is DuckDB's on both engines, where a quote is escaped by another, which BaseEscapeSingleQuotesQuote tests",
}
_DUCKDB: dict[str, str] = {
    "python_model.test_spark:BasePySparkTests": "Python models here get DuckDB's connection, not a SparkSession",
}
_SPARK: dict[str, str] = {}

NOT_APPLICABLE: dict[str, dict[str, str]] = {
    "duckdb": {**ALL_ENGINES, **_DUCKDB},
    "spark": {**ALL_ENGINES, **_SPARK},
}


def suite_classes() -> dict[str, type]:
    """The classes of the suite that an adapter runs, by ``module:name``.

    Every ``Test…`` of the suite is its own use of such a class, for Postgres. A ``Base…`` that only others of them build
    upon is no test of its own.
    """
    found = dict(_with_tests())
    bases = {base for cls in found.values() for base in cls.__mro__[1:]}
    runs = {base for _, cls in _with_tests(own=True) for base in cls.__bases__}
    return {
        name: cls
        for name, cls in found.items()
        if cls not in bases or cls in runs or not (cls.__name__.startswith("Base") or cls.__name__.endswith("Base"))
    }


def _with_tests(*, own: bool = False) -> Iterator[tuple[str, type]]:
    root = Path(dbt.tests.adapter.__path__[0])
    for file in sorted(root.rglob("*.py")):
        module = ".".join(file.relative_to(root).with_suffix("").parts)
        for name, cls in vars(importlib.import_module(f"dbt.tests.adapter.{module}")).items():
            if not inspect.isclass(cls) or cls.__module__ != f"dbt.tests.adapter.{module}":
                continue
            if any(attribute.startswith("test") for attribute in dir(cls)) and name.startswith("Test") == own:
                yield f"{module}:{name}", cls


def reason_of(cls: type, engine: str) -> str | None:
    """Why a class of ours does not apply on an engine; None where it does."""
    names = [f"{base.__module__.removeprefix('dbt.tests.adapter.')}:{base.__name__}" for base in cls.__bases__]
    return next((NOT_APPLICABLE[engine][name] for name in names if name in NOT_APPLICABLE[engine]), None)


def group_of(name: str) -> str:
    """The group of a class: the suite's folder."""
    return name.split(".")[0].removesuffix("_tests")


def tests_of(cls: type) -> int:
    """How many tests a class has; parametrized ones count once."""
    return sum(attribute.startswith("test") for attribute in dir(cls))
