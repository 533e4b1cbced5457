"""Requests at the same time."""

from __future__ import annotations

from contextvars import ContextVar

from duckrun.storage.parallel import at_once

STEP = ContextVar[str]("STEP", default="none")


def test_each_request_sees_the_context_of_the_caller_and_results_keep_their_order() -> None:
    token = STEP.set("mine")
    try:
        assert at_once(lambda item: (item, STEP.get()), range(40)) == [(item, "mine") for item in range(40)]
    finally:
        STEP.reset(token)
