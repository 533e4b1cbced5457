"""Conformance: dbt show."""

from __future__ import annotations

import pytest
from dbt.tests.adapter.dbt_show.test_dbt_show import BaseShowDoesNotHandleDoubleLimit, BaseShowLimit, BaseShowSqlHeader


class TestShowLimit(BaseShowLimit):
    pass


class TestShowSqlHeader(BaseShowSqlHeader):
    pass


class TestShowDoesNotHandleDoubleLimit(BaseShowDoesNotHandleDoubleLimit):
    @pytest.fixture(autouse=True)
    def words_of_the_engine(self, engine_name: str) -> None:
        if engine_name == "spark":  # the SQL is read before Spark sees it
            self.DATABASE_ERROR_MESSAGE = "Found multiple 'LIMIT' clauses"
