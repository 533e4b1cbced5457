"""Checks before work goes to Spark.

They look for PySpark, a Java for it, a server at the address, and workers that see the lake.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from duckrun.engines.spark.process.conditions import condition_of
from duckrun.errors import InvalidConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from duckrun.storage.storage import Storage

MINIMUM_JAVA = 17  # Spark 4 runs on 17 and newer
CONNECT_PORT = 15002
ANSWER_SECONDS = 20.0
PROBE_SECONDS = 8.0  # per address; a master list has up to three
_INSTALL_JAVA = {
    "Debian or Ubuntu": "sudo apt-get install -y openjdk-17-jre-headless",
    "macOS": "brew install openjdk@17",
    "Windows": "winget install EclipseAdoptium.Temurin.17.JRE",
}

_seen: WeakKeyDictionary[SparkSession, set[str]] = WeakKeyDictionary()  # lakes that its workers see


def import_pyspark() -> Any:
    """Return PySpark's SparkSession.

    Raises:
        InvalidConfig: PySpark is missing. The error names the extra to install.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise InvalidConfig(
            f"This needs Spark, and PySpark is not installed ({error}). Install it with: "
            'pip install "duckrun-dagster[spark]"'
        ) from error
    return SparkSession


def check_java() -> None:
    """Raise InvalidConfig, with a command to install one, unless a suitable Java exists."""
    launcher, version = java()
    if version is not None and version >= MINIMUM_JAVA:
        return
    home = os.environ.get("JAVA_HOME")
    if version is not None:
        what = f"{launcher} is Java {version}, which is too old"
    else:
        what = f"there is no Java in JAVA_HOME={home}" if home else "there is no java on PATH and JAVA_HOME is not set"
    commands = "; ".join(f"{system}: {command}" for system, command in _INSTALL_JAVA.items())
    raise InvalidConfig(f"Spark needs Java 17 or 21, and {what}", remedy=f"Install one ({commands})")


def probe(address: str, default_port: int) -> None:
    """Raise InvalidConfig unless one of the hosts of an address accepts a connection."""
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
        f"Spark at {shown(address)} cannot be reached ({'; '.join(failures)})",
        remedy="Check that it is running, and the host and port",
    )


def no_master(address: str) -> InvalidConfig:
    """Return the error for a listening address that Spark gave up on after three tries."""
    import pyspark

    return InvalidConfig(
        f"What listens at {address} did not take an application of pyspark {pyspark.__version__} within a minute",
        remedy=(
            "Either it is a Spark master of another version: install the cluster's version of "
            "pyspark here, or the other way round. Or it is no master: its port is 7077 by "
            "default, and 8080 is its page. A master with spark.authenticate asks for its secret "
            "in conf. PySpark starts again in a new process only"
        ),
    )


def check_speaks_connect(remote: str) -> None:
    """Raise InvalidConfig if the listener at a Connect address is another service.

    Spark's web page is an example. An encrypted address is left to PySpark.
    """
    parts = urlsplit(remote.partition("/;")[0])
    if "use_ssl=true" in remote or ("token=" in remote and parts.hostname != "localhost"):
        return
    import grpc  # PySpark itself would try for ten minutes

    channel = grpc.insecure_channel(f"{parts.hostname}:{parts.port or CONNECT_PORT}")
    try:
        grpc.channel_ready_future(channel).result(timeout=ANSWER_SECONDS)
    except grpc.FutureTimeoutError:
        raise InvalidConfig(
            f"What listens at {shown(remote)} is no Spark Connect server: no answer within {ANSWER_SECONDS:.0f} s",
            remedy=(
                f"Check the port; a Connect server's own is {CONNECT_PORT}, and 4040, 7077 and 8080 are other services"
            ),
        ) from None
    finally:
        channel.close()


def other_version(session: SparkSession, remote: str) -> InvalidConfig | None:
    """Return the error for a Connect server of another major version; None if it fits PySpark.

    Both speak one protocol. Each may send what the other does not know, in the middle of a job.
    """
    import pyspark

    here, there = pyspark.__version__, str(session.version)
    if here.partition(".")[0] == there.partition(".")[0]:
        return None
    return InvalidConfig(
        f"Spark at {shown(remote)} is version {there}, and this is pyspark {here}: they do not fit",
        remedy=f"Install pyspark {there} here, or give the server Spark {here}",
    )


def check_knows_delta(session: SparkSession, advice: str) -> None:
    """Raise InvalidConfig, with ``advice``, if a classic session lacks Delta's jars."""
    if "connect" in type(session).__module__:
        return  # only the server knows its jars, and only a query would tell
    from pyspark.errors import AnalysisException

    try:
        # This starts no job.
        session.read.format("delta").load("file:///there is no such table")
    except Exception as error:
        if condition_of(error, "DATA_SOURCE_NOT_FOUND"):
            raise InvalidConfig(f"This process has a Spark session without Delta's jars. {advice}") from None
        if not isinstance(error, AnalysisException):  # Delta: no such table
            raise


def check_workers_see(session: SparkSession, storage: Storage) -> None:
    """Raise InvalidConfig if Spark's workers are on machines that lack the lake's folder.

    They would write files that no other reader finds. A small file is put into the folder, and
    Spark reads it. Nothing is done for an object store, for Spark on this machine only, or a second
    time in this process.
    """
    if not storage.is_local or storage.root in _seen.get(session, ()):
        return
    connect = "connect" in type(session).__module__
    master = str(session.conf.get("spark.master", "") or "")
    # A server bound to 127.0.0.1 that was reached is on this machine.
    here = not connect or session.conf.get("spark.connect.grpc.binding.address", "") == "127.0.0.1"
    if here and master.startswith("local"):
        return
    Path(storage.root).mkdir(parents=True, exist_ok=True)
    mark = Path(storage.root, f"duckrun-{uuid.uuid4().hex}.txt")  # Spark ignores names with . or _ first
    mark.write_text("seen")
    try:
        # Read the file many times, so that not only the nearest worker reads it. Spark takes a path
        # without URL encoding.
        seen = session.read.text([f"file://{mark.as_posix()}"] * 16).distinct().collect()
        failure = "" if [row[0] for row in seen] == ["seen"] else "it finds nothing there"
    except Exception as error:
        failure = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    finally:
        mark.unlink(missing_ok=True)
    if failure:
        raise InvalidConfig(
            f"The lake {storage.root} is a folder of this machine, and Spark at {master or 'a Connect server'} "
            f"does not see it ({failure[:200]})",
            remedy=(
                "Put the lake where all of Spark's machines mount it at this path, or into an "
                "object store; or use master='local[*]'"
            ),
        )
    _seen.setdefault(session, set()).add(storage.root)


def shown(address: str) -> str:
    """Return an address for messages, without its Connect parameters, which hold the key."""
    return address.partition("/;")[0]


def java() -> tuple[str, int | None]:
    """Return the launcher of the Java that Spark would start, and its major version.

    The version is 17 for 17.0.15, and None if there is no Java.
    """
    home = os.environ.get("JAVA_HOME")
    name = "java.exe" if os.name == "nt" else "java"
    launcher = str(Path(home) / "bin" / name) if home else (shutil.which("java") or "java")
    try:
        answer = subprocess.run([launcher, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return launcher, None
    version = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return launcher, int(version.group(1)) if answer.returncode == 0 and version else None
