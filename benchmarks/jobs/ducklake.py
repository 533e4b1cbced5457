"""A DuckLake beside the bare statements of DuckDB's extension, with the same catalog and options, and beside Delta: many small appends and
a read after them, a merge, and the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.harness.case import Data, Job, Relations, Run
from benchmarks.harness.duck import parquet, plain

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

TEN = 10
APPENDS, GROWTH = 1000, 10_000
MILLION, SOURCE = 1_000_000, 25_000
READ = "SELECT count(*) AS n, sum(id) AS total FROM {t}"
OURS, BARE, DELTA = "duckrun", "bare statements", "duckrun, Delta"
CATALOGS = ("sqlite", "postgres", "duckdb")


def made_rows(start: int, count: int = TEN, note: str = "row") -> pa.Table:
    import pyarrow as pa

    ids = range(start, start + count)
    return pa.table(
        {"id": pa.array(ids, pa.int64()), "note": pa.array([f"{note} {each}" for each in ids], pa.string())}
    )


def _expected(count: int, changed: int = 0, came: int = 0) -> Relations:
    """So many rows, of which the first were changed, and so many that came."""
    return {
        "rows": f"(SELECT range AS id, CASE WHEN range < {changed} THEN 'new ' ELSE 'row ' END || range AS note FROM range({count}) "
        f"UNION ALL SELECT {count} + range, 'new ' || ({count} + range) FROM range({came}))"
    }


@contextmanager
def _catalog(run: Run, kind: str) -> Iterator[str]:
    """The address of a new catalog; a server is started before the clock."""
    if kind != "postgres":
        yield f"{kind}:{run.lake}/catalog.{kind}"
        return
    from tools.databases import postgres

    with postgres(durable=True) as server:
        yield server.address(server.database())


@contextmanager
def attached(run: Run, catalog: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with its extension alone, which has the catalog as ``lake``, by the options that duckrun gives."""
    kind, _, place = catalog.partition(":")
    scanner = () if kind == "duckdb" else (f"{kind}_scanner",)
    options = [f"DATA_PATH '{run.lake.as_posix()}/data/'", "DATA_INLINING_ROW_LIMIT 0"]
    options += ["META_JOURNAL_MODE 'WAL'", "META_BUSY_TIMEOUT 30000"] if kind == "sqlite" else []
    with plain("ducklake", *scanner) as con:
        con.execute(f"ATTACH 'ducklake:{place if kind == 'duckdb' else catalog}' AS lake ({', '.join(options)})")
        yield con


def _result(run: Run, catalog: str) -> Relations:
    file = (run.lake / "result.parquet").as_posix()
    with attached(run, catalog) as con:
        con.execute(f"COPY (FROM lake.main.t) TO '{file}'")
    return {"rows": parquet(file)}


