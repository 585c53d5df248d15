"""The headers `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers) for the answer of a service.

They are made from the limits of a decision, because a check that travelled in a batch has no headers of its own. The length of a
window is not part of a decision, so the parameter `w` is absent.
"""

from __future__ import annotations

import math
from urllib.parse import quote

from .types import Decision, LimitStatus

MOST_LIMITS = 8
# Everything printable except `"`, `\` and `%`.
PLAIN = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) not in '"\\%')


def rate_limit_headers(decision: Decision) -> dict[str, str]:
    """The headers for this decision: the tightest limits first. `Retry-After` too, where it is known."""
    enforced = [limit for limit in decision.limits if limit.rule is not None and limit.limit >= 0 and not limit.shadow]
    tightest = sorted(enforced, key=_tightness)[:MOST_LIMITS]
    headers = {}
    if tightest:
        headers["ratelimit-policy"] = ", ".join(f'"{policy_name(limit)}";q={limit.limit}' for limit in tightest)
        states = (f'"{policy_name(limit)}";r={limit.remaining or 0}{_reset(limit, decision)}' for limit in tightest)
        headers["ratelimit"] = ", ".join(states)
    if decision.retry_after is not None:
        headers["retry-after"] = str(math.ceil(decision.retry_after))
    return headers


def _tightness(limit: LimitStatus) -> tuple[bool, float, int]:
    remaining = limit.remaining or 0
    return not limit.exceeded, remaining / limit.limit if limit.limit else 0.0, remaining


def policy_name(limit: LimitStatus) -> str:
    """The name of a limit in these headers, and in `violated-policies` of a refusal."""
    names = [limit.rule or "", *([limit.override] if limit.override is not None else [])]
    return "/".join(quote(name, safe=PLAIN) for name in names)


def _reset(limit: LimitStatus, decision: Decision) -> str:
    # An exceeded limit may allow this request before its window has ended.
    ends = [limit.reset_ms, decision.retry_after_ms if limit.exceeded else None]
    known = [end for end in ends if end is not None]
    return f";t={math.ceil(min(known) / 1000)}" if known else ""
