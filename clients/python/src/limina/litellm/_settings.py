"""What is limited: budgets and windows, from a TOML file and from the metadata of keys, teams, users and organizations."""

from __future__ import annotations

import datetime
import hashlib
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import quote

from ..errors import Invalid
from ..types import Rule, sliding

Period = Literal["total", "day", "month"]
Meter = Literal["tokens", "requests", "parallel"]

SCOPES = ("key", "team", "user", "organization", "end_user", "model")
PERIODS: tuple[Period, ...] = ("total", "day", "month")
METERS: tuple[Meter, ...] = ("tokens", "requests", "parallel")
NANODOLLARS = 1_000_000_000
"""The ledger counts billionths of a dollar: one token of a cheap model costs less than a millionth."""
LONGEST_NAME = 256


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars for one token."""

    input: float
    output: float


@dataclass(frozen=True, slots=True)
class Budget:
    """An amount of dollars for each combination of the values of `scope`. An empty scope is one budget for all calls."""

    usd: float
    scope: tuple[str, ...] = ()
    period: Period = "month"

    @property
    def ceiling(self) -> int:
        return round(self.usd * NANODOLLARS)

    def limit_name(self, who: Mapping[str, str], today: datetime.date) -> str:
        """The limit of the ledger, such as `budget/team=research/2026-11`. This is the only place that knows how a budget's period
        becomes a name."""
        subject = ",".join(f"{name}={quote(who[name], safe=' @:+')}" for name in self.scope) or "all"
        period = {"total": "total", "day": f"{today:%Y-%m-%d}", "month": f"{today:%Y-%m}"}[self.period]
        name = f"budget/{subject}/{period}"
        if len(name.encode()) > LONGEST_NAME:
            name = f"budget/{hashlib.sha256(subject.encode()).hexdigest()}/{period}"
        return name

    def ends(self, today: datetime.date) -> datetime.datetime | None:
        """When the next period begins."""
        if self.period == "total":
            return None
        first = today + datetime.timedelta(days=1)
        if self.period == "month":
            first = (today.replace(day=1) + datetime.timedelta(days=32)).replace(day=1)
        return datetime.datetime(first.year, first.month, first.day, tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True)
class Limit:
    """Tokens or requests in a window, or calls at the same time, for each combination of the values of `scope`."""

    meter: Meter
    limit: int
    scope: tuple[str, ...] = ()
    per: float | None = None
    """Seconds. Calls at the same time have no window."""

    @property
    def rule_name(self) -> str:
        window = "" if self.per is None else f"/{self.per:g}s"
        return f"litellm/{self.meter}/{'+'.join(self.scope) or 'all'}{window}"

    def rule(self, limit: int) -> Rule:
        return Rule(
            self.rule_name,
            limit,
            group_by=list(self.scope),
            selection={"meter": self.meter},
            window=None if self.per is None else sliding(self.per),
        )


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of the hook. `Settings.read(path)` reads them from a TOML file."""

    url: str = "http://127.0.0.1:7070"
    namespace: str = "llm"
    token: str | None = None
    timeout: float = 2.0
    """Seconds for one request to Limina."""
    budgets: tuple[Budget, ...] = ()
    limits: tuple[Limit, ...] = ()
    estimate: Literal["worst", "learned"] = "worst"
    """What a call reserves for its answer: all that it may take, or what 95 of 100 similar calls took."""
    prompt_margin: float = 1.0
    """The counted prompt is multiplied by this in an estimate: more than 1 where the provider counts more than LiteLLM does."""
    default_max_tokens: int | None = None
    """Sent along with a call that names no maximum, so that the provider keeps to it. Otherwise the model's maximum is reserved."""
    unknown_price: Literal["refuse"] | Price = "refuse"
    on_unavailable: Literal["refuse", "allow"] = "refuse"
    other_calls: Literal["refuse", "allow"] = "refuse"
    """Calls that cost money and are not limited by tokens: images, speech, transcription, reranking, batches, realtime."""
    manage: bool = True
    """The hook makes the rules, and changes ceilings that the settings have changed. That needs the right `manage`."""
    ttl: float = 60.0
    """Seconds after which the reservation of a gateway that died is free again. A living one extends it."""

    @classmethod
    def read(cls, path: str | Path) -> Self:
        with open(path, "rb") as file:
            return cls.of(tomllib.load(file))

    @classmethod
    def from_environment(cls) -> Self:
        """`LIMINA_LITELLM` is the path of the file. `LIMINA_URL` and `LIMINA_TOKEN` replace what it says."""
        path = os.environ.get("LIMINA_LITELLM")
        if not path:
            raise Invalid("set LIMINA_LITELLM to the path of the settings of limina.litellm, a TOML file")
        return cls.read(path)

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Self:
        """The settings that a TOML file says."""
        names = {"budget", "limit", *(field.name for field in fields(cls))} - {"budgets", "limits"}
        given = dict(_fields(table, names, "the file"))
        given["budgets"] = tuple(budget_of(entry) for entry in given.pop("budget", ()))
        given["limits"] = tuple(limit_of(entry) for entry in given.pop("limit", ()))
        for name in ("timeout", "ttl"):
            if name in given:
                given[name] = seconds_of(given[name])
        if isinstance(given.get("unknown_price"), Mapping):
            given["unknown_price"] = _price_of(given["unknown_price"])
        for name, variable in (("url", "LIMINA_URL"), ("token", "LIMINA_TOKEN")):
            if value := os.environ.get(variable):
                given[name] = value
        settings = cls(**given)
        settings._check()
        return settings

    def _check(self) -> None:
        for name, allowed in (
            ("estimate", ("worst", "learned")),
            ("on_unavailable", ("refuse", "allow")),
            ("other_calls", ("refuse", "allow")),
        ):
            if getattr(self, name) not in allowed:
                raise Invalid(f"`{name}` must be one of {', '.join(allowed)}")
        about: list[object] = [(budget.scope, budget.period) for budget in self.budgets]
        about += [limit.rule_name for limit in self.limits]
        if len(set(about)) < len(about):
            raise Invalid("two budgets, or two limits, are for the same callers and the same time")
        if not isinstance(self.unknown_price, Price) and self.unknown_price != "refuse":
            raise Invalid('`unknown_price` must be "refuse", or { input = …, output = … } in dollars for a million tokens')


