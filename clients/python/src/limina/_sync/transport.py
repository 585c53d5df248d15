# Made from _async/transport.py by unasync.py.
"""Sends requests: connections, timeouts, retries and batches."""

from __future__ import annotations

import copy
import dataclasses
import functools
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

# Imported here because httpx2 imports it only when the first client is made. A child that is forked just then would wait for ever
# for an import that only the parent can finish.
import httpcore2  # noqa: F401
import httpx2

from .._breaker import Breaker, Circuit
from .._clock import now
from .._retry import Budget
from .._undecided import Undecided
from .._wire import Config, Reply, Request, check_reply, join_batch, new_key, path, split_batch
from ..errors import Invalid, LiminaError, Unavailable
from .io import Batcher, Local, sleep

# Of each kind: the paths of the single request and of the batch, and the name of the list in the batch.
BATCHED = {
    "check": ("limiter/check", "limiter/check/batch", "checks"),
    "hold": ("ledger/hold", "ledger/hold/batch", "operations"),
    "commit": ("ledger/commit", "ledger/commit/batch", "operations"),
}
# An item of a batch has no key of its own, so it is not repeated after an unknown outcome.
CHECK = Request("POST", "", refusal_is_value=True)
OTHER = Request("POST", "")
# The headers of an answer that a service passes on to its own client.
PASSED_ON = ("ratelimit-policy", "ratelimit", "retry-after")
# The server sends a comment every 15 seconds on a quiet stream.
LONGEST_SILENCE = 45.0


class _Connections:
    """The connections of this process or event loop, and the batches that use them."""

    def __init__(self, config: Config, tls: ssl.SSLContext | None) -> None:
        self.http = httpx2.Client(
            base_url=config.url,
            headers=config.headers(),
            # Without TLS, reading the certificates of the system would only take time.
            verify=tls if tls is not None else config.url.startswith("https:"),
            # Waiting for a lock occupies a connection, so their number must have no limit.
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=30.0),
        )
        # By kind, namespace, and number of retries.
        self.batchers: dict[tuple[str, str, int], Batcher] = {}


