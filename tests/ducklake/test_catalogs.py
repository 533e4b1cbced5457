"""The catalog of a DuckLake: a file or a server; what is wrong with one is refused before anything is written, and no password is shown."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap
import traceback
from pathlib import Path
from typing import Any

import pytest

import duckrun
from duckrun import (
    SQL,
    AppTransaction,
    CommitConflict,
    InvalidConfig,
    StorageError,
    TableNotFound,
    UnsupportedFeature,
    WriteSpec,
)
from duckrun.values.lake_format import CatalogAddress, LakeFormat
from tests.ducklake.plain import attached, connection
from tools.databases import PASSWORD, Server

ROOT = Path(__file__).parents[2]
KINDS = ("sqlite", "postgres", "duckdb")


@pytest.fixture(params=KINDS)
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a catalog that is not there yet, of each kind."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres_catalog")
    return f"{request.param}:{tmp_path / 'lake'}/catalog.{request.param}"


def rows(session: duckrun.Session, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in session.sql(query).collect()]


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_each_catalog_keeps_tables_that_plain_duckdb_reads(tmp_path: Path, catalog: str) -> None:
    root = tmp_path / "lake"
    with duckrun.connect(root, format="ducklake", catalog=catalog) as session:
        with pytest.raises(TableNotFound):
            session.sql("from t")
        assert session.tables() == []
        session.sql("create table t (id integer, word varchar)")
        session.sql("insert into t values (1, 'a'), (2, 'b')")
        session.sql("merge into t using (select 2 as id, 'B' as word union all select 3, 'c') s on t.id = s.id "
                    "when matched then update set * when not matched then insert *")  # fmt: skip
        with session.transaction():
            session.sql("delete from t where id = 1")
            session.sql("create table other as select count(*) as n from t")
        assert rows(session, "from t order by id") == [(2, "B"), (3, "c")]
        assert session.table("t").history()[0]["version"] == session.table("other").snapshot().version
        session.sql("alter table t alter column id type bigint")
        assert rows(session, "select word from t where id > 2") == [("c",)]
    with attached(root, catalog) as plain:
        assert plain.sql("from lake.t order by id").fetchall() == [(2, "B"), (3, "c")]
        assert plain.sql("from lake.other").fetchall() == [(2,)]
    with duckrun.connect(root, format="ducklake", catalog=catalog, read_only=True) as session:
        assert rows(session, "from other") == [(2,)]


def test_a_write_is_made_once_wherever_the_row_lies_that_says_so(tmp_path: Path, catalog: str) -> None:
    """Those rows stay in the catalog, where they are read directly, unless another program flushes them into files."""
    root, spec = tmp_path / "lake", WriteSpec("append", app=AppTransaction("nightly's é", 3))
    later = WriteSpec("append", app=AppTransaction("nightly's é", 4))

    def flush() -> None:
        with attached(root, catalog) as plain:
            plain.execute("CALL ducklake_flush_inlined_data('lake')")

    def files() -> int:
        with attached(root, catalog) as plain:
            return len(plain.sql("from ducklake_list_files('lake', 'applied', schema => '_duckrun')").fetchall())

    with duckrun.connect(root, format="ducklake", catalog=catalog, inline_rows=5) as session:
        session.sql("create table t (n int)")
        made = session.execute("t", spec, SQL("select 1 as n"))
        session.upkeep.flush()
        session.upkeep.expire(older_than="0 seconds")
        again = session.execute("t", spec, SQL("select 1 as n"))
        assert (again.replayed, again.version, again.rows_inserted) == (True, made.version, 1)
        if not catalog.startswith("duckdb:"):  # which is this session's alone
            assert files() == 0
            flush()
            assert session.execute("t", spec, SQL("select 1 as n")).replayed
    flush()
    assert files() == 1
    with duckrun.connect(root, format="ducklake", catalog=catalog) as session:
        assert session.execute("t", spec, SQL("select 1 as n")).version == made.version
        assert not session.execute("t", later, SQL("select 2 as n")).replayed
        assert session.execute("t", later, SQL("select 2 as n")).replayed
        assert "followed by later ones" not in session.execute("t", spec, SQL("select 1 as n")).reason
        assert rows(session, "from t order by n") == [(1,), (2,)]


def test_another_path_than_the_catalogs_is_refused(tmp_path: Path, catalog: str) -> None:
    with duckrun.connect(tmp_path / "lake", format="ducklake", catalog=catalog) as session:
        session.sql("create table t as select 1 as n")
    with duckrun.connect(tmp_path / "elsewhere", format="ducklake", catalog=catalog) as session:
        for statement in ("from t", "create table t as select 2 as n"):
            with pytest.raises(StorageError, match="is of another lake than .*elsewhere.*Open that lake by its root"):
                session.sql(statement)
    assert not (tmp_path / "elsewhere" / "data").exists()


def test_a_newer_catalog_is_refused(tmp_path: Path, catalog: str) -> None:
    with duckrun.connect(tmp_path / "lake", format="ducklake", catalog=catalog) as session:
        session.sql("create table t as select 1 as n")
    kind, _, place = catalog.partition(":")
    with connection() as plain:
        plain.execute(f"ATTACH '{place}' AS meta ({'' if kind == 'duckdb' else f'TYPE {kind}'})".replace(" ()", ""))
        plain.execute("UPDATE meta.ducklake_metadata SET value = '2.0' WHERE key = 'version'")
    with duckrun.connect(tmp_path / "lake", format="ducklake", catalog=catalog) as session:
        for statement, ending in (("from t", ""), ("insert into t values (2)", "Nothing was written")):
            with pytest.raises(StorageError, match=rf"is of DuckLake version 2\.0.*{ending}"):
                session.sql(statement)


def test_encryption_is_from_the_beginning_or_never(tmp_path: Path, catalog: str) -> None:
    def opened(encrypted: bool | None) -> duckrun.Session:
        return duckrun.connect(tmp_path / "lake", format="ducklake", catalog=catalog, encrypted=encrypted)

    with opened(None) as session:
        session.sql("create table t as select 1 as n")
    with opened(True) as session, pytest.raises(InvalidConfig, match="from its beginning, or never"):
        session.sql("insert into t values (2)")
    with opened(False) as session:
        assert rows(session, "from t") == [(1,)]


def test_a_lake_that_is_encrypted_is_not_opened_as_one_that_is_not(tmp_path: Path) -> None:
    with duckrun.connect(tmp_path / "lake", format="ducklake", encrypted=True) as session:
        session.sql("create table t as select 'plain to see' as word")
    with (
        duckrun.connect(tmp_path / "lake", format="ducklake", encrypted=False) as session,
        pytest.raises(InvalidConfig, match="files are encrypted: leave it out"),
    ):
        session.sql("insert into t values ('x')")
    with duckrun.connect(tmp_path / "lake", format="ducklake") as session:
        assert rows(session, "from t") == [("plain to see",)]
    files = list((tmp_path / "lake" / "data").rglob("*.parquet"))
    assert files and not any(b"plain to see" in path.read_bytes() for path in files)


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_catalog_that_is_gone_is_not_made_anew(tmp_path: Path, kind: str) -> None:
    root = tmp_path / "lake"
    place = root / f"catalog.{kind}"
    with duckrun.connect(root, format="ducklake", catalog=f"{kind}:{place}") as session:
        session.sql("create table t as select 1 as n")
        for path in root.glob("catalog.*"):
            path.unlink()
        for statement in ("from t", "insert into t values (2)", "create table u as select 1 as n", "show tables"):
            with pytest.raises(StorageError, match="is gone.*Put it back"):
                session.sql(statement).collect()
    assert not place.exists()
    before = files_below(root / "data")
    said = "data/ holds files, such as .*Move them, or choose another root"
    with (
        duckrun.connect(root, format="ducklake", catalog=f"{kind}:{place}") as session,
        pytest.raises(StorageError, match=said),
    ):
        session.sql("create table t as select 1 as n")
    assert files_below(root / "data") == before and not place.exists()


def test_a_catalog_on_a_server_that_is_gone_is_not_made_anew(
    tmp_path: Path, postgres_server: Server, postgres_catalog: str
) -> None:
    name = postgres_catalog.rpartition("dbname=")[2]
    with duckrun.connect(tmp_path / "lake", format="ducklake", catalog=postgres_catalog) as session:
        session.sql("create table t as select 1 as n")
        postgres_server.run(f"DROP DATABASE {name} WITH (FORCE)")
        for statement in ("from t", "insert into t values (2)"):
            with pytest.raises(StorageError) as raised:
                session.sql(statement)
            assert PASSWORD not in str(raised.value)
    with (
        duckrun.connect(tmp_path / "lake", format="ducklake", catalog=postgres_catalog) as session,
        pytest.raises(StorageError, match="names a database that is not there.*CREATE DATABASE"),
    ):
        session.sql("create table t as select 1 as n")


def test_a_write_goes_on_after_the_server_has_ended_the_connections(
    tmp_path: Path, postgres_server: Server, postgres_catalog: str
) -> None:
    name = postgres_catalog.rpartition("dbname=")[2]
    with duckrun.connect(tmp_path / "lake", format="ducklake", catalog=postgres_catalog) as session:
        session.sql("create table t as select 0 as id")
        for number in (1, 2):
            postgres_server.run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
            session.sql(f"insert into t values ({number})")
        assert rows(session, "from t order by id") == [(0,), (1,), (2,)]


def test_a_data_folder_with_other_files_is_refused(tmp_path: Path, catalog: str) -> None:
    stranger = tmp_path / "lake" / "data" / "theirs" / "x.parquet"
    stranger.parent.mkdir(parents=True)
    stranger.write_bytes(b"not yours")
    with (
        duckrun.connect(tmp_path / "lake", format="ducklake", catalog=catalog) as session,
        pytest.raises(StorageError, match=r"data/ holds files, such as theirs/x\.parquet"),
    ):
        session.sql("create table t as select 1 as n")
    assert [path for path in files_below(tmp_path / "lake") if not path.endswith(".lock")] == ["data/theirs/x.parquet"]


def test_the_root_of_a_lake_of_another_format_is_refused(tmp_path: Path, catalog: str) -> None:
    with duckrun.connect(tmp_path / "delta") as session:
        session.sql("create table sales.t as select 1 as n")
    before = files_below(tmp_path / "delta")
    with duckrun.connect(tmp_path / "delta", format="ducklake", catalog=catalog) as session:
        for statement in ("from sales.t", "create table sales.u as select 1 as n"):
            with pytest.raises(StorageError, match="lake of Delta tables, such as sales/t.*format: delta"):
                session.sql(statement)
    assert [path for path in files_below(tmp_path / "delta") if not path.endswith(".lock")] == [
        path for path in before if not path.endswith(".lock")
    ]
    with duckrun.connect(tmp_path / "lake", format="ducklake", catalog=catalog) as session:
        session.sql("create table sales.t as select 1 as n")
    before = files_below(tmp_path / "lake")
    with duckrun.connect(tmp_path / "lake") as session:
        for statement in (
            "from sales.t",
            "create table sales.u (n int)",
            "create table sales.u as select 1 as n",
            "insert into sales.t values (1)",
            "create view sales.v as select 1 as n",
        ):
            with pytest.raises(StorageError, match="is the root of a DuckLake.*format: ducklake"):
                session.sql(statement)
    assert {Path(path).suffix for path in set(files_below(tmp_path / "lake")) - set(before)} <= {".lock"}


def test_a_wrong_password_is_shown_nowhere(
    tmp_path: Path, postgres_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    wrong, database = "wr0ng p'ass", postgres_server.database()
    caplog.set_level(logging.DEBUG)
    for address in (
        f"postgres:host=127.0.0.1 port={postgres_server.port} user=duckrun password='wr0ng p\\'ass' dbname={database}",
        f"postgresql://duckrun:wr0ng%20p%27ass@127.0.0.1:{postgres_server.port}/{database}",
    ):
        with duckrun.connect(tmp_path / "lake", format="ducklake", catalog=address) as session:
            for statement in ("from t", "create table t as select 1 as n"):
                with pytest.raises(StorageError, match="lets nobody in by that user and password") as raised:
                    session.sql(statement)
                shown = ["".join(traceback.format_exception(raised.value)), repr(raised.value), caplog.text]
                shown += [repr(session.lake.format.catalog.address), str(session.lake.format.catalog.address)]
                error: BaseException | None = raised.value
                while error is not None:
                    shown.append(str(error))
                    error = error.__cause__ or error.__context__
                assert not any(each in text for text in shown for each in ("wr0ng", wrong, "wr0ng%20p%27ass"))
    assert not (tmp_path / "lake" / "data").exists()


def test_the_right_password_is_not_shown_by_what_sql_shows(tmp_path: Path, postgres_catalog: str) -> None:
    with duckrun.connect(tmp_path / "lake", format="ducklake", catalog=postgres_catalog) as session:
        session.sql("create table t as select 1 as n")
        instance = session.embedded.connection
        for question in ("duckdb_databases()", "duckdb_secrets()", "duckdb_settings()"):
            assert PASSWORD not in str(instance.sql(f"from {question}").fetchall())
        shown = f"{session!r} {session.lake!r} {session.table('t').detail()} {session.snapshots()}"
        assert PASSWORD not in shown and "port=" in shown


def test_kinds_and_addresses(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"'sqlit' names no database.*Did you mean 'sqlite'"):
        duckrun.connect(tmp_path, format="ducklake", catalog="sqlit:x")
    with pytest.raises(InvalidConfig, match="catalog: it names no database"):
        duckrun.connect(tmp_path, format="ducklake", catalog="host=x password=hunter2")
    with pytest.raises(UnsupportedFeature, match="mysql scanner does not carry out the UPDATE"):
        LakeFormat.of("ducklake", "mysql:host=x passwd=hunter2")
    address = CatalogAddress.parse("postgresql://me:p%40ss@db.example:5433/lake?sslmode=require")
    assert address.dsn == "host='db.example' port='5433' user='me'  dbname='lake' sslmode='require'"
    assert (address.password, str(address)) == (
        "p@ss",
        "postgres:postgresql://me:***@db.example:5433/lake?sslmode=require",
    )
    assert CatalogAddress.parse("postgres:dbname=a password=x host=b").dsn == "dbname=a  host=b"
    assert CatalogAddress.parse("postgres:dbname=a").password is None


def test_a_catalog_without_its_wheel_names_the_extra(tmp_path: Path) -> None:
    script = """
        import importlib.abc, sys

        class Missing(importlib.abc.MetaPathFinder):
            def find_spec(self, name, path=None, target=None):
                if name.startswith("duckdb_extension_" + sys.argv[1]):
                    raise ModuleNotFoundError(name)

        sys.meta_path.insert(0, Missing())
        import duckrun
        try:
            with duckrun.connect(sys.argv[2], format="ducklake", catalog=sys.argv[3]) as session:
                session.sql("create table t as select 1 as n")
        except duckrun.StorageError as error:
            print(error)
    """
    for wheel, extra, catalog in (
        ("ducklake", "ducklake", f"sqlite:{tmp_path}/lake/catalog.sqlite"),
        ("sqlite_scanner", "ducklake", f"sqlite:{tmp_path}/lake/catalog.sqlite"),
        ("postgres_scanner", "ducklake-postgres", "postgres:dbname=x"),
    ):
        command = [sys.executable, "-c", textwrap.dedent(script), wheel, str(tmp_path / "lake"), catalog]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)
        assert f"extension {wheel} is not installed" in done.stdout, done.stderr
        assert f'pip install "duckrun-dagster[{extra}]"' in done.stdout
    assert not (tmp_path / "lake").exists()


def test_a_catalog_in_a_duckdb_file_is_for_one_process(tmp_path: Path) -> None:
    root, catalog = tmp_path / "lake", f"duckdb:{tmp_path}/lake/catalog.duckdb"
    holder = f"""
        import sys, duckrun
        with duckrun.connect({str(root)!r}, format="ducklake", catalog={catalog!r}) as session:
            session.sql("create table t as select 1 as n")
            print("ready", flush=True)
            sys.stdin.readline()
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(holder)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout and process.stdin and process.stdout.readline() == "ready\n"
    with duckrun.connect(root, format="ducklake", catalog=catalog) as session:
        for statement in ("from t", "insert into t values (2)"):
            with pytest.raises(StorageError, match=r"held by another process.*sqlite:<file>.*postgres:<dsn>"):
                session.sql(statement)
    process.stdin.write("\n")
    process.stdin.close()
    assert process.wait(timeout=60) == 0
    with duckrun.connect(root, format="ducklake", catalog=catalog) as session:
        assert rows(session, "from t") == [(1,)]
        with (
            duckrun.connect(root, format="ducklake", catalog=catalog) as second,
            pytest.raises(StorageError, match="open in this process by another session.*sqlite:<file>"),
        ):
            second.sql("from t")
        session.execute("t", WriteSpec("append"), SQL("select 2 as n"))
    with duckrun.connect(root, format="ducklake", catalog=catalog) as session:
        assert rows(session, "select count(*) from t") == [(2,)]


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_file_that_is_no_catalog_is_left_as_it_is(tmp_path: Path, kind: str) -> None:
    place = tmp_path / f"notes.{kind}"
    place.write_text("no database at all\n" * 100)
    with duckrun.connect(tmp_path / "lake", format="ducklake", catalog=f"{kind}:{place}") as session:
        for statement in ("from t", "create table t as select 1 as n"):
            with pytest.raises(StorageError, match=r"is no database of (SQLite|DuckDB)'s: name another one"):
                session.sql(statement)
    assert place.read_text().startswith("no database") and not (tmp_path / "lake" / "data").exists()


