"""Measures what batching brings.

    LIMINA_URL=http://127.0.0.1:7070 python bench.py [--seconds 3] [--rounds 3]

Prints, for asyncio and for threads, the rate of 64 callers that each check one at a time, with a request for each check and with
batching; and the median latency of one caller alone, without batching and with it. "Without" is the same client, whose transport is
called directly. Both sides take turns, so that they see the same machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import statistics
import threading
import time
from collections.abc import Awaitable, Callable

from limina import AsyncLimina, Limina, fixed
from limina._wire import Request, encode, path
from limina.types import Decision

CALLERS = 64
KEY_VALUES = {"tenant": "acme", "route": "/v1/chat"}


def single_check(namespace: str) -> Request:
    """A check that never travels with others."""
    return Request("POST", path(namespace, "limiter/check"), encode({"key_values": KEY_VALUES}), refusal_is_value=True)


Check = Callable[[], object]
AsyncCheck = Callable[[], Awaitable[object]]


async def asyncio_rate(check: AsyncCheck, seconds: float) -> float:
    """Checks a second, by many tasks."""
    done = 0
    end = time.perf_counter() + seconds

    async def caller() -> None:
        nonlocal done
        while time.perf_counter() < end:
            await check()
            done += 1

    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return done / seconds


def threads_rate(check: Check, seconds: float) -> float:
    """Checks a second, by many threads."""
    done = [0] * CALLERS
    end = time.perf_counter() + seconds

    def caller(number: int) -> None:
        while time.perf_counter() < end:
            check()
            done[number] += 1

    threads = [threading.Thread(target=caller, args=(number,)) for number in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / seconds


async def asyncio_latencies(without: AsyncCheck, batched: AsyncCheck, seconds: float) -> tuple[list[float], list[float]]:
    """One caller that takes turns: one check without batching, one with it."""
    latencies: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for check, into in zip((without, batched), latencies, strict=True):
            begun = time.perf_counter()
            await check()
            into.append(time.perf_counter() - begun)
    return latencies


def threads_latencies(without: Check, batched: Check, seconds: float) -> tuple[list[float], list[float]]:
    latencies: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for check, into in zip((without, batched), latencies, strict=True):
            begun = time.perf_counter()
            check()
            into.append(time.perf_counter() - begun)
    return latencies


def report(client: str, rates: list[tuple[float, float]], latencies: tuple[list[float], list[float]]) -> None:
    single, together = (statistics.median(side) for side in zip(*rates, strict=True))
    alone, alone_batched = (statistics.median(side) * 1000 for side in latencies)
    print(
        f"| {client} | {single:,.0f} | {together:,.0f} | {together / single:.1f} | {alone:.3f} | {alone_batched:.3f} |", flush=True
    )


async def measure_asyncio(url: str, namespace: str, seconds: float, rounds: int) -> None:
    async with AsyncLimina(url, namespace=namespace) as client:

        async def without() -> Decision:
            return (await client._namespace.transport.call(single_check(namespace))).read(Decision)

        async def batched() -> Decision:
            return await client.check(KEY_VALUES)

        rates = [(await asyncio_rate(without, seconds), await asyncio_rate(batched, seconds)) for _ in range(rounds)]
        report("asyncio", rates, await asyncio_latencies(without, batched, seconds * rounds))


def measure_threads(url: str, namespace: str, seconds: float, rounds: int) -> None:
    with Limina(url, namespace=namespace) as client:

        def without() -> Decision:
            return client._namespace.transport.call(single_check(namespace)).read(Decision)

        def batched() -> Decision:
            return client.check(KEY_VALUES)

        rates = [(threads_rate(without, seconds), threads_rate(batched, seconds)) for _ in range(rounds)]
        report("threads", rates, threads_latencies(without, batched, seconds * rounds))


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures what batching brings.")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is repeated; the medians are printed")
    arguments = parser.parse_args()
    url = os.environ.get("LIMINA_URL", "http://127.0.0.1:7070")
    namespace = f"bench-{secrets.token_hex(4)}"
    with Limina(url, namespace=namespace) as client:
        client.rules.create("per-tenant", group_by=["tenant"], limit=2**53 - 1, window=fixed(60))
    print(f"| client | {CALLERS} callers, one request each: checks/s | batched: checks/s | factor | one caller, ms | batched, ms |")
    print("|---|---|---|---|---|---|")
    asyncio.run(measure_asyncio(url, namespace, arguments.seconds, arguments.rounds))
    measure_threads(url, namespace, arguments.seconds, arguments.rounds)


if __name__ == "__main__":
    main()
