"""Run docs/notebook.ipynb in a new kernel and store its outputs in it.

python tools/run_notebook.py                          # on DuckDB
DUCKRUN_ENGINE=spark python tools/run_notebook.py     # on Spark: the same outputs
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).resolve().parent.parent / "docs" / "notebook.ipynb"


def executed(notebook: Any, *, timeout: int = 600) -> Any:
    """Return the notebook with the outputs of a run; each cell has ``timeout`` seconds.

    Raises:
        CellExecutionError: A cell failed.
    """
    for cell in notebook.cells:
        cell.get("metadata", {}).pop("execution", None)
    return NotebookClient(notebook, timeout=timeout, kernel_name="python3", record_timing=False).execute()


def outputs(notebook: Any) -> list[list[str]]:
    """Return the outputs of each code cell: its printed text, then its HTML or text.

    Pictures are represented by their kind, and logs are left out.
    """
    return [_of_cell([output for output in cell.outputs if output.get("name") != "stderr"]) for cell in _code(notebook)]


def _code(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _of_cell(cell_outputs: list[Any]) -> list[str]:
    printed = "".join(output.text for output in cell_outputs if output.output_type == "stream")  # split by timing
    shown = [_shown(output) for output in cell_outputs if output.output_type != "stream"]
    return [printed, *shown] if printed else shown


def _shown(output: Any) -> str:
    data = output.get("data", {})
    return "image/png" if "image/png" in data else str(data.get("text/html", data.get("text/plain", "")))


def main() -> None:
    notebook = executed(nbformat.read(NOTEBOOK, as_version=4))
    for cell in _code(notebook):
        cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    nbformat.write(notebook, NOTEBOOK)
    print(f"{NOTEBOOK.name}: {len(_code(notebook))} cells ran")


if __name__ == "__main__":
    main()
