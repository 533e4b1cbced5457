"""The runner of the long suites: what it lists, hands on, and counts as a failure."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tools import suites

pytestmark = pytest.mark.drawn(3)  # each starts pytest by itself
PASSES = "import pytest\n\n@pytest.mark.kills\ndef test_one():\n    {body}\n"


@pytest.fixture
def project(monkeypatch, tmp_path):
    """A project with no test; `project(path, text)` adds a file."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    kills: x\n    cluster: x\n")
    (tmp_path / "tests").mkdir()
    monkeypatch.setattr(suites, "ROOT", tmp_path)
    monkeypatch.setattr(suites, "SUITES", (suites.Suite("kills", 20), suites.Suite("cluster", 20)))
    monkeypatch.setenv("DUCKRUN_TEST_SEED", "7")
    monkeypatch.setattr(suites, "NIGHTLY", False)
    for name in (
        "DUCKRUN_SOAK",
        "DUCKRUN_TEST_ALL",
        "DUCKRUN_TEST_SHARE",
        "DUCKRUN_TEST_ROUNDS",
        "CI_SECONDS",
        "CI_BASE",
    ):
        monkeypatch.delenv(name, raising=False)
    # The project's own pytest settings are not this one's.
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)

    def add(path: str, text: str) -> None:
        file = tmp_path / "tests" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    return add


def test_a_suite_without_tests_is_not_listed(project, capfd):
    assert suites.main([]) == 0
    assert "no long suite has tests yet" in capfd.readouterr().out
    assert suites.main(["kills"]) == 1, "asked for by name, it is an error"


def test_seed_and_budget_reach_the_tests_and_are_printed(project, capfd):
    body = "import os; assert (os.environ['DUCKRUN_TEST_SEED'], os.environ['DUCKRUN_TEST_BUDGET']) == ('7', '20')"
    project("lake/test_faults.py", PASSES.format(body=body))
    assert suites.main([]) == 0
    said = capfd.readouterr().out
    assert "kills: seed 7, budget 20 s" in said
    assert "cluster" not in said


def test_several_workers_run_whole_classes(project, monkeypatch):
    monkeypatch.setattr(suites, "SUITES", (suites.Suite("kills", 20, workers=2),))
    body = "import os; assert os.environ['PYTEST_XDIST_WORKER_COUNT'] == '2'"
    project("kills/test_one.py", PASSES.format(body=body))
    assert suites.main([]) == 0


def test_a_soak_has_more_time_and_says_so_to_the_tests(project, monkeypatch):
    monkeypatch.setenv("DUCKRUN_SOAK", "1")
    body = "import os; assert int(os.environ['DUCKRUN_TEST_BUDGET']) > 20 and os.environ['DUCKRUN_SOAK'] == '1'"
    project("kills/test_one.py", PASSES.format(body=body))
    assert suites.main([]) == 0


def test_a_failing_suite_does_not_keep_the_next_from_running(project, capfd):
    project("kills/test_one.py", PASSES.format(body="assert False"))
    project("cluster/test_two.py", PASSES.format(body="pass").replace("kills", "cluster"))
    assert suites.main([]) == 1
    said = capfd.readouterr()
    assert "exit 1" in said.out and "passed" in said.out
    assert "again: DUCKRUN_TEST_SEED=7 python tools/suites.py kills" in said.err


def test_a_suite_that_runs_no_test_has_failed(project, capfd):
    project("kills/test_one.py", "def test_without_the_marker():\n    pass\n")
    assert suites.main([]) == 1
    assert "ran no test" in capfd.readouterr().out


def test_a_suite_that_hangs_is_ended(project, monkeypatch, capfd):
    monkeypatch.setattr(suites, "SUITES", (suites.Suite("kills", 1),))
    monkeypatch.setattr(suites, "GRACE", 3)
    # pytest's own limit is as long; a process that ignores it must end too.
    project(
        "kills/test_one.py",
        PASSES.format(body="import time; time.sleep(60)").replace("kills\n", "kills\n@pytest.mark.timeout(0)\n"),
    )
    assert suites.main([]) == 1
    assert "still running after 4 s" in capfd.readouterr().out


def test_a_suite_that_is_ended_prints_its_failures(project, monkeypatch, capfd):
    monkeypatch.setattr(suites, "SUITES", (suites.Suite("kills", 1, workers=2), suites.Suite("cluster", 1)))
    monkeypatch.setattr(suites, "GRACE", 6)
    project("kills/test_one.py", PASSES.format(body="assert 'the first' == 'failure'"))
    waits = PASSES.format(body="import time; time.sleep(60)").replace("kills\n", "kills\n@pytest.mark.timeout(0)\n")
    project("kills/test_two.py", waits)
    project("cluster/test_three.py", PASSES.format(body="pass").replace("kills", "cluster"))
    assert suites.main([]) == 1
    said = capfd.readouterr().out
    assert "still running after 7 s" in said and "assert 'the first' == 'failure'" in said