def budget_of(entry: Mapping[str, Any], scope: tuple[str, ...] | None = None) -> Budget:
    """A budget as it is written. In metadata the scope is whose metadata it is."""
    given = _fields(entry, {"usd", "period"} | ({"for"} if scope is None else set()), "a budget")
    usd, period = given.get("usd"), given.get("period", "month")
    if isinstance(usd, bool) or not isinstance(usd, int | float) or usd < 0:
        raise Invalid("a budget needs `usd`, which is 0 or more")
    if period not in PERIODS:
        raise Invalid(f"the `period` of a budget must be one of {', '.join(PERIODS)}")
    return Budget(float(usd), _scope_of(given.get("for")) if scope is None else scope, period)


def limit_of(entry: Mapping[str, Any], scope: tuple[str, ...] | None = None) -> Limit:
    """A limit as it is written: `{ tokens = 10000, per = "1m" }`, `{ requests = 60, per = "1m" }` or `{ parallel = 5 }`."""
    given = _fields(entry, {*METERS, "per"} | ({"for"} if scope is None else set()), "a limit")
    meters = [meter for meter in METERS if meter in given]
    if len(meters) != 1:
        raise Invalid(f"a limit needs exactly one of {', '.join(METERS)}")
    (meter,) = meters
    if ("per" in given) != (meter != "parallel"):
        raise Invalid("a limit of tokens or requests needs `per`, and one of parallel calls has none")
    limit = given[meter]
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise Invalid(f"`{meter}` must be a whole number, 0 or more")
    per = seconds_of(given["per"]) if "per" in given else None
    return Limit(meter, limit, _scope_of(given.get("for")) if scope is None else scope, per)


def seconds_of(duration: object) -> float:
    """`"1m30s"`, as in Limina's API."""
    units = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
    if isinstance(duration, str) and re.fullmatch(r"(\d+(ms|s|m|h|d))+", duration):
        return sum(int(number) * units[unit] for number, unit in re.findall(r"(\d+)(ms|s|m|h|d)", duration))
    raise Invalid(f"{duration!r} is no duration, such as 30s, 1m or 24h")


def _scope_of(given: object) -> tuple[str, ...]:
    names = [given] if isinstance(given, str) else given
    if names == ["all"]:
        return ()
    if not isinstance(names, list) or not names or len(set(names)) < len(names) or not all(name in SCOPES for name in names):
        raise Invalid(f'`for` must be "all", or one or more of {", ".join(SCOPES)}')
    return tuple(sorted(names, key=SCOPES.index))


def _price_of(given: Mapping[str, Any]) -> Price:
    price = _fields(given, {"input", "output"}, "`unknown_price`")
    prices = [price.get(name) for name in ("input", "output")]
    if not all(isinstance(part, int | float) and not isinstance(part, bool) and part > 0 for part in prices):
        raise Invalid("`unknown_price` needs `input` and `output`: dollars for a million tokens, more than 0")
    return Price(price["input"] / 1e6, price["output"] / 1e6)


def _fields(entry: object, allowed: set[str], what: str) -> Mapping[str, Any]:
    if not isinstance(entry, Mapping):
        raise Invalid(f"{what} must be a table")
    if unknown := sorted(set(entry) - allowed):
        raise Invalid(f"{what} has no field {', '.join(map(repr, unknown))}; it has {', '.join(sorted(allowed))}")
    return entry
