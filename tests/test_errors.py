"""Errors of this library: what stays when one gets another message."""

from __future__ import annotations

from pathlib import Path

import pytest

import duckrun
from duckrun import SourceOutdated, UnsupportedFeature


def test_an_error_with_another_message_keeps_its_type_and_fields() -> None:
    error = SourceOutdated("computed from version 3")
    error.version = 3
    other = error.with_message("Statement 2 of 2: https://a.example/x?sig=secret")
    assert type(other) is SourceOutdated and other.version == 3
    assert str(other) == "Statement 2 of 2: https://a.example/x?sig=***"
    assert str(error) == "computed from version 3"


def test_an_error_of_the_second_statement_has_its_type_and_number(root: Path) -> None:
    text = "select 1; create view w as select * from t at (version => 7)"
    with (
        duckrun.connect(root) as session,
        pytest.raises(UnsupportedFeature, match=r"^Statement 2 of 2: View main\.w reads t at a version"),
    ):
        session.sql(text)
