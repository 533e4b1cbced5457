"""Errors of this library: their fields, and the sentence about what a failed write has committed."""

from __future__ import annotations

import ast
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake.table import TableMerger

import duckrun
from duckrun import (
    CommitUnknown,
    DuckrunError,
    InvalidConfig,
    MergeSpec,
    SchemaMismatch,
    Session,
    SourceOutdated,
    StorageError,
    VacuumSpec,
    WriteSpec,
    errors,
)
from duckrun.errors import note_commit, outcome_of, scratch_commits
from duckrun.lake.lake import Lake
from duckrun.values.snapshot import TableRef
from tests.lake import rows_of

pytestmark = pytest.mark.formats(1)

REPOSITORY = Path(__file__).parents[1]

HAND_WRITTEN = re.compile(
    r"nothing (of (this|it|that) )?was (read or )?"
    r"(written|committed|changed|moved|adopted|dropped|removed|updated|expired|done)(?! to it| to lake)"
    r"|(table|it) is as it was",
    re.IGNORECASE,
)
"""A claim about the outcome of a write. "Nothing was written to it yet" is about the past of a lake."""
ENDS_OF_TEXTS = re.compile(r"""["']\s+[rf]*["']""")


def texts_of(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The strings of a module without docstrings, with their lines; the parts of an f-string are one."""
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield (
                node.lineno,
                "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values),
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and not {id(node)} & (docs | parts):
            yield node.lineno, node.value


def test_an_error_builds_its_message_from_its_fields() -> None:
    error = SourceOutdated("computed from version 3", remedy="run it again", table="main.t", mode="append", version=3)
    assert str(error) == "computed from version 3; run it again."
    assert (error.table, error.mode, error.version, error.committed) == ("main.t", "append", 3, None)
    with pytest.raises(SourceOutdated) as raised, outcome_of():
        raise error
    assert raised.value is error and error.committed is False
    assert str(error) == "computed from version 3. Nothing was written; run it again."


@pytest.mark.parametrize(
    ("reason", "remedy", "message"),
    [
        ("no rows", "", "no rows. Nothing was written."),
        ("no rows.", "", "no rows. Nothing was written."),
        ("Did you mean main.a?", "", "Did you mean main.a? Nothing was written."),
        ("no rows", "give it some", "no rows. Nothing was written; give it some."),
        ("no rows", "Give it some.", "no rows. Nothing was written. Give it some."),
    ],
)
def test_the_message_of_a_failed_write_has_one_ending(reason: str, remedy: str, message: str) -> None:
    with pytest.raises(InvalidConfig) as raised, outcome_of(), outcome_of():
        raise InvalidConfig(reason, remedy=remedy)
    assert str(raised.value) == message


def test_a_boundary_names_the_table_unless_the_reason_does() -> None:
    for reason in ("no rows", "append on table main.t: no rows"):
        with pytest.raises(InvalidConfig) as raised, outcome_of("append", "main.t"):
            raise InvalidConfig(reason)
        assert str(raised.value) == "append on table main.t: no rows. Nothing was written."
        assert (raised.value.table, raised.value.mode) == ("main.t", "append")


def test_a_boundary_keeps_the_table_and_mode_of_an_inner_one() -> None:
    with pytest.raises(InvalidConfig) as raised, outcome_of("clone", "main.b"), outcome_of("append", "main.a"):
        raise InvalidConfig("no rows")
    assert (raised.value.table, raised.value.mode) == ("main.a", "append")


def test_a_read_claims_nothing_about_writes() -> None:
    with pytest.raises(InvalidConfig) as raised, outcome_of(writes=False):
        raise InvalidConfig("no such column")
    assert str(raised.value) == "no such column" and raised.value.committed is None


def test_commits_before_the_failure_are_named() -> None:
    with pytest.raises(InvalidConfig) as raised, outcome_of(writes=False):
        with outcome_of("append", "main.a"):
            note_commit("version 3 of table main.a")
        with outcome_of("append", "main.b"):
            raise InvalidConfig("no rows", remedy="give it some")
    error = raised.value
    assert error.committed is True and error.commits == ("version 3 of table main.a",)
    assert str(error) == (
        "append on table main.b: no rows. Committed before it failed: version 3 of table main.a; give it some."
    )


def test_commits_of_scratch_copies_do_not_count() -> None:
    with pytest.raises(InvalidConfig, match=r"no rows. Nothing was written."), outcome_of():
        with scratch_commits():
            note_commit("version 0 of table main.scratch")
        raise InvalidConfig("no rows")


def test_an_unknown_outcome_stays_unknown() -> None:
    with pytest.raises(CommitUnknown) as raised, outcome_of("append", "main.t"):
        raise CommitUnknown("Whether version 3 of table main.t was committed is not known")
    assert raised.value.committed is None and "othing was" not in str(raised.value)
    with pytest.raises(StorageError) as caused, outcome_of("append", "main.t"):
        try:
            raise CommitUnknown("no answer")
        except CommitUnknown as error:
            raise StorageError("The lake cannot be reached") from error
    assert caused.value.committed is None and "othing was" not in str(caused.value)


def test_a_vacuum_that_fails_does_not_claim_that_nothing_was_done(
    duck: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some files may be gone when the removal of the next one fails."""
    duck.sql("create table t as select 1 as id")
    ref = duck.snapshot("t").ref

    def fail(*args: object, **kwargs: object) -> None:
        raise StorageError("permission denied")

    monkeypatch.setattr(type(duck.lake.storage), "remove_files", fail)
    monkeypatch.setattr("duckrun.formats.ducklake.commits.maintenance._Upkeep._remove", fail)
    with pytest.raises(StorageError, match="permission denied") as raised:
        if duck.lake.format.transactions is None:
            duck.execute(ref, VacuumSpec(0, enforce_retention=False))
        else:
            duck.upkeep.cleanup(older_than="1 day")
    assert raised.value.committed is None and "othing was" not in str(raised.value)


@pytest.mark.s3
@pytest.mark.only_format("delta", "no SQLite file lies in a store")
def test_a_drop_that_fails_midway_in_a_store_does_not_claim_that_nothing_was_done(
    s3_bucket: Callable[[str], str], s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with duckrun.connect(s3_bucket("dropped-midway"), storage_options=s3_options) as session:
        session.sql("create table t as select 1 as id")
        calls = []

        def fail_later(*args: object, **kwargs: object) -> None:
            calls.append(args)
            if len(calls) > 1:
                raise StorageError("permission denied")

        monkeypatch.setattr(type(session.lake.storage), "remove_files", fail_later)
        with pytest.raises(StorageError, match="permission denied") as raised:
            session.sql("drop table t")
    assert raised.value.committed is None and "othing was" not in str(raised.value)


def test_a_schema_whose_drop_fails_midway_names_what_is_gone(duck: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "ab":
        duck.sql(f"create table raw.{name} as select 1 as id")
    drop_table = type(duck.lake).drop_table

    def fail(lake: Lake, ref: TableRef, **options: Any) -> None:
        if ref.name == "b":
            raise StorageError("permission denied")
        drop_table(lake, ref, **options)

    monkeypatch.setattr(type(duck.lake), "drop_table", fail)
    with pytest.raises(StorageError, match="permission denied") as raised:
        duck.sql("drop schema raw cascade")
    assert duck.tables() == ["raw.b"]
    assert raised.value.committed and "Committed before it failed: DROP of raw.a" in str(raised.value)


@pytest.mark.only_format("ducklake", "its upkeep has several steps")
def test_a_failed_upkeep_names_the_snapshots_of_the_steps_before(
    duck: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    duck.sql("create table t (id int)")
    duck.upkeep.set_inline_rows(10, "t")
    duck.sql("insert into t values (1)")

    def fail(*args: object, **kwargs: object) -> None:
        raise StorageError("permission denied")

    monkeypatch.setattr("duckrun.formats.ducklake.commits.maintenance._Upkeep._in_files", fail)
    with pytest.raises(StorageError, match="Committed before it failed: snapshot [0-9]+ of lake") as raised:
        duck.upkeep.merge_files("t")
    assert raised.value.committed is True
    assert rows_of(duck.sql("from t")) == [(1,)]


def test_a_subject_is_put_in_front_once() -> None:
    error = SourceOutdated("computed from version 3")
    for _ in range(2):
        error.name("Statement 2 of 2, https://a.example/x?sig=secret")
    assert str(error) == "Statement 2 of 2, https://a.example/x?sig=***: computed from version 3"
    inside = InvalidConfig("A key in Asset orders is wrong")
    inside.name("Asset orders")
    assert str(inside) == "Asset orders: A key in Asset orders is wrong"


def test_no_field_of_a_message_shows_a_secret() -> None:
    url = "https://a.example/x?sig=secret"
    error = InvalidConfig(f"no {url}", remedy=f"try {url}", detail=f"at {url}")
    assert "secret" not in str(error) and str(error).count("sig=***") == 3


@pytest.mark.parametrize(
    "kind", [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, DuckrunError)]
)
def test_a_pickled_error_keeps_its_fields(kind: type[DuckrunError]) -> None:
    error = kind("no rows", remedy="give it some", table="main.t", mode="append", version=2, detail="Traceback …")
    error.committed, error.commits, error.rolled_back = True, ("version 1 of table main.a",), True
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind and str(copy) == str(error) and vars(copy) == vars(error)
    assert (copy.table, copy.version, copy.remedy, copy.committed) == ("main.t", 2, "give it some", True)


def test_an_error_of_the_second_statement_has_its_type_and_number(root: Path) -> None:
    text = "select 1; create view w as select * from t at (version => 7)"
    with (
        duckrun.connect(root) as session,
        pytest.raises(duckrun.UnsupportedFeature, match=r"^Statement 2 of 2: View main\.w reads t at a version"),
    ):
        session.sql(text)


def test_a_failed_write_says_that_nothing_was_written(duck: Session) -> None:
    duck.sql("create table t (id int not null)")
    with pytest.raises(SchemaMismatch, match=r"NOT NULL.*Nothing was written\.$") as raised:
        duck.sql("insert into t values (1), (null)")
    assert (raised.value.table, raised.value.mode, raised.value.committed) == ("main.t", "append", False)
    assert rows_of(duck.sql("select count(*) from t")) == [(0,)]


def test_a_failed_statement_names_the_commits_of_the_statements_before(duck: Session) -> None:
    duck.sql("create table t (id int not null)")
    with pytest.raises(SchemaMismatch, match="^Statement 2 of 2: ") as raised:
        duck.sql("insert into t values (1); insert into t values (null)")
    version = duck.snapshot("t").version
    assert raised.value.committed is True and raised.value.commits == (f"version {version} of table main.t",)
    assert f"Committed before it failed: version {version} of table main.t." in str(raised.value)
    assert "Nothing was written" not in str(raised.value)


def test_a_failed_read_names_the_commits_of_the_statements_before(duck: Session) -> None:
    duck.sql("create table t (id int)")
    with pytest.raises(DuckrunError, match="Committed before it failed: version .* of table main.t") as raised:
        duck.sql("insert into t values (1); describe nowhere")
    assert raised.value.committed is True


def test_a_failed_statement_names_a_view_that_was_created_before(duck: Session) -> None:
    duck.sql("create table t (id int not null)")
    with pytest.raises(SchemaMismatch, match="Committed before it failed: CREATE VIEW main.v"):
        duck.sql("create view v as select 1 as one; insert into t values (null)")


@pytest.mark.only_format("ducklake", "a transaction over several statements")
def test_commits_of_a_transaction_that_is_rolled_back_do_not_count(duck: Session) -> None:
    duck.sql("create table t (id int not null)")
    with pytest.raises(SchemaMismatch, match=r"Nothing was written\. The transaction .* rolled back") as raised:
        duck.sql("begin; insert into t values (1); insert into t values (null); commit")
    assert raised.value.committed is False and raised.value.commits == ()
    assert rows_of(duck.sql("select count(*) from t")) == [(0,)]


@pytest.mark.only_format("ducklake", "a transaction over several statements")
def test_a_transaction_that_is_committed_counts(duck: Session) -> None:
    duck.sql("create table t (id int not null)")
    with pytest.raises(SchemaMismatch, match="Committed before it failed: snapshot [0-9]+ of lake ") as raised:
        duck.sql("begin; insert into t values (1); commit; insert into t values (null)")
    assert raised.value.committed is True
    assert rows_of(duck.sql("select count(*) from t")) == [(1,)]


def test_a_read_of_a_missing_table_claims_nothing_about_writes(duck: Session) -> None:
    with pytest.raises(duckrun.TableNotFound) as raised:
        duck.sql("select * from nowhere")
    assert raised.value.committed is None and "othing was" not in str(raised.value)


def test_an_error_after_the_commit_names_the_commit(duck: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write is committed, and what follows fails: its version is named."""
    duck.sql("create table t (id int)")

    def fail(*args: object, **kwargs: object) -> None:
        raise StorageError("the log cannot be read")

    form = type(duck.lake.format)
    monkeypatch.setattr(form, "committed", fail)
    with pytest.raises(StorageError, match="Committed before it failed: version ") as raised:
        duck.execute("t", WriteSpec("append"), pa.table({"id": pa.array([1], pa.int32())}))
    monkeypatch.undo()
    assert raised.value.committed is True and len(raised.value.commits) == 1
    assert rows_of(duck.sql("select count(*) from t")) == [(1,)]


@pytest.mark.only_format("delta", "delta_rs writes it")
def test_a_commit_that_prepares_the_table_is_named_when_the_write_fails(
    duck: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new column stays in the table although the merge that brings it fails."""
    duck.sql("create table t (id int, item text)")

    def fail(*args: object, **kwargs: object) -> None:
        raise StorageError("the disk is full", remedy="make room")

    monkeypatch.setattr(type(duck.lake.format.logs.delta_rs), "merge", fail)
    merge = MergeSpec(("id",), schema_mode="append_new_columns", writer="delta_rs")
    source = pa.table({"id": pa.array([1], pa.int32()), "item": ["fig"], "price": [0.5]})
    with pytest.raises(
        StorageError, match="Committed before it failed: version 1 of table main.t; make room"
    ) as raised:
        duck.execute("t", merge, source)
    assert raised.value.committed is True
    assert duck.table("t").toDF().columns == ["id", "item", "price"] and duck.snapshot("t").version == 1


@pytest.mark.only_format("delta", "delta_rs writes it")
@pytest.mark.parametrize("commits", [True, False])
def test_a_panic_of_delta_rs_is_looked_up_in_the_log(
    duck: Session, monkeypatch: pytest.MonkeyPatch, commits: bool
) -> None:
    class PanicException(BaseException):
        """Of pyo3: no Exception, and without a module to import it from."""

    duck.sql("create table t as select 1::int as id, 'fig' as item")
    execute = TableMerger.execute

    def panics(merger: TableMerger) -> None:
        if commits:
            execute(merger)
        raise PanicException("index out of bounds")

    monkeypatch.setattr(TableMerger, "execute", panics)
    source = pa.table({"id": pa.array([1], pa.int32()), "item": ["kiwi"]})
    merge = MergeSpec(("id",), writer="delta_rs")
    if commits:
        assert duck.execute("t", merge, source).version == 1
        assert rows_of(duck.sql("from t")) == [(1, "kiwi")]
        return
    with pytest.raises(StorageError, match=r"failed from within.*Nothing was written") as raised:
        duck.execute("t", merge, source)
    assert raised.value.committed is False and duck.snapshot("t").version == 0


def test_a_spark_commit_whose_log_cannot_be_read_is_unknown() -> None:
    pytest.importorskip("pyspark")
    from duckrun.engines.spark.commit import SparkCommit
    from duckrun.formats.logs import OwnLog

    def own() -> None:
        raise StorageError("the store does not answer")

    def run() -> None:
        raise ConnectionError("the Spark server is gone")

    transaction = SimpleNamespace(lake=SimpleNamespace(storage=SimpleNamespace(is_local=False)))
    commit: Any = SimpleNamespace(
        spec=WriteSpec("append"), ref="main.t", log=OwnLog("t"), transaction=transaction, _own=own
    )
    known = r"is not known: .*server is gone.*Look at the table's history"
    with pytest.raises(CommitUnknown, match=known) as raised, outcome_of("append", "main.t"):
        SparkCommit.proved(commit, run)
    assert raised.value.committed is None and "othing was" not in str(raised.value)


def test_the_page_of_errors_lists_each_type_and_field() -> None:
    page = (REPOSITORY / "docs/errors.md").read_text()
    types = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, DuckrunError)]
    fields = [*DuckrunError.__annotations__, "reason"]
    missing = [name for name in [*fields, *(kind.__name__ for kind in types)] if f"\n| `{name}` |" not in page]
    assert missing == [] and len(types) > 10


@pytest.mark.only_format("delta", "about the code")
def test_only_one_module_writes_that_nothing_was_written() -> None:
    """The sentence is true only where the commits of an operation are known."""
    by_hand = []
    for folder in ("adapter", "duckrun_dagster"):
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            whole = path.read_text()
            # Most modules have the words nowhere, also where a text goes on in the next line, and are not parsed.
            if path == REPOSITORY / "adapter/duckrun/errors.py" or not HAND_WRITTEN.search(
                ENDS_OF_TEXTS.sub("", whole)
            ):
                continue
            by_hand += [
                f"{path.relative_to(REPOSITORY)}:{line}: {text[:80]}"
                for line, text in texts_of(ast.parse(whole))
                if HAND_WRITTEN.search(text)
            ]
    assert by_hand == []
