"""dbt-duckdb's `external` materialization: a file of another format, with a persisted view."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dbt.adapters.duckrun.materialize.build import Build
from dbt.adapters.duckrun.materialize.response import DuckrunResponse
from dbt.adapters.duckrun.materialize.stage import DuckDBStage
from dbt.adapters.duckrun.model.values import mapping, one_of

from duckrun.sql.quoting import quote_identifier, quote_literal

FORMATS = ("parquet", "csv", "json")
# dbt-duckdb's own defaults of <format>_read_options
_READ_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "parquet": {"union_by_name": False},
    "csv": {"auto_detect": True},
    "json": {"auto_detect": True},
}


@dataclass(frozen=True)
class ExternalFile:
    """The file of an external model, and how it is read back."""

    location: str
    written: str
    """Text of COPY's options."""
    read_location: str
    format: str
    read_options: Mapping[str, Any]

    @classmethod
    def parse(
        cls, model: Mapping[str, Any], location: str, written: str, read_location: str, options: Mapping[str, Any]
    ) -> ExternalFile:
        node, config = str(model.get("unique_id", "model")), model.get("config") or {}
        format_ = config.get("format")
        name = one_of(node, "format", format_, FORMATS) if format_ else str(options.get("format", "")).lower()
        format_ = name if name in FORMATS else "parquet"
        read = dict(mapping(node, f"{format_}_read_options", config.get(f"{format_}_read_options")))
        read = read or dict(_READ_DEFAULTS[format_])
        # DuckDB detects a compression by a lower-case extension only, so the reader gets it as an
        # option.
        if options.get("compression") and format_ != "parquet":
            read.setdefault("compression", options["compression"])
        return cls(_absolute(location), written, _absolute(read_location), format_, read)


def build_external(build: Build, staging: str, file: ExternalFile) -> DuckrunResponse:
    """Copy a staged relation (SQL of its name) to the file, and persist the view over it."""
    stage = build.stage
    assert isinstance(stage, DuckDBStage), "the materialization needs DuckDB, and says so"
    cursor = stage.cursor
    columns = [row[0] for row in cursor.execute(f"describe {staging}").fetchall()]
    row = cursor.execute(f"select count(*) from {staging}").fetchone()
    where = ""
    if not row or not row[0]:
        # As in dbt-duckdb: in some formats, a file without rows has no columns. So it gets a row of
        # NULLs, which the view leaves out.
        stage.execute(f"insert into {staging} values ({', '.join('NULL' for _ in columns)})")
        where = " where " + " and ".join(f"{quote_identifier(c)} is not null" for c in columns)
    stage.execute(f"copy {staging} to {quote_literal(file.location)} ({file.written})")
    options = "".join(
        f", {key}={quote_literal(value) if isinstance(value, str) else value}"
        for key, value in file.read_options.items()
    )
    response = build.view(f"select * from read_{file.format}({quote_literal(file.read_location)}{options}){where}")
    response.location = file.location
    return response


def _absolute(location: str) -> str:
    """Return a path that means the same file in a process with another working directory."""
    return location if "://" in location else os.path.abspath(location)
