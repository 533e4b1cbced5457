"""The steps of a release, which .github/workflows/release.yml and `make release` run.

    python tools/release.py prepare 0.2.0        # gives the changelog the version and the day
    python tools/release.py check v0.2.0         # the tag, the version and the changelog agree
    python tools/release.py build                # a wheel and an sdist in dist/
    python tools/release.py notes v0.2.0         # the version's part of the changelog
    python tools/release.py upload               # what is in dist/, by trusted publishing
    python tools/release.py upload --index URL   # to another index, such as one on this machine

The upload needs no token: the index trusts the workflow.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
SECTION = r"^## \[{}\](?: - (?P<date>\S+))?\n(?P<text>.*?)(?=^## \[|\Z)"
UNRELEASED = "Unreleased"


def version_of_project() -> str:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


def section(name: str) -> re.Match[str] | None:
    """Return the changelog's section of a version, or of what is not released."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    return re.search(SECTION.format(re.escape(name)), text, re.MULTILINE | re.DOTALL)


def problems(tag: str) -> list[str]:
    """Return what keeps a tag from being released, one sentence each."""
    version = version_of_project()
    wrong = []
    if not re.fullmatch(r"v\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?", tag):
        wrong.append(f"{tag!r} is no tag of a release: v1.2.3, or v1.2.3rc1 before it.")
    elif tag != f"v{version}":
        wrong.append(f"The tag is {tag}, and pyproject.toml has version {version}.")
    part = section(version)
    if part is None or not part["text"].strip():
        wrong.append(f"CHANGELOG.md has no entries for {version}: run `python tools/release.py prepare {version}`.")
    elif not re.fullmatch(r"\d{4}-\d{2}-\d{2}", part["date"] or ""):
        wrong.append(f"CHANGELOG.md has no date for {version}: write `## [{version}] - {date.today()}`.")
    rest = section(UNRELEASED)
    if rest is None:
        wrong.append(f"CHANGELOG.md has no section [{UNRELEASED}], where the next change is noted.")
    elif rest["text"].strip():
        wrong.append(f"CHANGELOG.md still has entries under [{UNRELEASED}].")
    return wrong


def check(tag: str) -> int:
    """Print what keeps a tag from being released, and return 1; return 0 if nothing does."""
    wrong = problems(tag)
    for problem in wrong:
        print(f"release: {problem}", file=sys.stderr)
    if not wrong:
        print(f"release: {tag} agrees with pyproject.toml and CHANGELOG.md")
    return 1 if wrong else 0


def prepare(version: str) -> int:
    """Give what is not released in the changelog the version and the day of today."""
    if version != version_of_project():
        print(f"release: set the version of pyproject.toml to {version} first", file=sys.stderr)
        return 1
    part = section(UNRELEASED)
    if part is None or not part["text"].strip() or section(version) is not None:
        print(f"release: CHANGELOG.md has nothing under [{UNRELEASED}], or has {version} already", file=sys.stderr)
        return 1
    changelog = ROOT / "CHANGELOG.md"
    text = changelog.read_text(encoding="utf-8")
    heading = f"## [{UNRELEASED}]\n\n## [{version}] - {date.today()}\n"
    changelog.write_text(text.replace(f"## [{UNRELEASED}]\n", heading, 1), encoding="utf-8")
    print(f"release: CHANGELOG.md has version {version}")
    return 0


def build() -> int:
    """Build both packages into an empty dist/ and check what they hold."""
    shutil.rmtree(DIST, ignore_errors=True)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(DIST), "."]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        print(done.stdout + done.stderr, file=sys.stderr)
        return 1
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    names = zipfile.ZipFile(wheel).namelist()
    with tarfile.open(sdist) as archive:
        sources = {name.partition("/")[2] for name in archive.getnames()}
    (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
    described = zipfile.ZipFile(wheel).read(metadata).decode()
    missing = [name for name in ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md") if name not in sources]
    missing += [] if f"\nVersion: {version_of_project()}\n" in described else ["the version in the wheel"]
    if missing:
        print(f"release: the packages lack {', '.join(missing)}", file=sys.stderr)
        return 1
    for file in (wheel, sdist):
        print(f"release: {file.name}, {file.stat().st_size // 1024} kB")
    return 0


def notes(tag: str) -> int:
    """Print the version's part of the changelog."""
    part = section(tag.removeprefix("v"))
    if part is None:
        print(f"release: CHANGELOG.md has no section of {tag}", file=sys.stderr)
        return 1
    print(part["text"].strip())
    return 0


def upload(index: str | None) -> int:
    """Upload dist/ with uv.

    Args:
        index: Address of another index, without trusted publishing; None for the public one.
    """
    files = sorted(str(file) for pattern in ("*.whl", "*.tar.gz") for file in DIST.glob(pattern))
    if not files:
        print("release: dist/ is empty: run `python tools/release.py build`", file=sys.stderr)
        return 1
    where = ["--trusted-publishing", "always"]
    if index:
        where = ["--trusted-publishing", "never", "--publish-url", index, "--username", "x", "--password", "x"]
    return subprocess.run([str(Path(sys.executable).with_name("uv")), "publish", *where, *files]).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name, argument in (("prepare", "version"), ("check", "tag"), ("notes", "tag")):
        commands.add_parser(name).add_argument(argument)
    commands.add_parser("build")
    commands.add_parser("upload").add_argument("--index")
    options = parser.parse_args()
    match options.command:
        case "prepare":
            return prepare(options.version)
        case "check":
            return check(options.tag)
        case "notes":
            return notes(options.tag)
        case "build":
            return build()
        case _:
            return upload(options.index)


if __name__ == "__main__":
    sys.exit(main())
