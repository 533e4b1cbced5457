"""Functions that parse SQL. Their modules, and with them sqlglot, are imported at the first call.

Code above this room takes them from here if it runs without them in most processes, such as in a
``dbt run`` of plain models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duckrun.sql import scopes
    from duckrun.sql.alike import becomes, depends_on_time, duckdb_of, is_same_in_all, kind_of
    from duckrun.sql.conditions import condition_of_target
    from duckrun.sql.dialects import text_in, tree_in, trees_in
    from duckrun.sql.names import columns_of, parse_query, paths_of, replace_tables, transpile
    from duckrun.sql.placing import keep_place
    from duckrun.sql.scalar import holds_statements, why_not_in_definition, why_not_scalar
    from duckrun.sql.written import put_names, with_names_as_written
else:
    from duckrun.libraries import function_on_demand, on_demand

    becomes = function_on_demand("duckrun.sql.alike", "becomes")
    columns_of = function_on_demand("duckrun.sql.names", "columns_of")
    condition_of_target = function_on_demand("duckrun.sql.conditions", "condition_of_target")
    depends_on_time = function_on_demand("duckrun.sql.alike", "depends_on_time")
    duckdb_of = function_on_demand("duckrun.sql.alike", "duckdb_of")
    holds_statements = function_on_demand("duckrun.sql.scalar", "holds_statements")
    is_same_in_all = function_on_demand("duckrun.sql.alike", "is_same_in_all")
    keep_place = function_on_demand("duckrun.sql.placing", "keep_place")
    kind_of = function_on_demand("duckrun.sql.alike", "kind_of")
    parse_query = function_on_demand("duckrun.sql.names", "parse_query")
    paths_of = function_on_demand("duckrun.sql.names", "paths_of")
    put_names = function_on_demand("duckrun.sql.written", "put_names")
    replace_tables = function_on_demand("duckrun.sql.names", "replace_tables")
    scopes = on_demand("duckrun.sql.scopes")
    text_in = function_on_demand("duckrun.sql.dialects", "text_in")
    transpile = function_on_demand("duckrun.sql.names", "transpile")
    tree_in = function_on_demand("duckrun.sql.dialects", "tree_in")
    trees_in = function_on_demand("duckrun.sql.dialects", "trees_in")
    why_not_in_definition = function_on_demand("duckrun.sql.scalar", "why_not_in_definition")
    why_not_scalar = function_on_demand("duckrun.sql.scalar", "why_not_scalar")
    with_names_as_written = function_on_demand("duckrun.sql.written", "with_names_as_written")

__all__ = [
    "becomes",
    "columns_of",
    "condition_of_target",
    "depends_on_time",
    "duckdb_of",
    "holds_statements",
    "is_same_in_all",
    "keep_place",
    "kind_of",
    "parse_query",
    "paths_of",
    "put_names",
    "replace_tables",
    "scopes",
    "text_in",
    "transpile",
    "tree_in",
    "trees_in",
    "why_not_in_definition",
    "why_not_scalar",
    "with_names_as_written",
]
