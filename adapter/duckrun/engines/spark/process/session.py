"""The one Spark session of a process, classic or Connect, with Delta and without a metastore.

Nothing here imports PySpark or starts a JVM before ``spark_session()`` is called.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.metadata
import os
import re
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from duckrun.display.progress import shows_progress
from duckrun.engines.spark.process.checks import (
    CONNECT_PORT,
    check_java,
    check_knows_delta,
    check_speaks_connect,
    import_pyspark,
    no_master,
    other_version,
    probe,
    shown,
)
from duckrun.engines.spark.process.conditions import condition_of, without_classes
from duckrun.engines.spark.process.connect import RunServer
from duckrun.engines.spark.process.databases import guard
from duckrun.engines.spark.process.jars import JARS_KEY, PACKAGES_KEY, with_jars, without_stores
from duckrun.errors import InvalidConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from duckrun.storage.storage import Storage

DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_DELTA_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": DELTA_CATALOG,
}
DEFAULT_FORMAT = "delta"
"""Format of a write that names none, as on Databricks.

Spark's own is Parquet: ``saveAsTable`` would put a folder of files without a log into the lake.
"""
PYTHON_DAEMON = Path(__file__).with_name("spark_daemon.py")
"""Program that runs Python functions for Spark's executors.

Add it to ``spark.files`` where duckrun cannot send it.
"""


@dataclass
class _Shared:
    session: Any
    address: str


_OTHERS = (
    "Something else made that session, such as SparkSession.builder.getOrCreate() in an asset or a script. Take "
    "duckrun's there: in Dagster session() of a SparkResource, an argument of the asset; elsewhere "
    "duckrun.spark.spark_session()."
)
_lock = threading.RLock()
_warehouses: set[Path] = set()
_shared: _Shared | None = None


def spark_session(
    *,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, Any] | None = None,
    packages: Sequence[str] = (),
    storage: Storage | None = None,
    server: RunServer | None = None,
    app_name: str = "duckrun",
) -> SparkSession:
    """Return the Spark session of this process, started at the first call.

    Without ``master``, ``remote`` and ``server``, an existing session of this process is used, else
    ``SPARK_REMOTE``, else ``local[*]``. In a process that a run started, ``DUCKRUN_SPARK_SERVER``
    names the run's server. It wins over any master, since the processes of a run share one Spark.

    A later call returns the session of the first one, with its settings.

    Args:
        master: Master of a classic session: ``local[*]``, ``spark://host:7077``, ``yarn``,
            ``k8s://…``.
        remote: Spark Connect: ``sc://host:15002``, or ``local[2]`` for a server in this process.
        server: Server that the processes of a run share.
        conf: Settings, which win over every default here. If the cluster has the jars, set
            ``duckrun.jars`` to ``provided`` (or ``spark.jars.packages`` to an empty text).
        packages: Maven coordinates beside those of Delta and the store.

    Raises:
        InvalidConfig: PySpark is missing, or Java is missing or too old. The address does not
            answer within 30 seconds, or this process has a session at another address.

    Example::

        spark_session(master="local[2]", conf={"spark.driver.memory": "4g"})
    """
    global _shared
    if master and remote:
        raise InvalidConfig(f"Spark takes a master ({master!r}) or a remote ({remote!r}), not both.")
    builders = import_pyspark()
    with _lock:
        if _shared is not None and not _alive(_shared.session):
            _shared = None
        existing = _shared.session if _shared is not None else _found(builders)
        inherited = RunServer.from_environment() if server is None and remote is None else None
        if inherited is not None and (existing is None or _shared is not None):
            server = inherited  # the master of a profile is for its own runs
        address = f"the server of run {server.name}" if server is not None else remote or master
        if existing is not None:
            present = _shared.address if _shared is not None else _address(existing)
            if address is not None and address != present:
                raise InvalidConfig(
                    f"Spark was asked for at {shown(address)}, but this process has a session at {shown(present)}; a "
                    "process holds one. "
                    + (
                        _OTHERS
                        if _shared is None
                        else "Use that address, or stop the session first (duckrun.spark.stop_spark_session)."
                    )
                )
            if _shared is None:
                check_knows_delta(existing, _OTHERS)
            apply_storage(existing, storage)
            return existing
        if address is None:
            remote = os.environ.get("SPARK_REMOTE")
        if server is not None:
            session = _joined(server.remote(), {}, storage, app_name)  # it already has the settings of the run
        elif remote and remote.startswith("sc://"):
            session = _joined(remote, _session_conf(conf), storage, app_name)
        elif remote:
            session = _started(remote, _session_conf(conf), packages, storage, app_name, served=True)
        else:
            session = _started(master or "local[*]", conf or {}, packages, storage, app_name, served=False)
        guard(session)  # another process may have registered a lake's schemas on the same server
        _shared = _Shared(session, f"the server of run {server.name}" if server else remote or master or "local[*]")
        return session


def is_own(session: SparkSession) -> bool:
    """True for the session that ``spark_session()`` started."""
    return _shared is not None and _shared.session is session


def stop_spark_session() -> None:
    """Stop the shared session, if any; other sessions go on."""
    global _shared
    with _lock:
        if _shared is not None:
            _shared.session.stop()
        _shared = None


def apply_storage(session: SparkSession, storage: Storage | None) -> None:
    """Put credentials into the settings of a running session, from where Hadoop reads them."""
    for key, value in (storage.hadoop_conf() if storage is not None else {}).items():
        session.conf.set(key, value)


# -- the two kinds of session


def _joined(remote: str, conf: Mapping[str, str], storage: Storage | None, app_name: str) -> SparkSession:
    """Return a session on a Connect server that runs already."""
    from pyspark.sql import SparkSession

    probe(remote, CONNECT_PORT)
    check_speaks_connect(remote)
    try:
        session: SparkSession = SparkSession.builder.remote(remote).appName(app_name).getOrCreate()
        misfit = other_version(session, remote)
        for key, value in conf.items() if misfit is None else ():
            session.conf.set(key, value)
    except Exception as error:
        raise InvalidConfig(f"Spark at {shown(remote)} answered, but gave no session: {first_line(error)}") from error
    if misfit is not None:
        session.stop()
        raise misfit
    apply_storage(session, storage)
    return session


def _session_conf(conf: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the settings of one session on a server."""
    # The server already has its jars and its static settings.
    settings = {key: _text(value) for key, value in (conf or {}).items() if key not in (JARS_KEY, PACKAGES_KEY)}
    return {"spark.sql.session.timeZone": "UTC", **settings}


