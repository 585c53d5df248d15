"""The errors that a caller of LiteLLM gets instead of an answer."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import litellm
from litellm.exceptions import GuardrailRaisedException, RateLimitErrorCategory, RateLimitType

from ..errors import Refused
from ._settings import NANODOLLARS, Budget
from ._tokens import Estimate

HELD_BY_OTHERS = 2.0
"""Seconds after which to ask again for what the open calls hold: their ends are not known."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One budget or limit that refuses a call."""

    kind: str
    """`budget`, `tokens`, `requests` or `parallel`."""
    name: str
    """The limit of the ledger, or the rule."""
    text: str
    until: datetime.datetime | None
    """When it may be different, if that is known."""


# An exception of this class is an intentional block for LiteLLM: its router neither retries it nor falls back to another model.
class _Block(GuardrailRaisedException):  # type: ignore[misc,unused-ignore]
    def __init__(self, *_arguments: object, **_named: object) -> None:
        Exception.__init__(self, *_arguments)


class CallRefused(litellm.RateLimitError, _Block):  # type: ignore[misc,unused-ignore]
    """A budget or a limit refuses the call. It is 429 with `Retry-After` in the proxy."""

    def __init__(self, refusals: Sequence[Refusal], model: str) -> None:
        self.refusals = tuple(refusals)
        untils = [refusal.until for refusal in self.refusals]
        self.retry_after: float | None = None
        """Seconds, or `None` if time alone does not help."""
        if untils and all(untils):
            latest = max(until for until in untils if until is not None)
            self.retry_after = max(1.0, (latest - datetime.datetime.now(datetime.UTC)).total_seconds())
        message = "; ".join(refusal.text for refusal in self.refusals) or "the call is refused"
        headers = {} if self.retry_after is None else {"retry-after": str(math.ceil(self.retry_after))}
        super().__init__(
            message,
            llm_provider="limina",
            model=model,
            category=RateLimitErrorCategory.LITELLM_RATE_LIMIT,
            rate_limit_type=_type_of(self.refusals),
            headers=headers,
        )
        _settle(self, 429, headers, message)


class DecisionUnavailable(litellm.ServiceUnavailableError, _Block):  # type: ignore[misc,unused-ignore]
    """There is no decision, and the settings say that the call must not pass without one: 503 in the proxy."""

    def __init__(self, reason: str, model: str, retry_after: float | None) -> None:
        message = f"the budget of this call cannot be asked for: {reason}"
        super().__init__(message, llm_provider="limina", model=model)
        _settle(self, 503, {"retry-after": str(math.ceil(retry_after or 1))}, message)


class CallInvalid(litellm.BadRequestError, _Block):  # type: ignore[misc,unused-ignore]
    """The call cannot be limited: its price is not known, the metadata of its key has a mistake, or its kind is refused."""

    def __init__(self, message: str, model: str) -> None:
        super().__init__(message, model=model, llm_provider="limina")
        _settle(self, 400, {}, message)


def _settle(error: Any, status: int, headers: dict[str, str], message: str) -> None:
    """Both base classes set these, to different values."""
    error.status_code, error.headers, error.message = status, headers, f"limina: {message}"
    error.guardrail_name, error.blocked_content = "limina", True


def _type_of(refusals: Sequence[Refusal]) -> RateLimitType | None:
    kinds = {refusal.kind for refusal in refusals}
    for kind, its_type in (
        ("budget", RateLimitType.BUDGET),
        ("parallel", RateLimitType.CONCURRENT_REQUESTS),
        ("tokens", RateLimitType.TOKENS),
        ("requests", RateLimitType.REQUESTS),
    ):
        if kind in kinds:
            return its_type
    return None


def refusals_of(error: Refused, budgets: Mapping[str, Budget], expected: Estimate, today: datetime.date) -> list[Refusal]:
    """What refuses, in words. `budgets` are those of the call, by the name of their limit."""
    problem = error.problem
    now = datetime.datetime.now(datetime.UTC)
    found = [_budget_refusal(hold, budgets.get(hold["limit_name"]), expected.cost, today, now) for hold in problem.get("holds", ())]
    found += [_limit_refusal(limit, expected.tokens, problem.get("retry_after_ms"), now) for limit in problem.get("limits", ())]
    return found


def _budget_refusal(
    hold: Mapping[str, Any], budget: Budget | None, cost: int, today: datetime.date, now: datetime.datetime
) -> Refusal:
    name, ceiling, spent, held = hold["limit_name"], hold.get("ceiling") or 0, hold["commit_value"], hold["hold_value"]
    left = max(0, ceiling - spent - held)
    text = f"{name}: the call may cost {_dollars(cost)}, and {_dollars(left)} of {_dollars(ceiling)} is left"
    if held:
        text += f" ({_dollars(held)} is held by open calls)"
    if held and spent + cost <= ceiling:
        return Refusal("budget", name, f"{text}; try again when they have ended", now + datetime.timedelta(seconds=HELD_BY_OTHERS))
    ends = None if budget is None else budget.ends(today)
    if ends is not None and cost <= ceiling:
        return Refusal("budget", name, f"{text}, until {ends:%Y-%m-%dT%H:%M:%SZ}", ends)
    return Refusal("budget", name, text, None)


def _limit_refusal(limit: Mapping[str, Any], tokens: int, retry_after_ms: int | None, now: datetime.datetime) -> Refusal:
    kind, rule = str(limit.get("check")), limit["rule"]
    group = ", ".join(f"{name} {value}" for name, value in limit["group"].items()) or "all calls"
    text = f"{rule}: {limit['used']} of {limit['limit']} {kind} are used by {group}"
    if kind == "parallel":
        again = now + datetime.timedelta(seconds=HELD_BY_OTHERS)
        return Refusal(kind, rule, f"{text}; try again when a call has ended", again)
    if kind == "tokens":
        text += f", and the call may take {tokens}"
    wait = retry_after_ms if retry_after_ms is not None else limit.get("reset_ms")
    if wait is None or (kind == "tokens" and tokens > limit["limit"]):
        return Refusal(kind, rule, text, None)
    until = now + datetime.timedelta(milliseconds=wait)
    return Refusal(kind, rule, f"{text}, until {until:%Y-%m-%dT%H:%M:%SZ}", until)


def _dollars(amount: int) -> str:
    return f"${amount / NANODOLLARS:.6f}".rstrip("0").rstrip(".") if amount else "$0"
