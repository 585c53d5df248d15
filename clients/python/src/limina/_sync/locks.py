# Made from _async/locks.py by unasync.py.
"""Who holds which locks. Locks are taken by `client.lock`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._wire import fields
from ..types import LockStatus, Page
from .namespace import Namespace


class Locks:
    """`client.locks`."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def list(self, *, limit: int | None = None, after: str | None = None) -> Page[LockStatus]:
        """The grants, the longest held first."""
        return self._namespace.get(Page[LockStatus], self._namespace.path("locks", limit=limit, after=after))

    def get(self, lock_id: str) -> LockStatus:
        return self._namespace.get(LockStatus, self._namespace.path("locks/{}", lock_id))

    def query(self, where: Mapping[str, Any] | None = None, **query: Any) -> Page[LockStatus]:
        """Finds grants by key-values."""
        body = {**fields(where=where), **query}
        return self._namespace.query(Page[LockStatus], self._namespace.path("locks/query"), body)

    def release_by_force(self, lock_id: str) -> None:
        """Ends a grant of somebody else: for operators."""
        self._namespace.release(self._namespace.path("locks/{}", lock_id, force="true"))
