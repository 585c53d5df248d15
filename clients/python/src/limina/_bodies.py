"""Bodies of requests that several calls share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ._clock import Seconds, milliseconds
from ._wire import fields
from .types import Hold


def holds_of(holds: Mapping[str, int] | Sequence[Hold]) -> Sequence[Hold]:
    """`{"budget": 5}` is short for `[Hold("budget", 5)]`."""
    if isinstance(holds, Mapping):
        return [Hold(name, value) for name, value in holds.items()]
    return list(holds)


def settlement(hits: Mapping[str, int], holds: Mapping[str, int] | None, record: bool) -> dict[str, Any]:
    """The commit of a decision at the actual amounts."""
    return fields(
        checks=[{"name": name, "hits": amount} for name, amount in hits.items()] or None,
        holds=[{"limit_name": name, "value": value} for name, value in (holds or {}).items()] or None,
        record=record or None,
    )


def finalization(operation_id: str, changes: Mapping[str, int | None] | None) -> dict[str, Any]:
    """The commit or rollback of an operation of the ledger."""
    listed = None if changes is None else [fields(limit_name=name, value=value) for name, value in changes.items()]
    return fields(operation_id=operation_id, changes=listed)


def age(older_than: Seconds | None) -> str | None:
    """A duration in a query string."""
    return None if older_than is None else f"{milliseconds(older_than)}ms"
