"""What can be known before a Spark session is asked for: is there PySpark, a Java for it, and somebody at the address."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from duckrun.errors import InvalidConfig

MINIMUM_JAVA = 17  # Spark 4 runs on 17 and newer
PROBE_SECONDS = 8.0  # for each address, of which a master list names up to three
_INSTALL_JAVA = {
    "Debian or Ubuntu": "sudo apt-get install -y openjdk-17-jre-headless",
    "macOS": "brew install openjdk@17",
    "Windows": "winget install EclipseAdoptium.Temurin.17.JRE",
}


def import_pyspark() -> Any:
    """PySpark's SparkSession. Raises InvalidConfig with the extra to install."""
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise InvalidConfig(
            f"This needs Spark, and PySpark is not installed ({error}). Install it with: "
            'pip install "duckrun-dagster[spark]"'
        ) from error
    return SparkSession


def java_version() -> int | None:
    """The major version of the Java that Spark would start (17 for 17.0.15), or None where there is none."""
    return _java()[1]


def check_java() -> None:
    """Raise InvalidConfig, with the command that installs one, unless there is a Java that Spark runs on."""
    launcher, version = _java()
    if version is not None and version >= MINIMUM_JAVA:
        return
    home = os.environ.get("JAVA_HOME")
    if version is not None:
        what = f"{launcher} is Java {version}, which is too old"
    else:
        what = f"there is no Java in JAVA_HOME={home}" if home else "there is no java on PATH and JAVA_HOME is not set"
    commands = "; ".join(f"{system}: {command}" for system, command in _INSTALL_JAVA.items())
    raise InvalidConfig(f"Spark needs Java 17 or 21, and {what}. Nothing was run. Install one ({commands}).")


def probe(address: str, default_port: int) -> None:
    """Raise InvalidConfig unless one of the hosts of an address takes a connection."""
    scheme, _, rest = address.partition("://")
    failures = []
    for host in rest.split(";")[0].rstrip("/").split(",")[:3]:
        parts = urlsplit(f"{scheme}://{host}")
        try:
            port = parts.port or default_port
            with socket.create_connection((parts.hostname or host, port), timeout=PROBE_SECONDS):
                return
        except (OSError, ValueError) as error:
            failures.append(f"{host}: {error}")
    raise InvalidConfig(
        f"Spark at {shown(address)} cannot be reached ({'; '.join(failures)}). Nothing was run. Check that it is running, "
        "and the host and port."
    )


def shown(address: str) -> str:
    """An address as a message may show it: without the parameters of a Connect address, which hold its key."""
    return address.partition("/;")[0]


def _java() -> tuple[str, int | None]:
    """The launcher that Spark's own scripts choose, and its major version."""
    home = os.environ.get("JAVA_HOME")
    name = "java.exe" if os.name == "nt" else "java"
    launcher = str(Path(home) / "bin" / name) if home else (shutil.which("java") or "java")
    try:
        answer = subprocess.run([launcher, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return launcher, None
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return launcher, int(found.group(1)) if answer.returncode == 0 and found else None
