"""Environments of packages that are measured apart, made by pip from pinned requirements below the work folder."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import venv
from pathlib import Path

REQUIREMENTS = Path(__file__).resolve().parents[1] / "requirements"


def python_of(name: str, work: Path) -> str:
    """The Python of an environment, which is made at first use, and anew when its requirements change."""
    wanted = REQUIREMENTS / f"{name}.txt"
    folder = work / "envs" / name
    python = folder / "bin" / "python"
    done = folder / "made-from"
    digest = hashlib.sha256(wanted.read_bytes()).hexdigest()
    if not done.exists() or done.read_text() != digest:
        print(f"making the environment {name}", file=sys.stderr, flush=True)
        venv.create(folder, clear=True, with_pip=True, symlinks=True)
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement", wanted],
            check=True,
        )
        done.write_text(digest)
    return str(python)