def test_a_full_disk_of_data_or_catalog_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    """A process may write no file over a size, which is what a full disk says too."""
    script = """
        import resource, sys
        import duckrun

        def limited(size):
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

        with duckrun.connect(sys.argv[1], format="ducklake") as session:
            session.sql("create table t as select 1 as n, '' as word")
            rows = "insert into t select range, md5(range::varchar) || md5((range + 1)::varchar) from range(20000)"
            for size, statement in ((600_000, rows), (2_000, "insert into t values (2, 'x')")):
                limited(size)
                try:
                    session.sql(statement)
                except duckrun.StorageError as error:
                    print(str(error).replace("\\n", " "))
                limited(resource.RLIM_INFINITY)
            session.sql("insert into t values (3, 'y')")
            print(session.sql("select n from t order by n").collect(), len(session.snapshots()))
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "lake")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)
    of_data, of_catalog, after = done.stdout.splitlines()
    assert "table main.t" in of_data and "the disk is full" in of_data
    assert "catalog.sqlite" in of_catalog and "the disk is full" in of_catalog
    assert after == "[{'n': 1}, {'n': 3}] 4"
    with attached(tmp_path / "lake") as plain:
        known = {
            Path(path) for (path,) in plain.sql("select data_file from ducklake_list_files('lake', 't')").fetchall()
        }
    assert {path.name for path in (tmp_path / "lake/data").rglob("*.parquet")} == {path.name for path in known}


@pytest.mark.parametrize("ask", ["tables", "snapshots", "history", "begin", "read"])
def test_a_catalog_in_a_duckdb_file_is_released_by_close(tmp_path: Path, ask: str) -> None:
    file = tmp_path / "catalog.duckdb"
    with duckrun.connect(tmp_path / "lake", format="ducklake", catalog=f"duckdb:{file}") as session:
        session.sql("create table t as select 1 as id")
    session = duckrun.connect(tmp_path / "lake", format="ducklake", catalog=f"duckdb:{file}")
    {
        "tables": session.tables,
        "snapshots": session.snapshots,
        "history": lambda: session.table("t").history(),
        "begin": lambda: session.sql("begin; insert into t values (2)"),
        "read": lambda: session.sql("from t").collect(),
    }[ask]()
    session.close()
    code = f"import duckdb; print(duckdb.connect({str(file)!r}).sql('select count(*) from ducklake_table').fetchall())"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert other.returncode == 0, other.stderr


def test_a_transaction_sees_and_changes_what_it_made(tmp_path: Path, catalog: str) -> None:
    with duckrun.connect(tmp_path / "lake", format="ducklake", catalog=catalog) as session:

        def rows(text: str) -> list[tuple[Any, ...]]:
            return sorted((tuple(row.values()) for row in session.sql(text).collect()), key=repr)

        session.sql(
            "create table t as select * from (values (1, 'a'), (2, 'b')) v(id, v); create table o as select 7 as n"
        )
        before = session.table("t").snapshot().version
        session.sql("begin; create schema made; create table made.u as select 1 as x")
        session.sql(
            "alter table o rename to old; alter table t rename to o; create table t as select 2 as id, 'c' as v"
        )
        listed = [("made", "u", "table"), *(("main", name, "table") for name in ("o", "old", "t"))]
        assert rows("show tables") == listed
        change = [(1, "a", "delete"), (2, "b", "update_preimage"), (2, "c", "update_postimage")]
        assert rows(f"from changes('t', 'min_delta', {before}, key => ['id'])") == change
        session.sql("drop schema made cascade; commit")
        assert rows(f"from changes('t', 'min_delta', {before}, key => ['id'])") == change
        session.sql("create or replace table t as select 3 as id, 'd' as v")
        gone = [(1, "a", "delete"), (2, "b", "delete"), (3, "d", "insert")]
        assert rows(f"from changes('t', 'min_delta', {before})") == gone
        with pytest.raises(UnsupportedFeature, match="cannot be renamed in the transaction that has altered it"):
            session.sql("begin; alter table old add column c int default 2; alter table old rename to older; commit")
        session.sql("begin; alter table old rename to older; alter table older add column c int default 2; commit")
        assert rows("from older") == [(7, 2)]
    with duckrun.connect(tmp_path / "lake", format="ducklake", catalog=catalog) as session:
        assert rows("from older") == [(7, 2)] and rows("from o") == [(1, "a"), (2, "b")]
        assert session.tables() == ["main.o", "main.older", "main.t"]


@pytest.mark.parametrize("inline_rows", [0, 10])
@pytest.mark.parametrize("name", ["ctid", "xmin", "tableoid", "filename", "snapshot_id"])
def test_columns_with_names_of_the_catalogs_own_database(
    postgres_catalog: str, tmp_path: Path, name: str, inline_rows: int
) -> None:
    with duckrun.connect(
        tmp_path / "lake", format="ducklake", catalog=postgres_catalog, inline_rows=inline_rows
    ) as session:
        if inline_rows and name in ("ctid", "xmin", "tableoid"):
            session.sql("create table t (id int)")
            newest = session.snapshots(1)[0]["snapshot_id"]
            for text in (f"create table u (id int, {name} int)", f"alter table t add column {name} int"):
                with pytest.raises(UnsupportedFeature, match=f"{name} is a system column of PostgreSQL"):
                    session.sql(text)
            assert session.snapshots(1)[0]["snapshot_id"] == newest
            return
        session.sql(f"create table t (id int, {name} varchar)")
        session.sql("insert into t values (1, 'a'), (2, 'b')")
        before = session.table("t").snapshot().version
        session.sql(f"update t set {name} = 'z' where id = 1; delete from t where {name} = 'b'")
        assert session.sql("from t").collect() == [{"id": 1, name: "z"}]
        assert session.table("t").changes("append_only", before).count() == 0
        assert session.table("t").changes("min_delta", before).count() == 3


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_begin_that_only_reads_lets_others_write(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    catalog = request.getfixturevalue("postgres_catalog") if kind == "postgres" else f"sqlite:{tmp_path}/c.sqlite"
    with (
        duckrun.connect(tmp_path / "lake", format="ducklake", catalog=catalog) as session,
        duckrun.connect(tmp_path / "lake", format="ducklake", catalog=catalog) as other,
    ):
        session.sql("create table t as select 1 as id")
        session.sql("begin")
        assert session.sql("from t").count() == 1
        other.sql("insert into t values (2)")
        assert session.sql("from t").count() == 1
        session.sql("commit; begin")
        other.sql("insert into t values (3)")
        session.sql("insert into t select id + 10 from t; commit")
        assert session.sql("from t").count() == 6
        session.sql("begin; from t")
        other.sql("insert into t values (4)")
        with pytest.raises(CommitConflict, match="since this transaction began"):
            session.sql("delete from t")
        session.sql("rollback")
    with attached(tmp_path / "lake", catalog) as plain:
        assert plain.sql("select count(*) from lake.t").fetchall() == [(7,)]
