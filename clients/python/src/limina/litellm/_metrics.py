"""What the hook counts."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

HELP = {
    "decided": "Calls that were allowed by a decision.",
    "refused": "Calls that a budget or a limit refused.",
    "unavailable_allowed": "Calls that passed without a decision, because none could be had.",
    "unavailable_refused": "Calls that were refused, because no decision could be had.",
    "price_unknown_refused": "Calls that were refused, because their price is not known.",
    "price_unknown_estimated": "Calls that were booked at the price of the settings, because their own is not known.",
    "not_limited": "Calls that cost money and cannot be limited, such as images, that were allowed to pass.",
    "estimates_worst": "Calls whose answer was reserved at the most that it may take.",
    "estimates_learned": "Calls whose answer was reserved at what similar calls took.",
    "estimates_learned_ended": "Those of them that have been answered to the end.",
    "estimates_learned_covered": "Those of them whose answer took no more than was reserved.",
    "usage_reported": "Calls that were booked with the use that the provider reported.",
    "usage_counted": "Calls that were booked with what arrived, as LiteLLM counts it.",
    "usage_estimated": "Calls that were booked as estimated, because they ended without an answer.",
    "streams_broken": "Streams that the provider, the network or a timeout ended.",
    "streams_abandoned": "Streams that their reader left.",
    "settled": "Calls whose use was booked, or that were rolled back.",
    "settled_late": "Calls that had passed without a decision, and were booked afterwards.",
    "settle_retries": "Attempts to book that failed and were repeated.",
    "settle_failed": "Calls whose use was not booked. The log says why.",
}


class Metrics:
    """Counters of this process. Register the object with a registry of `prometheus_client`, or read `snapshot()`."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        # Reentrant: a finalizer that counts may run while this thread counts.
        self._lock = threading.RLock()

    def count(self, name: str, by: int = 1) -> None:
        assert name in HELP
        with self._lock:
            self._counts[name] += by

    def snapshot(self) -> dict[str, int]:
        return {name: self._counts[name] for name in HELP}

    @property
    def coverage(self) -> float | None:
        """The share of the learned estimates that were enough. About 0.95 if calls are like the ones before them."""
        counts = self.snapshot()
        ended = counts["estimates_learned_ended"]
        return counts["estimates_learned_covered"] / ended if ended else None

    def collect(self) -> Iterator[Any]:
        """For `prometheus_client`."""
        from prometheus_client.core import CounterMetricFamily

        for name, value in self.snapshot().items():
            yield CounterMetricFamily(f"limina_litellm_{name}", HELP[name], value=value)

    def after_fork(self) -> None:
        self._lock = threading.RLock()
        self._counts = Counter()
