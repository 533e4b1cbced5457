"""Every line of the statement matrix: a supported statement is checked by rows, a refused one by its message."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import duckrun
from duckrun import DuckrunError, Frame, Session
from tests.lake import nth, rows_of
from tests.statements.cases import CASES, ENGINES, Case, make_lake, matrix
from tests.statements.ducklake import ON_DUCKLAKE
from tools.statement_matrix import PAGE, with_matrix

pytestmark = pytest.mark.formats


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Format -> the folder of the lake that every case starts from; made by the first case of each."""
    return {name: tmp_path_factory.mktemp(name) / "template" for name in ("delta", "ducklake")}


@pytest.fixture
def lake_root(templates: dict[str, Path], lake_format: str, tmp_path: Path) -> Path:
    """A copy of that lake. One of DuckLake lies where it was made, since its catalog has the path of its data."""
    template = templates[lake_format]
    root = tmp_path / "lake" if lake_format == "delta" else template.with_name("lake")
    shutil.rmtree(root, ignore_errors=True)
    if not template.exists():
        make_lake(root)
        shutil.copytree(root, template)
    else:
        shutil.copytree(template, root)
    return root


def _cells() -> Iterator[object]:
    for case in CASES:
        for engine in ENGINES:
            marks = []
            if engine == "spark":
                daily = [] if case.daily else [pytest.mark.slow]
                marks = [pytest.mark.spark, *daily]
            yield pytest.param(case, engine, id=f"{case.id} [{engine}]", marks=marks)


@pytest.mark.parametrize(("case", "engine_name"), list(_cells()))
def test_statement(
    case: Case, engine_name: str, lake_root: Path, lake_format: str, request: pytest.FixtureRequest
) -> None:
    root = lake_root
    spark = request.getfixturevalue("spark") if engine_name == "spark" else None
    with duckrun.connect(root, engine=engine_name, spark=spark) as session:  # type: ignore[arg-type]
        text = re.sub(
            r"(?i)(version (?:=>|as of) )0", lambda at: f"{at[1]}{nth(0)}", case.sql.replace("{lake}", root.as_posix())
        )
        refusal = (
            case.refusal(engine_name) if lake_format == "delta" else ON_DUCKLAKE.get(case.id, case.refusal(engine_name))
        )
        if refusal is not None:
            before = _state(root)
            with pytest.raises(DuckrunError, match=f"(?s){refusal}") as raised:
                _run(session, case, text)
            if "is not supported by sql()" in str(raised.value):
                assert _state(root) == before
            return
        result = _run(session, case, text)
        if lake_format != "delta" and case.id in ON_DUCKLAKE:  # what another format does not take
            return
        if case.gives is not None:
            assert isinstance(result, Frame)
            assert rows_of(result) == sorted(case.gives, key=repr)
        if case.rows is not None:
            assert rows_of(session.sql(case.check)) == sorted(case.rows, key=repr)
            return
        assert case.gives is not None, "a case checks rows"


def _run(session: Session, case: Case, text: str) -> object:
    result = session.sql(text, dialect=case.dialect, **case.options)
    if isinstance(result, Frame):
        assert result.toArrow().num_columns
    return result


def _state(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if not path.name.startswith("."))


@pytest.mark.only_format("delta", "it is about the list of cases")
def test_names_of_cases_tell_them_apart() -> None:
    ids = [case.id for case in CASES]
    assert len(ids) == len(set(ids)) and not ON_DUCKLAKE.keys() - ids


@pytest.mark.only_format("delta", "it is about a page")
def test_the_page_shows_the_matrix() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == with_matrix(text, matrix()), "write it anew: python tools/statement_matrix.py"
