"""Set-up of an environment, on machines made of folders: their Pythons are scripts that answer as one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUPPORTED = ["3.11", "3.12", "3.13"]
# What a fake Python does: it tells its version, lacks modules, makes an environment of itself, and notes the calls of pip.
PYTHON = """#!/bin/bash
version={version}
case "$1 $2" in
    "-c import sys; "*_base_executable*) echo "$version $0" ;;
    "-c import sys; "*) echo "$version" ;;
    "-c import "*) for module in {lacks}; do [ "$2" != "import $module" ] || exit 1; done ;;
    "-m venv") mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
    "-m pip") echo "$*" >>calls; [ "$3" != install ] || {pip} ;;
    "tools/setup_java.py "*) echo /java >"$2" ;;
    *) echo "$*" >>calls ;;
esac
"""
PROGRAMS = ("bash", "cat", "cp", "dirname", "mkdir", "paste", "rm", "touch")


class Machine:
    """A checkout with the scripts of set-up, and a PATH with Pythons that a test adds."""

    def __init__(self, folder: Path):
        self.tree, self.bin, self.home = folder / "tree", folder / "bin", folder / "home"
        (self.tree / "tools").mkdir(parents=True)
        self.bin.mkdir()
        for script in ("setup.sh", "pythons.sh"):
            shutil.copy(ROOT / "tools" / script, self.tree / "tools")
        for name in PROGRAMS:
            (self.bin / name).symlink_to(shutil.which(name))

    @property
    def venv(self) -> Path:
        return self.tree / ".venv"

    def python(self, version: str, file: str = "", lacks: str = "", pip: str = "true") -> Path:
        path = self.bin / (file or f"python{version}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PYTHON.format(version=version, lacks=lacks, pip=pip))
        path.chmod(0o755)
        return path

    def run(self, script: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        places = {"PATH": str(self.bin), "HOME": str(self.home), "PYTHON_PLACES": str(self.home / "no-place")}
        return subprocess.run(
            ["bash", f"tools/{script}", *arguments], cwd=self.tree, env=places | env, capture_output=True, text=True
        )

    def calls(self) -> str:
        log = self.tree / "calls"
        return log.read_text() if log.exists() else ""

    def version_of_venv(self) -> str:
        return re.search(r"version=(.*)", (self.venv / "bin" / "python").read_text())[1]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that a refused set-up says."""
    assert done.returncode == 1, done
    (line,) = done.stderr.splitlines()
    return line


# ------------------------------------------------------------------ the Pythons of a machine
def test_every_supported_python_is_listed_with_the_newest_first(machine):
    paths = {version: machine.python(version) for version in ("3.12", "3.11", "3.13", "3.10", "3.14")}
    done = machine.run("pythons.sh")
    assert done.stdout.splitlines() == [f"{version} {paths[version]}" for version in ("3.13", "3.12", "3.11")]


def test_a_python_of_pyenv_is_taken_though_its_shim_does_not_start(machine):
    shim = machine.bin / "python3.13"
    shim.write_text("#!/bin/bash\necho 'pyenv: python3.13: command not found' >&2\nexit 127\n")
    shim.chmod(0o755)
    theirs = machine.python("3.13", "../home/.pyenv/versions/3.13.2/bin/python")
    assert machine.run("pythons.sh").stdout.split()[0] == "3.13"
    assert machine.run("pythons.sh").stdout.split()[1].endswith("3.13.2/bin/python")
    assert theirs.exists()


def test_a_python_that_is_called_python3_only_is_taken(machine):
    assert machine.run("pythons.sh", PATH=str(machine.bin)).returncode == 1
    path = machine.python("3.12", "python3")
    assert machine.run("pythons.sh").stdout.splitlines() == [f"3.12 {path}"]


@pytest.mark.parametrize(("version", "verdict"), [("3.10", "too old"), ("3.14", "too new"), ("2.7", "too old")])
def test_a_machine_with_another_python_only_is_told_which_one_to_install(machine, version, verdict):
    machine.python(version, "python3")
    said = refusal(machine.run("setup.sh"))
    assert f"needs Python 3.11, 3.12 or 3.13, and there is none on this machine (python3 is {version}, which is" in said
    assert verdict in said and "apt-get install" in said and "make setup PYTHON=" in said
    assert not machine.venv.exists()


