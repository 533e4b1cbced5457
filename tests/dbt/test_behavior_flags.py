"""dbt's behavior flags: the adapter has them all, without a look at the stack."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from dbt.adapters.base.impl import DEFAULT_BASE_BEHAVIOR_FLAGS
from dbt.adapters.duckrun.impl import _Behavior
from dbt_common.behavior_flags import Behavior
from dbt_common.exceptions import CompilationError

from tests.dbt.conftest import Project


def test_flags_have_the_settings_and_texts_of_dbt() -> None:
    name = DEFAULT_BASE_BEHAVIOR_FLAGS[0]["name"]
    ours, dbts = (kind(DEFAULT_BASE_BEHAVIOR_FLAGS, {name: True}) for kind in (_Behavior, Behavior))
    assert getattr(ours, name).no_warn is True
    for flag in DEFAULT_BASE_BEHAVIOR_FLAGS:
        mine, theirs = (getattr(each, flag["name"]) for each in (ours, dbts))
        assert mine.no_warn == theirs.no_warn
        texts = [each._behavior_change_event.to_dict() for each in (mine, theirs)]
        assert texts[0] == {**texts[1], "flag_source": "dbt.adapters.base.impl"}
    with pytest.raises(CompilationError, match="The flag unknown has not been registered"):
        _ = ours.unknown


@pytest.mark.drawn(1)
def test_a_command_does_not_search_the_stack_for_a_flag(
    make_project: Callable[..., Project], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stack(*arguments: Any) -> Any:
        raise AssertionError("the stack was searched")

    monkeypatch.setattr(inspect, "stack", stack)
    make_project({"models/one.sql": "select 1 as id"}).run("parse")
