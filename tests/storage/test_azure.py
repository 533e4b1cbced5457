"""The lake on Azure: the same verbs, one set of credentials. The server is Azurite, on loopback."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

import duckrun
from duckrun import MergeSpec, WriteSpec
from duckrun.engines.duckdb import load_extensions
from duckrun.lake.lake import Lake, ViewDefinition
from duckrun.storage.storage import Storage
from duckrun.values.rows import DeleteSpec, UpdateSpec
from tests.fixtures_azure import Container
from tests.lake import rows_of
from tests.store_features import lives_through

ROWS = pa.table({"id": [1, 2], "day": ["mon", "o'x/y %"]})
NAMED = {"AZURE_STORAGE_ACCOUNT_NAME": "me"}
PRINCIPAL = {"AZURE_STORAGE_CLIENT_ID": "c", "AZURE_STORAGE_CLIENT_SECRET": "hush", "AZURE_STORAGE_TENANT_ID": "t"}


@pytest.mark.slow
@pytest.mark.xdist_group("azure")
@pytest.mark.parametrize("scheme", ["az", "abfss"])
def test_every_verb_works_and_a_fresh_session_sees_it(
    scheme: str, azure_container: Container, azure_options: dict[str, str]
) -> None:
    root = azure_container(f"verbs-{scheme}", scheme) + "/root"
    with duckrun.connect(root, storage_options=azure_options) as s:
        assert s.tables() == []
        s.execute("main.t", WriteSpec("error", partition_by=("day",)), ROWS)
        s.execute("main.t", WriteSpec("append"), pa.RecordBatchReader.from_batches(ROWS.schema, ROWS.to_batches()))
        s.execute("main.t", WriteSpec("replace", predicate="day = 'mon'"), pa.table({"id": [5], "day": ["mon"]}))
        s.execute("main.t", MergeSpec(("id",)), pa.table({"id": [5, 6], "day": ["mon", "tue"]}))
        s.execute("main.t", UpdateSpec({"id": "id * 10"}, "day = 'tue'"))
        s.execute("main.t", DeleteSpec("id = 5"))
        s.lake.put_definition(s.lake.parse("main.v"), ViewDefinition("select count(*) as n from main.t"))
        # one listing, by whichever name of the place
        other = azure_container.url(f"verbs-{scheme}", "abfss") + "/root"
        assert [*s.lake.storage.keys(other)] == [*s.lake.storage.keys(s.lake.root)] != []
    with duckrun.connect(root, storage_options=azure_options) as fresh:
        assert fresh.tables() == ["main.t", "main.v"]
        assert fresh.sql("select n from main.v").collect() == [{"n": 3}]
        assert rows_of(fresh.scan("main.t")) == [(2, "o'x/y %"), (2, "o'x/y %"), (60, "tue")]
        fresh.table("main.t").restoreToVersion(0)
        assert rows_of(fresh.scan("main.t")) == rows_of(ROWS)
        fresh.lake.drop_table(fresh.lake.parse("main.t"))
        assert fresh.lake.tables("main") == []


@pytest.mark.slow
@pytest.mark.xdist_group("azure")
def test_a_table_of_features_lives_there(azure_container: Container, azure_options: dict[str, str]) -> None:
    lives_through(azure_container("features", "az") + "/root", azure_options)


@pytest.mark.parametrize(
    ("options", "provider"),
    [
        (NAMED | {"AZURE_STORAGE_ACCOUNT_KEY": "aHVzaA=="}, "config"),
        (NAMED | {"AZURE_STORAGE_SAS_TOKEN": "?sv=1&sig=hush"}, "config"),
        (NAMED | PRINCIPAL, "service_principal"),
        (NAMED, "credential_chain"),
    ],
)
def test_duckdb_gets_a_secret_of_each_kind_of_credentials(options: dict[str, str], provider: str) -> None:
    lake = Lake("az://box/lake", storage_options=options)
    storage = lake.storage
    with duckdb.connect() as connection:
        load_extensions(connection, [lake])
        assert connection.execute("select provider, scope from duckdb_secrets()").fetchall() == [
            (provider, ["az://box"])
        ]
    assert "hush" not in repr(storage) and "aHVzaA" not in repr(storage)


def test_an_account_is_known_by_a_full_url_and_an_endpoint_of_its_own_holds_for_it() -> None:
    root = "abfss://box@you.dfs.core.windows.net/lake"
    assert Storage(root).root == root
    assert "'you'" in Storage(root).duckdb_secrets()[0]
    at = Storage(root, {"AZURE_STORAGE_ENDPOINT": "http://127.0.0.1:9/you", "AZURE_ALLOW_HTTP": "true"})
    assert at.root == "az://box/lake" and (at.delta_options() or {})["AZURE_STORAGE_ACCOUNT_NAME"] == "you"
    assert at.store is not None  # obstore takes AZURE_ALLOW_HTTP as a client's option
    emulated = Storage(
        "az://box/lake", {"AZURE_STORAGE_USE_EMULATOR": "true", **NAMED, "AZURE_STORAGE_ACCOUNT_KEY": "aa=="}
    )
    assert "BlobEndpoint=http://127.0.0.1:10000/devstoreaccount1" in emulated.duckdb_secrets()[0]


@pytest.mark.slow
@pytest.mark.xdist_group("azure")
@pytest.mark.parametrize("scheme", ["az", "abfss"])
def test_what_changed_since_a_version(scheme: str, azure_container: Container, azure_options: dict[str, str]) -> None:
    root = azure_container(f"changes-{scheme}", scheme) + "/root"
    with duckrun.connect(root, storage_options=azure_options) as s:
        s.execute("main.t", WriteSpec("error", partition_by=("day",)), ROWS)
        s.execute("main.t", DeleteSpec("id = 1", merge_mode="deletion_vectors"))
        s.execute("main.t", UpdateSpec({"id": "id * 10"}, "id = 2"))
        found = s.table("main.t").changes("min_delta", 0).collect()
        days = dict(zip(*(ROWS.column(name).to_pylist() for name in ("id", "day")), strict=True))
        expected = [(1, days[1], "delete"), (2, days[2], "delete"), (20, days[2], "insert")]
        assert sorted((row["id"], row["day"], row["_change_type"]) for row in found) == expected
