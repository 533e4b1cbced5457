"""The benchmarks run on little, compare rows, and report what they measured. How fast anything is, is asserted nowhere."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from benchmarks.__main__ import main
from benchmarks.harness.case import Data, Job, Relations
from benchmarks.harness.check import Checker, Differs
from benchmarks.harness.duck import delta, plain
from benchmarks.harness.figures import PEAK, READ, Figure, Figures, keep
from benchmarks.harness.rounds import Plan, Trouble, run
from benchmarks.jobs import JOBS
from benchmarks.report import page, plots, tables
from benchmarks.report.goals import GOALS, Goal

ROOT = Path(__file__).parents[2]


def figure(side: str, seconds: float, *, job: str = "write", scale: float | None = 1, number: int = 0) -> Figure:
    return Figure(job, side, scale, number, {"run": seconds}, int(seconds * 1e8), 10, 0.0)


def test_a_run_measures_each_side_checks_its_rows_and_writes_the_page(tmp_path):
    written = tmp_path / "page.md"
    written.write_text(f"# Before\n\n{page.BEGIN}\nold\n{page.END}\n\n## After\n")
    words = ["--jobs", "merge-random-1", "--skip", "Spark", "--scale", "0.01", "--repeat", "1"]
    assert main([*words, "--work", str(tmp_path / "work"), "--page", str(written)]) == 0
    figures = Figures.read(tmp_path / "work" / "figures.jsonl")
    sides = {each.side for each in figures.all()}
    assert sides == {"duckrun, vectors", "duckrun, copy", "deltalake"}
    assert len({each.rows for each in figures.all()}) == 1 and all(each.rows > 60_000 for each in figures.all())
    assert all(each.peak > 10_000_000 and each.laps["run"] > 0 for each in figures.all())
    text = written.read_text()
    assert text.startswith("# Before\n") and text.endswith("## After\n") and "old" not in text
    assert "| deltalake | " in text and "images/benchmarks/merge.svg" in text
    assert not list((tmp_path / "work").glob("run-*"))


def test_a_side_that_ends_with_other_rows_has_no_figure(tmp_path, monkeypatch):
    honest = JOBS["append-ten-1"]

    def expected(data: Data) -> Relations:
        return {"rows": f"(SELECT id + 1 AS id, note FROM {honest.expected(data)['rows']})"}

    job = Job(honest.name, honest.title, honest.sides, expected, honest.prepare, honest.base, scaled=False)
    found = list(run(Plan([job], ["deltalake"], [1], 1, 0.01, tmp_path)))
    assert len(found) == 1 and isinstance(found[0], Trouble) and "missing" in str(found[0])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("SELECT id + CAST(id = 7 AS INTEGER) AS id, note FROM {rows}", "1 missing, such as (7,"),
        ("SELECT id, note FROM {rows} WHERE id <> 3", "19 rows instead of 20; 1 missing"),
        (
            "SELECT * FROM {rows} UNION ALL SELECT * FROM {rows} WHERE id = 5",
            "21 rows instead of 20; none missing; 1 too many",
        ),
        ("SELECT id, CASE WHEN id <> 2 THEN note END AS note FROM {rows}", "1 missing"),
        ("SELECT id, note, 1 AS extra FROM {rows}", "columns id, note, extra instead of id, note"),
    ],
)
def test_rows_that_differ_are_told(tmp_path, change, said):
    write_deltalake(tmp_path / "t", pa.table({"id": range(20), "note": [f"row {n}" for n in range(20)]}))
    rows = delta(tmp_path / "t")
    with plain("delta") as con:
        checker = Checker(con)
        assert checker.check({"t": f"(SELECT note, id FROM {rows} ORDER BY id DESC)"}, {"t": rows}) == 20
        with pytest.raises(Differs) as told:
            checker.check({"t": f"({change.format(rows=rows)})"}, {"t": rows})
        with pytest.raises(Differs, match="nothing to compare"):
            checker.check({}, {"t": rows})
    assert said in str(told.value)


def test_figures_are_medians_and_a_new_run_takes_the_place_of_the_old(tmp_path):
    file = tmp_path / "figures.jsonl"
    for seconds in (9.0, 9.5):
        keep(figure("duckrun", seconds), file)
    for number, seconds in enumerate((3.0, 1.0, 2.0)):
        keep(figure("duckrun", seconds, number=number), file)
    figures = Figures.read(file)
    assert figures.median("write", "duckrun", 1, "run") == 2.0
    assert figures.median("write", "duckrun", 1, PEAK) == 200_000_000
    assert figures.median("write", "deltalake", 1, "run") is None
    assert figures.median("write", "duckrun", 1, READ) is None  # a turn that counts no bytes


def test_goals_are_ratios_of_the_sides_they_name():
    faster = Goal("faster", "write", "deltalake", "duckrun", "at least", 1.4)
    steady = Goal("steady", "write", "duckrun", "duckrun", "at most", 1.5, spread=True)
    figures = Figures(
        [
            figure("duckrun", 2.0),
            figure("deltalake", 3.0),
            figure("duckrun", 4.0, scale=5),
            figure("deltalake", 5.0, scale=5),
        ]
    )
    assert faster.measured(figures) == [(1, 1.5), (5, 1.25)]
    assert [faster.met(ratio) for _, ratio in faster.measured(figures)] == [True, False]
    assert steady.measured(figures) == [(5, 2.0)]
    grows = Goal("grows", "write", "duckrun", "duckrun", "at most", 1.5, growth=True)
    assert grows.measured(figures) == [(5, 2.0)]
    assert grows.measured(Figures([figure("duckrun", 2.0), figure("duckrun", 1.0, scale=5)])) == [(5, 0.5)]
    assert steady.measured(Figures([figure("duckrun", 2.0)])) == []


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: f"{goal.job}: {goal.says}")
def test_every_goal_names_sides_that_its_job_has(goal):
    assert {goal.one, goal.other} <= set(JOBS[goal.job].sides)


def test_the_page_names_each_figure_in_which_another_side_is_faster():
    figures = Figures([
        figure("duckrun", 2.0), figure("deltalake", 3.0), figure("DuckDB COPY", 1.6),
        figure("duckrun, vectors", 1.0, job="delete", scale=5), figure("duckrun, copy", 9.0, job="delete", scale=5),
        figure("deltalake", 4.0, job="delete", scale=5),
        figure("branch", 4.0, job="branch-1000"), figure("main", 1.0, job="branch-1000"),
    ])  # fmt: skip
    assert list(tables.peers(JOBS.values(), figures)) == [
        "Another side is faster in 1 of 2 figures; duckrun is in the rest.\n",
        "| | scale factor | the fastest | duckrun's time over it |",
        "|---|---|---|---|",
        "| Full write of `lineitem` from SQL | 1 | DuckDB COPY | 1.25 |",
    ]


def test_a_job_of_many_labels_has_a_row_for_each():
    laps = {f"step {number}": float(number) for number in range(1, 10)}
    figures = Figures(
        Figure("merge-chain", side, 1, 0, laps, 10**8, 10, 0.0) for side in ("duckrun, copy", "deltalake")
    )
    written = list(tables.job(JOBS["merge-chain"], figures))
    assert written[0] == "| | SF 1 duckrun, copy | SF 1 deltalake |"
    assert written[2:4] == ["| step 1, s | 1.00 | 1.00 |", "| step 2, s | 2.00 | 2.00 |"]
    assert len(written) == 12 and written[-1] == "| peak MB | 100 | 100 |"


@pytest.mark.slow
def test_the_chain_of_merges_ends_with_the_same_rows_on_each_side(tmp_path):
    plan = Plan([JOBS["merge-chain"]], [], [0.01], 1, 1.0, tmp_path)
    found = list(run(plan))
    assert all(isinstance(each, Figure) for each in found), found
    assert {each.side for each in found} == set(JOBS["merge-chain"].sides)
    assert len({each.rows for each in found}) == 1 and all(len(each.laps) == 9 for each in found)


def test_plots_are_svg_whose_bars_are_as_long_as_their_values():
    picture = plots.bars("A <title>", "seconds", [plots.Group("SF 1", {"duckrun": 1.0, "Spark": 4.0})])
    bars = ElementTree.fromstring(picture).findall("{http://www.w3.org/2000/svg}rect")
    assert float(bars[1].get("width", "")) == pytest.approx(4 * float(bars[0].get("width", "")), rel=0.01)


def test_packages_that_are_measured_apart_are_pinned():
    apart = {environment for job in JOBS.values() for environment in job.apart.values()}
    assert apart
    for environment in apart:
        pins = (ROOT / "benchmarks" / "requirements" / f"{environment}.txt").read_text().split()
        assert all("==" in pin for pin in pins) and any(pin.startswith(f"{environment}==") for pin in pins)
