"""Defaults of an IO manager for all its assets: keys of their metadata, as its own fields."""

# No "from __future__ import annotations" here: Dagster must see the classes of fields, not their
# names.

from dataclasses import asdict
from typing import Any

from pydantic import BaseModel, Field

from duckrun.values.rows import MergeClause
from duckrun_dagster.config import check_defaults
from duckrun_dagster.resources.arguments import is_open, refuse_unknown


class TableDefaults(BaseModel):
    """Defaults for assets whose metadata does not set the key.

    Each field is the metadata key of its name.

    Example::

        DeltaIOManager(duckrun=lake, mode="append", change_data_feed=True)
    """

    mode: str | None = Field(
        default=None, description="overwrite (partitioned assets: their partitions), append, replace, merge, …"
    )
    merge_keys: Any = Field(default=None, description="The columns that rows are matched by: a name, or a list.")
    merge_clauses: Any = Field(default=None, description="The clauses of a merge; an upsert, if not given.")
    only_if_changed: bool | None = Field(
        default=None, description="Whether a merge leaves rows as they are that an update would not change."
    )
    sequence_by: str | None = Field(
        default=None, description="The column in whose order changes are applied (scd1, scd2)."
    )
    deletes: Any = Field(default=None, description="Which changes delete: true (as _change_type says), false, or SQL.")
    partition_expr: Any = Field(default=None, description="The column that holds the partitions of an asset.")
    partition_by: Any = Field(default=None, description="The columns that new tables are partitioned by.")
    schema_mode: str | None = Field(default=None, description="fail, append_new_columns or sync_all_columns.")
    sort_by: Any = Field(default=None, description="The columns that the rows of a file are sorted by.")
    cluster_by: Any = Field(default=None, description="The columns of liquid clustering.")
    table_properties: dict[str, Any] = Field(default_factory=dict, description="Delta's properties of new tables.")
    target_file_size: Any = Field(default=None, description="How large data files are to be, such as 128MB.")
    compression: str | None = Field(default=None, description="snappy or zstd: how data files are compressed.")
    writer: str | None = Field(default=None, description="auto, staged or delta_rs: who makes DuckDB's data files.")
    merge_mode: str | None = Field(
        default=None, description="auto, deletion_vectors or copy_on_write: how rows leave a table."
    )
    change_data_feed: bool | None = Field(default=None, description="Whether tables keep a change feed.")
    commit_metadata: dict[str, Any] = Field(default_factory=dict, description="Words that each commit carries.")

    def table_defaults(self) -> dict[str, Any]:
        """Return the defaults that are set."""
        defaults = {key: getattr(self, key) for key in TableDefaults.model_fields}
        return {key: value for key, value in defaults.items() if value is not None and value != {}}


def checked_defaults(cls: type[BaseModel], values: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a class with defaults, as Dagster's configuration can hold them.

    Raises:
        InvalidConfig: The class lacks an argument (the text suggests the nearest), or a default
            cannot work.
    """
    refuse_unknown(cls, values)
    defaults = {key: values[key] for key in TableDefaults.model_fields if values.get(key) is not None}
    check_defaults({key: value for key, value in defaults.items() if not is_open(value)}, cls.__name__)
    if isinstance(defaults.get("merge_clauses"), list | tuple):
        clauses = [asdict(each) if isinstance(each, MergeClause) else each for each in defaults["merge_clauses"]]
        values = {**values, "merge_clauses": clauses}
    return values
