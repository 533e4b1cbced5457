"""The search for cyclic garbage during a dbt command, and the policy of the host process after it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from dbt.adapters.duckrun import collector

from duckrun.sql.collector import trees_collected


@pytest.fixture(autouse=True)
def default_policy() -> Iterator[None]:
    threshold = gc.get_threshold()
    gc.unfreeze()
    gc.set_threshold(700, 10, 10)
    yield
    gc.unfreeze()
    gc.set_threshold(*threshold)


def test_objects_that_exist_before_a_command_are_not_searched_until_it_ends() -> None:
    cycle: list[object] = []
    cycle.append(cycle)
    with collector.sparing():
        assert gc.get_freeze_count()
        assert not any(known is cycle for known in gc.get_objects())
    assert not gc.get_freeze_count()
    assert any(known is cycle for known in gc.get_objects())


def test_objects_of_the_manifest_are_not_searched_until_the_command_ends() -> None:
    with collector.sparing():
        manifest: list[object] = [{}]
        assert any(known is manifest for known in gc.get_objects())
        collector.spare()
        assert not any(known is manifest for known in gc.get_objects())
    assert any(known is manifest for known in gc.get_objects())


def test_without_a_command_nothing_is_frozen() -> None:
    collector.spare()
    assert not gc.get_freeze_count()


def test_garbage_of_a_command_is_freed_after_it() -> None:
    class Node:
        def __init__(self) -> None:
            self.itself = self
            freed.append(False)

        def __del__(self) -> None:
            freed[0] = True

    freed: list[bool] = []
    with collector.sparing():
        node = Node()
        collector.spare()
        del node
        gc.collect()
        assert freed == [False]
    gc.collect()
    assert freed == [True]


def test_the_objects_that_a_host_has_frozen_stay_frozen() -> None:
    gc.freeze()
    with collector.sparing():
        collector.spare()
    assert gc.get_freeze_count()


def test_commands_in_two_contexts_unfreeze_when_the_last_one_ends() -> None:
    with collector.sparing():
        with collector.sparing():
            pass
        assert gc.get_freeze_count()
    assert not gc.get_freeze_count()


@pytest.mark.parametrize("before", [(700, 10, 10), (0, 10, 10), (50_000, 5, 5)])
def test_the_thresholds_of_the_host_are_restored(before: tuple[int, int, int]) -> None:
    gc.set_threshold(*before)
    with collector.sparing():
        assert gc.get_threshold()[0] == (10_000 if before[0] == 700 else before[0])
    assert gc.get_threshold() == before


def test_a_threshold_that_is_set_during_a_command_stays() -> None:
    with collector.sparing():
        gc.set_threshold(1234, 5, 6)
    assert gc.get_threshold() == (1234, 5, 6)


def test_a_long_text_that_outlives_a_command_leaves_the_threshold_of_the_host() -> None:
    with ExitStack() as command, ExitStack() as text:
        command.enter_context(collector.sparing())
        text.enter_context(trees_collected())
        assert gc.get_threshold()[0] == 200_000
        command.close()
        assert gc.get_threshold()[0] == 200_000
        text.close()
        assert gc.get_threshold() == (700, 10, 10)


def test_a_dbt_command_in_this_process_leaves_no_object_frozen(make_project, monkeypatch: pytest.MonkeyPatch) -> None:
    during: list[tuple[int, int]] = []
    spare = collector.spare

    def noting() -> None:
        spare()
        during.append((gc.get_freeze_count(), gc.get_threshold()[0]))

    monkeypatch.setattr(collector, "spare", noting)
    project = make_project({"models/a.sql": "select 1 as id"})
    project.run("run")
    assert during
    assert all(frozen and young == 10_000 for frozen, young in during)
    assert not gc.get_freeze_count()
    assert gc.get_threshold() == (700, 10, 10)
