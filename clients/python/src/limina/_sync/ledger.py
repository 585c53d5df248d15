# Made from _async/ledger.py by unasync.py.
"""The ledger: hold an amount, then commit or roll back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .._bodies import age, finalization, holds_of
from .._clock import Seconds, milliseconds
from .._wire import encode, fields
from ..types import Entry, FinalizationReply, Hold, HoldReply, LedgerLimit, Operation, Page, ValuesReply
from .namespace import Namespace


class Ledger:
    """`client.ledger`. Holds and commits that are called at the same time travel together."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def hold(
        self,
        operation_id: str,
        changes: Mapping[str, int] | Sequence[Hold],
        *,
        create_missing: bool = False,
        skip_existing_holds: bool = False,
        expires_after: Seconds | None = None,
    ) -> HoldReply:
        """Holds all amounts, or none: `hold("order-17", {"card-1/2026-11-18": 700})`. Raises `Refused` at a ceiling."""
        body = fields(
            operation_id=operation_id,
            changes=holds_of(changes),
            create_missing=create_missing or None,
            skip_existing_holds=skip_existing_holds or None,
            expires_after_ms=None if expires_after is None else milliseconds(expires_after),
        )
        reply = self._namespace.transport.call_in_batch("hold", self._namespace.name, encode(body))
        return reply.read(HoldReply)

    def commit(self, operation_id: str, changes: Mapping[str, int | None] | None = None) -> FinalizationReply:
        """It has happened. Without `changes`, every open hold is committed as it was held; with them, at most that."""
        body = finalization(operation_id, changes)
        reply = self._namespace.transport.call_in_batch("commit", self._namespace.name, encode(body))
        return reply.read(FinalizationReply)

    def rollback(self, operation_id: str, changes: Sequence[str] | None = None) -> FinalizationReply:
        """It has not happened. Without `changes`, every open hold is rolled back."""
        body = finalization(operation_id, None if changes is None else dict.fromkeys(changes))
        return self._namespace.change(FinalizationReply, "POST", self._namespace.path("ledger/rollback"), body)

    def extend(self, operation_id: str, expires_after: Seconds | None) -> Operation:
        """Every open hold of the operation expires so long after now. `None`: never."""
        body = {"operation_id": operation_id, "expires_after": age(expires_after)}
        return self._namespace.change(Operation, "POST", self._namespace.path("ledger/extend"), body)

    def values(
        self,
        limit_names: Sequence[str],
        *,
        operation_id: str | None = None,
        position: int | None = None,
    ) -> ValuesReply:
        """The latest values of the limits, or those that an operation saw, or those at a position."""
        body = fields(limit_names=list(limit_names), operation_id=operation_id, position=position)
        return self._namespace.query(ValuesReply, self._namespace.path("ledger/values"), body)

    def operation(self, operation_id: str) -> Operation:
        return self._namespace.get(Operation, self._namespace.path("ledger/operations/{}", operation_id))

    def operations(
        self,
        *,
        state: str = "held",
        older_than: Seconds | None = None,
        limit_name: str | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> Page[Operation]:
        """The open operations."""
        target = self._namespace.path(
            "ledger/operations",
            state=state,
            older_than=age(older_than),
            limit_name=limit_name,
            limit=limit,
            after=after,
        )
        return self._namespace.get(Page[Operation], target)

    def create_limit(
        self,
        name: str,
        *,
        ceiling: int | None = None,
        limit_id: str | None = None,
        context: Mapping[str, str] | None = None,
    ) -> LedgerLimit:
        body = fields(name=name, ceiling=ceiling, limit_id=limit_id, context=context)
        return self._namespace.change(LedgerLimit, "POST", self._namespace.path("ledger/limits"), body)

    def limit(self, name: str) -> LedgerLimit:
        return self._namespace.get(LedgerLimit, self._namespace.path("ledger/limits/{}", name))

    def limits(self, *, order: str | None = None, limit: int | None = None, after: str | None = None) -> Page[LedgerLimit]:
        """The limits by name. With `order="used"`, those nearest to their ceiling first."""
        target = self._namespace.path("ledger/limits", order=order, limit=limit, after=after)
        return self._namespace.get(Page[LedgerLimit], target)

    def set_ceiling(self, name: str, ceiling: int | None) -> LedgerLimit:
        """Changes the ceiling of a limit, or removes it."""
        return self._namespace.patch(LedgerLimit, self._namespace.path("ledger/limits/{}", name), {"ceiling": ceiling})

    def delete_limit(self, name: str) -> None:
        """Deletes a limit with its history. Raises `Conflict` while a hold is open in it."""
        self._namespace.delete(self._namespace.path("ledger/limits/{}", name))

    def entries(self, name: str, *, limit: int | None = None, after: str | None = None) -> Page[Entry]:
        """The history of a limit."""
        target = self._namespace.path("ledger/limits/{}/entries", name, limit=limit, after=after)
        return self._namespace.get(Page[Entry], target)
