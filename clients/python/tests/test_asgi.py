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

from limina import AsyncLimina, Decision, LimitStatus, fixed
from limina._headers import rate_limit_headers
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
        async with AsyncLimina(f"http://{server}", namespace=namespace, timeout=20) as client:
            await client.rules.create("per-path", group_by=["path"], limit=1, window=fixed(86_400))
            return await get(application(client), "/", "/", "/health")

    allowed, refused, health = asyncio.run(run())
    assert allowed.text == "hello"
    assert allowed.headers["ratelimit-policy"] == '"per-path";q=1'
    assert allowed.headers["ratelimit"].startswith('"per-path";r=0;t=')
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) > 0
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.json()["violated-policies"] == ["per-path"]
    assert health.status_code == 200
    assert "ratelimit" not in health.headers


def test_without_a_decision() -> None:
    async def run() -> list[httpx2.Response]:
        async with AsyncLimina(f"http://{closed_port()}", retries=0) as client:
            return [*await get(application(client), "/"), *await get(application(client, on_unavailable="refuse"), "/")]

    allowed, refused = asyncio.run(run())
    assert allowed.text == "hello"
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "1"


def test_the_limiter_is_asked_once() -> None:
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
                return await get(application(client), "/")

    (allowed,) = asyncio.run(run())
    assert allowed.text == "hello"
    assert asked == 1


def limit_status(rule: str, limit: int, used: int, exceeded: bool, shadow: bool = False, **more: Any) -> LimitStatus:
    return LimitStatus(rule=rule, group={}, limit=limit, used=used, exceeded=exceeded, shadow=shadow, waiting=0, **more)


def test_headers_name_the_tightest_limits_first() -> None:
    limits = [
        limit_status('wide "ü"', 100, 1, False, remaining=99, reset_ms=1500),
        limit_status("tight", 10, 9, False, override="acme", remaining=1),
        limit_status("shadow", 1, 1, True, remaining=0, shadow=True),
        limit_status("unlimited", -1, 5, False),
    ]
    assert rate_limit_headers(Decision(allowed=True, limits=limits)) == {
        "ratelimit-policy": '"tight/acme";q=10, "wide %22%C3%BC%22";q=100',
        "ratelimit": '"tight/acme";r=1, "wide %22%C3%BC%22";r=99;t=2',
    }
    exceeded = limit_status("slow", 2, 2, True, remaining=0, reset_ms=10_000)
    assert rate_limit_headers(Decision(allowed=False, limits=[exceeded], retry_after_ms=5001)) == {
        "ratelimit-policy": '"slow";q=2',
        "ratelimit": '"slow";r=0;t=6',
        "retry-after": "6",
    }