def test_a_soak_ends_no_search_of_a_fixed_count(project, monkeypatch):
    monkeypatch.setenv("DUCKRUN_SOAK", "1")
    monkeypatch.setattr(suites, "GRACE", -10_000)
    project("kills/test_one.py", PASSES.format(body="import time; time.sleep(1)"))
    assert suites.main([]) == 0


def test_an_unknown_suite_is_refused_by_name(project, capfd):
    assert suites.main(["chaos"]) == 2
    assert "no suite chaos" in capfd.readouterr().err


def test_the_budgets_fit_their_limit():
    assert sum(suite.budget for suite in suites.SUITES if not suite.nightly) <= suites.BUDGETS


def test_each_watched_path_is_there():
    assert all((suites.ROOT / path).exists() for suite in suites.SUITES for path in suite.watches)


@pytest.mark.parametrize(
    ("changed", "left_out", "parts"),
    [
        (None, False, 2),
        ([], True, 1),
        (["docs/sql.md", "adapter/duckrun/lake/lake.py"], True, 1),
        (["docs/sql.md", "adapter/duckrun/engines/spark/write.py"], False, 1),
    ],
)
def test_with_a_base_commit_a_suite_runs_in_full_for_a_change_of_what_it_covers(changed, left_out, parts):
    cluster = suites.Suite("cluster", 20, share=2, watches=("adapter/duckrun/engines/spark",))
    assert bool(suites.reason_to_leave_out(cluster, changed)) == left_out
    assert suites.parts_of(cluster, changed) == parts
    kills = suites.Suite("kills", 20, share=3)
    assert (suites.reason_to_leave_out(kills, changed), suites.parts_of(kills, changed)) == (None, 3)


def test_a_suite_that_is_left_out_is_listed_with_the_reason(project, monkeypatch, capfd):
    project("kills/test_one.py", PASSES.format(body="pass"))
    project("cluster/test_two.py", PASSES.format(body="assert False").replace("kills", "cluster"))
    monkeypatch.setattr(
        suites, "SUITES", (suites.Suite("kills", 20), suites.Suite("cluster", 20, watches=("adapter/duckrun",)))
    )
    monkeypatch.setattr(suites, "changed_files", lambda base: ["docs/sql.md"])
    monkeypatch.setenv("CI_BASE", "main")
    assert suites.main([]) == 0
    assert "left out: no change in adapter/duckrun" in capfd.readouterr().out
    assert suites.main(["cluster"]) == 1, "called by name, it runs"


def test_the_night_runs_every_suite_with_all_of_its_cases_and_the_time_for_it(project, monkeypatch):
    monkeypatch.setattr(suites, "NIGHTLY", True)
    monkeypatch.setattr(suites, "SUITES", (suites.Suite("kills", 20, share=3, nightly=True),))
    body = "import os; assert os.environ['DUCKRUN_TEST_BUDGET'] == '60' and 'DUCKRUN_TEST_SHARE' not in os.environ"
    project("kills/test_one.py", PASSES.format(body=body))
    assert suites.main([]) == 0


def test_a_share_reaches_the_tests(project, monkeypatch):
    monkeypatch.setattr(suites, "SUITES", (suites.Suite("kills", 20, share=3),))
    body = "import os; assert (os.environ['DUCKRUN_TEST_BUDGET'], os.environ['DUCKRUN_TEST_SHARE']) == ('20', '3')"
    project("kills/test_one.py", PASSES.format(body=body))
    assert suites.main([]) == 0


@pytest.mark.parametrize(
    ("left", "taken", "fewer"),
    [
        (float("inf"), 0, 1),
        (300, 0, 1),
        (200, 0, 1),
        (150, 0, 2),
        (300, 150, 1),
        (300, 400, 3),
        (0, 400, 4),
        (-50, 0, 4),
    ],
)
def test_a_suite_draws_less_where_the_time_that_is_left_is_not_enough(left, taken, fewer):
    ended, following = suites.Suite("kills", 100), suites.Suite("cluster", 200)
    pace = suites.Pace(left, ended.budget + following.budget if taken else following.budget)
    if taken:
        pace.left += taken
        pace.ended(ended, taken)
    assert pace.fewer() == fewer


