"""A web API that limits each of its callers: ten requests a second, by their API key.

pip install ./clients/python starlette uvicorn
limina &
python examples/python/web_api.py
curl -i -H 'x-api-key: ann' localhost:8000/
"""

import contextlib
import os
from collections.abc import AsyncIterator, MutableMapping
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from limina import AsyncLimina, Rule, Unavailable, bucket
from limina.asgi import LiminaMiddleware

client = AsyncLimina(os.environ.get("LIMINA_URL", "http://127.0.0.1:7070"), namespace="web-api")


def who(scope: MutableMapping[str, Any]) -> dict[str, str]:
    """The limiter's key-values: the caller's API key, or its address."""
    headers = dict(scope["headers"])
    return {"caller": headers.get(b"x-api-key", scope["client"][0].encode()).decode("latin-1")}


async def index(request: Request) -> JSONResponse:
    return JSONResponse({"hello": "world"})


@contextlib.asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    # PUT creates the rule or replaces it, so every start of every replica may do it.
    try:
        await client.rules.put(Rule("per-caller", limit=10, group_by=["caller"], window=bucket(1, burst=20)))
    except Unavailable as error:
        # The rule of an earlier start is still there. Without one, nothing is limited.
        print("the rule could not be put:", error)
    yield
    await client.aclose()


app = Starlette(
    routes=[Route("/", index)],
    # If Limina is away, requests pass: an hour without limits costs less than an hour without service.
    middleware=[Middleware(LiminaMiddleware, client=client, key_values=who, on_unavailable="allow")],
    lifespan=lifespan,
)

if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")), log_level="info")
