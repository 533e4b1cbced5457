"""Conformance: persist docs."""

from __future__ import annotations

from typing import Any

import pytest
from dbt.tests.adapter.persist_docs.test_persist_docs import (
    BasePersistDocs,
    BasePersistDocsAllColumnsMissing,
    BasePersistDocsColumnMissing,
    BasePersistDocsCommentOnQuotedColumn,
    BasePersistDocsQuotedColumnCaseSensitive,
    BasePersistDocsQuotedDescriptionNotAppliedOnMismatch,
)


class TestPersistDocs(BasePersistDocs):
    @pytest.fixture(autouse=True)
    def _format(self, format_name: str) -> None:
        self.format_name = format_name

    def _assert_has_view_comments(
        self, view_node: Any, has_node_comments: bool = True, has_column_comments: bool = True
    ) -> None:
        """A DuckLake has comments of views, and of the columns of tables, and none of the columns of views."""
        has_column_comments = has_column_comments and self.format_name == "delta"
        super()._assert_has_view_comments(view_node, has_node_comments, has_column_comments)


class TestPersistDocsColumnMissing(BasePersistDocsColumnMissing):
    pass


class TestPersistDocsAllColumnsMissing(BasePersistDocsAllColumnsMissing):
    pass


class TestPersistDocsQuotedColumnCaseSensitive(BasePersistDocsQuotedColumnCaseSensitive):
    pass


class TestPersistDocsQuotedDescriptionNotAppliedOnMismatch(BasePersistDocsQuotedDescriptionNotAppliedOnMismatch):
    pass


class TestPersistDocsCommentOnQuotedColumn(BasePersistDocsCommentOnQuotedColumn):
    pass
