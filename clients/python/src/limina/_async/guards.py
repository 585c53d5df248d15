"""Guards: a lock, a lease or a decision that is held while a block runs.

Every guard sends heartbeats from a thread of its own, also while the event loop is busy. It is `lost` when the server says so, and
at its deadline, whatever the network says. The deadline counts from when the last successful request left.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from .._bodies import settlement
from .._keeper import Grant
from .._wire import Reply, Request, encode, new_key, release_request
from ..errors import LiminaError, Lost, NotFound, Unavailable
from ..types import DecisionStatus, LeaseGrant, LimitOfDecision, LockGrant
from .io import AsyncListener, in_thread
from .namespace import AsyncNamespace

G = TypeVar("G", bound="AsyncGuard")


class AsyncGuard:
    """What all guards have."""

    def __init__(self, namespace: AsyncNamespace, grant: Grant, fencing_token: int) -> None:
        self._namespace = namespace
        self._grant = grant
        self.fencing_token = fencing_token
        """Larger than that of every earlier grant of the namespace. Send it with every write, and let the resource reject
        smaller ones: then a holder that was paused for too long can do no harm."""

    @property
    def lost(self) -> bool:
        """Somebody else may hold it now: stop the work. Once true, it stays true."""
        return self._grant.lost

    @property
    def remaining(self) -> float:
        """Seconds until the guard is lost if no heartbeat succeeds any more."""
        return self._grant.remaining

    def raise_if_lost(self) -> None:
        """Raises `Lost` if the guard is lost. Call it between the steps of the work."""
        if self.lost:
            raise Lost("the grant has expired, or the server has ended it")

    def on_lost(self, listener: Callable[[], None]) -> None:
        """Calls the listener once, when the guard is lost; at once if it already is."""
        self._grant.on_lost(AsyncListener(listener))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # A child process that was forked inside the block leaves it too, but the parent still holds the grant.
        if self._grant.of_this_process and self._grant.alive:
            # If the release does not arrive, the `ttl` ends the grant. The block's own outcome matters more.
            with contextlib.suppress(LiminaError):
                await self._leave()

    async def _leave(self) -> None:
        await self._end()

    async def _end(self) -> Reply:
        self._grant.end()
        return await self._namespace.transport.call(self._grant.release)


class AsyncLockGuard(AsyncGuard):
    """Locks that are held."""

    def __init__(self, namespace: AsyncNamespace, grant: Grant, granted: LockGrant) -> None:
        super().__init__(namespace, grant, granted.fencing_token)
        self.lock_id = granted.lock_id

    async def release(self) -> None:
        """Releases the locks. Raises `NotFound` if they had expired before."""
        await self._end()


class AsyncLeaseGuard(AsyncGuard):
    """Slots of the limiter that are held."""

    def __init__(self, namespace: AsyncNamespace, grant: Grant, granted: LeaseGrant) -> None:
        super().__init__(namespace, grant, granted.fencing_token)
        self.lease_id = granted.lease_id
        self.limits = granted.limits
        """The limits that applied, with what is used in each."""

    async def release(self) -> None:
        """Gives the slots back. Raises `NotFound` if the lease had expired before."""
        await self._end()


class AsyncDecisionGuard(AsyncGuard):
    """An open decision. Leaving its block without a commit rolls it back."""

    def __init__(self, namespace: AsyncNamespace, grant: Grant, status: DecisionStatus) -> None:
        super().__init__(namespace, grant, status.fencing_token or 0)
        self.operation_id = status.operation_id
        self.status = status
        """The decision as the server answered it: its limits, values, locks and event."""
        self._perhaps_committed = False

    @property
    def limits(self) -> list[LimitOfDecision]:
        """The limits that applied, with what is used in each."""
        return self.status.limits

    async def commit(
        self,
        hits: Mapping[str, int] | None = None,
        /,
        *,
        holds: Mapping[str, int] | None = None,
        record: bool = False,
        **named_hits: int,
    ) -> DecisionStatus:
        """It has happened, at these amounts: `commit(tokens=812)` settles the check with the name `tokens`.

        What is not named ends at its default: checks at their estimate, holds as they were held. `record` says that it has
        happened anyway: more than was held, past a ceiling and after the expiry is booked too.

        If the commit ends with `Unavailable` and `done` is `"unknown"`, it may have been executed: the end of the block then does
        not roll back. Commit again inside the block, or let the `ttl` decide.
        """
        body = settlement({**(hits or {}), **named_hits}, holds, record)
        target = self._namespace.path("decisions/{}/commit", self.operation_id)
        # While the commit is under way, a heartbeat that finds the operation ended would mean nothing.
        self._grant.end()
        try:
            return await self._namespace.change(DecisionStatus, "POST", target, body)
        except NotFound:
            raise  # It is gone: there is nothing to keep, and nothing to roll back.
        except LiminaError as error:
            # A rollback could contradict a commit that was executed.
            self._perhaps_committed = isinstance(error, Unavailable) and error.done == "unknown"
            self._grant.resume()
            raise

    async def rollback(self) -> DecisionStatus:
        """It has not happened."""
        return (await self._end()).read(DecisionStatus)

    async def _leave(self) -> None:
        if self._perhaps_committed:
            self._grant.end()
        else:
            await self.rollback()


async def acquire_lock(namespace: AsyncNamespace, body: dict[str, Any], ttl: float, wait: float) -> AsyncLockGuard:
    reply = await _ask(namespace, namespace.path("locks"), body, wait)
    granted = reply.read(LockGrant)
    grant = _session_grant(namespace, reply, granted, ttl, "locks/{}", granted.lock_id)
    return await _kept(AsyncLockGuard(namespace, grant, granted), grant)


async def acquire_lease(namespace: AsyncNamespace, body: dict[str, Any], ttl: float, wait: float) -> AsyncLeaseGuard:
    reply = await _ask(namespace, namespace.path("limiter/leases"), body, wait)
    granted = reply.read(LeaseGrant)
    grant = _session_grant(namespace, reply, granted, ttl, "limiter/leases/{}", granted.lease_id)
    return await _kept(AsyncLeaseGuard(namespace, grant, granted), grant)


async def decide(namespace: AsyncNamespace, body: dict[str, Any], ttl: float, wait: float, heartbeats: bool) -> AsyncDecisionGuard:
    own_id = "operation_id" not in body
    operation_id = body.setdefault("operation_id", new_key())
    try:
        reply = await _ask(namespace, namespace.path("decisions"), body, wait)
    except BaseException as error:
        perhaps_decided = error.done == "unknown" if isinstance(error, Unavailable) else not isinstance(error, LiminaError)
        if own_id and perhaps_decided:  # Nobody else knows its id, so nobody else can end it.
            namespace.keeper.give_back(_rollback(namespace, operation_id))
        raise
    beat = namespace.path("decisions/{}/heartbeat", operation_id)
    rollback = _rollback(namespace, operation_id)
    grant = Grant(namespace.keeper, reply, ttl=ttl, path=beat, body=b"{}", release=rollback)
    guard = AsyncDecisionGuard(namespace, grant, reply.read(DecisionStatus))
    return await _kept(guard, grant) if heartbeats else guard


def _rollback(namespace: AsyncNamespace, operation_id: str) -> Request:
    return Request("POST", namespace.path("decisions/{}/rollback", operation_id), b"{}", new_key(), repeatable=True)


def _session_grant(
    namespace: AsyncNamespace,
    reply: Reply,
    granted: LockGrant | LeaseGrant,
    ttl: float,
    template: str,
    name: str,
) -> Grant:
    """The grant of a lock or a lease, which only its session may extend or release."""
    release = release_request(namespace.path(template, name, session_id=granted.session_id), secret_query=True)
    beat = namespace.path(template + "/heartbeat", name)
    body = encode({"session_id": granted.session_id})
    return Grant(namespace.keeper, reply, ttl=ttl, path=beat, body=body, release=release)


async def _ask(namespace: AsyncNamespace, target: str, body: dict[str, Any], wait: float) -> Reply:
    return await namespace.transport.call(Request("POST", target, encode(body), new_key(), repeatable=True, wait=wait))


async def _kept(guard: G, grant: Grant) -> G:
    """Starts the heartbeats. If the answer took long, or the request waited, the first one comes before the caller gets the guard:
    only then its deadline is known to be far away."""
    if grant.late:
        try:
            await in_thread(grant.confirm)
        except BaseException:  # Also if the caller is cancelled: it will never have the guard.
            grant.give_back()
            raise
    grant.keep()
    return guard
