"""Which cases of a matrix a run draws."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.drawn(3)  # each starts pytest by itself
pytest_plugins = ["pytester"]
MATRIX = """
import pytest

@pytest.mark.drawn(5)
@pytest.mark.parametrize("n", range(12))
def test_case(n): pass

@pytest.mark.drawn(3)
def test_alone(): pass

@pytest.mark.whole
def test_all_of_them(): pass

def test_always(): pass
"""
CLASSES = """
import pytest

@pytest.mark.drawn(2, whole_classes=True)
class TestOne:
    def test_a(self): pass
    def test_b(self): pass

@pytest.mark.drawn(2, whole_classes=True)
class TestTwo:
    def test_a(self): pass
    def test_b(self): pass
"""


@pytest.fixture
def ran(pytester, monkeypatch):
    """The names of the tests that ran, of a file with a text, for a seed."""
    for name in (
        "DUCKRUN_TEST_SEED",
        "DUCKRUN_TEST_ALL",
        "DUCKRUN_SOAK",
        "DUCKRUN_TEST_SHARE",
        "GITHUB_RUN_NUMBER",
        "PYTEST_ADDOPTS",
    ):
        monkeypatch.delenv(name, raising=False)

    def run(text: str, *arguments: str, **env: str) -> list[str]:
        pytester.makepyfile(test_matrix=text)
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        items, calls = pytester.inline_genitems("-p", "tests.drawing", *arguments)
        left = {item.nodeid for call in calls.getcalls("pytest_deselected") for item in call.items}
        return [item.nodeid.split("::", 1)[1] for item in items if item.nodeid not in left]

    return run


def test_as_many_seeds_in_a_row_as_parts_see_every_case_once(ran):
    runs = [ran(MATRIX, DUCKRUN_TEST_SEED=str(seed)) for seed in range(70, 75)]
    cases = [name for names in runs for name in names if name.startswith("test_case")]
    assert sorted(cases) == sorted(f"test_case[{n}]" for n in range(12))
    assert [sum(name == "test_always" for name in names) for names in runs] == [1] * 5
    assert 1 <= sum("test_alone" in names for names in runs) <= 2, "one of three"


def test_the_same_seed_draws_the_same_cases(ran):
    assert ran(MATRIX, DUCKRUN_TEST_SEED="7") == ran(MATRIX, DUCKRUN_TEST_SEED="7")


def test_everything_runs_where_it_is_asked_for(ran):
    assert len(ran(MATRIX, DUCKRUN_TEST_ALL="1")) == 15


def test_a_test_that_is_named_runs_whole(ran):
    assert len(ran(MATRIX, "test_matrix.py::test_case")) == 12
    assert len(ran(MATRIX, "-k", "test_case")) == 12


FORMATS = """
import pytest

@pytest.mark.drawn({parts})
@pytest.mark.parametrize("format", ["delta", "ducklake"])
@pytest.mark.parametrize("n", range(8))
def test_case(n, format): pass
"""


@pytest.mark.drawn(1)
@pytest.mark.parametrize("parts", [2, 4])
def test_every_value_of_an_alternating_parameter_is_drawn_alike(ran, parts):
    for seed in range(parts):
        names = ran(FORMATS.format(parts=parts), DUCKRUN_TEST_SEED=str(seed))
        assert len(names) == 16 / parts
        assert sum("ducklake" in name for name in names) == len(names) / 2


ALONE = "import pytest\n" + "".join(f"\n@pytest.mark.drawn(5)\ndef test_{n}(): pass\n" for n in range(10))


def test_tests_of_one_file_take_turns(ran):
    runs = [ran(ALONE, DUCKRUN_TEST_SEED=str(seed)) for seed in range(5)]
    assert [len(names) for names in runs] == [2] * 5
    assert sorted(name for names in runs for name in names) == sorted(f"test_{n}" for n in range(10))


OF_TESTS = """
import pytest
pytestmark = pytest.mark.drawn(3, each_test=True)

def test_one(): pass

@pytest.mark.parametrize("n", range(2))
def test_two(n): pass

@pytest.mark.parametrize("n", range(7))
def test_seven(n): pass
"""


def test_each_test_has_a_case_in_every_run(ran):
    runs = [ran(OF_TESTS, DUCKRUN_TEST_SEED=str(seed)) for seed in range(6)]
    for names in runs:
        assert [sum(name.startswith(test) for name in names) for test in ("test_one", "test_two")] == [1, 1]
        assert 2 <= sum(name.startswith("test_seven") for name in names) <= 3
    assert sorted({name for names in runs[:2] for name in names if "two" in name}) == ["test_two[0]", "test_two[1]"]
    assert sorted(name for names in runs[:3] for name in names if "seven" in name) == [
        f"test_seven[{n}]" for n in range(7)
    ]


def test_classes_are_drawn_whole(ran):
    drawn = [ran(CLASSES, DUCKRUN_TEST_SEED=str(seed)) for seed in (1, 2)]
    assert sorted(drawn) == [["TestOne::test_a", "TestOne::test_b"], ["TestTwo::test_a", "TestTwo::test_b"]]


FIRSTS = """
import pytest

@pytest.mark.first_of("a")
@pytest.mark.parametrize("n", range(4))
def test_a(n): pass

@pytest.mark.drawn(2)
@pytest.mark.first_of("b")
@pytest.mark.parametrize("n", range(4))
def test_b(n): pass

@pytest.mark.first_of("a")
def test_a_again(): pass
"""


def test_the_first_case_of_each_name_runs_whatever_the_seed(ran):
    assert [ran(FIRSTS, DUCKRUN_TEST_SEED=str(seed)) for seed in (1, 2)] == [["test_a[0]", "test_b[0]"]] * 2
    assert len(ran(FIRSTS, DUCKRUN_TEST_ALL="1")) == 9


def test_a_share_draws_a_part_of_all_cases(ran):
    runs = [ran(FIRSTS, DUCKRUN_TEST_SHARE="2", DUCKRUN_TEST_SEED=str(seed)) for seed in range(4)]
    assert sorted({name for names in runs for name in names}) == sorted(ran(FIRSTS, DUCKRUN_TEST_ALL="1"))
    assert all(2 <= len(names) <= 5 for names in runs)
