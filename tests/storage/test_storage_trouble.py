"""Disks, stores and files that fail, closed sessions, and secrets: one of our errors each, which says what to do and tells no secret."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import traceback
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest

import duckrun
from duckrun import DuckrunError, InvalidConfig, StorageError, WriteSpec
from duckrun.errors import redacted
from duckrun.session import Session
from duckrun.storage.storage import Storage
from duckrun.storage.trouble import said, storage_error
from tests.lake import by_another, folder_of

pytestmark = pytest.mark.formats(10)

SECRET = "s3cr3tv4lue"


@pytest.fixture
def beside(lake_format: str, tmp_path: Path) -> dict[str, str]:
    """What a lake in an object store needs beside it: a DuckLake its catalog."""
    return {"catalog": f"sqlite:{tmp_path}/catalog.sqlite"} if lake_format == "ducklake" else {}


def damage(kind: str, file: Path) -> None:
    size = file.stat().st_size
    if kind == "missing":
        file.unlink()
    else:
        file.write_bytes({"garbage": os.urandom(size), "empty": b"", "cut": file.read_bytes()[: size - 20]}[kind])


@pytest.mark.parametrize("kinds", [("missing", "garbage"), ("empty", "cut")], ids="-".join)
def test_a_data_file_that_is_gone_or_damaged_is_named_and_nothing_is_written(
    session: Session, root: Path, lake_format: str, kinds: tuple[str, str]
) -> None:
    for kind in kinds:
        problem = "is gone|does not see" if kind == "missing" else "damaged"
        session.sql(f"create table {kind} as select 1 as id, 'a' as p")
        version = session.table(kind).snapshot().version
        file = next(folder_of(root, f"main.{kind}").glob("*.parquet"))
        session.sql(f"create table whole_{kind} as select * from {kind}")
        damage(kind, file)
        for use in (
            lambda kind=kind: session.sql(f"select * from {kind}").collect(),
            lambda kind=kind: session.table(kind).toDF().toArrow(),
            lambda kind=kind: session.sql(f"update {kind} set p = 'z' where id + 0 > 0"),
            lambda kind=kind: session.sql(
                f"merge into {kind} t using (select 1 as id, 'q' as p) s on t.id = s.id when matched then update set p = s.p"
            ),
            lambda kind=kind: session.sql(f"create table copy_{kind} as select * from {kind}"),
        ):
            with pytest.raises(StorageError, match=problem) as raised:
                use()
            assert file.name in str(raised.value) and f"main/{kind}" in str(raised.value)
        assert session.table(kind).snapshot().version == version
        assert f"main.copy_{kind}" not in session.tables()
        begun = folder_of(root, f"main.copy_{kind}")  # of a DuckLake an empty folder may stay
        assert not begun.exists() or lake_format == "ducklake" and not any(begun.iterdir())
        assert session.sql(f"select * from whole_{kind}").collect() == [{"id": 1, "p": "a"}]


@pytest.mark.only_format("delta", "a folder is a table; of data/ tests/test_bad_input.py asks the same")
def test_a_file_where_a_folder_would_be_is_named(session: Session, root: Path) -> None:
    (root / "main" / "logged").mkdir(parents=True)
    (root / "main" / "file").write_text("x")
    (root / "main" / "logged" / "_delta_log").write_text("x")
    for name in ("file", "logged"):
        ref = session.lake.resolve("main", name)
        for write in (
            lambda name=name: session.sql(f"create table {name} as select 1 as id"),
            lambda ref=ref: session.execute(ref, WriteSpec("append"), pa.table({"id": [1]})),
            lambda ref=ref: session.execute(
                session.lake.at(ref.location, schema="main", name="other"), WriteSpec("append"), pa.table({"id": [1]})
            ),
        ):
            with pytest.raises(StorageError, match=f"main/{name}.* is a file, where the folder of a table"):
                write()
        with pytest.raises((StorageError, duckrun.TableNotFound), match=f"main/{name}"):
            session.sql(f"select * from {name}")
    assert (root / "main" / "file").read_text() == "x"
    assert session.tables() == []


def test_a_bucket_that_is_not_there_is_named(
    engine: Any, s3_options: dict[str, str], request: Any, beside: dict[str, str], lake_format: str
) -> None:
    spark = request.getfixturevalue("spark") if engine == "spark" else None
    with duckrun.connect(
        "s3://not-there/lake", storage_options=s3_options, engine=engine, spark=spark, **beside
    ) as session:
        writes: list[Callable[[], Any]] = [
            lambda: session.sql("create table t as select 1 as id"),
            lambda: session.execute("t", WriteSpec("append"), pa.table({"id": [1]})),
        ]
        looks: list[Callable[[], Any]] = [  # of which a DuckLake's catalog knows
            session.tables,
            lambda: session.sql("select * from t"),
            lambda: session.sql("create view v as select 1 as id"),
            lambda: session.read.format("delta").load("s3://not-there/lake/main/t"),
        ]
        for use in writes + (looks if lake_format == "delta" else []):
            with pytest.raises(StorageError, match="s3://not-there/lake.*bucket or container is not there") as raised:
                use()
            assert "\n" not in str(raised.value) and "Debug" not in str(raised.value)


FULL = """
import resource, sys
import duckrun, pyarrow as pa
s = duckrun.connect(sys.argv[1], format=sys.argv[4])
rows = pa.table({"id": range(300_000), "t": [str(n * 7919 % 1_000_003) * 3 for n in range(300_000)], "p": [n % 3 for n in range(300_000)]})
source = rows.to_reader() if sys.argv[2] == "stream" else rows
partitions = ("p",) if sys.argv[3] == "partitioned" else None
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
for spec in (duckrun.WriteSpec("append", partition_by=partitions), duckrun.WriteSpec("overwrite", partition_by=partitions)):
    for name in ("kept", "new"):
        try:
            s.execute(name, spec, rows.to_reader() if sys.argv[2] == "stream" else rows)
            print("written")
        except duckrun.StorageError as error:
            print(name, error)
