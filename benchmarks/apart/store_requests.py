"""How many requests a write sends to an object store, by moto's own log of an S3 server on this machine.

    python -m benchmarks.apart.store_requests                                  # the table of this tree
    python -m benchmarks.apart.store_requests --kinds                          # with the requests of each write by kind
    PYTHONPATH=old/adapter:old python -m benchmarks.apart.store_requests       # the same of another tree

Each row is one statement of a session that is open already, on a table that another session wrote to before: ``create`` makes it of
rows, ``append`` is INSERT, ``merge`` is MERGE by key, ``sql merge`` the same by a condition that delta_rs does not take, ``replay``
an append whose application transaction is in the log already, ``read`` a query of the table.
"""

from __future__ import annotations

import argparse
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa

import duckrun
from duckrun import AppTransaction, MergeSpec, Session, WriteSpec

_REQUEST = re.compile(r'"(?P<verb>[A-Z]+) (?P<path>\S+) HTTP')
_END = "end-of-"
"""Prefix of a request that marks the end of a statement in the log."""
_ROWS = pa.table({"id": [1, 2, 3], "x": [1.5, 2.5, 3.5]})
_ONCE = AppTransaction("requests", 1)

WRITES: dict[str, Callable[[Session], object]] = {
    "create": lambda s: s.execute("main.made", WriteSpec("error"), _ROWS),
    "append": lambda s: s.sql("INSERT INTO main.t VALUES (4, 4.5)"),
    "append of a value": lambda s: s.execute("main.t", WriteSpec("append"), _ROWS),
    "merge": lambda s: s.execute("main.t", MergeSpec(("id",)), _ROWS),
    "sql merge": lambda s: s.sql(
        "MERGE INTO main.t USING (SELECT 2 AS id, 9.5 AS x) AS s ON t.id = s.id AND t.x < 5 "
        "WHEN MATCHED THEN UPDATE SET x = s.x WHEN NOT MATCHED THEN INSERT *"
    ),
    "replay": lambda s: s.execute("main.t", WriteSpec("append", app=_ONCE), _ROWS),
    "read": lambda s: s.sql("SELECT sum(x) FROM main.t").collect(),
}


@contextmanager
def server() -> Iterator[tuple[str, Path]]:
    """The address of an S3 server, and the file of its log."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "requests.log")
        with log.open("w") as written:
            process = subprocess.Popen(
                [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
                stdout=written,
                stderr=written,
            )
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert process.poll() is None, log.read_text()
                time.sleep(0.1)
        try:
            yield f"http://127.0.0.1:{port}", log
        finally:
            process.terminate()
            process.wait()


def kind_of(verb: str, path: str) -> str:
    """What a request asks: its verb, and which part of a lake it is about."""
    for part, place in (("list-type", "list"), ("_delta_log", "log"), ("_duckrun", "definition")):
        if part in path:
            return f"{verb} {place}"
    return f"{verb} data"


def counted(endpoint: str, log: Path) -> dict[str, list[str]]:
    """The requests of each write."""
    options = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
    }
    client = boto3.client(
        "s3", endpoint_url=endpoint, aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1"
    )
    client.create_bucket(Bucket="lake")
    with duckrun.connect("s3://lake/root", storage_options=options) as other:
        other.execute("main.t", WriteSpec("overwrite"), _ROWS)
        other.execute("main.t", WriteSpec("append", app=_ONCE), _ROWS.slice(0, 0))
        other.sql("DELETE FROM main.t WHERE id = 3")
    found = {}
    with duckrun.connect("s3://lake/root", storage_options=options) as session:
        session.sql("SELECT 1").count()
        for name, write in WRITES.items():
            since = len(log.read_text())
            write(session)
            text = _until(client, log, name.replace(" ", "-"))[since:]
            found[name] = [
                kind_of(each["verb"], each["path"]) for each in _REQUEST.finditer(text) if _END not in each["path"]
            ]
    return found


def _until(client: Any, log: Path, name: str) -> str:
    """Return the log once it has a request that is sent now: all earlier ones were answered before."""
    client.list_objects_v2(Bucket="lake", Prefix=f"{_END}{name}/")
    while f"{_END}{name}/" not in log.read_text():
        time.sleep(0.02)
    time.sleep(0.1)  # The server may write the line of another thread a moment later.
    return log.read_text()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", action="store_true", help="the requests of each write by kind")
    chosen = parser.parse_args()
    with server() as (endpoint, log):
        found = counted(endpoint, log)
    print(f"{'write':<20} requests")
    for name, kinds in found.items():
        print(f"{name:<20} {len(kinds):>8}")
        if chosen.kinds:
            for kind, times in Counter(kinds).most_common():
                print(f"    {kind:<24} {times}")


if __name__ == "__main__":
    main()
