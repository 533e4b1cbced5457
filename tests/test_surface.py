"""The public names, all of them: what users type goes on being there, under one path, and docs name nothing else."""

from __future__ import annotations

import ast
import inspect
import json
import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import duckrun

ROOT = Path(__file__).parent.parent

PUBLIC_MODULES = ("duckrun", "duckrun.spark", "duckrun.cli", "duckrun_dagster")

SESSION = [
    "sql",
    "table",
    "read",
    "attach",
    "detach",
    "tables",
    "register",
    "close",
    "execute",
    "scan",
    "stage",
    "commit_staged",
    "open",
    "apply_changes",
    "transaction",
    "begin",
    "commit",
    "rollback",
    "merge_files",
    "snapshots",
    "maintain",
    "import_from",
    "export_to",
    "upkeep",
    "moving",
]
UPKEEP = [
    "flush",
    "merge_files",
    "rewrite_files",
    "expire",
    "cleanup",
    "orphans",
    "checkpoint",
    "restoreToVersion",
    "set_inline_rows",
]
FRAME = [
    "show",
    "collect",
    "count",
    "columns",
    "schema",
    "toPandas",
    "df",
    "toArrow",
    "arrow",
    "pl",
    "createOrReplaceTempView",
    "write",
    "native",
    "alias",
]
TABLE = [
    "snapshot",
    "toDF",
    "history",
    "detail",
    "restoreToVersion",
    "restoreToTimestamp",
    "vacuum",
    "update",
    "delete",
    "merge",
    "optimize",
    "purge",
    "checkpoint",
    "cleanup_log",
    "forName",
    "forPath",
    "create",
    "createIfNotExists",
    "replace",
    "createOrReplace",
    "convertToDelta",
    "addFeatureSupport",
    "upgradeTableProtocol",
    "alias",
    "plot_history",
]
READER = ["table", "format", "load", "option", "options", "parquet", "csv"]
WRITER = ["format", "mode", "option", "options", "partitionBy", "clusterBy", "saveAsTable", "save", "insertInto"]
MERGE = [
    "whenMatchedUpdate",
    "whenMatchedUpdateAll",
    "whenMatchedDelete",
    "whenNotMatchedInsert",
    "whenNotMatchedInsertAll",
    "whenNotMatchedBySourceUpdate",
    "whenNotMatchedBySourceDelete",
    "withSchemaEvolution",
    "onlyIfChanged",
    "execute",
]
CONNECT = ["root_path", "schema", "engine", "storage_options", "read_only", "spark", "memory_limit"]
SPARK = ["spark_session", "name_tables", "stop_spark_session", "RunServer", "stream_table", "watch", "STORE_PACKAGES"]
ERRORS = [
    "TableNotFound",
    "SchemaMismatch",
    "CommitConflict",
    "DuplicateSourceKeys",
    "UnsupportedFeature",
    "InvalidConfig",
    "StorageError",
    "ReadOnlyLake",
    "VersionNotReadable",
]
SPECS = [
    "WriteSpec",
    "MergeSpec",
    "MergeClause",
    "ReadSpec",
    "DeleteSpec",
    "UpdateSpec",
    "DeleteInsertSpec",
    "ApplySpec",
    "AppTransaction",
    "TableConstraints",
    "CreateSpec",
    "ColumnSpec",
    "AlterSpec",
    "AddColumn",
    "DropColumn",
    "RenameColumn",
    "ChangeType",
    "SetNotNull",
    "DropNotNull",
    "AddCheck",
    "DropCheck",
    "SetProperties",
    "UnsetProperties",
    "ClusterBy",
    "SetComment",
    "OptimizeSpec",
    "PurgeSpec",
    "VacuumSpec",
    "CheckpointSpec",
    "CleanupLogSpec",
    "RestoreSpec",
    "ConvertSpec",
    "Identity",
    "IdentityGenerator",
]
VALUES = [
    "SQL",
    "Commit",
    "Done",
    "MaintenanceResult",
    "Snapshot",
    "Scan",
    "TableRef",
    "ScanFile",
    "StagedFile",
    "MemoryShares",
]

