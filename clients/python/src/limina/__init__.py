"""May this happen now? The client of Limina.

`Limina` is for threads, `AsyncLimina` for asyncio. Both have the same shape.
"""

from ._async.client import AsyncLimina
from ._async.guards import AsyncDecisionGuard, AsyncLeaseGuard, AsyncLockGuard
from ._breaker import Breaker
from ._sync.client import Limina
from ._sync.guards import DecisionGuard, LeaseGuard, LockGuard
from ._undecided import Undecided
from ._wire import KeyValues
from .errors import (
    Conflict,
    Forbidden,
    Invalid,
    LiminaError,
    Lost,
    NotFound,
    Refused,
    Unauthorized,
    Unavailable,
)
from .types import (
    Change,
    Check,
    Decision,
    Event,
    Hold,
    KeyFrame,
    LimitStatus,
    Lock,
    Override,
    Page,
    Rule,
    Window,
    bucket,
    fixed,
    sliding,
)

__all__ = [
    "AsyncDecisionGuard",
    "AsyncLeaseGuard",
    "AsyncLimina",
    "AsyncLockGuard",
    "Breaker",
    "Change",
    "Check",
    "Conflict",
    "Decision",
    "DecisionGuard",
    "Event",
    "Forbidden",
    "Hold",
    "Invalid",
    "KeyFrame",
    "KeyValues",
    "LeaseGuard",
    "Limina",
    "LiminaError",
    "LimitStatus",
    "Lock",
    "LockGuard",
    "Lost",
    "NotFound",
    "Override",
    "Page",
    "Refused",
    "Rule",
    "Unauthorized",
    "Unavailable",
    "Undecided",
    "Window",
    "bucket",
    "fixed",
    "sliding",
]
