"""Middleware for ASGI applications (Starlette, FastAPI, …): every request is checked before the application sees it.

app.add_middleware(LiminaMiddleware, client=client, key_values=lambda scope: {"client": scope["client"][0]})
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Literal

from ._async.client import AsyncLimina
from ._wire import KeyValues
from .errors import Unavailable
from .types import Decision

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class LiminaMiddleware:
    """Checks each HTTP request. Adds the server's `RateLimit-Policy` and `RateLimit` to its answer, or answers 429 with
    `Retry-After`.

    `key_values(scope)` says what the request is about, or returns `None` for requests without a limit. `on_unavailable` says what
    happens if there is no decision: `"allow"` lets the request pass, `"refuse"` answers 503. Other errors, such as a check that the
    server calls invalid, are raised: they are bugs or missing rights, and must not switch the limits off.

    A request without a decision calls `on_undecided(error, scope)`, and is counted in `client.undecided`. The log `limina` gets one
    warning a minute.

    With `headers=False` the answers have no `RateLimit-Policy` and `RateLimit`, and the checks of concurrent requests travel
    together: the server sends these headers only with a single check.

    The limiter is asked once, without retries: a request that waits for retries costs its user more than `on_unavailable` does.
    """

    def __init__(
        self,
        app: App,
        *,
        client: AsyncLimina,
        key_values: Callable[[Scope], KeyValues | None],
        hits: Callable[[Scope], int] = lambda scope: 1,
        on_unavailable: Literal["allow", "refuse"] = "allow",
        on_undecided: Callable[[Unavailable, Scope], None] | None = None,
        headers: bool = True,
    ) -> None:
        self._app = app
        self._client = client.with_retries(0)
        self._key_values = key_values
        self._hits = hits
        self._on_unavailable = on_unavailable
        self._on_undecided = on_undecided
        self._headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        about = self._key_values(scope) if scope["type"] == "http" else None
        if about is None:
            await self._app(scope, receive, send)
            return
        try:
            decision = await self._client.check(about, self._hits(scope), alone=self._headers)
        except Unavailable as error:
            self._report(error, scope)
            if self._on_unavailable == "allow":
                await self._app(scope, receive, send)
            else:
                await _answer(send, 503, {"retry-after": str(math.ceil(error.retry_after or 1))}, _UNAVAILABLE)
            return
        headers = decision.headers if self._headers else _retry_after(decision)
        if decision.allowed:
            await self._app(scope, receive, _with_headers(send, headers))
        else:
            await _answer(send, 429, headers, _refusal(decision))

    def _report(self, error: Unavailable, scope: Scope) -> None:
        self._client.undecided.count(error, passed=self._on_unavailable == "allow")
        if self._on_undecided is not None:
            try:
                self._on_undecided(error, scope)
            except Exception:
                # The callback only observes: its mistakes must not fail requests.
                logging.getLogger("limina").exception("on_undecided failed")


_UNAVAILABLE = {"title": "Service unavailable", "status": 503, "detail": "The rate limiter cannot be reached."}


def _retry_after(decision: Decision) -> dict[str, str]:
    return {} if decision.retry_after is None else {"retry-after": str(math.ceil(decision.retry_after))}


def _refusal(decision: Decision) -> dict[str, Any]:
    return {
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "A limit is reached",
        "status": 429,
        "code": "LimitReached",
        "violated-policies": decision.violated_policies,
        "retry_after_ms": decision.retry_after_ms,
    }


async def _answer(send: Send, status: int, headers: Mapping[str, str], problem: dict[str, Any]) -> None:
    body = json.dumps(problem).encode()
    fields = {"content-type": "application/problem+json", "content-length": str(len(body)), **headers}
    await send({"type": "http.response.start", "status": status, "headers": _encoded(fields)})
    await send({"type": "http.response.body", "body": body})


def _with_headers(send: Send, headers: Mapping[str, str]) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *_encoded(headers)]}
        await send(message)

    return send_with_headers


def _encoded(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]
