"""Commands on branches: what they print, and how they fail."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

import duckrun
from duckrun.cli import main

Run = Callable[..., str]


@pytest.fixture
def lake(root: Path) -> Path:
    with duckrun.connect(root) as s:
        s.sql("create table sales.orders as select i as id, 'fig' as item from range(4) r(i)")
    with duckrun.connect(root, branch="pr-42") as s:
        s.sql("update sales.orders set item = 'kiwi' where id = 1")
        s.sql("delete from sales.orders where id = 3")
        s.sql("create table sales.totals as select count(*) as n from sales.orders")
    return root


@pytest.fixture
def run(lake: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command and returns its output, or its error if it fails."""

    def run(*arguments: str, code: int = 0) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["branch", *arguments, "--root", str(lake)])
        printed = capsys.readouterr()
        assert (ended.value.code or 0) == code, printed.err
        return printed.err if code else printed.out

    return run


def main_rows(lake: Path) -> dict[int, str]:
    table = DeltaTable(str(lake / "sales" / "orders")).to_pyarrow_table()
    return dict(zip(table["id"].to_pylist(), table["item"].to_pylist(), strict=True))


def test_list_names_each_branch_and_its_tables(run: Run) -> None:
    [branch] = json.loads(run("list", "--format", "json"))
    assert (branch["name"], branch["state"]) == ("pr-42", "open")
    assert set(branch["tables"].split()) == {"sales.orders", "sales.totals"}
    assert branch["age_days"] == 0
    heads = ["name", "state", "created", "age_days", "by", "tables", "rows_changed"]
    assert run("list").splitlines()[0].split() == heads


def test_diff_lists_tables_and_sample_rows_of_each_change_type(run: Run) -> None:
    tables = {each["table"]: each for each in json.loads(run("diff", "pr-42", "--format", "json"))}
    assert {name: each["change"] for name, each in tables.items()} == {
        "sales.orders": "changed",
        "sales.totals": "created",
    }
    assert (tables["sales.orders"]["updated"], tables["sales.orders"]["deleted"]) == (1, 1)
    summary, orders, totals = run("diff", "pr-42").split("\n\n")
    assert summary.split()[0] == "table"
    assert orders.splitlines()[0] == "sales.orders"
    assert "kiwi" in orders
    assert "delete" in orders
    assert totals.splitlines()[0] == "sales.totals"


def test_diff_of_a_table_prints_its_changed_rows(run: Run) -> None:
    rows = json.loads(run("diff", "pr-42", "sales.orders", "--format", "json"))
    deleted = {(row["id"], row["item"]) for row in rows if row["_change_type"] == "delete"}
    inserted = {(row["id"], row["item"]) for row in rows if row["_change_type"] == "insert"}
    assert (deleted, inserted) == ({(1, "fig"), (3, "fig")}, {(1, "kiwi")})


def test_publish_brings_the_branch_to_main_once(run: Run, lake: Path) -> None:
    assert main_rows(lake) == dict.fromkeys(range(4), "fig")
    published = json.loads(run("publish", "pr-42", "--format", "json"))
    assert {each["table"]: (each["before"], each["version"]) for each in published} == {
        "sales.orders": (0, 1),
        "sales.totals": (None, 0),
    }
    assert main_rows(lake) == {0: "fig", 1: "kiwi", 2: "fig"}
    run("publish", "pr-42")
    assert DeltaTable(str(lake / "sales" / "orders")).version() == 1


def test_discard_leaves_main_as_it_was(run: Run, lake: Path) -> None:
    assert set(run("discard", "pr-42").split()) == {"table", "sales.orders", "sales.totals"}
    assert json.loads(run("list", "--format", "json")) == []
    assert main_rows(lake) == dict.fromkeys(range(4), "fig")


@pytest.mark.parametrize("command", ["diff", "publish", "discard"])
def test_an_unknown_branch_is_an_error_that_names_a_near_one(run: Run, command: str) -> None:
    assert "pr-42" in run(command, "pr-43", code=1)


def test_diff_of_an_unchanged_table_names_the_changed_ones(run: Run) -> None:
    assert "sales.totals" in run("diff", "pr-42", "sales.missing", code=1)


def test_a_ducklake_has_no_branches(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["branch", "publish", "pr-42", "--root", str(root), "--format", "ducklake"])
    assert ended.value.code == 1
    assert "ducklake" in capsys.readouterr().err
