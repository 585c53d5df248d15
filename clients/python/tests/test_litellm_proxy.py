"""Budgets in the real proxy of LiteLLM, with a provider that bills what it sends."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx2
import pytest

if find_spec("litellm") is None:
    pytest.skip("litellm is only installed for the full run", allow_module_level=True)

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

from limina import Limina
from limina.types import Entry

from . import llm_gateway
from .llm_gateway import Process
from .llm_provider import Provider

pytestmark = pytest.mark.long

DOLLAR = 1_000_000_000
TOTAL = "budget/all/total"
# About 400 calls cost a dollar, and 200 calls at the same time may cost $1.7.
PRICE = (25_000, 400_000)
LONGEST = 20
KEY = {"authorization": "Bearer sk-ann-research"}


def message(call: int, how: str, **more: int) -> list[dict[str, str]]:
    told = " ".join(f"{name}={value}" for name, value in {"call": call, "how": how, **more}.items())
    return [{"role": "user", "content": told}]


def body(call: int, how: str, *, stream: bool, most: int, **more: int) -> dict[str, Any]:
    return {"model": "chat", "user": f"call-{call}", "max_tokens": most, "stream": stream, "messages": message(call, how, **more)}


class Booked:
    """What Limina has booked: each call has a budget of its own beside the common one."""

    def __init__(self, url: str, namespace: str) -> None:
        self._client = Limina(url, namespace=namespace, timeout=10)

    def total(self) -> int:
        return self._client.ledger.limit(TOTAL).commit_value

    def wait_until_all_have_ended(self) -> None:
        deadline = time.monotonic() + 60
        while self._client.ledger.limit(TOTAL).hold_value > 0:
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def by_call(self) -> dict[int, int]:
        found: dict[int, int] = {}
        after = None
        while True:
            page = self._client.ledger.limits(limit=1000, after=after)
            for limit in page.items:
                if limit.name.startswith("budget/end_user=call-"):
                    found[int(limit.name.split("-")[1].split("/")[0])] = limit.commit_value
            if (after := page.next) is None:
                return found

    def history(self) -> list[Entry]:
        found: list[Entry] = []
        after = None
        while True:
            page = self._client.ledger.entries(TOTAL, limit=1000, after=after)
            found += page.items
            if (after := page.next) is None:
                return found


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    provider = Provider()
    yield provider
    provider.close()


COMMON = """
namespace = "gateway"
[[budget]]
for = "all"
usd = 1
period = "total"
[[budget]]
for = "end_user"
usd = 1
period = "total"
"""
SETTINGS = f"""{COMMON}
[[budget]]
for = "user"
usd = 0.9
period = "month"
"""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, provider: Provider) -> Iterator[tuple[Process, Booked]]:
    folder = tmp_path_factory.mktemp("gateway")
    server = llm_gateway.limina(folder)
    server.start()
    proxy = llm_gateway.proxy(folder, settings=SETTINGS, provider=provider.url, limina=server.url)
    proxy.start()
    yield proxy, Booked(server.url, "gateway")
    proxy.kill()
    server.kill()


def booked_at_once(booked: Booked, provider: Provider, call: int) -> int:
    """What a call has cost, when it has been booked. No `ttl` has passed by then."""
    deadline = time.monotonic() + 10
    while (booked.by_call().get(call), provider.open) != (provider.bills.get(call, 0), 0) and time.monotonic() < deadline:
        time.sleep(0.05)
    return booked.by_call()[call]


@pytest.mark.parametrize(
    ("call", "how", "stream"),
    [(1, "plain", False), (2, "silent", False), (3, "plain", True), (4, "silent", True), (5, "break", True), (6, "fail", False)],
)
def test_a_call_is_booked_as_it_is_billed(
    gateway: tuple[Process, Booked], provider: Provider, call: int, how: str, stream: bool
) -> None:
    proxy, booked = gateway
    asked = body(call, how, stream=stream, most=50, answer=30, send=7 if how == "break" else 30)
    with httpx2.stream("POST", f"{proxy.url}/v1/chat/completions", json=asked, headers=KEY, timeout=60) as answer:
        assert answer.status_code == (500 if how == "fail" else 200)
        read = 0
        for line in answer.iter_lines():
            read += '"content"' in line
            if read == 7:
                provider.has_read(call).set()
    assert (provider.bills.get(call, 0) > 0) == (how != "fail")
    assert booked_at_once(booked, provider, call) == provider.bills.get(call, 0)


def test_a_stream_whose_reader_leaves_is_booked_at_once_by_what_arrived(
    gateway: tuple[Process, Booked], provider: Provider
) -> None:
    proxy, booked = gateway
    asked = body(7, "stall", stream=True, most=50, answer=30, send=9)
    with httpx2.stream("POST", f"{proxy.url}/v1/chat/completions", json=asked, headers=KEY, timeout=60) as answer:
        lines = (line for line in answer.iter_lines() if line.startswith("data:"))
        for _ in range(9):
            next(lines)
    assert booked_at_once(booked, provider, 7) == provider.bills[7] > 0


def test_a_refusal_is_429_and_says_which_budget_and_until_when(gateway: tuple[Process, Booked], provider: Provider) -> None:
    proxy, _ = gateway
    began, made = time.monotonic(), provider.calls
    asked = body(8, "plain", stream=False, most=89_900)
    answer = httpx2.post(f"{proxy.url}/v1/chat/completions", json=asked, headers=KEY, timeout=60)
    assert answer.status_code == 429
    assert "budget/user=ann/" in answer.json()["error"]["message"]
    assert "until 20" in answer.json()["error"]["message"]
    assert int(answer.headers["retry-after"]) > 0
    # The router would retry it for seconds.
    assert time.monotonic() - began < 2
    assert provider.calls == made


def test_the_metadata_of_a_team_has_its_budget_and_its_limit(gateway: tuple[Process, Booked]) -> None:
    proxy, _ = gateway
    headers = {"authorization": "Bearer sk-bob-metered"}
    # A client cannot give itself another budget.
    forged = {"limina": {"team": "research", "budgets": [{"usd": 100}]}, "user_api_key_auth": {"team_id": "research"}}
    asked = {**body(9, "plain", stream=False, most=60_000), "metadata": forged}
    answer = httpx2.post(f"{proxy.url}/v1/chat/completions", json=asked, headers=headers, timeout=60)
    assert answer.status_code == 429
    assert "budget/team=metered/" in answer.json()["error"]["message"]
    assert "of $0.5 is left" in answer.json()["error"]["message"]
    assert "litellm/tokens/team/60s: 0 of 100 tokens are used by team metered" in answer.json()["error"]["message"]


@dataclass
class Run:
    """What the clients have seen."""

    proxy: Process
    provider: Provider
    made: int = 0
    sure: set[int] = field(default_factory=set)
    """Calls that the clients saw end: with an answer, an error, or because they left."""
    refused: set[int] = field(default_factory=set)
    unsure: set[int] = field(default_factory=set)
    """Calls that were under way when the gateway died."""
    hows: dict[int, str] = field(default_factory=dict)
    up: asyncio.Event = field(default_factory=asyncio.Event)
    left_at: dict[int, float] = field(default_factory=dict)

    async def client(self, http: httpx2.AsyncClient, most: int, chance: random.Random) -> None:
        while self.made < most:
            await self.up.wait()
            self.made += 1
            call = self.made
            stream = call % 3 == 0
            how = chance.choice(["plain", "silent", "break", "stall"] if stream else ["plain", "plain", "silent", "fail"])
            answer = chance.choices([2, 4, 6, 8, LONGEST], [20, 40, 20, 16, 4])[0]
            send = chance.randint(1, answer) if how in ("break", "stall") else answer
            asked = body(call, how, stream=stream, most=LONGEST, answer=answer, send=send, pause=chance.randint(0, 300))
            self.hows[call] = how
            try:
                if stream:
                    await self._stream(http, call, asked, how, send)
                else:
                    self._note(call, (await http.post("/v1/chat/completions", json=asked)).status_code)
            except httpx2.TransportError:
                self.unsure.add(call)
            if call not in self.sure:
                await asyncio.sleep(chance.random())

    def _note(self, call: int, status: int) -> None:
        (self.refused if status in (429, 503) else self.sure).add(call)

    async def _stream(self, http: httpx2.AsyncClient, call: int, asked: dict[str, Any], how: str, send: int) -> None:
        async with http.stream("POST", "/v1/chat/completions", json=asked) as answer:
            if answer.status_code != 200:
                self._note(call, answer.status_code)
                return
            read = 0
            async for line in answer.aiter_lines():
                read += line.startswith("data: {") and '"content"' in line
                if line.startswith(("data: [DONE]", 'data: {"error"')):
                    self.sure.add(call)
                    return
                if read == send and how == "break":
                    self.provider.has_read(call).set()
                if read == send and how == "stall":
                    self.left_at[call] = time.monotonic()
                    return
            self.unsure.add(call)


async def interrupt(run: Run, most: int, server: Process, killed: list[float]) -> None:
    """Kills the server, the gateway, and the server again."""
    for part, process in ((0.2, server), (0.5, run.proxy), (0.8, server)):
        while run.made < most * part:
            await asyncio.sleep(0.05)
        if process is run.proxy:
            # What the gateway could not book while the server was away is booked by now.
            await asyncio.sleep(5)
            killed.append(time.monotonic())
            run.up.clear()
        process.kill()
        await asyncio.to_thread(process.start)
        run.up.set()


@pytest.mark.parametrize("estimate", ["worst", "learned"])
def test_no_budget_is_exceeded_whatever_dies(tmp_path: Path, estimate: str) -> None:
    provider = Provider(PRICE)
    settings = f'estimate = "{estimate}"\nttl = "3s"\n{COMMON}'
    server = llm_gateway.limina(tmp_path)
    server.start()
    asked, answered = (f"{price / DOLLAR:.9f}" for price in PRICE)
    prices = f"input_cost_per_token: {asked}\n      output_cost_per_token: {answered}"
    proxy = llm_gateway.proxy(tmp_path, settings=settings, provider=provider.url, limina=server.url, prices=prices)
    proxy.start()
    run, most, killed = Run(proxy, provider), 1000, list[float]()

    async def play() -> None:
        limits = httpx2.Limits(max_connections=None)
        async with httpx2.AsyncClient(base_url=proxy.url, headers=KEY, timeout=60, limits=limits) as http:
            clients = [run.client(http, most, random.Random(number)) for number in range(200)]
            await asyncio.gather(interrupt(run, most, server, killed), *clients)

        print(f"in {time.monotonic() - began:.0f} s, provider {provider.calls}")

    began = time.monotonic()
    run.up.set()
    asyncio.run(play())
    booked = Booked(server.url, "gateway")
    booked.wait_until_all_have_ended()
    try:
        judge(run, provider, booked, killed, estimate)
    finally:
        proxy.kill()
        server.kill()
        provider.close()


def judge(run: Run, provider: Provider, booked: Booked, killed: list[float], estimate: str) -> None:
    total, by_call, bills = booked.total(), booked.by_call(), provider.bills
    for call, at in run.left_at.items():
        # The gateway needs a moment to see that the reader has left.
        lost = any(at <= death < at + 3 for death in killed)
        (run.unsure if lost else run.sure).add(call)
    wrong = {
        call: (run.hows[call], by_call.get(call, 0), bills.get(call, 0))
        for call in run.sure
        if by_call.get(call, 0) != bills.get(call, 0)
    }
    print(
        f"{estimate}: {run.made} calls: {len(run.sure)} ended, {len(run.left_at)} of them abandoned, {len(run.refused)} refused, "
        f"{len(run.unsure)} died with the gateway; booked {total}, billed {sum(bills.values())}"
    )
    assert not wrong, wrong
    assert all(by_call.get(call, 0) == bills.get(call, 0) == 0 for call in run.refused)
    # A call that died with the gateway was booked before, or its reservation has expired.
    assert all(by_call.get(call, 0) in (0, bills.get(call, 0)) for call in run.unsure)
    assert total == sum(by_call.values())
    assert total <= DOLLAR + overshoot(booked.history(), estimate)
    assert len(run.sure) > 200
    assert len(run.refused) > 20


def overshoot(history: list[Entry], estimate: str) -> int:
    """At the last hold: by how much more the calls that were open then were booked than they had reserved."""
    reserved = {entry.operation_id: entry.value for entry in history if entry.type == "hold"}
    actual = {entry.operation_id: entry.value for entry in history if entry.type in ("commit", "overage")}
    last = max(entry.position for entry in history if entry.type == "hold")
    ended = {entry.operation_id for entry in history if entry.type != "hold" and entry.position <= last}
    over = {name: actual.get(name, 0) - value for name, value in reserved.items() if name not in ended}
    if estimate == "worst":
        assert all(actual.get(name, 0) <= value for name, value in reserved.items())
    return sum(excess for excess in over.values() if excess > 0)
