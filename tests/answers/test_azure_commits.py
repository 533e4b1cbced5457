"""An Azure store carries a commit out and its answer is lost. The server is Azurite; DuckDB reads past the proxy.

A fifth of the cases is drawn: 8 seconds with the server's start.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from deltalake import DeltaTable

import duckrun
from duckrun import WriteSpec
from tests.answers.test_commits import ROWS, WRITES, is_commit
from tests.fixtures_answers import CLIENT_TIMEOUT, LOSSES, Loss, LossyStore
from tests.fixtures_azure import ACCOUNT, Container

pytestmark = [pytest.mark.answers, pytest.mark.xdist_group("azure")]


@pytest.fixture(scope="module")
def lossy_azure(azure_endpoint: str) -> Iterator[LossyStore]:
    """The proxy in front of the Azure server of the session."""
    store = LossyStore(azure_endpoint)
    yield store
    store.close()


@pytest.mark.drawn(5)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("write", WRITES)
def test_a_commit_on_azure_whose_answer_is_lost_is_made_once(
    azure_container: Container, azure_options: dict[str, str], lossy_azure: LossyStore, write: str, loss: Loss
) -> None:
    root = azure_container(f"lost-{uuid.uuid4().hex}") + "/lake"
    options = azure_options | {
        "AZURE_STORAGE_ENDPOINT": f"{lossy_azure.url}/{ACCOUNT}",
        "timeout": f"{CLIENT_TIMEOUT} seconds",
    }
    run, expected = WRITES[write]
    with duckrun.connect(root, storage_options=options) as s:
        s.execute("main.t", WriteSpec("error"), ROWS)
        with lossy_azure.losing(loss, is_commit) as lost:
            run(s)
        assert lost() == 1
        assert s.snapshot("main.t").version == 1
    plain = DeltaTable(f"{root}/main/t", storage_options=azure_options)
    assert sorted(tuple(row.values()) for row in plain.to_pyarrow_table().to_pylist()) == expected