def _label(number: int, count: int) -> str:
    """The first tenth of the appends apart, and the last."""
    tenth = max(1, count // 10)
    return "first tenth" if number < tenth else "last tenth" if number >= count - tenth else "append"


def _append_all(run: Run, count: int, append: Callable[[Any], Any]) -> None:
    for number, rows in enumerate([made_rows(number * TEN) for number in range(count)]):
        with run.clock(_label(number, count)):
            append(rows)


def appends_by_duckrun(run: Run, kind: str, whole: int) -> Relations:
    import duckrun

    form = {} if kind == "delta" else {"format": "ducklake"}
    with nullcontext("") if kind == "delta" else _catalog(run, kind) as catalog:
        named = {"catalog": catalog} if catalog else {}
        with duckrun.connect(run.lake, **form, **named) as s:
            s.sql("CREATE TABLE main.t (id BIGINT, note VARCHAR)")
            _append_all(run, run.data.count(whole), lambda rows: s.execute("main.t", duckrun.WriteSpec("append"), rows))
        with run.clock("start"):
            s = duckrun.connect(run.lake, **form, **named)
            s.sql("SELECT 1").collect()
        with run.clock("read after"):
            s.sql(READ.format(t="main.t")).collect()
        s.close()
        if kind == "delta":
            from benchmarks.harness.duck import delta

            return {"rows": delta(run.table)}
        return _result(run, catalog)


def appends_by_statements(run: Run, kind: str, whole: int) -> Relations:
    with _catalog(run, kind) as catalog:
        with attached(run, catalog) as con:
            con.execute("CREATE TABLE lake.main.t (id BIGINT, note VARCHAR)")

            def append(rows: pa.Table) -> None:
                con.register("source", rows)
                con.execute("INSERT INTO lake.main.t SELECT * FROM source")

            _append_all(run, run.data.count(whole), append)
        started = run.clock("start")
        started.__enter__()
        with attached(run, catalog) as con:
            started.__exit__(None, None, None)
            with run.clock("read after"):
                con.sql(READ.format(t="lake.main.t")).fetchall()
        return _result(run, catalog)


# -- a merge of 25,000 rows, half of them new, into a million


def merge_source(data: Data) -> pa.Table:
    import pyarrow as pa

    whole, half = data.count(MILLION), data.count(SOURCE) // 2
    return pa.concat_tables([made_rows(0, half, "new"), made_rows(whole, half, "new")])


def merge_by_duckrun(run: Run, kind: str) -> Relations:
    import duckrun

    form = {} if kind == "delta" else {"format": "ducklake"}
    with nullcontext("") if kind == "delta" else _catalog(run, kind) as catalog:
        with duckrun.connect(run.lake, **form, **({"catalog": catalog} if catalog else {})) as s:
            s.execute("main.t", duckrun.WriteSpec("error"), made_rows(0, run.data.count(MILLION)))
            rows = merge_source(run.data)
            with run.clock():
                s.execute("main.t", duckrun.MergeSpec(("id",)), rows)
        if kind == "delta":
            from benchmarks.harness.duck import delta

            return {"rows": delta(run.table)}
        return _result(run, catalog)


def merge_by_statements(run: Run, kind: str) -> Relations:
    with _catalog(run, kind) as catalog:
        with attached(run, catalog) as con:
            con.register("given", made_rows(0, run.data.count(MILLION)))
            con.execute("CREATE TABLE lake.main.t AS FROM given")
            con.register("source", merge_source(run.data))
            with run.clock():
                con.execute(
                    "MERGE INTO lake.main.t AS t USING source AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET note = s.note "
                    "WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.note)"
                )
        return _result(run, catalog)


def _appends(kind: str, whole: int, name: str, title: str, *, delta: bool = False) -> Job:
    sides: dict[str, Callable[[Run], Relations]] = {
        OURS: partial(appends_by_duckrun, kind=kind, whole=whole),
        BARE: partial(appends_by_statements, kind=kind, whole=whole),
    }
    if delta:
        sides[DELTA] = partial(appends_by_duckrun, kind="delta", whole=whole)
    return Job(name, title, sides, lambda data: _expected(data.count(whole) * TEN), scaled=False)


JOBS = (
    *(
        _appends(
            kind,
            APPENDS,
            f"ducklake-{kind}",
            f"DuckLake, catalog in {kind}: 1,000 appends of ten rows, then a read",
            delta=kind == "sqlite",
        )
        for kind in CATALOGS
    ),
    *(
        _appends(kind, GROWTH, f"ducklake-growth-{kind}", f"DuckLake, catalog in {kind}: 10,000 commits")
        for kind in ("sqlite", "postgres")
    ),
    Job(
        "ducklake-merge",
        "DuckLake: a merge of 25,000 rows into a million",
        {
            OURS: partial(merge_by_duckrun, kind="sqlite"),
            BARE: partial(merge_by_statements, kind="sqlite"),
            DELTA: partial(merge_by_duckrun, kind="delta"),
        },
        lambda data: _expected(data.count(MILLION), data.count(SOURCE) // 2, data.count(SOURCE) // 2),
        scaled=False,
    ),
)