class Transport:
    """Shared by all namespaces of a client."""

    def __init__(self, config: Config, tls: ssl.SSLContext | None, breaker: Breaker | None) -> None:
        self.config = config
        self.budget = Budget()
        self.circuit = Circuit(breaker)
        self.undecided = Undecided()
        self._connections = Local(lambda: _Connections(config, tls))

    def with_retries(self, retries: int) -> Transport:
        """The same connections and the same budget, with another number of retries."""
        other = copy.copy(self)
        other.config = dataclasses.replace(self.config, retries=retries)
        return other

    def call(self, request: Request) -> Reply:
        """Sends a request, and sends it again where that is right. Raises the error of the last attempt."""
        retries = request.retries(self.config, self.budget)
        while True:
            try:
                return self.attempt(request, retried=retries.made > 0)
            except Unavailable as error:
                if request.is_check and self.circuit.is_open:
                    retries.stop()
                sleep(retries.pause(error))

    def attempt(self, request: Request, *, retried: bool = False) -> Reply:
        """Sends a request once. Only checks go through the circuit breaker: their callers know what to do without an answer."""
        if not request.is_check:
            return self._attempt(request, retried=retried)
        with self.circuit.request():
            return self._attempt(request, retried=retried)

    def _attempt(self, request: Request, *, retried: bool) -> Reply:
        timeout = request.timeout or self.config.timeout
        sent_headers = {} if request.key is None else {"idempotency-key": request.key}
        if request.body is not None:
            sent_headers["content-type"] = "application/json"
        http = self._connections.get().http
        sent_at = now()
        built = http.build_request(
            request.method,
            request.path,
            content=request.body,
            headers=sent_headers,
            timeout=httpx2.Timeout(timeout, read=timeout + request.longest_wait),
        )
        if request.secret_query:
            # httpx2 logs the URL, but sends the target.
            built.extensions["target"] = built.url.raw_path
            built.url = built.url.copy_with(query=None)
        try:
            response = http.send(built)
        except httpx2.TransportError as error:
            raise_failure(error)
        headers = {name: response.headers[name] for name in PASSED_ON if name in response.headers} if request.is_check else {}
        reply = Reply(response.status_code, response.content, sent_at, headers)
        try:
            reply = check_reply(request, reply, response.headers.get("retry-after"), retried=retried)
        except Unavailable:
            raise
        except LiminaError:
            self.budget.answered()
            raise
        self.budget.answered()
        return reply

    def call_in_batch(self, kind: str, namespace: str, item: bytes) -> Reply:
        """Sends a check, a hold or a commit: alone, or together with others that are called at the same time."""
        if kind == "check":
            # Here too, because a check must not queue behind a request that hangs.
            self.circuit.refuse_if_open()
        batchers = self._connections.get().batchers
        key = (kind, namespace, self.config.retries)
        batcher = batchers.get(key)
        if batcher is None:

            def send(items: list[bytes]) -> list[Reply | LiminaError]:
                return self._send_batch(kind, namespace, items)

            batcher = batchers.setdefault(key, Batcher(send, self.config.timeout))

        # The request as a whole has its retries already. These are for an item that was answered with 503 in a batch.
        an_item = CHECK if kind == "check" else OTHER
        retries = an_item.retries(self.config, self.budget)
        while True:
            reply = batcher.submit(item)
            try:
                return check_reply(an_item, reply, None, retried=False)
            except Unavailable as error:
                if kind == "check" and self.circuit.is_open:
                    retries.stop()
                sleep(retries.pause(error))

    def _send_batch(self, kind: str, namespace: str, items: list[bytes]) -> list[Reply | LiminaError]:
        request = batch_request(kind, namespace, items)
        try:
            reply = self.call(request)
            return [reply] if len(items) == 1 else [*split_batch(reply, len(items))]
        except LiminaError as error:
            return [copy.copy(error) for _ in items]

    def accepted(self) -> int:
        """How many calls were ever sent or queued for a batch. For tests."""
        return sum(batcher.accepted for batcher in self._connections.get().batchers.values())

    @contextmanager
    def stream(self, stream_path: str, last_event_id: int | None) -> Iterator[httpx2.EventSource]:
        """Opens a stream of server-sent events."""
        headers = {"accept": "text/event-stream"}
        if last_event_id is not None:
            headers["last-event-id"] = str(last_event_id)
        timeout = httpx2.Timeout(self.config.timeout, read=LONGEST_SILENCE)
        http = self._connections.get().http
        try:
            with http.stream("GET", stream_path, headers=headers, timeout=timeout) as response:
                if response.status_code != 200:
                    reply = Reply(response.status_code, response.read())
                    check_reply(Request("GET", stream_path), reply, response.headers.get("retry-after"), retried=False)
                yield httpx2.EventSource(response, max_event_size=None)
        except httpx2.TransportError as error:
            raise_failure(error)

    def close(self) -> None:
        self._connections.get().http.close()


def batch_request(kind: str, namespace: str, items: list[bytes]) -> Request:
    """The request that carries these items."""
    single, batch, name = batch_paths(kind, namespace)
    is_check = kind == "check"
    key = None if is_check else new_key()
    if len(items) == 1:
        return Request("POST", single, items[0], key, repeatable=not is_check, refusal_is_value=is_check, is_check=is_check)
    return Request("POST", batch, join_batch(name, items), key, repeatable=not is_check, is_check=is_check)


@functools.lru_cache(1024)
def batch_paths(kind: str, namespace: str) -> tuple[str, str, str]:
    single, batch, name = BATCHED[kind]
    return path(namespace, single), path(namespace, batch), name


def raise_failure(error: httpx2.TransportError) -> NoReturn:
    """Raises the error for a request that failed on its way: `Invalid` if it could never be sent, and `Unavailable` otherwise."""
    if isinstance(error, httpx2.UnsupportedProtocol):
        raise Invalid(str(error)) from error
    if isinstance(error, httpx2.LocalProtocolError):
        # The text of the original error can contain a header, and so a secret.
        raise Invalid("the request is not valid HTTP, for example because of a line break in a header") from None
    never_sent = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout)
    message = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    raise Unavailable(message, done="no" if never_sent else "unknown") from error