try:
    s.sql("update kept set t = array_to_string(list_transform(range(100000), x -> md5(x::varchar)), '')")
    print("written")
except duckrun.StorageError as error:
    print("kept", error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
s.sql("insert into kept values (2, 'b', 1)")
print(s.sql("select count(*) as n from kept").collect())
"""


@pytest.mark.drawn(2)
@pytest.mark.parametrize("source", ["stream", "table"])
@pytest.mark.parametrize("layout", ["partitioned", "flat"])
def test_a_full_disk_leaves_nothing_of_the_write_that_met_it(
    source: str, layout: str, root: Path, lake_format: str
) -> None:
    with duckrun.connect(root) as session:
        partitions = ("p",) if layout == "partitioned" else None
        session.execute(
            "kept", WriteSpec("append", partition_by=partitions), pa.table({"id": [1], "t": ["a"], "p": [0]})
        )
    kept, new = folder_of(root, "main.kept"), folder_of(root, "main.new")
    before = sorted(str(p) for p in kept.rglob("*") if p.is_file())
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FULL), str(root), source, layout, lake_format],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 6 and lines[-1] == "[{'n': 2}]", done.stdout
    assert all("the disk is full" in line and f"main.{line.split()[0]}" in line for line in lines[:5]), done.stdout
    said = r"(?:200\.0 KB of this write's files were there and it needs more, )?[0-9.]+ [KMGT]B are free"
    assert all(re.search(said, line) for line in lines[:5]), done.stdout
    after = sorted(str(p) for p in kept.rglob("*") if p.is_file())
    assert set(before) <= set(after)
    if lake_format == "delta":
        left = layout == "partitioned" or ("needs more" in done.stdout and source == "table")
        assert ("needs more" in done.stdout) == left, "of a single file DuckDB leaves nothing, and polars a part"
        assert len(after) == len(before) + 2, "one more file, and its commit"
        assert not new.exists()
    else:
        assert len(after) == len(before) + 1, "one more file"
        assert not any(path.is_file() for path in new.rglob("*"))
    with duckrun.connect(root) as session:
        assert by_another(session, "main.kept").num_rows == 2 and session.tables() == ["main.kept"]


@pytest.mark.parametrize(
    "text",
    [
        "IO Error: Could not write to file: No space left on device",
        "Generic LocalFileSystem error: Unable to copy data to file: File too large (os error 27)",
        "An error occurred while calling o1.save.\n: x\n\tat a.b(C.java)\nCaused by: java.io.IOException: No space left on device\n\tat a.b(D.java:3)",
    ],
)
def test_a_full_disk_is_known_in_the_words_of_every_library(text: str) -> None:
    told = str(storage_error(text, "append on table main.t"))
    assert told.startswith("append on table main.t: the disk is full") and "\n" not in told and "D.java" not in told


def test_what_a_library_says_is_one_line() -> None:
    assert said("Conversion Error: x\n\nLINE 1: SELECT CAST(…\n      ^") == "Conversion Error: x"
    assert said("Kernel error\n   0: <unknown>\n   1: y") == "Kernel error"
    assert storage_error("Binder Error: no column", "x") is None


# -- secrets


@pytest.mark.parametrize(
    "root",
    [
        f"s3://key:{SECRET}@bucket/lake",
        f"s3://key:{SECRET}/x@bucket/lake",
        f"s3://{SECRET}@bucket/lake",
        f"gs://key:{SECRET}@bucket",
        f"abfss://container:{SECRET}@account.dfs.core.windows.net/x",
        f"ftp://key:{SECRET}@host/lake",
    ],
)
def test_a_root_that_holds_credentials_is_refused_without_them(root: str) -> None:
    with pytest.raises(InvalidConfig, match="holds credentials.*storage_options") as raised:
        duckrun.connect(root)
    assert SECRET not in str(raised.value)


SIGNED = (
    f"sv=2022-11-02&sig={SECRET}%3D&se=2030-01-01",
    f"X-Amz-Signature={SECRET}&X-Amz-Credential={SECRET}",
    f"s3_secret_access_key={SECRET}",
)


@pytest.mark.parametrize("query", SIGNED)
@pytest.mark.parametrize(
    "place",
    ["az://c/lake", "abfss://c@account.dfs.core.windows.net/lake", "https://account.blob.core.windows.net/c/lake"],
)
def test_a_root_with_a_signature_is_refused_without_it(place: str, query: str, root: Path) -> None:
    def refused(use: Callable[[str], object]) -> None:
        with pytest.raises(InvalidConfig, match=r"signature or a key.*storage_options") as raised:
            use(f"{place}?{query}")
        assert SECRET not in "".join(traceback.format_exception(raised.value))

    with duckrun.connect(root) as s:
        refused(duckrun.connect)
        refused(lambda url: s.attach(url, "other"))
        refused(lambda url: s.read.format("delta").load(url))
        refused(lambda url: s.sql(f'select * from delta."{url}"'))


@pytest.mark.s3
@pytest.mark.parametrize("query", SIGNED)
@pytest.mark.parametrize(
    "statement",
    [
        "select * from read_parquet('{}')",
        "create table u as select * from read_csv('{}')",
        "select * from '{}'",
        "create view v as select * from '{}'",
    ],
)
def test_a_signature_in_a_quoted_url_is_shown_nowhere(
    query: str,
    statement: str,
    s3_bucket: Callable[[str], str],
    s3_options: dict[str, str],
    beside: dict[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    bucket = s3_bucket(f"signed-{uuid.uuid4().hex}")
    with duckrun.connect(bucket, storage_options=s3_options, **beside) as s, pytest.raises(DuckrunError) as raised:
        s.sql(statement.format(f"https://127.0.0.1:1/c/x.parquet?{query}")).collect()
    assert SECRET not in "".join(traceback.format_exception(raised.value)) + caplog.text
    assert "***" in str(raised.value)


def test_a_message_without_a_url_stays_as_it_is() -> None:
    for text in ("key=1&token=2", "select 'a?key=b'", "https://host/a?b=c&d=e", "s3://bucket/monkey=1/x"):
        assert redacted(text) == text


def test_an_endpoint_that_refuses_is_called_the_stores(
    lake_format: str, beside: dict[str, str], s3_options: dict[str, str]
) -> None:
    options = {**s3_options, "AWS_ENDPOINT_URL": "http://127.0.0.1:9", "max_retries": "0"}
    with (
        pytest.raises(StorageError) as raised,
        duckrun.connect("s3://bucket/lake", storage_options=options, format=lake_format, **beside) as s,
    ):
        s.execute("main.t", WriteSpec("append"), pa.table({"a": [1]}))
    assert "127.0.0.1:9" in str(raised.value) and "database" not in str(raised.value)


@pytest.mark.parametrize(
    "option",
    [
        "AWS_ALLOW_HTTP",
        "AWS_SECRET_ACCESS_KEYS",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
        "timeout",
        "AWS_SECRET_ACCESS_KEY",
    ],
)
def test_a_wrong_option_is_told_without_its_value(
    option: str, s3_options: dict[str, str], beside: dict[str, str], lake_format: str
) -> None:
    with duckrun.connect("s3://not-there/lake", storage_options={**s3_options, option: SECRET}, **beside) as session:
        asked = [session.tables, lambda: session.sql("select 1 as x from t")]
        for use in asked if lake_format == "delta" else [lambda: session.sql("create table t as select 1 as x")]:
            with pytest.raises(StorageError) as raised:
                use()
            error: BaseException | None = raised.value
            while error is not None:
                assert SECRET not in str(error)
                error = None if error.__suppress_context__ else error.__cause__ or error.__context__
        assert SECRET not in repr(session.lake.storage)


@pytest.mark.parametrize("key", ["AWS_ENDPOINT_URL", "AZURE_STORAGE_ENDPOINT"])
@pytest.mark.parametrize("url", [f"http://me:{SECRET}@:w/ord@host:9000", "http://host:port", "host:9000", "http://"])
def test_an_endpoint_that_is_no_url_is_refused_without_its_password(key: str, url: str) -> None:
    with pytest.raises(InvalidConfig, match=f"{key} is no URL") as caught:
        Storage("s3://box/lake", {key: url})
    assert SECRET not in str(caught.value)


def test_a_storage_shows_what_is_no_secret() -> None:
    options = {
        "AWS_REGION": "eu-west-1",
        "AWS_ENDPOINT_URL": "http://h:1",
        "AWS_ALLOW_HTTP": "true",
        "AWS_SESSION_TOKEN": SECRET,
    }
    shown = repr(Storage("s3://b/l", options))
    assert SECRET not in shown
    assert all(value in shown for value in ("eu-west-1", "http://h:1", "true"))


def test_options_that_are_no_mapping_are_refused_without_their_text(root: Path) -> None:
    with pytest.raises(InvalidConfig, match="storage_options.*is a str") as raised:
        duckrun.connect(root, storage_options=SECRET)  # type: ignore[arg-type]
    assert SECRET not in str(raised.value)


# -- closed sessions


def test_a_closed_session_refuses_everything(session: Session, root: Path, tmp_path: Path) -> None:
    session.sql("create table t as select 1 as id")
    version = session.table("t").snapshot().version
    frame, lazy, table = session.sql("select * from t"), session.table("t").toDF(), session.table("t")
    session.close()
    session.close()
    uses: tuple[Callable[[], Any], ...] = (
        lambda: session.sql("select 1"),
        lambda: session.sql("insert into t values (2)"),
        lambda: session.table("t"),
        session.tables,
        lambda: session.read.table("t"),
        lambda: session.read.format("delta").load(root / "main" / "t"),
        lambda: session.read.parquet(root),
        lambda: session.register("x", pa.table({"id": [1]})),
        lambda: session.execute("t", WriteSpec("append"), pa.table({"id": [2]})),
        lambda: session.stage("t", pa.table({"id": [2]})),
        lambda: session.attach(tmp_path / "other", "other"),
        lambda: session.detach("other"),
        frame.collect,
        frame.count,
        lambda: frame.schema,
        lambda: frame.native,
        lambda: frame.limit(1).collect(),
        lambda: frame.createOrReplaceTempView("v"),
        lambda: frame.write.mode("append").saveAsTable("t"),
        lazy.toArrow,
        table.history,
        table.detail,
        table.toDF,
        lambda: table.delete("id = 1"),
    )
    for number, use in enumerate(uses):
        with pytest.raises(InvalidConfig, match="is closed.*connect"):
            use()
            pytest.fail(f"use {number} was answered")
    assert "closed" in repr(frame)
    with duckrun.connect(root) as later:
        assert later.table("t").snapshot().version == version


@pytest.mark.only_format("delta", "tables are found by listing; a DuckLake's are in its catalog")
def test_an_object_that_is_no_path_is_named_with_the_way_out(
    s3_bucket: Callable[[str], str], s3_options: dict[str, str], s3_endpoint: str
) -> None:
    root = s3_bucket("keys-without-paths")
    client = boto3.client(
        "s3", endpoint_url=s3_endpoint, aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1"
    )
    with duckrun.connect(root, storage_options=s3_options) as session:
        session.sql("create table t as select 1 as id")
        for key in ("main/a//b/_delta_log/0.json", "main/x%41/_delta_log/0.json", "main/.hidden/_delta_log/0.json"):
            client.put_object(Bucket="keys-without-paths", Key=key, Body=b"x")
        assert session.tables() == ["main.t"]
        client.put_object(Bucket="keys-without-paths", Key="main//x", Body=b"x")
        with pytest.raises(
            StorageError, match="Cannot list s3://keys-without-paths/main: .*no path.*main//.*Take it away"
        ):
            session.tables()
        assert session.sql("select * from t").collect() == [{"id": 1}]
        session.sql("insert into t values (2)")
