"""The client: checks, and the way to everything else."""

from __future__ import annotations

import random
import ssl
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from msgspec.structs import replace

from .._bodies import holds_of
from .._breaker import Breaker
from .._clock import Seconds, milliseconds, now, seconds
from .._keeper import Keeper
from .._undecided import Undecided
from .._wire import Config, KeyValues, Request, clean_token, clean_url, encode, fields
from ..types import Check, Decision, Event, Hold, Lock, LockMode
from .decisions import AsyncDecisions
from .events import AsyncEvents
from .guards import AsyncDecisionGuard, AsyncLeaseGuard, AsyncLockGuard, acquire_lease, acquire_lock, decide
from .io import Acquiring, sleep
from .ledger import AsyncLedger
from .limiter import AsyncCounters, AsyncLeases, AsyncRules, AsyncRuleSets
from .locks import AsyncLocks
from .namespace import AsyncNamespace
from .transport import AsyncTransport


class AsyncLimina:
    """A client of Limina. Make one and share it: it may be used from everywhere in the program, and after a fork.

    `timeout` is for one attempt, in seconds. `retries` is how often a call is sent again where that is safe. `breaker` is for
    checks: if they get no answer, the client stops asking for a second, and fails them at once; `None` switches this off.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:7070",
        *,
        token: str | None = None,
        namespace: str = "default",
        timeout: Seconds = 2.0,
        retries: int = 2,
        breaker: Breaker | None = Breaker(),  # noqa: B008 (it cannot be changed)
        tls: ssl.SSLContext | None = None,
    ) -> None:
        config = Config(clean_url(url), clean_token(token), seconds(timeout), retries)
        self._set(AsyncNamespace(namespace, AsyncTransport(config, tls, breaker), Keeper(config, tls)))

    def _set(self, namespace: AsyncNamespace) -> None:
        self._namespace = namespace
        self.rules = AsyncRules(namespace)
        self.rule_sets = AsyncRuleSets(namespace)
        self.counters = AsyncCounters(namespace)
        self.leases = AsyncLeases(namespace)
        self.locks = AsyncLocks(namespace)
        self.events = AsyncEvents(namespace)
        self.ledger = AsyncLedger(namespace)
        self.decisions = AsyncDecisions(namespace)

    @property
    def namespace(self) -> str:
        return self._namespace.name

    @property
    def undecided(self) -> Undecided:
        """How many requests the middleware of this client passed or refused without a decision."""
        return self._namespace.transport.undecided

    def with_namespace(self, name: str) -> AsyncLimina:
        """The same client for another namespace. It shares the connections, and closing one closes both."""
        other = object.__new__(AsyncLimina)
        other._set(AsyncNamespace(name, self._namespace.transport, self._namespace.keeper))
        return other

    def with_retries(self, retries: int) -> AsyncLimina:
        """The same client with another number of retries. It shares the connections, and closing one closes both."""
        other = object.__new__(AsyncLimina)
        transport = self._namespace.transport.with_retries(retries)
        other._set(AsyncNamespace(self._namespace.name, transport, self._namespace.keeper))
        return other

    async def check(
        self,
        key_values: KeyValues,
        hits: int = 1,
        *,
        require_match: bool = False,
        report: bool = False,
        dry_run: bool = False,
        idempotency_key: str | None = None,
        alone: bool = False,
    ) -> Decision:
        """Takes `hits` from every limit that applies, or from none. A refusal is a value: look at `allowed`.

        Checks that are called at the same time travel together. A lost answer raises `Unavailable` with `done = "unknown"` and
        is not asked for again, because a repeat would count again. With an `idempotency_key` it is, and the check travels alone and
        waits for the disk. A check that is sent `alone` travels with no other; its decision has the `headers` of the answer.
        """
        body: dict[str, Any] = {"key_values": key_values}
        if hits != 1:
            body["hits"] = hits
        for name, given in (("require_match", require_match), ("report", report), ("dry_run", dry_run)):
            if given:
                body[name] = True
        item = encode(body)
        if idempotency_key is None and not alone:
            reply = await self._namespace.transport.call_in_batch("check", self.namespace, item)
        else:
            target = self._namespace.path("limiter/check")
            repeatable = idempotency_key is not None
            request = Request("POST", target, item, idempotency_key, repeatable=repeatable, refusal_is_value=True, is_check=True)
            reply = await self._namespace.transport.call(request)
        decision = reply.read(Decision)
        return replace(decision, headers=reply.headers) if reply.headers else decision

    async def wait(self, key_values: KeyValues, hits: int = 1, *, at_most: Seconds, require_match: bool = False) -> Decision:
        """Checks until it is allowed, sleeping for as long as the server says, with some jitter. Returns the refusal if it would
        take longer than `at_most`, or if no time is known: to wait for slots, use `lease` with `wait`."""
        until = now() + seconds(at_most)
        while True:
            decision = await self.check(key_values, hits, require_match=require_match)
            if decision.allowed or decision.retry_after is None or now() + decision.retry_after > until:
                return decision
            await sleep(decision.retry_after + random.uniform(0.001, 0.01 + min(1.0, decision.retry_after / 10)))

    def lock(
        self,
        key_values: KeyValues | Sequence[Lock],
        *,
        ttl: Seconds,
        wait: Seconds = 0,
        mode: LockMode = "exclusive",
        owner: str | None = None,
    ) -> Acquiring[AsyncLockGuard]:
        """Acquires a lock, or several at once, and holds it while the block runs. Waits for at most `wait`, then raises
        `Refused`."""
        what: dict[str, Any]
        if isinstance(key_values, Mapping):
            what = {"key_values": key_values, "mode": mode}
        else:
            what = {"locks": key_values}
        body = {**what, **fields(ttl_ms=milliseconds(ttl), wait_ms=milliseconds(wait) or None, owner=owner)}
        return Acquiring(acquire_lock(self._namespace, body, seconds(ttl), seconds(wait)))

    def lease(
        self,
        key_values: KeyValues,
        hits: int = 1,
        *,
        ttl: Seconds,
        wait: Seconds = 0,
        owner: str | None = None,
        require_match: bool = False,
    ) -> Acquiring[AsyncLeaseGuard]:
        """Takes `hits` slots like a check, and holds them while the block runs. Waits for slots for at most `wait`, then raises
        `Refused`."""
        body = fields(
            key_values=key_values,
            hits=hits,
            ttl_ms=milliseconds(ttl),
            wait_ms=milliseconds(wait) or None,
            owner=owner,
            require_match=require_match or None,
        )
        return Acquiring(acquire_lease(self._namespace, body, seconds(ttl), seconds(wait)))

    def decide(
        self,
        operation_id: str | None = None,
        *,
        checks: Sequence[Check] = (),
        holds: Mapping[str, int] | Sequence[Hold] = (),
        locks: Sequence[Lock] = (),
        event: Event | None = None,
        create_missing: bool = False,
        ttl: Seconds = 60,
        wait: Seconds = 0,
        owner: str | None = None,
        explain: bool = False,
        heartbeats: bool = True,
    ) -> Acquiring[AsyncDecisionGuard]:
        """May all of this happen now? Takes, holds, locks and submits everything at one instant, or nothing: then it raises
        `Refused`, whose `problem` names all that refuses.

        Commit it within the block, at the actual amounts. Leaving the block without a commit rolls it back. Without `heartbeats`
        the decision is not kept alive: choose a `ttl` that is long enough.

        Give an `operation_id` if the decision must be found again after a crash, or repeated by another process. Otherwise the
        client makes one: it is the `operation_id` of the guard.
        """
        body = fields(
            operation_id=operation_id,
            checks=list(checks) or None,
            holds=holds_of(holds) or None,
            locks=list(locks) or None,
            event=event,
            create_missing=create_missing or None,
            ttl_ms=milliseconds(ttl),
            wait_ms=milliseconds(wait) or None,
            owner=owner,
            explain=explain or None,
        )
        return Acquiring(decide(self._namespace, body, seconds(ttl), seconds(wait), heartbeats))

    async def aclose(self) -> None:
        """Closes the connections and ends the heartbeats. Grants that are still held end with their `ttl`."""
        self._namespace.keeper.close()
        await self._namespace.transport.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()
