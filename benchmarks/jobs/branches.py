"""A branch of a table of many files beside main itself, a copy and a clone of the table: writes, reads, and the way to main."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.harness.case import Data, Job, Relations, Run
from benchmarks.harness.duck import delta
from benchmarks.jobs import many, spark, warm

if TYPE_CHECKING:
    from duckrun import Session

FEW, LAPS = 1_000, 5
SOME = "SELECT count(*) AS n FROM t WHERE id BETWEEN 100 AND 104"
ALL = "SELECT count(*) AS n, sum(id) AS s, max(note) AS m FROM t"


def prepare_few(data: Data) -> None:
    """The table of `many-files`, with fewer files."""
    many.prepare(data, "few", data.count(FEW), at_once=True)


def _first_write(session: Session, count: int) -> None:
    from duckrun import WriteSpec

    session.execute("main.t", WriteSpec("append"), many.rows(count))


def _work(run: Run, session: Session, count: int, *, whole: bool) -> None:
    """Reads of an open table, then two writes."""
    from duckrun import DeleteSpec, WriteSpec

    session.sql(SOME).collect()
    for _ in range(LAPS):
        with run.clock("read of some rows"):
            session.sql(SOME).collect()
        if whole:
            with run.clock("read of all rows"):
                session.sql(ALL).collect()
    with run.clock("next write"):
        session.execute("main.t", WriteSpec("append"), many.rows(count + 1))
    with run.clock("delete"):
        session.execute("main.t", DeleteSpec("id BETWEEN 300 AND 302"))


def in_main(run: Run, count: int, *, whole: bool) -> Relations:
    import duckrun

    warm.duckrun()
    count = run.data.count(count)
    with duckrun.connect(run.lake) as session:
        session.sql(SOME).collect()
        with run.clock("first write"):
            _first_write(session, count)
        _work(run, session, count, whole=whole)
    return {"rows": delta(run.table)}


def in_branch(run: Run, count: int, *, whole: bool) -> Relations:
    import duckrun

    warm.duckrun()
    count = run.data.count(count)
    with duckrun.connect(run.lake, branch="work") as session:
        session.sql(SOME).collect()
        with run.clock("first write"):
            _first_write(session, count)
        _work(run, session, count, whole=whole)
        with run.clock("publish"):
            session.publish("work")
    return {"rows": delta(run.table)}


def in_copy(run: Run, count: int, *, whole: bool) -> Relations:
    """A copy of the folder, which takes the table's place in the end."""
    import duckrun

    warm.duckrun()
    count, other = run.data.count(count), run.lake.with_name(f"{run.lake.name}-copy")
    with duckrun.connect(other) as session:
        with run.clock("first write"):
            shutil.copytree(run.table, other / "main" / "t")
            _first_write(session, count)
        _work(run, session, count, whole=whole)
    with run.clock("publish"):
        run.table.rename(other / "old")
        (other / "main" / "t").rename(run.table)
    shutil.rmtree(other)
    return {"rows": delta(run.table)}


def in_shallow_clone(run: Run, count: int, *, whole: bool) -> Relations:
    """A clone by Spark, whose log names the table's files. Nothing brings its rows back."""
    session, count = warm.spark(), run.data.count(count)
    clone, rows = spark.table(run.lake / "clone"), run.lake / "rows"

    def append(number: int) -> None:
        session.createDataFrame(many.rows(number)).write.format("delta").mode("append").save(f"{run.lake}/clone")

    def read(query: str) -> None:
        session.sql(query.replace("FROM t", f"FROM {clone}")).collect()

    session.sql(SOME.replace("FROM t", f"FROM {spark.table(run.table)}")).collect()
    with run.clock("first write"):
        session.sql(f"CREATE TABLE {clone} SHALLOW CLONE {spark.table(run.table)}")
        append(count)
    read(SOME)
    for _ in range(LAPS):
        with run.clock("read of some rows"):
            read(SOME)
        if whole:
            with run.clock("read of all rows"):
                read(ALL)
    with run.clock("next write"):
        append(count + 1)
    with run.clock("delete"):
        session.sql(f"DELETE FROM {clone} WHERE id BETWEEN 300 AND 302")
    session.table(clone).write.parquet(rows.as_posix())
    return {"rows": f"(SELECT id, note FROM read_parquet('{rows.as_posix()}/*.parquet'))"}


def _expected(data: Data, count: int) -> Relations:
    rows = (data.count(count) + 2) * many.TEN
    return {"rows": f"(SELECT range AS id, 'note' AS note FROM range({rows}) WHERE range NOT BETWEEN 300 AND 302)"}


def _job(name: str, title: str, count: int, prepare: Any, base: str, *, whole: bool) -> Job:
    sides = {"main": in_main, "branch": in_branch, "copy": in_copy, "Spark's shallow clone": in_shallow_clone}
    return Job(
        name,
        title,
        {side: partial(work, count=count, whole=whole) for side, work in sides.items()},
        partial(_expected, count=count),
        prepare,
        base=base,
        scaled=False,
    )


JOBS = (
    _job("branch-1000", "A branch of a table of 1,000 files", FEW, prepare_few, "few", whole=True),
    _job(
        "branch-100000",
        "A branch of a table of 100,000 files",
        many.FILES,
        many.prepare_files,
        "files",
        whole=False,
    ),
)
