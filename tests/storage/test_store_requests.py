"""Requests of a statement to an object store, by the log of moto's S3 server."""

from __future__ import annotations

import pytest

from benchmarks.apart.store_requests import counted, server

pytestmark = pytest.mark.s3

MOST = {"create": 9, "append": 11, "append of a value": 7, "merge": 13, "sql merge": 12, "replay": 9, "read": 8}


def test_a_statement_sends_few_requests_and_asks_for_the_log_once() -> None:
    with server() as (endpoint, log):
        kinds = counted(endpoint, log)
    assert {name: len(each) for name, each in kinds.items() if len(each) > MOST[name]} == {}
    # Tables that the session knows are read by listings alone.
    logs = {name: each.count("GET log") for name, each in kinds.items()}
    assert logs == {
        "create": 0,
        "append": 3,
        "append of a value": 0,
        "merge": 0,
        "sql merge": 0,
        "replay": 6,
        "read": 0,
    }
    assert kinds["read"].count("GET list") == 2
