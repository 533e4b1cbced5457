"""Proxies in front of an S3 server and of PostgreSQL that carry requests out and lose their answers."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import http.server
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

import pytest

from tools.databases import Server

Loss = Literal["error", "cut", "silence", "conflict", "busy", "throttled", "broken"]
LOSSES: tuple[Loss, ...] = ("error", "cut", "silence")
"""The server's answer is replaced by a status 500, by the end of the connection, or by none for `SILENCE` seconds."""
REFUSALS: dict[Loss, tuple[int, bytes]] = {
    "conflict": (409, b"ConditionalRequestConflict"),
    "busy": (503, b"SlowDown"),
    "throttled": (429, b"TooManyRequests"),
    "broken": (500, b"InternalError"),
}
"""Answers to requests that the server does not carry out: their status and code."""
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
        self._action: tuple[Callable[[Request], bool], Callable[[], object]] | None = None
        self._matched = self._lost = 0
        self._page: int | None = None
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

    @contextmanager
    def once_before(self, select: Callable[[Request], bool], action: Callable[[], object]) -> Iterator[None]:
        """Do something before the first selected request of a block is carried out."""
        self._action = (select, action)
        try:
            yield
        finally:
            self._action = None

    @contextmanager
    def paged(self, keys: int) -> Iterator[None]:
        """Let each answer to a listing of a block have at most so many keys."""
        self._page = keys
        try:
            yield
        finally:
            self._page = None

    def _act(self, request: Request) -> None:
        with self._lock:
            pending = self._action
            if pending is None or not pending[0](request):
                return
            self._action = None
        pending[1]()

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
        request = Request(client.command, client.path)
        self._act(request)
        loss = self._loss_of(request)
        if loss in REFUSALS:
            status, headers, answer = REFUSALS[loss][0], {}, b"<Error><Code>%s</Code></Error>" % REFUSALS[loss][1]
        else:
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
        if client.command != "HEAD" or loss is not None:
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
            pages = f"&max-keys={self._page}" if self._page is not None and "list-type=2" in client.path else ""
            upstream.request(client.command, client.path + pages, body=body, headers=sent)
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


Cut = Literal["before", "after", "late"]
CUTS: tuple[Cut, ...] = ("before", "after", "late")
"""The connection ends before the server has read a COMMIT, once it has carried it out, or while it is on its way."""
_LATE = 0.6


class LossyCatalog:
    """A proxy in front of a PostgreSQL server that cuts a connection at the COMMIT of a DuckLake's snapshot. Its ``port`` is that of
    the server to a client.
    """

    def __init__(self, port: int) -> None:
        self._upstream = port
        self._cut: Cut | None = None
        self.cuts = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    @contextmanager
    def cutting(self, cut: Cut) -> Iterator[None]:
        """Cut the first connection of a block that commits a snapshot."""
        self._cut = cut
        try:
            yield
        finally:
            self._cut = None

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:  # closed
                return
            server = socket.create_connection(("127.0.0.1", self._upstream))
            answers = threading.Event()
            answers.set()
            threading.Thread(target=self._questions, args=(client, server, answers), daemon=True).start()
            threading.Thread(target=self._answers, args=(client, server, answers), daemon=True).start()

    @staticmethod
    def _answers(client: socket.socket, server: socket.socket, passed: threading.Event) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 16):
                if passed.is_set():
                    client.sendall(data)
        _end(client)

    def _questions(self, client: socket.socket, server: socket.socket, answers: threading.Event) -> None:
        has_snapshot = False
        with suppress(OSError):
            while data := client.recv(1 << 20):
                has_snapshot = has_snapshot or b"ducklake_snapshot VALUES" in data
                if b"COMMIT" in data and has_snapshot:
                    has_snapshot, cut = False, self._cut
                    if cut is not None:
                        self._cut, self.cuts = None, self.cuts + 1
                        answers.clear()
                        self._cut_at(cut, data, client, server)
                        return
                server.sendall(data)
        _end(server)

    @staticmethod
    def _cut_at(cut: Cut, commit: bytes, client: socket.socket, server: socket.socket) -> None:
        if cut == "late":
            _end(client)
            time.sleep(_LATE)
        if cut != "before":
            server.sendall(commit)
            time.sleep(_LATE)
        _end(server)
        _end(client)


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


@pytest.fixture
def lossy_catalog(postgres_server: Server) -> Iterator[LossyCatalog]:
    """The proxy in front of the PostgreSQL server of the session."""
    proxy = LossyCatalog(postgres_server.port)
    yield proxy
    proxy.close()


class VerifyingStore(LossyStore):
    """The proxy, which carries out only requests whose signature is that of the path which was sent.

    Real stores verify it, moto does not. Source: AWS Signature Version 4, canonical request of S3.
    """

    def __init__(self, upstream: str, secret: str) -> None:
        self._secret = secret
        self.refused: list[Request] = []
        self.verified = 0
        super().__init__(upstream)

    def _carried_out(
        self, client: http.server.BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        if not self._is_signed(client):
            self.refused.append(Request(client.command, client.path))
            text = b"<Error><Code>SignatureDoesNotMatch</Code></Error>"
            return 403, {"Content-Type": "application/xml"}, text
        self.verified += 1
        return super()._carried_out(client, body)

    def _is_signed(self, client: http.server.BaseHTTPRequestHandler) -> bool:
        headers = {name.lower(): " ".join(value.split()) for name, value in client.headers.items()}
        parts = re.fullmatch(
            r"AWS4-HMAC-SHA256 Credential=[^/]+/(\S+?),\s*SignedHeaders=(\S+?),\s*Signature=(\w+)",
            headers.get("authorization", ""),
        )
        if parts is None:
            return False
        scope, signed, signature = parts.groups()
        path, _, query = client.path.partition("?")
        pairs = sorted(pair if "=" in pair else f"{pair}=" for pair in query.split("&") if pair)
        lines = [f"{name}:{headers.get(name, '')}" for name in signed.split(";")]
        request = [client.command, path, "&".join(pairs), *lines, "", signed, headers["x-amz-content-sha256"]]
        digest = hashlib.sha256("\n".join(request).encode()).hexdigest()
        key = f"AWS4{self._secret}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        text = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], scope, digest])
        return hmac.compare_digest(hmac.digest(key, text.encode(), "sha256").hex(), signature)
