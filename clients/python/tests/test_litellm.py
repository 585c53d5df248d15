"""The hook for LiteLLM. LiteLLM mocks the model, and a fake of the decisions says what the hook has asked for: so each test decides
what is refused. The example `llm_gateway.py` does the same with the real server."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from typing import Any

import pytest

from limina import AsyncLimina, Hold

from .conformance import closed_port

if find_spec("litellm") is None:
    pytest.skip("litellm is only installed for the full run", allow_module_level=True)

# The prices of the models come from the package, not from the network.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import litellm

from limina.litellm import LiminaHook

# LiteLLM reports the end of a stream from a task that belongs to the first event loop of the process.
LOOP = asyncio.new_event_loop()
MESSAGES = [{"role": "user", "content": "What is a fencing token?"}]


class Decisions:
    """A fake of the server's decisions: remembers what it was asked."""

    def __init__(self) -> None:
        self.refuses = False
        self.decided: list[dict[str, Any]] = []
        self.ended: list[tuple[str, dict[str, Any]]] = []
        decisions = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                status, answer = decisions.answer(self.path.split("/decisions")[1], body)
                payload = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

            def log_message(self, *arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if not path:
            if self.refuses:
                return 429, {"status": 429, "code": "Refused", "title": "Refused", "refused_by": ["limits"]}
            self.decided.append(body)
            return 200, status(body["operation_id"], "open", fencing_token=1, expires_in_ms=body["ttl_ms"])
        _, operation_id, how = path.split("/")
        assert operation_id == self.decided[-1]["operation_id"]
        self.ended.append((how, body))
        return 200, status(operation_id, "committed" if how == "commit" else "rolled_back")


def status(operation_id: str, state: str, **more: Any) -> dict[str, Any]:
    always = {"repeated": False, "late": False, "held_ms": 0, "ttl_ms": 60_000}
    return {"operation_id": operation_id, "state": state, **always, **more}


@pytest.fixture
def decisions() -> Iterator[Decisions]:
    decisions = Decisions()
    yield decisions
    decisions.server.shutdown()
    # LiteLLM would go on to report to the hook of this test.
    litellm.logging_callback_manager._reset_all_callbacks()


def play(url: str, calls: Callable[[], Awaitable[object]], **options: Any) -> None:
    """Runs the calls with the hook in place."""

    async def run() -> None:
        async with AsyncLimina(url, retries=0, timeout=20) as client:
            litellm.callbacks = [LiminaHook(client, key_values=lambda call: {"user": call["user"]}, **options)]
            await calls()

    LOOP.run_until_complete(asyncio.wait_for(run(), 60))


def completion(**options: Any) -> Any:
    return litellm.acompletion(model="gpt-4o", user="ann", messages=MESSAGES, max_tokens=500, mock_response="A number.", **options)


def test_the_actual_use_is_committed(decisions: Decisions) -> None:
    async def calls() -> None:
        answer = await completion()
        used = answer.usage.total_tokens
        assert decisions.ended[0][1]["checks"] == [{"name": "tokens", "hits": used}]

    play(decisions.url, calls)
    requests, tokens = decisions.decided[0]["checks"]
    assert requests["key_values"] == {"user": "ann", "meter": "requests"}
    assert tokens["key_values"] == {"user": "ann", "meter": "tokens"}
    assert tokens["hits"] > 500
    assert tokens["estimate"] is True
    assert [how for how, _ in decisions.ended] == ["commit"]
    assert decisions.ended[0][1]["record"] is True


def test_the_cost_is_booked_in_a_budget(decisions: Decisions) -> None:
    play(decisions.url, completion, budget=lambda call: Hold("budget/team", 10_000))
    assert decisions.decided[0]["holds"] == [{"limit_name": "budget/team", "value": 10_000}]
    (hold,) = decisions.ended[0][1]["holds"]
    assert hold["limit_name"] == "budget/team"
    assert 0 < hold["value"] < 10_000


def test_a_stream_is_settled_at_its_end(decisions: Decisions) -> None:
    async def calls() -> None:
        async for _ in await completion(stream=True):
            assert decisions.ended == []
        while not decisions.ended:  # LiteLLM reports the end of a stream in the background.
            await asyncio.sleep(0.01)

    play(decisions.url, calls)
    assert [how for how, _ in decisions.ended] == ["commit"]
    assert decisions.ended[0][1]["checks"][0]["hits"] > 0


def test_a_failed_call_is_rolled_back(decisions: Decisions) -> None:
    async def calls() -> None:
        with pytest.raises(litellm.InternalServerError):
            await litellm.acompletion(
                model="gpt-4o", user="ann", messages=MESSAGES, mock_response="litellm.InternalServerError", num_retries=0
            )

    play(decisions.url, calls)
    assert [how for how, _ in decisions.ended] == ["rollback"]


def test_a_refused_call_is_not_made(decisions: Decisions) -> None:
    decisions.refuses = True

    async def calls() -> None:
        with pytest.raises(litellm.RateLimitError):
            await completion(num_retries=0)

    play(decisions.url, calls)
    assert decisions.ended == []


def test_without_a_decision_a_call_passes_unless_it_has_a_budget(decisions: Decisions) -> None:
    async def passes() -> None:
        assert (await completion()).choices[0].message.content == "A number."

    async def fails() -> None:
        with pytest.raises(litellm.ServiceUnavailableError):
            await completion(num_retries=0)

    away = f"http://{closed_port()}"
    play(away, passes)
    play(away, fails, on_unavailable="refuse")
    play(away, fails, budget=lambda call: Hold("budget/team", 10_000))
