"""Conformance: constraints."""

from __future__ import annotations

import pytest
from dbt.tests.adapter.constraints.test_constraints import (
    BaseConstraintQuotedColumn,
    BaseConstraintsRollback,
    BaseConstraintsRuntimeDdlEnforcement,
    BaseIncrementalConstraintsColumnsEqual,
    BaseIncrementalConstraintsRollback,
    BaseIncrementalConstraintsRuntimeDdlEnforcement,
    BaseIncrementalContractSqlHeader,
    BaseIncrementalForeignKeyConstraint,
    BaseModelConstraintsRuntimeEnforcement,
    BaseTableConstraintsColumnsEqual,
    BaseTableContractSqlHeader,
    BaseViewConstraintsColumnsEqual,
)


class OurTypes:
    """Values, their types in a contract, and the names by which DuckDB tells of them."""

    @pytest.fixture
    def int_type(self) -> str:
        return "INT"

    @pytest.fixture
    def string_type(self) -> str:
        return "VARCHAR"

    @pytest.fixture
    def data_types(self, schema_int_type: str, int_type: str, string_type: str, engine_name: str) -> list[list[str]]:
        types = [
            ["1", schema_int_type, int_type],
            ["'1'", string_type, string_type],
            ["true", "bool", "BOOL"],
            ["'2013-11-03 00:00:00-07'::timestamp", "TIMESTAMP", "TIMESTAMP"],
            ["'2013-11-03 00:00:00-07'::timestamptz", "TIMESTAMPTZ", "TIMESTAMP WITH TIME ZONE"],
            ["ARRAY['a','b','c']", "VARCHAR[]", "VARCHAR[]"],
            ["ARRAY[1,2,3]", "INTEGER[]", "INTEGER[]"],
            ["'1'::numeric", "numeric", "DECIMAL"],
        ]
        json = ["""'{"bar": "baz", "balance": 7.77, "active": false}'::json""", "json", "JSON"]
        return [*types, json] if engine_name == "duckdb" else types  # Spark has text for it


class OurWrite:
    """What dbt keeps in target/run: the model's own query. Its constraints are checked by the query that is written, of
    which the tests below see the effect.
    """

    @pytest.fixture(scope="class")
    def expected_sql(self) -> str:
        return "-- depends_on: <foreign_key_model_identifier> select 'blue' as color, 1 as id, '2019-01-01' as date_day"


class OurErrors:
    @pytest.fixture(scope="class")
    def expected_error_messages(self) -> list[str]:
        return ["NOT NULL constraint failed", "id"]


class TestConstraintsRuntimeDdlEnforcement(OurWrite, BaseConstraintsRuntimeDdlEnforcement):
    pass


class TestConstraintsRollback(OurErrors, BaseConstraintsRollback):
    pass


class TestTableConstraintsColumnsEqual(OurTypes, BaseTableConstraintsColumnsEqual):
    pass


class TestViewConstraintsColumnsEqual(OurTypes, BaseViewConstraintsColumnsEqual):
    pass


class TestIncrementalConstraintsColumnsEqual(OurTypes, BaseIncrementalConstraintsColumnsEqual):
    pass


class TestIncrementalConstraintsRuntimeDdlEnforcement(OurWrite, BaseIncrementalConstraintsRuntimeDdlEnforcement):
    pass


class TestIncrementalConstraintsRollback(OurErrors, BaseIncrementalConstraintsRollback):
    pass


class OurHeader:
    @pytest.fixture(scope="class")
    def models(self, engine_name: str) -> dict[str, str]:
        """A header sets the time zone of the node's own connection; on Spark, whose session is that of all nodes, it makes
        a temporary view, which is the node's own.
        """
        given = super().models.__wrapped__(self)  # type: ignore[misc]
        if engine_name == "duckdb":
            return given
        header = "create or replace temporary view zones as select 'Asia/Kolkata' as zone;"
        spelled = {
            "set session time zone 'Asia/Kolkata';": header,
            "select current_setting('timezone') as column_name": "select zone as column_name from zones",
        }
        for theirs, ours in spelled.items():
            given = {name: text.replace(theirs, ours) for name, text in given.items()}
        return given


class TestTableContractSqlHeader(OurHeader, BaseTableContractSqlHeader):
    pass


class TestIncrementalContractSqlHeader(OurHeader, BaseIncrementalContractSqlHeader):
    pass


class TestModelConstraintsRuntimeEnforcement(OurWrite, BaseModelConstraintsRuntimeEnforcement):
    pass


class TestConstraintQuotedColumn(BaseConstraintQuotedColumn):
    @pytest.fixture(scope="class")
    def expected_sql(self) -> str:
        return """select 'blue' as "from", 1 as id, '2019-01-01' as date_day"""


class TestIncrementalForeignKeyConstraint(BaseIncrementalForeignKeyConstraint):
    pass
