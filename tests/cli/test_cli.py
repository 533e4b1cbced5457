"""The command line: what it prints, in a pipe and on a terminal, and how it fails."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import duckrun
from duckrun import WriteSpec
from duckrun.cli import main

Run = Callable[..., str]


@pytest.fixture
def lake(root: Path) -> Path:
    with duckrun.connect(root) as s:
        rows = pa.table({"id": [1, 2], "item": ["fig, [red]dried[/red]", None], "day": [date(2026, 1, 2)] * 2})
        s.execute("sales.orders", WriteSpec("error"), rows)
        s.execute("sales.orders", WriteSpec("append"), rows)
    return root


@pytest.fixture
def run(lake: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command on the lake and gives what it printed."""

    def run(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main([*arguments, "--root", str(lake)])
        assert not ended.value.code, capsys.readouterr().err
        return capsys.readouterr().out

    return run


def test_tables_are_listed_plainly_in_a_pipe(run: Run) -> None:
    assert run("tables") == "schema  name    kind\nsales   orders  table\n"
    assert json.loads(run("tables", "--format", "json")) == [{"schema": "sales", "name": "orders", "kind": "table"}]


def test_a_root_without_tables_is_told_beside_the_empty_list(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["tables", "--root", str(tmp_path / "laek"), "--format", "json"])
    printed = capsys.readouterr()
    assert not ended.value.code
    assert (printed.out, printed.err) == ("[]\n", f"There is no folder {tmp_path / 'laek'}.\n")


def test_rows_are_printed_as_a_table_as_csv_and_as_json(run: Run) -> None:
    query = "select * from sales.orders where id = 1 limit 1"
    assert "fig, [red]dried[/red]" in run("sql", query)
    read = list(csv.DictReader(io.StringIO(run("sql", query, "--format", "csv"))))
    assert read == [{"id": "1", "item": "fig, [red]dried[/red]", "day": "2026-01-02"}]
    everything = json.loads(run("sql", "select * from orders order by id", "--schema", "sales", "--format", "json"))
    assert [row["item"] for row in everything] == ["fig, [red]dried[/red]"] * 2 + [None] * 2
    assert json.loads(run("sql", "select 1 as a where false", "--format", "json")) == []


def test_a_long_result_is_cut_where_it_is_shown_as_a_table(run: Run) -> None:
    assert len(run("sql", "select * from sales.orders", "--limit", "3").splitlines()) == 1 + 3
    assert len(run("sql", "select * from sales.orders", "--limit", "0").splitlines()) == 1 + 4


@pytest.mark.parametrize(("limit", "told"), [(3, "the first 3 rows; --limit 0 shows all\n"), (4, ""), (0, "")])
def test_a_table_says_that_there_are_more_rows_only_if_there_are(
    lake: Path, capsys: pytest.CaptureFixture[str], limit: int, told: str
) -> None:
    with pytest.raises(SystemExit):
        main(["sql", "select * from sales.orders", "--limit", str(limit), "--root", str(lake)])
    assert capsys.readouterr().err == told


def test_history_is_newest_first(run: Run) -> None:
    found = json.loads(run("history", "sales.orders", "--format", "json"))
    assert [entry["version"] for entry in found] == [1, 0]
    assert found[0]["time"].endswith("+00:00") and found[0]["operation"] == "WRITE"
    assert len(run("history", "sales.orders", "--limit", "1").splitlines()) == 2


def test_changes_since_a_version(run: Run) -> None:
    run("sql", "update sales.orders set item = 'kiwi' where id = 2")
    asked = ("changes", "sales.orders", "min_delta", "--from-version", "1", "--column", "id", "--column", "item")
    found = json.loads(run(*asked, "--format", "json"))
    assert sorted((row["id"], row["item"] or "", row["_change_type"]) for row in found) == [
        *[(2, "", "delete")] * 2,
        *[(2, "kiwi", "insert")] * 2,
    ]
    assert "_commit_version" in run("changes", "sales.orders", "upsert", "--from-version", "0", "--commit-version")
    assert json.loads(run("changes", "sales.orders", "append_only", "--from-version", "2", "--format", "json")) == []


def test_optimize_and_vacuum_say_what_they_did(run: Run, lake: Path) -> None:
    assert "files_removed  2" in run("optimize", "sales.orders")
    with duckrun.connect(lake) as s:
        assert s.table("sales.orders").detail()["numFiles"] == 1
    assert re.search(r"^dry_run +True$", run("vacuum", "sales.orders", "--dry-run"), re.MULTILINE)
    removed = run("vacuum", "sales.orders", "--retention-hours", "0", "--force")
    assert removed.count(".parquet\n") == 2
    assert len(list((lake / "sales" / "orders").glob("*.parquet"))) == 1


def test_what_a_statement_did_is_told_with_its_zeros(run: Run) -> None:
    told = run("sql", "create table main.t as select 1 as a")
    assert "version        0\n" in told and "rows_inserted  1\n" in told and "rows_updated   0\n" in told


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("history", "sales.order"), "sales.orders"),
        (("sql", "select * frm x"), 'syntax error at or near "x"'),
        (("sql", "select id::int / 'a' from sales.orders"), "Conversion"),
        (("tables", "--storage-option", "novalue"), "KEY=VALUE"),
    ],
)
def test_what_goes_wrong_is_one_line_and_exit_code_1(
    lake: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--root", str(lake)])
    printed = capsys.readouterr()
    assert ended.value.code == 1
    assert printed.err.startswith("duckrun: ") and printed.err.count("\n") == 1 and message in printed.err
    assert printed.out == ""


def test_a_wrong_option_is_told_by_name_with_exit_code_2(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["tables", "--root", str(lake), "--fromat", "csv"])
    assert ended.value.code == 2 and "--fromat" in capsys.readouterr().err


def test_on_a_terminal_the_table_has_lines(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert "─" in run("tables")


@pytest.mark.spark
def test_the_other_engine_answers_alike(lake: Path, spark: object, capsys: pytest.CaptureFixture[str]) -> None:
    printed = []
    for engine in ("duckdb", "spark"):
        with pytest.raises(SystemExit):
            main(["sql", "select id, count(*) n from sales.orders group by id order by id", "--root", str(lake),
                  "--engine", engine, "--format", "csv"])  # fmt: skip
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] == "id,n\n1,2\n2,2\n"


def test_help_loads_no_engine() -> None:
    code = (
        "import sys\nfrom duckrun.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "loaded = {'duckdb', 'deltalake', 'pyarrow', 'pandas', 'polars', 'sqlglot', 'pyspark'} & set(sys.modules)\n"
        "sys.exit(f'loaded {loaded}' if loaded else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "optimize" in done.stdout


def test_of_names_that_differ_in_case_the_exact_one_is_read(
    lake: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    for schema in ("raw", "RAW"):
        write_deltalake(lake / schema / "t", pa.table({"n": [f"in {schema}"]}))
    assert "in raw" in run("sql", "select * from raw.t") and "in RAW" in run("sql", "select * from RAW.t")
    for words in (("history", "Raw.t"), ("sql", "select * from Raw.t")):
        with pytest.raises(SystemExit, match="1"):
            main([*words, "--root", str(lake)])
        assert "RAW, raw. Write the exact one" in capsys.readouterr().err
