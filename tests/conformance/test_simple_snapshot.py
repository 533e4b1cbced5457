"""Conformance: simple snapshot."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from dbt.tests.adapter.simple_snapshot.new_record_check_mode import BaseSnapshotNewRecordCheckMode
from dbt.tests.adapter.simple_snapshot.new_record_dbt_valid_to_current import BaseSnapshotNewRecordDbtValidToCurrent
from dbt.tests.adapter.simple_snapshot.new_record_timestamp_mode import BaseSnapshotNewRecordTimestampMode
from dbt.tests.adapter.simple_snapshot.test_ephemeral_snapshot_hard_deletes import (
    BaseSnapshotEphemeralHardDeletes,
    BaseSnapshotNewColumnSpecificCheckCols,
    BaseSnapshotNewColumnTimestampStrategy,
    BaseSnapshotNewColumnWithDeletes,
)
from dbt.tests.adapter.simple_snapshot.test_snapshot import BaseSimpleSnapshot, BaseSnapshotCheck
from dbt.tests.adapter.simple_snapshot.test_various_configs import (
    BaseSnapshotColumnNames,
    BaseSnapshotColumnNamesFromDbtProject,
    BaseSnapshotDbtValidToCurrent,
    BaseSnapshotInvalidColumnNames,
    BaseSnapshotMultiUniqueKey,
)


class TestSnapshotNewRecordCheckMode(BaseSnapshotNewRecordCheckMode):
    pass


class TestSnapshotNewRecordDbtValidToCurrent(BaseSnapshotNewRecordDbtValidToCurrent):
    pass


class TestSnapshotNewRecordTimestampMode(BaseSnapshotNewRecordTimestampMode):
    pass


class OurAlter:
    @pytest.fixture(scope="class")
    def source_alter_sql(self) -> str:
        """A new column of a Delta table is NULL in the rows that are there; what it should hold is set by an update."""
        table = "{database}.{schema}.src_customers"
        return f"alter table {table} add column dummy_column varchar; update {table} set dummy_column = 'dummy_value'"


class TestSnapshotEphemeralHardDeletes(OurAlter, BaseSnapshotEphemeralHardDeletes):
    pass


class TestSnapshotNewColumnTimestampStrategy(OurAlter, BaseSnapshotNewColumnTimestampStrategy):
    pass


class TestSnapshotNewColumnSpecificCheckCols(OurAlter, BaseSnapshotNewColumnSpecificCheckCols):
    pass


class TestSnapshotNewColumnWithDeletes(OurAlter, BaseSnapshotNewColumnWithDeletes):
    pass


class TestSimpleSnapshot(BaseSimpleSnapshot):
    pass


class TestSnapshotCheck(BaseSnapshotCheck):
    pass


class TestSnapshotColumnNames(BaseSnapshotColumnNames):
    pass


class TestSnapshotColumnNamesFromDbtProject(BaseSnapshotColumnNamesFromDbtProject):
    pass


class TestSnapshotInvalidColumnNames(BaseSnapshotInvalidColumnNames):
    pass


class TestSnapshotDbtValidToCurrent(BaseSnapshotDbtValidToCurrent):
    def test_valid_to_current(self, project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """The suite looks at rows by their place: the old ones by id, then the new ones. A table has no such order."""
        suite = sys.modules[BaseSnapshotDbtValidToCurrent.__module__]
        plain = suite.run_sql_with_adapter  # type: ignore[attr-defined]
        new = "count(*) over (partition by id) > 1 and year(test_valid_to) = 2099"

        def ordered(adapter: Any, sql: str, fetch: str) -> Any:
            marked = f"select *, {new} as is_new from ({sql}) as found"
            return plain(adapter, f"select * from ({marked}) as found order by is_new, id", fetch)

        monkeypatch.setattr(suite, "run_sql_with_adapter", ordered)
        super().test_valid_to_current(project)


class TestSnapshotMultiUniqueKey(BaseSnapshotMultiUniqueKey):
    pass