def test_a_machine_without_python_is_told_what_to_install(machine):
    assert "there is none on this machine. Install one" in refusal(machine.run("setup.sh"))


def test_a_python_without_venv_is_named_with_what_it_lacks(machine):
    path = machine.python("3.11", lacks="ensurepip sqlite3")
    assert f"{path} lacks ensurepip sqlite3" in refusal(machine.run("pythons.sh"))
    assert f"{path} lacks ensurepip sqlite3" in refusal(machine.run("setup.sh", PYTHON=str(path)))


@pytest.mark.parametrize(("version", "verdict"), [("3.10", "too old"), ("3.14", "too new")])
def test_a_chosen_python_of_another_version_is_refused(machine, version, verdict):
    machine.python("3.13")
    path = machine.python(version)
    assert f"{path} is Python {version}, which is {verdict}" in refusal(machine.run("setup.sh", PYTHON=str(path)))


def test_a_chosen_program_that_is_none_or_no_python_is_refused(machine):
    machine.python("3.13")
    assert "PYTHON=python9 is no program of this machine" in refusal(machine.run("setup.sh", PYTHON="python9"))
    assert "PYTHON=mkdir does not start as a Python" in refusal(machine.run("setup.sh", PYTHON="mkdir"))


def test_the_supported_versions_are_those_of_the_package_and_of_its_workflows():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    prefix = "Programming Language :: Python :: 3."
    classifiers = [line.removeprefix(prefix) for line in project["classifiers"] if line.startswith(prefix)]
    script = (ROOT / "tools" / "pythons.sh").read_text()
    listed = re.search(r'^SUPPORTED="(.*)"', script, re.MULTILINE)[1].split()
    assert [f"3.{minor}" for minor in classifiers] == sorted(listed) == SUPPORTED
    assert project["requires-python"] == ">=3.11,<3.14"


# ------------------------------------------------------------------ the environment
def test_set_up_takes_the_newest_python_and_installs_the_lock(machine):
    for version in ("3.11", "3.12"):
        machine.python(version)
    done = machine.run("setup.sh")
    assert done.returncode == 0, done
    assert machine.version_of_venv() == "3.12"
    assert (
        "-m pip install --quiet --no-compile --retries 5 --disable-pip-version-check -r requirements.lock"
        in machine.calls()
    )
    assert "tools/fetch_jars.py" in machine.calls()
    assert (machine.venv / ".setup-done").exists() and not (machine.venv / ".installing").exists()


def test_set_up_takes_the_chosen_python(machine):
    machine.python("3.13")
    older = machine.python("3.11")
    assert machine.run("setup.sh", PYTHON=str(older)).returncode == 0
    assert machine.version_of_venv() == "3.11"


def test_an_environment_of_an_older_supported_python_stays(machine):
    machine.python("3.11")
    machine.run("setup.sh")
    machine.python("3.13")
    assert machine.run("setup.sh").returncode == 0
    assert machine.version_of_venv() == "3.11"


@pytest.mark.parametrize("version", ["3.10", "3.14"])
def test_an_environment_of_an_unsupported_python_is_named_and_left(machine, version):
    machine.python("3.13")
    machine.python(version, "../tree/.venv/bin/python")
    said = refusal(machine.run("setup.sh"))
    assert said.startswith(f"setup: .venv is of Python {version}, which this does not run on. Remove it (rm -rf .venv)")
    assert machine.version_of_venv() == version


def test_an_environment_of_another_python_than_the_chosen_one_is_named_and_left(machine):
    machine.python("3.11")
    machine.run("setup.sh")
    newer = machine.python("3.13")
    said = refusal(machine.run("setup.sh", PYTHON=str(newer)))
    assert f".venv is of Python 3.11, and PYTHON={newer} is 3.13. Remove it (rm -rf .venv)" in said
    assert machine.version_of_venv() == "3.11"


