"""What a notebook shows: small HTML with every value escaped, a history plot, progress where somebody watches."""

from __future__ import annotations

import builtins
import io
import sys
from typing import Any

import pyarrow as pa
import pytest

from duckrun import InvalidConfig, VacuumSpec, WriteSpec
from duckrun.display.progress import SETTING, shows_progress, tracked
from duckrun.display.units import readable_bytes
from duckrun.session import Session
from tests.lake import nth

# What does not depend on the engine: Spark takes seconds for each of its commits.
once = pytest.mark.parametrize("engine", ["duckdb"])

EVIL = "<script>alert('x')</script>"


def test_values_names_and_descriptions_are_escaped(duck: Session) -> None:
    rows = pa.table({EVIL: [EVIL, None], "n": [1, 2]})
    commit = duck.execute("main.<b>t", WriteSpec("error", description=EVIL), rows)
    table = duck.table("main.<b>t")
    for html in (duck.sql('select * from main."<b>t"')._repr_html_(), table._repr_html_(), commit._repr_html_()):
        assert "<script>" not in html and "<b>" not in html
    assert "&lt;script&gt;" in table._repr_html_()
    assert "NULL" in table._repr_html_()


def test_a_frame_shows_its_first_rows_and_says_that_there_are_more(session: Session) -> None:
    session.register("numbers", pa.table({"n": list(range(11))}))
    html = session.sql("select * from numbers")._repr_html_()
    assert html.count("<tr>") == 1 + 10
    assert "there are more" in html
    assert 'title="int64"' in html
    assert "more" not in session.sql("select * from numbers where n < 10")._repr_html_()


@once
def test_a_table_and_a_commit_show_what_they_are(session: Session) -> None:
    commit = session.execute("main.t", WriteSpec("error", partition_by=("day",)), pa.table({"id": [1], "day": ["mon"]}))
    shown = commit._repr_html_()
    assert "main.t, version 0" in shown and "<td>rows inserted</td><td>1</td>" in shown
    table = session.table("main.t")._repr_html_()
    assert "<td>partitioned by</td><td>day</td>" in table and "<td>mon</td>" in table


def test_history_is_measured_and_drawn(session: Session) -> None:
    session.execute("main.t", WriteSpec("error"), pa.table({"id": [1, 2, 3]}))
    session.execute("main.t", WriteSpec("append"), pa.table({"id": [4]}))
    session.table("main.t").delete("id <= 2")
    table = session.table("main.t")
    measured = table._sizes(50)
    assert [(v.version, v.rows) for v in measured] == [(nth(0), 3), (nth(1), 4), (nth(2), 2)]
    assert [v.files for v in measured] == [len(table.snapshot(version=nth(v)).files()) for v in range(3)]
    assert measured[1].files > measured[0].files
    assert all(v.bytes > 0 for v in measured)
    figure = table.plot_history()
    assert [axis.get_ylabel() for axis in figure.axes] == ["rows", "files", "MiB", "changed rows"]
    assert [v.changes for v in measured] == [{"insert": 3}, {"insert": 1}, {"delete": 2}]
    drawn: Any = figure.axes[0].lines[0]
    assert list(drawn.get_xdata()) == [nth(0), nth(1), nth(2)] and list(drawn.get_ydata()) == [3, 4, 2]
    assert figure._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]
    assert [v.version for v in table._sizes(1)] == [nth(2)]
    alone = table.plot_history(limit=1)
    assert not alone.axes and alone._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]
    words = alone.texts[-1].get_text()
    assert f"only version {nth(2)} is listed\n2 rows in " in words and words.endswith("2 deletes")
    session.sql("update main.t set id = id where id > 3")
    session.sql(
        "merge into main.t using (select 3 as id union all select 9) s on main.t.id = s.id when not matched then insert *"
    )
    by_key = [v.changes for v in session.table("main.t")._sizes(50, ["id"])]
    assert by_key == [{"insert": 3}, {"insert": 1}, {"delete": 2}, {}, {"insert": 1}]  # an update of nothing is none
    assert [bar.get_height() for bar in table.plot_history(key="id").axes[3].patches if bar.get_height() < 0] == [-2]  # type: ignore[attr-defined]


def test_without_matplotlib_the_extra_to_install_is_named(duck: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    duck.execute("main.t", WriteSpec("error"), pa.table({"id": [1]}))
    real = builtins.__import__

    def missing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError("No module named 'matplotlib'")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(InvalidConfig, match=r"duckrun-dagster\[notebook\]"):
        duck.table("main.t").plot_history()


def test_progress_is_for_a_terminal_or_a_notebook(duck: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = "select current_setting('enable_progress_bar') as shown"
    assert not shows_progress(sys.stdout)
    assert duck.sql(setting).collect() == [{"shown": False}]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert shows_progress(sys.stdout)
    assert duck.sql(setting).collect() == [{"shown": True}]
    monkeypatch.setenv(SETTING, "0")
    assert not shows_progress(sys.stdout)
    assert duck.sql(setting).collect() == [{"shown": False}]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_tracked_work_says_how_much_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = [[1, 2], [3], [4, 5, 6]]

    def shown(stream: io.StringIO) -> str:
        monkeypatch.setattr(sys, "stderr", stream)
        done = list(tracked(groups, "optimize main.t", "files", size=len))
        assert done == groups
        return stream.getvalue()

    assert shown(Terminal()) == ""  # it takes less than a second
    monkeypatch.setattr("duckrun.display.progress.SECONDS", 0.0)
    line = shown(Terminal())
    assert "optimize main.t" in line and "/6 [" in line and "files/s" in line
    assert shown(io.StringIO()) == ""
    monkeypatch.setenv(SETTING, "0")
    assert shown(Terminal()) == ""


def test_optimize_and_vacuum_are_tracked(duck: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duckrun.display.progress.SECONDS", 0.0)
    for n in range(3):
        duck.execute("main.t", WriteSpec("append"), pa.table({"id": [n]}))
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    duck.table("main.t").optimize().executeCompaction()
    assert "optimize main.t" in terminal.getvalue() and "/3 [" in terminal.getvalue()
    duck.execute("main.t", VacuumSpec(0, enforce_retention=False))
    assert "vacuum main.t" in terminal.getvalue()


def test_bytes_are_said_in_a_unit_that_people_read() -> None:
    assert [readable_bytes(n) for n in (0, 1023, 1536, 5 * 2**30, 3 * 2**50)] == [
        "0 B", "1023 B", "1.5 KiB", "5.0 GiB", "3.0 PiB",
    ]  # fmt: skip