def _started(
    master: str,
    conf: Mapping[str, Any],
    packages: Sequence[str],
    storage: Storage | None,
    app_name: str,
    *,
    served: bool,
) -> SparkSession:
    """Return a session of a Spark that starts in this process, also behind a Connect server."""
    check_java()
    if master.startswith("spark://"):
        probe(master, 7077)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote(master) if served else SparkSession.builder.master(master)
    builder = builder.appName(app_name)
    settings = _settings(master, conf, storage)
    if not served and master.startswith("local") and without_stores(conf, packages, storage):
        # Hadoop's default local file system writes a checksum file beside each file. Writes and
        # vacuums of DuckDB leave those behind. Without its native library it also starts `chmod`
        # four times for the two files instead of once. Only object stores' file systems need it.
        settings.setdefault("spark.hadoop.fs.file.impl", "org.apache.hadoop.fs.RawLocalFileSystem")
    builder = with_jars(builder.config(map={**settings}), conf, packages, storage)
    try:
        session: SparkSession = builder.getOrCreate()
    except Exception as error:
        if master.startswith("spark://") and condition_of(error, "stopped SparkContext"):
            raise no_master(master) from error
        raise InvalidConfig(f"Spark did not start at {master}: {first_line(error)}") from error
    return session


def _settings(master: str, conf: Mapping[str, Any], storage: Storage | None) -> dict[str, str]:
    """Return the defaults, overridden by the user's settings."""
    settings = {
        **_DELTA_CONF,
        "spark.sql.catalogImplementation": "in-memory",  # no Hive, no metastore_db in the working directory
        "spark.sql.warehouse.dir": _warehouse().as_uri(),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.sources.default": DEFAULT_FORMAT,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": _text(shows_progress()),
        "spark.log.level": "ERROR",
        # Leave PySpark's frames out of the traceback of a Python function.
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "true",
    }
    if master.startswith("local"):
        # Python workers use this environment, even if it is not activated.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        # Serve Spark's pages to this machine only. Spark reads that only from the environment.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        cores = re.match(r"local\[(\d+)", master)
        threads = int(cores.group(1)) if cores else (os.cpu_count() or 2)
        partitions = str(max(2, min(2 * threads, 32)))
        settings |= {
            # The defaults of 200 and 50 tasks are for clusters. On one machine they cost seconds
            # per small statement, and VACUUM lists the smallest table's files in 10,000 tasks.
            "spark.sql.shuffle.partitions": partitions,
            "spark.sql.sources.parallelPartitionDiscovery.parallelism": partitions,
            "spark.databricks.delta.snapshotPartitions": "2",
            "spark.driver.memory": "2g",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }
    settings |= _python_daemon(master, conf)
    if storage is not None:
        settings |= {f"spark.hadoop.{k}": v for k, v in storage.hadoop_conf().items()}
    user_settings = {k: _text(v) for k, v in conf.items() if k not in (JARS_KEY, PACKAGES_KEY)}
    extensions = user_settings.get("spark.sql.extensions", "")
    if extensions and _DELTA_CONF["spark.sql.extensions"] not in extensions:
        user_settings["spark.sql.extensions"] = f"{_DELTA_CONF['spark.sql.extensions']},{extensions}"
    if user_settings.get("spark.files") and "spark.files" in settings:
        user_settings["spark.files"] += f",{settings['spark.files']}"
    return settings | user_settings


