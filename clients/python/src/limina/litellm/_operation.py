"""A call that is under way, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

import httpx
import litellm
import openai

from .._keeper import Grant
from ..types import Check, Hold
from ._caller import Caller
from ._metrics import Metrics
from ._settings import Budget
from ._settler import Late, Settlement, Settler
from ._tokens import Estimate, Learned, Model, Use, use_of_answer, use_of_chunks

log = logging.getLogger("limina.litellm")
# The request has not left, so it costs nothing.
UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, ConnectionRefusedError)
# The request has left, and its answer has not come: nobody knows what the provider bills.
UNANSWERED = (
    asyncio.CancelledError,
    GeneratorExit,
    KeyboardInterrupt,
    SystemExit,
    TimeoutError,
    ConnectionError,
    httpx.TransportError,
    openai.APIConnectionError,
    litellm.Timeout,
)


class Guard(Protocol):
    """An open decision: that of `Limina` or of `AsyncLimina`."""

    _grant: Grant


@dataclass(frozen=True, slots=True)
class Plan:
    """What a call asks for."""

    kind: str
    caller: Caller
    model: Model
    estimate: Estimate
    budgets: Mapping[str, Budget]
    """By the name of their limit in the ledger."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that are added to the call."""

    def checks(self) -> list[Check]:
        who = self.caller.who
        return [
            Check({**who, "meter": "requests"}, name="requests"),
            Check({**who, "meter": "parallel"}, name="parallel"),
            Check(self.tokens_about(), hits=self.estimate.tokens, name="tokens", estimate=True),
        ]

    def tokens_about(self) -> dict[str, Any]:
        return {**self.caller.who, "meter": "tokens"}

    def holds(self) -> list[Hold]:
        return [Hold(name, self.estimate.cost, ceiling=budget.ceiling) for name, budget in self.budgets.items()]


class Operation:
    """Ends once. Until then the guard's heartbeats keep what the call has reserved."""

    def __init__(
        self, operation_id: str, plan: Plan, guard: Guard | None, *, settler: Settler, learned: Learned, metrics: Metrics
    ) -> None:
        """Without a `guard` the call passes without a decision."""
        self._operation_id = operation_id
        self.plan = plan
        self._guard = guard
        self._settler = settler
        self._learned = learned
        self._metrics = metrics
        self._pid = os.getpid()
        # Popped by whoever ends it: a finalizer may run at any time, so a lock could wait for itself.
        self._open = [True]

    @property
    def ended(self) -> bool:
        return not self._open

    def answered(self, response: Any) -> Future[None] | None:
        """The whole answer is here."""
        if _from_cache(response):
            return self._end(lambda: None)
        return self._end(lambda: self._completed(use_of_answer(self.plan.model, self.plan.estimate.counted_prompt, response)))

    def stream_ended(self, chunks: Iterable[Any]) -> Future[None] | None:
        return self._end(lambda: self._completed(self._arrived(chunks, complete=True)))

    def stream_broke(self, chunks: Iterable[Any], error: BaseException | None) -> Future[None] | None:
        """The stream has ended early. Without an error its reader has left."""
        left = error is None or isinstance(error, asyncio.CancelledError | GeneratorExit)
        if not self.ended:
            self._metrics.count("streams_abandoned" if left else "streams_broken")
        return self._end(lambda: self._arrived(chunks, complete=False))

    def failed(self, error: BaseException) -> Future[None] | None:
        """There is no answer."""
        causes = list(_chain(error))
        if any(isinstance(cause, UNSENT) for cause in causes) or not any(isinstance(cause, UNANSWERED) for cause in causes):
            return self._end(lambda: None)
        return self._end(self._unknown)

    def from_cache(self) -> Future[None] | None:
        return self._end(lambda: None)

    def _end(self, used: Callable[[], Use | None]) -> Future[None] | None:
        """Returns what to wait for. Runs in finalizers too, so it must neither wait nor raise."""
        try:
            self._open.pop()
        except IndexError:
            return None
        if self._pid != os.getpid():
            return None  # The process was forked while the call was open: the parent books it.
        late = None
        if self._guard is not None:
            self._guard._grant.end()
        else:
            late = Late(self.plan.holds(), self.plan.tokens_about())
        settlement = Settlement(self._operation_id, self._surely(used), tuple(self.plan.budgets), late)
        self._settler.submit(settlement)
        return settlement.done if late is None else None

    def _surely(self, used: Callable[[], Use | None]) -> Callable[[], Use | None]:
        """A response of an unexpected form must not make a call free."""

        def compute() -> Use | None:
            try:
                return used()
            except Exception:
                log.exception("the use of a call cannot be read, so it is booked as estimated")
                return self._unknown()

        return compute

    def _unknown(self) -> Use:
        self._metrics.count("usage_estimated")
        expected = self.plan.estimate
        return Use(expected.prompt, expected.completion, expected.cost, reported=False)

    def _arrived(self, chunks: Iterable[Any], *, complete: bool) -> Use:
        use = use_of_chunks(self.plan.model, self.plan.estimate.counted_prompt, chunks, complete=complete)
        if not complete:
            self._metrics.count("usage_reported" if use.reported else "usage_counted")
        return use

    def _completed(self, use: Use) -> Use:
        self._metrics.count("usage_reported" if use.reported else "usage_counted")
        expected = self.plan.estimate
        if expected.learned:
            self._metrics.count("estimates_learned_ended")
            self._metrics.count("estimates_learned_covered", use.completion <= expected.completion)
        self._learned.learn(self.plan.model.name, self.plan.caller.who.get("key"), use.completion)
        return use


def _from_cache(response: Any) -> bool:
    hidden = getattr(response, "_hidden_params", None)
    return isinstance(hidden, Mapping) and hidden.get("cache_hit") is True


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


async def settled(done: Future[None] | None, most: float) -> None:
    """Waits until the use is booked, so that an answer implies it. While the server is away it is booked later."""
    if done is not None:
        await asyncio.wait([asyncio.wrap_future(done)], timeout=most)


def settled_now(done: Future[None] | None, most: float) -> None:
    """The same for threads."""
    if done is not None:
        with contextlib.suppress(TimeoutError):
            done.result(timeout=most)
