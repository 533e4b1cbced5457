"""A proxy in front of an S3 server that carries requests out and loses their answers."""

from __future__ import annotations

import http.client
import http.server
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

import pytest

Loss = Literal["error", "cut", "silence"]
LOSSES: tuple[Loss, ...] = ("error", "cut", "silence")
"""The server's answer is replaced by a status 500, by the end of the connection, or by none for `SILENCE` seconds."""
SILENCE = 4.0
CLIENT_TIMEOUT = 1
"""Seconds after which the clients of the tests give up waiting: less than the silence."""


@dataclass(frozen=True)
class Request:
    """A request, as far as a test selects by it."""

    method: str
    path: str

    @property
    def writes(self) -> bool:
        return self.method in ("PUT", "POST", "DELETE")

    @property
    def is_commit(self) -> bool:
        """A log entry is written."""
        return self.method == "PUT" and "/_delta_log/0" in self.path and self.path.endswith(".json")


class LossyStore:
    """The proxy. Its ``url`` is an endpoint like that of the server behind it.

    Example: ``with store.losing("cut", lambda request: request.is_commit) as lost: …``.
    """

    def __init__(self, upstream: str) -> None:
        place = urlsplit(upstream)
        self._upstream = (str(place.hostname), int(place.port or 80))
        self._lock = threading.Lock()
        self._seen: list[Request] = []
        self._loss: tuple[Loss, Callable[[Request], bool], int, int] | None = None
        self._matched = self._lost = 0
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: object) -> None:
                """Nothing is printed."""

            def handle(self) -> None:
                try:
                    super().handle()
                except OSError:  # the client went away
                    self.close_connection = True

            def answer(self) -> None:
                proxy._answer(self)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @contextmanager
    def recording(self) -> Iterator[list[Request]]:
        """The requests of a block, in the order in which they came."""
        self._seen = seen = []
        yield seen
        self._seen = []

    @contextmanager
    def losing(
        self, loss: Loss, select: Callable[[Request], bool] = lambda request: True, *, after: int = 0, times: int = 1
    ) -> Iterator[Callable[[], int]]:
        """Lose the answers of ``times`` selected requests of a block, after the first ``after`` of them. Yields how many were lost."""
        with self._lock:
            self._loss, self._matched, self._lost = (loss, select, after, times), 0, 0
        try:
            yield lambda: self._lost
        finally:
            self._loss = None

    def _loss_of(self, request: Request) -> Loss | None:
        with self._lock:
            self._seen.append(request)
            if self._loss is None or not self._loss[1](request):
                return None
            loss, _, after, times = self._loss
            self._matched += 1
            if self._matched <= after or self._lost >= times:
                return None
            self._lost += 1
            return loss

    def _answer(self, client: http.server.BaseHTTPRequestHandler) -> None:
        body = client.rfile.read(int(client.headers.get("content-length") or 0))
        loss = self._loss_of(Request(client.command, client.path))
        status, headers, answer = self._carried_out(client, body)
        if loss == "silence":
            time.sleep(SILENCE)
        if loss in ("cut", "silence"):
            client.close_connection = True
            client.connection.close()
            return
        if loss == "error":
            status, headers, answer = 500, {}, b"<Error><Code>InternalError</Code><Message>lost</Message></Error>"
        client.send_response(status)
        for name, value in headers.items():
            client.send_header(name, value)
        if client.command != "HEAD" or loss == "error":
            client.send_header("content-length", str(0 if client.command == "HEAD" else len(answer)))
        client.end_headers()
        if client.command != "HEAD":
            client.wfile.write(answer)

    def _carried_out(
        self, client: http.server.BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the server's own answer."""
        upstream = http.client.HTTPConnection(*self._upstream, timeout=60)
        hop = ("connection", "content-length", "transfer-encoding", "expect")
        sent = {name: value for name, value in client.headers.items() if name.lower() not in hop}
        try:
            upstream.request(client.command, client.path, body=body, headers=sent)
            got = upstream.getresponse()
            # The length of a HEAD's answer is that of the object.
            skipped = hop if client.command != "HEAD" else ("connection", "transfer-encoding")
            headers = {name: value for name, value in got.getheaders() if name.lower() not in skipped}
            return got.status, headers, got.read()
        finally:
            upstream.close()


@pytest.fixture(scope="session")
def lossy_store(s3_endpoint: str) -> Iterator[LossyStore]:
    """The proxy in front of the S3 server of the session."""
    store = LossyStore(s3_endpoint)
    yield store
    store.close()


@pytest.fixture
def lossy_options(lossy_store: LossyStore, s3_options: dict[str, str]) -> dict[str, str]:
    """The storage_options of a lake that is reached through the proxy."""
    return {**s3_options, "AWS_ENDPOINT_URL": lossy_store.url, "timeout": f"{CLIENT_TIMEOUT} seconds"}
