"""README's tour is followed as a reader would, and a step that does not do what the text says is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import check_tour

STEPS = [("python", "# shop/one.py\nprint(1 + 1)\n"), ("sh", "echo before\npython shop/one.py\n")]


def test_the_tour_has_files_commands_and_what_they_print() -> None:
    steps = check_tour.blocks(check_tour.README.read_text(encoding="utf-8"))
    assert {language for language, _ in steps} == {"python", "yaml", "sql", "sh", "text"}
    assert all(check_tour.FILE.match(text) for language, text in steps if language in ("python", "yaml", "sql"))


def test_a_file_is_written_and_the_last_command_printed_what_the_text_shows(tmp_path: Path) -> None:
    check_tour.follow([*STEPS, ("text", "2\n")], tmp_path)
    with pytest.raises(SystemExit, match="README shows\n3\nand the command printed\n2"):
        check_tour.follow([*STEPS, ("text", "3\n")], tmp_path)


def test_a_command_that_fails_or_a_file_without_a_name_ends_the_tour(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="exit 3: exit 3"):
        check_tour.follow([("sh", "exit 3\n")], tmp_path)
    with pytest.raises(SystemExit, match="names no file"):
        check_tour.follow([("python", "print(1)\n")], tmp_path)