RESOURCE_FIELDS = {
    "DuckrunResource": "root_path project_dir profile target storage_options memory_fraction",
    "SparkResource": "master remote conf packages connect_server progress",
    "DeltaIOManager": "duckrun spark engine default_type",
}
# To come: constraints, row_tracking, lake, publish.
ASSET_METADATA = [
    "schema",
    "table",
    "location",
    "engine",
    "mode",
    "merge_keys",
    "merge_clauses",
    "only_if_changed",
    "partition_by",
    "partition_expr",
    "schema_mode",
    "sort_by",
    "cluster_by",
    "table_properties",
    "writer",
    "merge_mode",
    "change_data_feed",
    "compression",
    "target_file_size",
]
INPUT_METADATA = ["columns", "predicate", "version", "timestamp", "changes", "key"]
# To come: format and catalog in the profile; row_tracking in a model.
PROFILE = [
    "root_path",
    "schema",
    "threads",
    "storage_options",
    "engine",
    "spark",
    "lakes",
    "memory_limit",
    "naive_timestamps",
]
MODEL = [
    "engine",
    "dialect",
    "location",
    "partition_by",
    "sort_by",
    "incremental_strategy",
    "unique_key",
    "merge_clauses",
    "only_if_changed",
    "table_properties",
    "cluster_by",
    "writer",
    "merge_mode",
    "change_data_feed",
    "changes",
]
MATERIALIZED = ["table", "incremental", "view", "seed", "snapshot", "delta", "external"]
COMMANDS = ["tables", "sql", "history", "changes", "optimize", "vacuum"]


@pytest.mark.parametrize("name", ["connect", "DeltaTable", "Session", "Table", "Frame", "Lake", *SPECS, *VALUES])
def test_names_of_duckrun(name: str) -> None:
    assert name in duckrun.__all__
    assert getattr(duckrun, name) is not None


def test_errors_are_one_small_tree() -> None:
    assert all(issubclass(getattr(duckrun, name), duckrun.DuckrunError) for name in ERRORS)


@pytest.mark.parametrize("module", PUBLIC_MODULES)
def test_a_public_module_has_every_name_that_it_lists(module: str) -> None:
    found = import_module(module)
    names = getattr(found, "__all__", ["main"])
    assert all(getattr(found, name) is not None for name in names)
    assert set(names) <= set(dir(found))
    assert sorted(names) == sorted(set(names))


def test_names_of_spark() -> None:
    assert set(SPARK) <= set(import_module("duckrun.spark").__all__)


@pytest.mark.parametrize(("owner", "names"), [("Session", SESSION), ("Frame", FRAME), ("Table", TABLE)])
def test_methods(owner: str, names: list[str]) -> None:
    assert not [name for name in names if not hasattr(getattr(duckrun, owner), name)]


def test_upkeep_of_a_lake_and_adoption_of_files_have_one_place_each() -> None:
    upkeep, moving = (import_module(name) for name in ("duckrun.sessions.upkeep", "duckrun.moving.moving"))
    assert not [name for name in UPKEEP if not hasattr(upkeep.Upkeep, name)] and hasattr(moving.Moving, "adopt_files")
    elsewhere = {*UPKEEP, "adopt_files"} - set(SESSION)
    assert not [name for name in elsewhere if hasattr(duckrun.Session, name)]


def test_the_names_of_a_session_at_work(tmp_path: Path) -> None:
    assert duckrun.DeltaTable is duckrun.Table
    assert set(CONNECT) <= set(inspect.signature(duckrun.connect).parameters)
    with duckrun.connect(tmp_path, schema="main", engine="duckdb", storage_options=None, read_only=False) as s:
        s.sql("create table sales.orders as select 1 as id")
        orders = duckrun.DeltaTable.forName(s, "sales.orders")
        assert not [name for name in READER if not hasattr(s.read, name)]
        assert not [name for name in WRITER if not hasattr(orders.toDF().write, name)]
        builder = orders.alias("t").merge(orders.toDF().alias("s"), "t.id = s.id")
        assert not [name for name in MERGE if not hasattr(builder, name)]
        assert {"where", "executeCompaction", "executeZOrderBy"} <= set(dir(orders.optimize()))


