"""Where Spark code runs: the one Spark session of a process, classic or Connect, with Delta and without a metastore.

Nothing here imports PySpark or starts a JVM before ``spark_session()`` is called.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from duckrun.errors import InvalidConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from duckrun.storage import Storage

MINIMUM_JAVA = 17  # Spark 4 runs on 17 and newer
CONNECT_PORT = 15002
PROBE_SECONDS = 8.0  # for each address, of which a master list names up to three
JARS_KEY = "duckrun.jars"
_DELTA_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_INSTALL_JAVA = {
    "Debian or Ubuntu": "sudo apt-get install -y openjdk-17-jre-headless",
    "macOS": "brew install openjdk@17",
    "Windows": "winget install EclipseAdoptium.Temurin.17.JRE",
}


@dataclass
class _Shared:
    session: Any
    asked: str


_lock = threading.RLock()
_shared: _Shared | None = None


def spark_session(
    *,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, Any] | None = None,
    packages: Sequence[str] = (),
    storage: Storage | None = None,
    app_name: str = "duckrun",
) -> SparkSession:
    """The Spark session of this process, started at the first call.

    ``master`` is a classic session (``local[*]`` unless set, ``spark://host:7077``, ``yarn``, ``k8s://…``); ``remote``
    is Spark Connect (``sc://host:15002``, or ``local[2]`` for a server in this process). With neither, a session that
    this process already has is taken as it is, then ``SPARK_REMOTE``, then ``local[*]``. ``conf`` wins over every
    default here; ``packages`` are Maven coordinates beside Delta's. Where the cluster has the jars already, say
    ``conf={"duckrun.jars": "provided"}`` (or ``{"spark.jars.packages": ""}``), and none are added.
    A later call gets the session that the first one made, with the settings of that one.

    Raises InvalidConfig when PySpark is not installed, Java is missing or too old, the address does not answer
    within 30 seconds, or this process has a session on another address.

    Example: ``spark_session(master="local[2]", conf={"spark.driver.memory": "4g"})``.
    """
    global _shared
    if master and remote:
        raise InvalidConfig(f"Spark takes a master ({master!r}) or a remote ({remote!r}), not both.")
    builders = _import_pyspark()
    with _lock:
        if _shared is not None and not _alive(_shared.session):
            _shared = None
        existing = _shared.session if _shared is not None else _found(builders)
        if existing is not None:
            asked = remote or master
            if asked is not None and asked != (_shared.asked if _shared else _address(existing)):
                raise InvalidConfig(
                    f"Spark was asked for at {asked}, but this process has a session at "
                    f"{_shared.asked if _shared else _address(existing)}; a process holds one. Use that address, or stop "
                    "the session first (duckrun.engines.spark_session.stop_spark_session)."
                )
            apply_storage(existing, storage)
            return existing
        remote = remote or (None if master else os.environ.get("SPARK_REMOTE"))
        session = (
            _connect(remote, dict(conf or {}), packages, storage, app_name)
            if remote
            else _classic(master or "local[*]", dict(conf or {}), packages, storage, app_name)
        )
        _shared = _Shared(session, remote or master or "local[*]")
        return session


def stop_spark_session() -> None:
    """Stop the shared session; none is fine. Sessions that somebody else made are left alone."""
    global _shared
    with _lock:
        if _shared is not None:
            _shared.session.stop()
        _shared = None


def java_version() -> int | None:
    """The major version of the Java that Spark would start (17 for 17.0.15), or None where there is none."""
    return _java()[1]


def is_spark_frame(value: Any) -> bool:
    """True for a PySpark DataFrame, classic or Connect; PySpark is not imported to find out."""
    module = type(value).__module__
    return module.startswith("pyspark.sql") and type(value).__name__ == "DataFrame"


# -- the two kinds of session


def _classic(
    master: str, conf: dict[str, Any], packages: Sequence[str], storage: Storage | None, app_name: str
) -> SparkSession:
    check_java()
    if master.startswith("spark://"):
        _probe(master, 7077)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName(app_name)
    return _start(builder, _settings(master, conf, storage), conf, packages, master)


def _connect(
    remote: str, conf: dict[str, Any], packages: Sequence[str], storage: Storage | None, app_name: str
) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote(remote).appName(app_name)
    if not remote.startswith("sc://"):
        check_java()
        return _start(builder, _settings(remote, conf, storage), conf, packages, remote)
    _probe(remote, CONNECT_PORT)
    # A server has its jars and its static settings already; what is set here belongs to this one session.
    settings = {"spark.sql.session.timeZone": "UTC", **{k: v for k, v in conf.items() if k != JARS_KEY}}
    try:
        session: SparkSession = builder.getOrCreate()
        for key, value in settings.items():
            session.conf.set(key, _text(value))
    except Exception as error:
        raise InvalidConfig(f"Spark at {remote} answered, but gave no session: {_first_line(error)}") from error
    apply_storage(session, storage)
    return session


def _start(
    builder: Any, settings: dict[str, str], conf: Mapping[str, Any], packages: Sequence[str], address: str
) -> SparkSession:
    for key, value in settings.items():
        builder = builder.config(key, value)
    provided = str(conf.get(JARS_KEY, "")).lower() == "provided" or conf.get("spark.jars.packages") == ""
    if not provided:
        from delta import configure_spark_with_delta_pip

        wanted = [p for p in str(conf.get("spark.jars.packages", "")).split(",") if p]
        builder = configure_spark_with_delta_pip(builder, [*wanted, *packages])
    try:
        session: SparkSession = builder.getOrCreate()
    except Exception as error:
        raise InvalidConfig(f"Spark did not start at {address}: {_first_line(error)}") from error
    return session


def _settings(master: str, conf: Mapping[str, Any], storage: Storage | None) -> dict[str, str]:
    """Defaults, then what the user set."""
    warehouse = tempfile.mkdtemp(prefix="duckrun-spark-")
    atexit.register(shutil.rmtree, warehouse, ignore_errors=True)
    settings = {
        **_DELTA_CONF,
        "spark.sql.catalogImplementation": "in-memory",  # no Hive, no metastore_db in the working directory
        "spark.sql.warehouse.dir": Path(warehouse).as_uri(),
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
    }
    if master.startswith("local"):
        cores = re.match(r"local\[(\d+)", master)
        threads = int(cores.group(1)) if cores else (os.cpu_count() or 2)
        settings |= {
            # 200 and 50 tasks, made for clusters, cost seconds for each small statement on one machine.
            "spark.sql.shuffle.partitions": str(max(2, min(2 * threads, 32))),
            "spark.databricks.delta.snapshotPartitions": "2",
            "spark.driver.memory": "2g",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }
    if storage is not None:
        settings |= {f"spark.hadoop.{k}": v for k, v in storage.hadoop_conf().items()}
    given = {k: _text(v) for k, v in conf.items() if k not in (JARS_KEY, "spark.jars.packages")}
    extensions = given.get("spark.sql.extensions", "")
    if extensions and _DELTA_CONF["spark.sql.extensions"] not in extensions:
        given["spark.sql.extensions"] = f"{_DELTA_CONF['spark.sql.extensions']},{extensions}"
    return settings | given


def apply_storage(session: SparkSession, storage: Storage | None) -> None:
    """Credentials for a session that runs already: Hadoop takes them from the session's settings."""
    for key, value in (storage.hadoop_conf() if storage is not None else {}).items():
        session.conf.set(key, value)


# -- checks before anything starts


def _import_pyspark() -> Any:
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise InvalidConfig(
            f"This needs Spark, and PySpark is not installed ({error}). Install it with: "
            'pip install "duckrun-dagster[spark]"'
        ) from error
    return SparkSession


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


def _probe(address: str, default_port: int) -> None:
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
        f"Spark at {address} cannot be reached ({'; '.join(failures)}). Nothing was run. Check that it is running, and the "
        "host and port."
    )


def _found(builders: Any) -> Any | None:
    """A session that somebody else made in this process, in whichever thread."""
    active = builders.getActiveSession()
    if active is not None or "SPARK_CONNECT_MODE_ENABLED" in os.environ:
        return active
    return builders._instantiatedSession


def _alive(session: Any) -> bool:
    """False for a session that was stopped; a stopped classic one still answers questions about its settings."""
    if "connect" in type(session).__module__:
        return not session.is_stopped
    return type(session)._instantiatedSession is not None


def _address(session: Any) -> str:
    try:
        return str(session.conf.get("spark.master"))
    except Exception:
        return "an address that it does not tell"


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
