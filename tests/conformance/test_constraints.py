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
    def data_types(self, schema_int_type: str, int_type: str, string_type: str) -> list[list[str]]:
        return [
            ["1", schema_int_type, int_type],
            ["'1'", string_type, string_type],
            ["true", "bool", "BOOL"],
            ["'2013-11-03 00:00:00-07'::timestamp", "TIMESTAMP", "TIMESTAMP"],
            ["'2013-11-03 00:00:00-07'::timestamptz", "TIMESTAMPTZ", "TIMESTAMP WITH TIME ZONE"],
            ["ARRAY['a','b','c']", "VARCHAR[]", "VARCHAR[]"],
            ["ARRAY[1,2,3]", "INTEGER[]", "INTEGER[]"],
            ["'1'::numeric", "numeric", "DECIMAL"],
            ["""'{"bar": "baz", "balance": 7.77, "active": false}'::json""", "json", "JSON"],
        ]


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


class TestTableContractSqlHeader(BaseTableContractSqlHeader):
    pass


class TestIncrementalContractSqlHeader(BaseIncrementalContractSqlHeader):
    pass


class TestModelConstraintsRuntimeEnforcement(OurWrite, BaseModelConstraintsRuntimeEnforcement):
    pass


class TestConstraintQuotedColumn(BaseConstraintQuotedColumn):
    @pytest.fixture(scope="class")
    def expected_sql(self) -> str:
        return """select 'blue' as "from", 1 as id, '2019-01-01' as date_day"""


class TestIncrementalForeignKeyConstraint(BaseIncrementalForeignKeyConstraint):
    pass