def test_a_suite_that_no_time_is_left_for_is_listed_as_left_out(project, monkeypatch, capfd):
    project("kills/test_one.py", PASSES.format(body="import time; time.sleep(1.5)"))
    project("cluster/test_two.py", PASSES.format(body="assert False").replace("kills", "cluster"))
    monkeypatch.setattr(suites, "LANES", 1)
    monkeypatch.setenv("CI_SECONDS", "1")
    assert suites.main([]) == 0
    said = capfd.readouterr().out
    assert re.search("kills +passed", said) and re.search("cluster +left out: no time is left", said)


def test_a_suite_without_time_draws_fewer_cases_and_rounds(project, monkeypatch, capfd):
    monkeypatch.setattr(suites, "SUITES", (suites.Suite("kills", 20, share=3),))
    monkeypatch.setenv("CI_SECONDS", "10")
    names = ["DUCKRUN_TEST_BUDGET", "DUCKRUN_TEST_SHARE", "DUCKRUN_TEST_ROUNDS"]
    body = f"import os; assert [os.environ[name] for name in {names}] == ['10', '6', '{2 * suites.ROUNDS}']"
    project("kills/test_one.py", PASSES.format(body=body))
    assert suites.main([]) == 0
    assert "takes 1/2 of its cases" in capfd.readouterr().out


def test_suites_that_are_left_out_need_no_time(project, monkeypatch):
    left_out = suites.Suite("cluster", 1000, watches=("adapter/duckrun",))
    monkeypatch.setattr(suites, "SUITES", (suites.Suite("kills", 20, share=3), left_out))
    monkeypatch.setattr(suites, "changed_files", lambda base: ["docs/sql.md"])
    monkeypatch.setenv("CI_BASE", "main")
    monkeypatch.setenv("CI_SECONDS", "100")
    project("kills/test_one.py", PASSES.format(body="import os; assert os.environ['DUCKRUN_TEST_SHARE'] == '3'"))
    project("cluster/test_two.py", PASSES.format(body="assert False").replace("kills", "cluster"))
    assert suites.main([]) == 0


def test_a_change_without_git_or_a_known_base_leaves_out_no_suite(project, monkeypatch, tmp_path, capfd):
    assert suites.changed_files("main") is None
    assert "no suite is left out, as the change since CI_BASE=main is unknown: " in capfd.readouterr().err
    monkeypatch.setenv("PATH", str(tmp_path))
    assert suites.changed_files("main") is None
    assert "git is not installed" in capfd.readouterr().err


def test_two_suites_run_at_once_and_each_prints_its_output_in_one_piece(project, tmp_path, capfd):
    wait = "import pathlib, time; here = pathlib.Path('{}'); here.touch()\n    while not pathlib.Path('{}').exists(): time.sleep(0.01)"
    a, b = tmp_path / "a", tmp_path / "b"
    project("kills/test_one.py", PASSES.format(body=wait.format(a, b)))
    project("cluster/test_two.py", PASSES.format(body=wait.format(b, a)).replace("kills", "cluster"))
    assert suites.main([]) == 0
    lines = [line for line in capfd.readouterr().out.splitlines() if re.match("=== (kills|cluster): ", line)]
    assert [line.split()[1] for line in lines] in (["kills:"] * 2 + ["cluster:"] * 2, ["cluster:"] * 2 + ["kills:"] * 2)


def test_a_runner_that_was_stopped_starts_no_suite(project, tmp_path):
    project("kills/test_one.py", PASSES.format(body=f"import pathlib; pathlib.Path('{tmp_path}/a').touch()"))
    suite = suites.Suite("kills", 21)
    runner = suites.Runner(7, suites.Pace(60.0, 21, 1))
    runner.stop()
    assert runner.run(suite, suite.paths(), 1, 1) == "interrupted" and not (tmp_path / "a").exists()


def test_an_interrupt_ends_the_suites_that_run(project, tmp_path):
    project(
        "kills/test_one.py",
        PASSES.format(body=f"import pathlib, time; pathlib.Path('{tmp_path}/a').touch(); time.sleep(60)"),
    )
    project("cluster/test_two.py", PASSES.format(body="import time; time.sleep(60)").replace("kills", "cluster"))
    text = (
        "import pathlib, sys; from tools import suites; "
        f"suites.ROOT = pathlib.Path('{tmp_path}'); suites.SUITES = (suites.Suite('kills', 21), suites.Suite('cluster', 21)); "
        "import signal; signal.signal(signal.SIGTERM, suites._interrupt); suites.main([])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", text], cwd=Path(__file__).parents[2], stderr=subprocess.PIPE, text=True
    )
    while not (tmp_path / "a").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.terminate()
    assert "KeyboardInterrupt" in process.communicate(timeout=50)[1]
    left = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert not [line for line in left.splitlines() if "pytest -m" in line and "--timeout=621" in line]
