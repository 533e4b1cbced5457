"""Documentation of the tables of the lake: persist_docs and the catalog of `dbt docs generate`.

Descriptions become comments in the tables. The catalog takes columns, comments, row counts and
sizes from the logs of the tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from dbt.adapters.duckrun.environment import LakeEnvironment
from dbt.adapters.duckrun.model.config import column_comments
from dbt.adapters.events.logging import AdapterLogger
from dbt_common.contracts.metadata import CatalogTable

from duckrun.engines.duckdb import ViewCatalog
from duckrun.formats.commits import NewCommit
from duckrun.lake.lake import TableRef, ViewDefinition
from duckrun.values.columns import comment_of
from duckrun.values.rows import Commit, counted_rows
from duckrun.values.snapshot import Snapshot

if TYPE_CHECKING:
    import agate  # type: ignore[import-untyped]

logger = AdapterLogger("Duckrun")

_TABLE = ("table_database", "table_schema", "table_name", "table_type", "table_comment")
_COLUMN = ("column_name", "column_index", "column_type", "column_comment", "table_owner")
_STATISTICS = {
    "num_rows": ("Rows", "Rows of the table at this version"),
    "num_bytes": ("Bytes", "Size of its data files"),
    "version": ("Version", "Newest version of the Delta table"),
}
_PARTS = ("label", "value", "description", "include")
COLUMNS = (*_TABLE, *_COLUMN, *(f"stats:{key}:{part}" for key in _STATISTICS for part in _PARTS))


def describe(env: LakeEnvironment, ref: TableRef, description: str | None, documented: Mapping[str, Any]) -> None:
    """Update the descriptions in a table by one metadata commit, only if they differ."""
    lake = env.lakes.of(ref)
    if isinstance(lake.definition(ref), ViewDefinition) or not lake.exists(ref):
        return
    present = lake.snapshot(ref)
    comments = column_comments(documented, present.schema.names)
    if lake.format.definition(present).described(description, comments) is None:
        return
    transaction = env.transaction(ref, f"describe/{ref}", rows=False)

    def attempt(snapshot: Snapshot | None) -> Commit:
        assert snapshot is not None, "the table was there a moment ago, and this process holds its lock"
        definition = lake.format.definition(snapshot).described(description, comments)
        if definition is None:
            return transaction.nothing(snapshot, "the table says so already")
        return transaction.commit(snapshot, NewCommit(None, definition))

    transaction.run(attempt, mode="describe", engine="none", rerun=lambda: "again")
    env.views_of(ref).moved(ref)


def catalog_of(env: LakeEnvironment, views: ViewCatalog, names: Iterable[tuple[str, str]]) -> agate.Table:
    """Return the catalog rows of some (schema, name) of one lake, one row per column.

    Names that the lake lacks are left out. So are twins (names that differ in letter case only),
    because dbt's catalog ignores letter case.
    """
    from dbt_common.clients.agate_helper import table_from_rows

    rows: list[tuple[Any, ...]] = []
    for schema, name in dict.fromkeys(names):
        if views.is_twin(schema, name):
            logger.warning(f"The catalog has no {schema}.{name}: another name differs from it in letter case only.")
            continue
        spelled = {known.lower(): known for known in views.names(schema)}.get(name.lower())
        if spelled is not None:
            rows += _rows(env, views, views.lake.resolve(schema, spelled))
    return table_from_rows(rows, COLUMNS, text_only_columns=[*_TABLE, "column_name", "column_type", "column_comment"])


def catalog_entry(env: LakeEnvironment, views: ViewCatalog, schema: str, name: str) -> CatalogTable | None:
    """Return the catalog entry of one table or view; None if the lake does not have it."""
    from dbt.task.docs.generate import Catalog

    rows = catalog_of(env, views, [(schema, name)]).rows
    return next(iter(Catalog([dict(zip(COLUMNS, row, strict=True)) for row in rows]).values()), None)


def _rows(env: LakeEnvironment, views: ViewCatalog, ref: TableRef) -> list[tuple[Any, ...]]:
    views.ensure(ref)
    definition = views.lake.definition(ref)
    comments: Mapping[str, str | None] = {}
    if isinstance(definition, ViewDefinition):
        kind, comment, statistics = "VIEW", definition.comment, _statistics({})
        comments = dict(definition.column_comments)
    else:
        snapshot = env.pins.snapshot(ref)
        kind, comment, statistics = "BASE TABLE", snapshot.description, _statistics(_figures(snapshot))
        comments = {f.name: comment_of(f) or None for f in snapshot.schema}
    table = (views.database, ref.schema, ref.name, kind, comment)
    return [
        (*table, name, index, dtype, comments.get(name), None, *statistics)
        for index, (name, dtype) in enumerate(views.columns(ref), start=1)
    ]


def _figures(snapshot: Snapshot) -> dict[str, int]:
    files = snapshot.files()
    figures = {"num_bytes": sum(file.size for file in files), "version": snapshot.version}
    rows = None if any(file.deletion_vector for file in files) else counted_rows(files)
    if rows is not None:
        figures["num_rows"] = rows
    return figures


def _statistics(figures: dict[str, int]) -> list[Any]:
    return [
        part
        for key, (label, description) in _STATISTICS.items()
        for part in (label, figures.get(key), description, key in figures)
    ]
