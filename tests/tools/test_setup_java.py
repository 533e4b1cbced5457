"""Set-up's choice of a Java, on machines made of folders."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools import setup_java


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine with no Java; `machine(name, version)` puts one among its system's packages and gives its home."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(setup_java, "PLACES", ((str(tmp_path / "jvm"), "*"),))
    monkeypatch.setattr(setup_java, "may_install", lambda: False)
    monkeypatch.setattr(sys, "argv", ["setup_java.py", str(tmp_path / "java_home")])

    def add(name: str, version: str, starts: bool = True) -> Path:
        home = tmp_path / "jvm" / name
        (home / "bin").mkdir(parents=True)
        java = home / "bin" / "java"
        java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\nexit {0 if starts else 1}\n")
        java.chmod(0o755)
        return home

    return add


def chosen(tmp_path: Path) -> Path:
    return Path((tmp_path / "java_home").read_text().strip())


@pytest.mark.parametrize("version", ["17.0.15", "21.0.2", "17"])
def test_java_17_and_21_are_taken(machine, tmp_path, version):
    home = machine("some", version)
    assert setup_java.main() == 0
    assert chosen(tmp_path) == home


def test_a_java_home_that_will_not_do_is_named_and_passed_over(machine, tmp_path, monkeypatch, capsys):
    new, good = machine("a-new", "25.0.1"), machine("b-good", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(new))
    assert setup_java.main() == 0
    assert chosen(tmp_path) == good
    assert f"passing over {new} (Java 25)" in capsys.readouterr().out


def test_java_home_comes_before_what_else_is_there(machine, tmp_path, monkeypatch):
    machine("a", "17.0.15")
    mine = machine("b", "21.0.2")
    monkeypatch.setenv("JAVA_HOME", str(mine))
    assert setup_java.main() == 0
    assert chosen(tmp_path) == mine


def test_no_java_stops_with_one_command_for_each_system(machine, tmp_path, capsys):
    assert setup_java.main() == 1
    said = capsys.readouterr().err
    assert "Java 17 or 21" in said
    for system, command in (("Debian", "apt-get install"), ("macOS", "brew install"), ("Windows", "winget install")):
        assert any(system in line and command in line for line in said.splitlines())
    assert not (tmp_path / "java_home").exists()


def test_too_old_too_new_and_broken_javas_are_named(machine, capsys):
    old, new, broken = machine("old", "1.8.0_402"), machine("new", "25"), machine("broken", "17.0.1", starts=False)
    assert setup_java.main() == 1
    said = capsys.readouterr().err
    assert f"{old}: Java 8 is too old" in said
    assert f"{new}: Java 25 is too new" in said
    assert f"{broken}: does not start" in said


def test_root_on_debian_gets_one(machine, tmp_path, monkeypatch):
    monkeypatch.setattr(setup_java, "may_install", lambda: True)
    monkeypatch.setattr(setup_java, "install", lambda: bool(machine("java-17-openjdk", "17.0.15")))
    assert setup_java.main() == 0
    assert chosen(tmp_path).name == "java-17-openjdk"
