"""Measures what batching brings.

    LIMINA_URL=http://127.0.0.1:7070 python bench.py [--seconds 3] [--rounds 3]

Prints, for asyncio and for threads, the rate of 64 callers that each check one at a time, with batching and with a request for each
check; and the latency of one caller alone, with batching and without. "Without" is the same client, calling its transport directly.
Rounds alternate, so that both sides see the same machine.
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


async def asyncio_rate(check: Callable[[], Awaitable[object]], callers: int, seconds: float) -> tuple[float, float]:
    """Checks a second, and the median latency in milliseconds."""
    latencies: list[float] = []
    end = time.perf_counter() + seconds

    async def caller() -> None:
        while (begun := time.perf_counter()) < end:
            await check()
            latencies.append(time.perf_counter() - begun)

    await asyncio.gather(*(caller() for _ in range(callers)))
    return len(latencies) / seconds, statistics.median(latencies) * 1000


def threads_rate(check: Callable[[], object], callers: int, seconds: float) -> tuple[float, float]:
    latencies: list[list[float]] = [[] for _ in range(callers)]
    end = time.perf_counter() + seconds

    def caller(mine: list[float]) -> None:
        while (begun := time.perf_counter()) < end:
            check()
            mine.append(time.perf_counter() - begun)

    threads = [threading.Thread(target=caller, args=(mine,)) for mine in latencies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    together = [latency for mine in latencies for latency in mine]
    return len(together) / seconds, statistics.median(together) * 1000


Measurement = dict[tuple[str, int, bool], list[tuple[float, float]]]


async def measure_asyncio(url: str, namespace: str, seconds: float, rounds: int, into: Measurement) -> None:
    async with AsyncLimina(url, namespace=namespace) as client:
        request = single_check(namespace)

        async def without() -> Decision:
            return (await client._namespace.transport.call(request)).read(Decision)

        async def batched() -> Decision:
            return await client.check(KEY_VALUES)

        for _ in range(rounds):
            for callers in (CALLERS, 1):
                for batching, check in ((False, without), (True, batched)):
                    result = await asyncio_rate(check, callers, seconds)
                    into.setdefault(("asyncio", callers, batching), []).append(result)


def measure_threads(url: str, namespace: str, seconds: float, rounds: int, into: Measurement) -> None:
    with Limina(url, namespace=namespace) as client:
        request = single_check(namespace)

        def without() -> Decision:
            return client._namespace.transport.call(request).read(Decision)

        def batched() -> Decision:
            return client.check(KEY_VALUES)

        for _ in range(rounds):
            for callers in (CALLERS, 1):
                for batching, check in ((False, without), (True, batched)):
                    result = threads_rate(check, callers, seconds)
                    into.setdefault(("threads", callers, batching), []).append(result)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures what batching brings.")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is repeated; the medians are printed")
    arguments = parser.parse_args()
    url = os.environ.get("LIMINA_URL", "http://127.0.0.1:7070")
    namespace = f"bench-{secrets.token_hex(4)}"
    with Limina(url, namespace=namespace) as client:
        client.rules.create("per-tenant", group_by=["tenant"], limit=2**53 - 1, window=fixed(60))
    results: Measurement = {}
    asyncio.run(measure_asyncio(url, namespace, arguments.seconds, arguments.rounds, results))
    measure_threads(url, namespace, arguments.seconds, arguments.rounds, results)

    print("| client | callers | batching | checks/s | median ms | factor |")
    print("|---|---|---|---|---|---|")
    for (client_name, callers, batching), measured in results.items():
        rate = statistics.median(rate for rate, _ in measured)
        latency = statistics.median(latency for _, latency in measured)
        base = statistics.median(rate for rate, _ in results[(client_name, callers, False)])
        print(f"| {client_name} | {callers} | {'yes' if batching else 'no'} | {rate:,.0f} | {latency:.2f} | {rate / base:.2f} |")


if __name__ == "__main__":
    main()
