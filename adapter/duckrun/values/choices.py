"""Words that a spec, a profile or a config takes."""

from __future__ import annotations

from typing import Literal, get_args

EngineName = Literal["duckdb", "spark"]
WriteMode = Literal["error", "overwrite", "append", "ignore", "replace", "safeappend"]
SchemaMode = Literal["fail", "append_new_columns", "sync_all_columns"]
WriterName = Literal["delta_rs", "staged", "ducklake", "spark", "none"]
WriterChoice = Literal["auto", "staged", "delta_rs", "prefer_delta_rs"]
MergeMode = Literal["auto", "deletion_vectors", "copy_on_write"]
ClauseKind = Literal[
    "matched_update",
    "matched_delete",
    "not_matched_insert",
    "not_matched_by_source_update",
    "not_matched_by_source_delete",
]

ENGINES: tuple[EngineName, ...] = get_args(EngineName)
WRITE_MODES: tuple[WriteMode, ...] = get_args(WriteMode)
WRITERS: tuple[WriterChoice, ...] = get_args(WriterChoice)
BY_DELTA_RS: tuple[WriterChoice, ...] = ("delta_rs", "prefer_delta_rs")
"""Writers that may let delta_rs write data files, which needs memory beside DuckDB's."""
MERGE_MODES: tuple[MergeMode, ...] = get_args(MergeMode)
SCHEMA_MODES: tuple[SchemaMode, ...] = get_args(SchemaMode)
PUBLISH = ("each", "together")
