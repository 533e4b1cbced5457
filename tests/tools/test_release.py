"""The steps of a release: what keeps a tag back, and an upload to an index on this machine."""

from __future__ import annotations

import http.server
import re
import sys
import threading
from collections.abc import Iterator
from email.message import Message
from email.parser import BytesParser
from email.policy import HTTP
from pathlib import Path
from typing import Any

import pytest

from tools import release

CHANGELOG = """# Changelog

## [Unreleased]
{unreleased}
## [0.1.0]{date}

### Added

- The first version.

## [0.0.9] - 2026-01-01

- Older.
"""


@pytest.fixture
def project(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A project of version 0.1.0; `project(date=…, unreleased=…)` writes its changelog."""
    monkeypatch.setattr(release, "ROOT", tmp_path)
    monkeypatch.setattr(release, "DIST", tmp_path / "dist")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "0.1.0"\n')

    def write(date: str = " - 2026-11-28", unreleased: str = "", text: str = CHANGELOG) -> Path:
        (tmp_path / "CHANGELOG.md").write_text(text.format(date=date, unreleased=unreleased))
        return tmp_path

    return write


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["release.py", *arguments])
    return release.main()


def test_a_tag_that_agrees_with_version_and_changelog_passes(project, monkeypatch, capsys):
    project()
    assert run(monkeypatch, "check", "v0.1.0") == 0
    assert run(monkeypatch, "notes", "v0.1.0") == 0
    assert capsys.readouterr().out.endswith("### Added\n\n- The first version.\n")


@pytest.mark.parametrize(
    ("tag", "date", "unreleased", "problem"),
    [
        ("v0.2.0", " - 2026-11-28", "", "The tag is v0.2.0, and pyproject.toml has version 0.1.0."),
        ("0.1.0", " - 2026-11-28", "", "'0.1.0' is no tag of a release"),
        ("v0.1", " - 2026-11-28", "", "'v0.1' is no tag of a release"),
        ("v0.1.0", "", "", "CHANGELOG.md has no date for 0.1.0"),
        ("v0.1.0", " - soon", "", "CHANGELOG.md has no date for 0.1.0"),
        ("v0.1.0", " - 2026-11-28", "\n- Something new.\n", "still has entries under [Unreleased]"),
    ],
)
def test_what_keeps_a_tag_back_is_told(project, monkeypatch, capsys, tag, date, unreleased, problem):
    project(date, unreleased)
    assert run(monkeypatch, "check", tag) == 1
    assert problem in capsys.readouterr().err


def test_a_changelog_without_the_version_is_prepared(project, monkeypatch, capsys):
    folder = project(text="# Changelog\n\n## [Unreleased]\n\n- New.\n")
    assert run(monkeypatch, "check", "v0.1.0") == 1
    assert "run `python tools/release.py prepare 0.1.0`" in capsys.readouterr().err
    assert run(monkeypatch, "prepare", "0.2.0") == 1, "the version is set first"
    assert run(monkeypatch, "prepare", "0.1.0") == 0
    assert "## [Unreleased]\n\n## [0.1.0] - 20" in (folder / "CHANGELOG.md").read_text()
    assert run(monkeypatch, "check", "v0.1.0") == 0
    assert run(monkeypatch, "prepare", "0.1.0") == 1, "nothing is left"


class Index(http.server.BaseHTTPRequestHandler):
    """An index that keeps what is uploaded."""

    files: dict[str, bytes] = {}

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
        form: Message = BytesParser(policy=HTTP).parsebytes(head + body)
        for part in form.get_payload():
            if name := part.get_filename():
                self.files[name] = part.get_payload(decode=True)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Print nothing."""


@pytest.fixture
def index() -> Iterator[tuple[str, dict[str, bytes]]]:
    Index.files = {}
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/upload/", Index.files
    server.shutdown()
    server.server_close()


def test_packages_are_built_and_uploaded_to_an_index(index, monkeypatch, tmp_path):
    """All of the release but the public index, with this project's own packages."""
    address, files = index
    dist = tmp_path / "dist"
    monkeypatch.setattr(release, "DIST", dist)
    assert run(monkeypatch, "build") == 0
    built = {file.name: file.read_bytes() for file in dist.glob("*") if file.suffix in {".whl", ".gz"}}
    version = release.version_of_project()
    assert set(built) == {
        f"duckrun_dagster-{version}-py3-none-any.whl",
        f"duckrun_dagster-{version}.tar.gz",
    }
    assert run(monkeypatch, "upload", "--index", address) == 0
    assert files == built


def test_nothing_is_uploaded_from_an_empty_folder(project, monkeypatch, capsys):
    project()
    assert run(monkeypatch, "upload") == 1
    assert "dist/ is empty" in capsys.readouterr().err


def test_the_changelog_keeps_to_its_format():
    """Keep a Changelog: dated versions below what is not released, each with parts of six names."""
    text = (release.ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert versions[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\S*\] - \d{4}-\d\d-\d\d", version) for version in versions[1:])
    parts = set(re.findall(r"^### (.*)$", text, re.MULTILINE))
    assert parts <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    too_long = [line for line in text.splitlines() if len(line) > 140]
    assert too_long == [], "an entry is short"