@pytest.mark.parametrize("owner", RESOURCE_FIELDS)
def test_fields_of_dagster_s_resources(owner: str) -> None:
    fields: dict[str, Any] = getattr(import_module("duckrun_dagster"), owner).model_fields
    names = {name for field, value in fields.items() for name in (field, value.alias) if name}
    assert set(RESOURCE_FIELDS[owner].split()) <= names


def test_keys_of_dagster_s_metadata() -> None:
    config = import_module("duckrun_dagster.config")
    assert set(ASSET_METADATA) <= set(config.TABLE_KEYS)
    assert set(INPUT_METADATA) <= set(config.INPUT_KEYS)


def test_keys_of_dbt_s_profile_and_models() -> None:
    from dbt.adapters.duckrun.credentials import DuckrunCredentials

    assert set(PROFILE) - {"threads"} <= set(inspect.signature(DuckrunCredentials).parameters)  # threads are dbt's own
    adapter = ROOT / "adapter" / "dbt"
    read = "\n".join(path.read_text(encoding="utf-8") for path in [*adapter.rglob("*.py"), *adapter.rglob("*.sql")])
    assert not [key for key in MODEL if not re.search(rf"""["']{key}["']""", read)]
    assert set(MATERIALIZED) <= set(re.findall(r"materialization (\w+), adapter=.duckrun.", read))


def test_commands() -> None:
    cli = import_module("duckrun.cli")
    assert set(COMMANDS) <= {command.callback.__name__ for command in cli.app.registered_commands}


# -- what docs, examples and errors name

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def _code(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield from BLOCK.findall(text)
    elif path.suffix == ".ipynb":
        yield from ("".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code")
    else:
        yield text


def _imports(code: str) -> Iterator[tuple[str, str | None]]:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)


EXAMPLES = sorted((ROOT / "example_project").rglob("*.py"))


@pytest.mark.parametrize(
    "path", [*PAGES, *sorted((ROOT / "docs").glob("*.ipynb")), *EXAMPLES], ids=lambda path: str(path.relative_to(ROOT))
)
def test_code_that_users_copy_imports_public_names(path: Path) -> None:
    ours = [
        (module, name)
        for code in _code(path)
        for module, name in _imports(code)
        if module.partition(".")[0] in ("duckrun", "duckrun_dagster")
    ]
    assert not [module for module, _ in ours if module not in PUBLIC_MODULES]
    assert not [f"{module}.{name}" for module, name in ours if name and not hasattr(import_module(module), name)]


INNER = "|".join(
    each.name
    for each in pkgutil.iter_modules([str(ROOT / "adapter" / "duckrun")])
    if f"duckrun.{each.name}" not in PUBLIC_MODULES
)
# A method of DuckrunResource, which the example calls `duckrun`, has brackets: duckrun.session(), duckrun.lake().
NAMED = re.compile(rf"\b(?:duckrun\.(?:{INNER})\b(?!\()|duckrun_dagster\.[a-z_]+)[.\w]*")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_pages_name_no_inner_module(path: Path) -> None:
    assert not NAMED.findall(path.read_text(encoding="utf-8"))


def test_errors_name_no_inner_module() -> None:
    named = [
        f"{path.relative_to(ROOT)}:{text.lineno}"
        for folder in ("adapter", "duckrun_dagster")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for error in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(error, ast.Raise)
        for text in ast.walk(error)
        if isinstance(text, ast.Constant) and isinstance(text.value, str) and NAMED.search(text.value)
    ]
    assert not named


def test_dbt_takes_of_the_spark_engine_what_its_public_face_lists() -> None:
    imported = [
        module
        for path in (ROOT / "adapter" / "dbt").rglob("*.py")
        for module, _ in _imports(path.read_text(encoding="utf-8"))
        if module.startswith("duckrun.engines.spark")
    ]
    assert not imported