def _warehouse() -> Path:
    """Return the folder of tables written by name, as in plain PySpark.

    It is a temporary folder if the working directory is read-only. A new folder that is still empty
    when this process ends is removed. Nothing in it is ever removed.
    """
    folder = Path.cwd() / "spark-warehouse"
    if folder.exists():
        return folder
    if not os.access(Path.cwd(), os.W_OK):
        folder = Path(tempfile.mkdtemp(prefix="duckrun-spark-"))
    _warehouses.add(folder)
    return folder


@atexit.register
def remove_empty_warehouses() -> None:
    """Remove empty warehouse folders; a process that ends without atexit calls it itself."""
    for folder in _warehouses:
        with contextlib.suppress(OSError):  # it holds something, or Spark has never made it
            folder.rmdir()


def _python_daemon(master: str, conf: Mapping[str, Any]) -> dict[str, str]:
    """Return settings that make executors run Python functions with spark_daemon.py.

    It records the arguments of a function that raised. Empty if executors would not find the
    program.
    """
    module = f"{__package__}.{PYTHON_DAEMON.stem}"
    if master.startswith("local"):
        own_python = os.environ.get("PYSPARK_PYTHON") == sys.executable and "spark.pyspark.python" not in conf
        # An installed library exists in other processes of this Python too.
        here = [sysconfig.get_path("purelib")]
        installed = any(True for _ in importlib.metadata.distributions(name="duckrun-dagster", path=here))
        return {"spark.python.daemon.module": module} if own_python and installed else {}
    if master.startswith("spark://"):
        # An executor copies the files of a classic session to its working directory, and starts
        # Python there.
        return {"spark.python.daemon.module": PYTHON_DAEMON.stem, "spark.files": PYTHON_DAEMON.as_uri()}
    return {}


# -- sessions of this process


def _found(builders: Any) -> Any | None:
    """Return a session that other code created in this process, in any thread."""
    active = builders.getActiveSession()
    if active is not None or "SPARK_CONNECT_MODE_ENABLED" in os.environ:
        return active
    return builders._instantiatedSession


def _alive(session: Any) -> bool:
    """False for a stopped session."""
    if "connect" in type(session).__module__:
        return not session.is_stopped
    # A stopped classic session still answers questions about its settings.
    return type(session)._instantiatedSession is not None


def _address(session: Any) -> str:
    try:
        return str(session.conf.get("spark.master"))
    except Exception:
        return "an address that it does not tell"


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def first_line(error: BaseException) -> str:
    """Return the first telling line of an error."""
    lines = [without_classes(line) for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling "):
        lines = lines[1:]  # py4j names the cause in the next line
    return lines[0] if lines else type(error).__name__
