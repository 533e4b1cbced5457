"""Each public class shows how it is used, and what its docstring shows runs."""

from __future__ import annotations

import inspect
import re
import textwrap
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import duckrun
import duckrun_dagster

BLOCK = re.compile(r"Example::\n\n((?:[ ]{4}.*\n|\n)+)")
ORDERS = "create table sales.orders as select * from (values (1, 'fig', 2::double), (2, 'kiwi', 3)) v(id, item, price)"


def classes(module: Any) -> list[Any]:
    """The public classes of a package, but for its errors."""
    found = [(name, getattr(module, name)) for name in module.__all__]
    return [
        pytest.param(each, id=name)
        for name, each in found
        if inspect.isclass(each) and not issubclass(each, Exception) and not getattr(each, "_is_protocol", False)
    ]


def example(of: Any) -> str | None:
    """The code of a docstring's example."""
    found = BLOCK.search((inspect.getdoc(of) or "") + "\n")
    return textwrap.dedent(found[1]) if found else None


@pytest.mark.parametrize("of", classes(duckrun))
def test_the_example_of_a_class_runs(of: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = example(of)
    assert code, f"{of.__name__} has no example"
    rows = pa.table({"id": [2, 3], "item": ["kiwi", "plum"], "price": [3.5, 1.0]})
    folder = tmp_path / "lake" / "sales" / "old" / "day=2026-01-01"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"n": [1]}), folder / "data.parquet")
    with duckrun.connect("old_lake/") as old:
        old.sql(ORDERS.replace("orders", "older"))
    with duckrun.connect("lake/", format="ducklake" if "format: ducklake" in code else "delta") as s:
        s.sql(ORDERS)
        names = {"duckrun": duckrun, "s": s, "rows": rows, **{name: getattr(duckrun, name) for name in duckrun.__all__}}
        if "engine: spark" in code:
            with pytest.raises(duckrun.UnsupportedFeature, match="Spark"):
                exec(code, names)
        else:
            exec(code, names)


@pytest.mark.parametrize("of", classes(duckrun_dagster))
def test_the_classes_of_dagster_have_examples(of: Any) -> None:
    assert "::\n" in (inspect.getdoc(of) or ""), f"{of.__name__} has no example"
