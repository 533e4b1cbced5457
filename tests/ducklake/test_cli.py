"""The command line on a DuckLake."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import duckrun
from duckrun.cli import main

Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command on a lake of two tables and gives what it printed, or with ``fails`` its error."""
    catalog = f"sqlite:{tmp_path / 'elsewhere.sqlite'}"

    def run(*arguments: str, fails: bool = False, words: tuple[str, ...] = ("--format", "ducklake")) -> str:
        with pytest.raises(SystemExit) as ended:
            main([*arguments, "--root", str(tmp_path / "lake"), *words, "--catalog", catalog])
        out, err = capsys.readouterr()
        assert bool(ended.value.code) is fails, err
        return err if fails else out

    with duckrun.connect(tmp_path / "lake", format="ducklake", catalog=catalog) as s:
        s.sql("create table sales.orders as select range as id from range(3)")
        s.sql("create view main.few as select id from sales.orders where id < 2")
    return run


def test_each_command_takes_the_format_and_the_catalog_of_the_lake(run: Run) -> None:
    assert json.loads(run("tables", "--format", "json")) == [
        {"schema": "main", "name": "few", "kind": "view"},
        {"schema": "sales", "name": "orders", "kind": "table"},
    ]
    assert "rows_inserted  1\n" in run("sql", "insert into sales.orders values (9)")
    assert run("sql", "select count(*) as n from main.few", "--format", "csv", words=()) == "n\n2\n"
    history = json.loads(run("history", "sales.orders", "--format", "json"))
    assert [entry["metrics"] for entry in history[:1]] == ["rows_inserted=1, rows_updated=0, rows_deleted=0"]
    asked = ("changes", "sales.orders", "min_delta", "--key", "id", "--from-version", str(history[1]["version"]))
    assert [row["id"] for row in json.loads(run(*asked, "--format", "json"))] == [9]
    found = json.loads(run("snapshots", "--format", "json"))
    assert found[0]["snapshot"] == history[0]["version"] and found[0]["message"] == "append sales.orders"
    assert [each["snapshot"] for each in found] == list(range(found[0]["snapshot"], -1, -1))
    assert len(run("snapshots", "--limit", "2").splitlines()) == 3


def test_what_a_lake_of_the_other_format_has(run: Run, tmp_path: Path) -> None:
    assert "cleanup" in run("vacuum", "sales.orders", fails=True)
    assert "goes with format: ducklake" in run("tables", words=("--format", "delta"), fails=True)
    assert "a lake is of one format" in run("tables", "--format", "delta", fails=True)
    with pytest.raises(SystemExit) as ended:
        main(["snapshots", "--root", str(tmp_path / "delta"), "--format", "delta"])
    assert ended.value.code == 1


@pytest.mark.parametrize("command", [("tables",), ("snapshots",), ("maintain", "flush"), ("export", "out")])
def test_a_root_of_the_other_format_is_named_and_not_shown_as_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    for form, other in (("delta", "ducklake"), ("ducklake", "delta")):
        root = tmp_path / form
        with duckrun.connect(root, format=form) as s:
            s.sql("create table sales.orders as select 1 as id")
        if other == "delta" and command != ("tables",):
            continue  # a command of DuckLakes alone, which opens the root as one
        with pytest.raises(SystemExit) as ended:
            main([*command, "--root", str(root), *(("--format", other) if command == ("tables",) else ())])
        err = capsys.readouterr().err
        assert ended.value.code == 1 and f"open it with format: {form}" in err, err
    assert not Path("out").exists()


def test_a_root_with_no_lake_is_an_error_of_what_is_ducklake_s(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (("snapshots",), ("maintain", "merge"), ("export", str(tmp_path / "out"))):
        with pytest.raises(SystemExit) as ended:
            main([*command, "--root", str(tmp_path / "typo")])
        out, err = capsys.readouterr()
        assert ended.value.code == 1 and "typo" in err and not out
    assert list(tmp_path.iterdir()) == []


def test_a_password_is_not_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for catalog in ("postgres:host=localhost port=1 password=s3cr3t", "pgsql:password=s3cr3t"):
        with pytest.raises(SystemExit):
            main(["tables", "--root", str(tmp_path), "--catalog", catalog])
        out, err = capsys.readouterr()
        assert err.startswith("duckrun: ") and err.count("\n") == 1
        assert "s3cr3t" not in out + err
