"""An Azure storage server on loopback: Azurite, from npm, in a process of its own, shared by a test session."""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from filelock import FileLock

VERSION = "3.37.0"
HOME = Path(__file__).parents[1] / ".venv" / "azurite"  # beside the other tools that set-up brings
# Azurite's account and key are published, and the same everywhere.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
PORT = 10000  # DuckDB's delta extension knows the account, and looks for it at this port alone


def azurite() -> Path:
    """The server's program, installed by npm at first use. Skips the test on a machine without npm."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("Azurite comes from npm, which this machine has not (Debian: apt-get install npm)")
    program = HOME / VERSION / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    HOME.mkdir(parents=True, exist_ok=True)
    with FileLock(HOME / "lock"):
        if not program.exists():
            command = [npm, "install", "--prefix", str(HOME / VERSION), "--no-audit", "--no-fund", "--omit=dev"]
            subprocess.run([*command, f"azurite@{VERSION}"], check=True, timeout=600, capture_output=True)
    return program


@pytest.fixture(scope="session")
def azure_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running server's account."""
    folder = str(tmp_path_factory.mktemp("azurite"))
    command = ["node", str(azurite()), "--blobHost", "127.0.0.1", "--blobPort", str(PORT), "--location", folder]
    with FileLock(HOME / "port"):  # one server at a time has the port
        server = subprocess.Popen([*command, "--silent", "--skipApiVersionCheck"])
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", PORT), timeout=1).close()
                break
            except OSError:
                assert server.poll() is None and time.monotonic() < deadline, "Azurite did not start"
                time.sleep(0.1)
        assert server.poll() is None, f"something else listens at port {PORT}"
        yield f"http://127.0.0.1:{PORT}/{ACCOUNT}"
        server.kill()  # a graceful end waits for every connection that a client keeps open
        server.wait(timeout=10)


@pytest.fixture
def azure_options(azure_endpoint: str) -> dict[str, str]:
    """What a lake on this server is opened with: its storage_options."""
    return {
        "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": KEY,
        "AZURE_STORAGE_ENDPOINT": azure_endpoint,
        "AZURE_ALLOW_HTTP": "true",
    }


class Container:
    """Makes containers, and says their URLs."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint

    def __call__(self, name: str, scheme: str = "az") -> str:
        headers = {
            "x-ms-date": datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT"),
            "x-ms-version": "2021-08-06",
        }
        # Authorization by shared key: the verb, eleven headers that are empty, ours, the resource and its parameters.
        named = "\n".join(f"{key}:{value}" for key, value in headers.items())
        signed = "PUT" + "\n" * 12 + f"{named}\n/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
        digest = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
        address = f"{self.endpoint}/{name}?restype=container"
        with urllib.request.urlopen(
            urllib.request.Request(address, method="PUT", headers=headers), timeout=10
        ) as answer:
            assert answer.status == 201
        return self.url(name, scheme)

    def url(self, name: str, scheme: str) -> str:
        return f"az://{name}" if scheme == "az" else f"abfss://{name}@{ACCOUNT}.dfs.core.windows.net"


@pytest.fixture
def azure_container(azure_endpoint: str) -> Container:
    """A function that makes a container and gives its URL, in one of the two schemes."""
    return Container(azure_endpoint)
