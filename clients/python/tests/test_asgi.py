"""The middleware for ASGI, with a Starlette application."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from limina import AsyncLimina, Unavailable, bucket, fixed
from limina.asgi import LiminaMiddleware

from .conformance import closed_port

pytestmark = pytest.mark.smoke


async def hello(request: Request) -> Response:
    return PlainTextResponse("hello")


def application(client: AsyncLimina, **options: Any) -> Starlette:
    def key_values(scope: Any) -> dict[str, str] | None:
        return None if scope["path"] == "/health" else {"path": scope["path"]}

    middleware = [Middleware(LiminaMiddleware, client=client, key_values=key_values, **options)]
    return Starlette(routes=[Route("/", hello), Route("/health", hello)], middleware=middleware)


async def get(app: Starlette, *paths: str) -> list[httpx2.Response]:
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://app") as http:
        return [await http.get(path) for path in paths]


def test_allowed_and_refused(server: str, namespace: str) -> None:
    async def run() -> list[httpx2.Response]:
        async with AsyncLimina(f"http://{server}", namespace=namespace, timeout=20, breaker=None) as client:
            await client.rules.create("per-path", group_by=["path"], limit=1, window=fixed(86_400))
            await client.rules.create("rate", group_by=["path"], limit=60, window=bucket(3600, burst=5))
            return await get(application(client), "/", "/", "/health")

    allowed, refused, health = asyncio.run(run())
    assert allowed.text == "hello"
    assert allowed.headers["ratelimit-policy"] == '"per-path";q=1;w=86400, "rate";q=60;w=3600;burst=5'
    assert allowed.headers["ratelimit"].startswith('"per-path";r=0;t=')
    assert '"rate";r=4;t=' in allowed.headers["ratelimit"]
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) > 0
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.json()["violated-policies"] == ["per-path"]
    assert health.status_code == 200
    assert "ratelimit" not in health.headers


def test_without_headers_a_refusal_still_says_when_to_retry(server: str, namespace: str) -> None:
    async def run() -> list[httpx2.Response]:
        async with AsyncLimina(f"http://{server}", namespace=namespace, timeout=20, breaker=None) as client:
            await client.rules.create("per-path", group_by=["path"], limit=1, window=fixed(86_400))
            return await get(application(client, headers=False), "/", "/")

    allowed, refused = asyncio.run(run())
    assert "ratelimit" not in allowed.headers
    assert (refused.status_code, refused.json()["violated-policies"]) == (429, ["per-path"])
    assert int(refused.headers["retry-after"]) > 0
    assert "ratelimit" not in refused.headers


def test_without_a_decision() -> None:
    reports = []

    def report(error: Unavailable, scope: Any) -> None:
        reports.append((error.done, scope["path"]))
        raise RuntimeError("a mistake in the callback fails no request")

    async def run() -> list[httpx2.Response]:
        async with AsyncLimina(f"http://{closed_port()}", retries=0) as client:
            allowing = application(client, on_undecided=report)
            answers = [*await get(allowing, "/"), *await get(application(client, on_unavailable="refuse"), "/")]
            assert (client.undecided.passed, client.undecided.refused) == (1, 1)
            return answers

    allowed, refused = asyncio.run(run())
    assert reports == [("no", "/")]
    assert allowed.text == "hello"
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "1"


def test_the_limiter_is_asked_once_and_not_while_the_breaker_is_open() -> None:
    asked = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 0\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        writer.close()

    async def run() -> list[httpx2.Response]:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as busy:
            port = busy.sockets[0].getsockname()[1]
            async with AsyncLimina(f"http://127.0.0.1:{port}", retries=5) as client:
                return await get(application(client), *["/"] * 7)

    answers = asyncio.run(run())
    assert [answer.text for answer in answers] == ["hello"] * 7
    assert asked == 5  # Once for each request, until the circuit breaker opens.