def test_an_environment_whose_python_is_gone_is_made_anew(machine):
    machine.python("3.13")
    (machine.venv / "bin").mkdir(parents=True)
    (machine.venv / "bin" / "python").symlink_to(machine.tree / "gone")
    done = machine.run("setup.sh")
    assert done.returncode == 0, done
    assert "the Python of .venv does not start any more: .venv is made anew" in done.stdout
    assert machine.version_of_venv() == "3.13"


def test_a_set_up_killed_in_pip_is_made_anew(machine):
    machine.python("3.13", pip="kill -9 $PPID")
    assert machine.run("setup.sh").returncode == -9
    assert (machine.venv / ".installing").exists() and not (machine.venv / ".setup-done").exists()
    machine.python("3.13")
    done = machine.run("setup.sh")
    assert done.returncode == 0, done
    assert "the last set-up ended while it installed packages: .venv is made anew" in done.stdout
    assert (machine.venv / ".setup-done").exists() and not (machine.venv / ".installing").exists()


def test_pip_without_a_network_is_told_in_one_sentence_and_tried_again_in_place(machine):
    machine.python("3.13", pip="{ echo 'no network' >&2; exit 1; }")
    done = machine.run("setup.sh")
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == "no network"
    assert "The first set-up needs a network" in done.stderr and "run make setup again" in done.stderr
    assert not (machine.venv / ".setup-done").exists()
    machine.python("3.13", "../tree/.venv/bin/python")
    assert "made anew" not in machine.run("setup.sh").stdout
    assert (machine.venv / ".setup-done").exists()


# ------------------------------------------------------------------ the second Python of .ci/run
def second_python(machine: Machine) -> subprocess.CompletedProcess[str]:
    """What the step `pythons` does, with a `make` that tells how it was called."""
    (machine.tree / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", machine.tree / ".ci")
    for name in ("grep", "head", "mktemp"):
        (machine.bin / name).symlink_to(shutil.which(name))
    make = machine.bin / "make"
    make.write_text('#!/bin/bash\necho "make $*"\n')
    make.chmod(0o755)
    places = {"PATH": str(machine.bin), "HOME": str(machine.home), "PYTHON_PLACES": str(machine.home / "no-place")}
    command = ["bash", ".ci/run", "--function", "pythons"]
    return subprocess.run(command, cwd=machine.tree, env=places, capture_output=True, text=True)


def test_ci_runs_the_smoke_selection_in_the_newest_other_python(machine):
    oldest, newest = machine.python("3.11"), machine.python("3.13")
    machine.python("3.12")
    machine.run("setup.sh", PYTHON=str(oldest))
    done = second_python(machine)
    assert (done.returncode, done.stdout) == (0, f"make smoke OTHER={newest}\n"), done


def test_ci_says_why_it_leaves_out_another_python(machine):
    machine.python("3.11")
    machine.run("setup.sh")
    done = second_python(machine)
    assert done.returncode == 0, done
    assert done.stdout == "pythons: left out, as this machine has no supported Python but 3.11\n"


# ------------------------------------------------------------------ other machines
def test_without_make_the_script_alone_sets_up():
    recipe = re.search(r"^\$\(STAMP\):.*\n\t(.*)\n", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    assert recipe == '@PYTHON="$(PYTHON)" bash tools/setup.sh'
    assert os.access(ROOT / "tools" / "setup.sh", os.X_OK)


def test_what_is_set_up_needs_no_network(machine):
    """`make` starts nothing of set-up as long as the lock, the package's file and the scripts are older than its stamp."""
    stamp = re.search(r"^\$\(STAMP\): (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split()
    assert all((ROOT / name).exists() for name in stamp)
    for name in (*stamp, "Makefile"):
        copy = machine.tree / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy)
    machine.python("3.13", pip="{ echo 'no network' >&2; exit 1; }")
    machine.venv.mkdir()
    (machine.venv / ".setup-done").touch()
    done = subprocess.run(["make", "setup"], cwd=machine.tree, capture_output=True, text=True)
    assert (done.returncode, "Nothing to be done" in done.stdout, done.stderr) == (0, True, ""), done
    assert machine.calls() == ""
