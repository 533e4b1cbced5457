"""What the statement matrix gives on a DuckLake, on engine duckdb, where that is not what it gives on Delta: a part of the error's message, or
None for a statement that only a DuckLake takes, or that makes a Delta table in a folder of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

_CHECKS = "DuckLake has no CHECK constraints"
_OWN = "a DuckLake table keeps no property owner"
_DELTA = "delta.appendOnly is a property of Delta tables"
_EXPIRE = "VACUUM is Delta's.*expire"

ON_DUCKLAKE: Mapping[str, str | None] = {
    "Tables: CREATE TABLE with CHECK": _CHECKS,
    "Tables: CREATE TABLE with DEFAULT": None,
    "Tables: CLUSTER BY": "a DuckLake table has sort_by",
    "Tables: GENERATED ALWAYS AS (…), and AS IDENTITY": "which DuckLake does not have",
    "Tables: USING delta, COMMENT, TBLPROPERTIES": _DELTA,
    "Tables: WITH (property = …)": _OWN,
    "ALTER TABLE, COMMENT ON: ADD CONSTRAINT … CHECK": _CHECKS,
    "ALTER TABLE, COMMENT ON: ADD CONSTRAINT that rows break": _CHECKS,
    "ALTER TABLE, COMMENT ON: DROP CONSTRAINT": _CHECKS,
    "ALTER TABLE, COMMENT ON: UNSET TBLPROPERTIES": _DELTA,
    "ALTER TABLE, COMMENT ON: CLUSTER BY (…), CLUSTER BY NONE": "a DuckLake table has sort_by",
    "History and maintenance: SHOW TBLPROPERTIES table ('key')": _OWN,
    "History and maintenance: OPTIMIZE … WHERE": "DuckLake chooses the files itself",
    "History and maintenance: OPTIMIZE … ZORDER BY": "DuckLake has no z-order",
    "History and maintenance: VACUUM … DRY RUN": _EXPIRE,
    "History and maintenance: VACUUM": _EXPIRE,
    "History and maintenance: CONVERT TO DELTA parquet.`folder`": None,
    "History and maintenance: delta.`folder` as a table": "nothing is at",
    "ALTER TABLE, COMMENT ON: SET PARTITIONED BY (…), RESET PARTITIONED BY": None,
    "ALTER TABLE, COMMENT ON: SET DEFAULT": None,
    "Others: CREATE MACRO": None,
    "Others: BEGIN": None,
    "Others: COMMIT": "COMMIT without BEGIN",
}
