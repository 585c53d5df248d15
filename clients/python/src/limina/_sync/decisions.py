# Made from _async/decisions.py by unasync.py.
"""Decisions by their operation id: for a program that no longer has the guard."""

from __future__ import annotations

from collections.abc import Mapping

from .._bodies import age, settlement
from .._clock import Seconds
from ..types import DecisionStatus, Page
from .namespace import Namespace


class Decisions:
    """`client.decisions`. Decisions are made by `client.decide`."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def get(self, operation_id: str) -> DecisionStatus:
        """What became of each part."""
        return self._namespace.get(DecisionStatus, self._namespace.path("decisions/{}", operation_id))

    def list(
        self,
        *,
        state: str = "open",
        owner: str | None = None,
        older_than: Seconds | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> Page[DecisionStatus]:
        target = self._namespace.path("decisions", state=state, owner=owner, older_than=age(older_than), limit=limit, after=after)
        return self._namespace.get(Page[DecisionStatus], target)

    def commit(
        self,
        operation_id: str,
        hits: Mapping[str, int] | None = None,
        *,
        holds: Mapping[str, int] | None = None,
        record: bool = False,
    ) -> DecisionStatus:
        """It has happened, at these amounts; see `DecisionGuard.commit`."""
        target = self._namespace.path("decisions/{}/commit", operation_id)
        return self._namespace.change(DecisionStatus, "POST", target, settlement(hits or {}, holds, record))

    def rollback(self, operation_id: str) -> DecisionStatus:
        """It has not happened."""
        target = self._namespace.path("decisions/{}/rollback", operation_id)
        return self._namespace.change(DecisionStatus, "POST", target, {})
