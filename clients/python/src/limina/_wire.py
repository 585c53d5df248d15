"""Requests and answers in the form in which they travel."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from . import errors
from ._retry import Budget, Retries

T = TypeVar("T")

KeyValue = str | int | float | bool
KeyValues = Mapping[str, KeyValue]
"""What a limit or a lock is about, such as `{"tenant": "acme"}`. The type is part of the value: `1` and `"1"` differ."""

Selection = Mapping[str, Any]
"""Conditions by key: a value, or tests such as `{"tier": {"in": ["free", "pro"]}}`."""

MOST_IN_A_BATCH = 256


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of a client."""

    url: str
    token: str | None = field(repr=False)
    timeout: float
    retries: int

    def headers(self) -> dict[str, str]:
        headers = {"accept": "application/json", "user-agent": "limina-python"}
        return headers if self.token is None else {**headers, "authorization": f"Bearer {self.token}"}


def clean_url(url: str) -> str:
    """The address of a server. A user or a password in it would appear in the logs of the HTTP library."""
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = None
    # The message must not show the URL, which may contain a password.
    if parts is None or parts.scheme not in ("http", "https"):
        raise errors.Invalid("the URL must begin with http:// or https://")
    if "@" in parts.netloc:
        raise errors.Invalid("the URL must not contain a user or a password")
    return url.rstrip("/")


def clean_token(token: str | None) -> str | None:
    """The token without white space around it, such as the line break at the end of a file. A blank token is none."""
    token = (token or "").strip()
    if not re.fullmatch(r"[\t -~]*", token):
        # The message must not show the token.
        raise errors.Invalid("the token contains characters that a header cannot have")
    return token or None


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    body: bytes | None = None
    key: str | None = None
    repeatable: bool = False
    """After an unknown outcome it may be sent again: it only reads, or has a key, or is a release."""
    wait: float = 0.0
    """Seconds that the server may let it wait before it answers."""
    timeout: float | None = None
    """Replaces the timeout of the client."""
    refusal_is_value: bool = False
    gone_is_success: bool = False
    """404 in a retry means that the lost attempt has deleted it."""
    is_check: bool = False
    """It asks for a check, or for several. Only such requests go through the circuit breaker."""
    secret_query: bool = False
    """The query of the path must not appear in logs."""

    @property
    def longest_wait(self) -> float:
        """`wait` by the clock of this machine: that of the server may run slower, by a twentieth at most."""
        return self.wait * 17 / 16

    def retries(self, config: Config, budget: Budget) -> Retries:
        return Retries(budget, retries=config.retries, timeout=config.timeout, repeatable=self.repeatable)


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: bytes | msgspec.Raw
    sent_at: float = 0.0
    """The time before the request left: what the server granted is not older than that."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """The headers that a service passes on to its own client. Empty for an item of a batch."""

    def read(self, kind: type[T]) -> T:
        return decode(self.body, kind)


def release_request(target: str, *, secret_query: bool = False) -> Request:
    """Deletes a grant. Its id is never used again, so repeating it can harm nobody."""
    return Request("DELETE", target, repeatable=True, gone_is_success=True, secret_query=secret_query)


def path(namespace: str, template: str, *names: str, query: Mapping[str, Any] | None = None) -> str:
    """`path("shop", "limiter/rules/{}/groups", name)`: names are percent-encoded."""
    family = template.format(*map(_segment, names))
    whole = f"/v1/ns/{_segment(namespace)}/{family}"
    given = {name: value for name, value in (query or {}).items() if value is not None}
    return f"{whole}?{urlencode(given)}" if given else whole


def _segment(name: str) -> str:
    # `.` and `..` are not encoded, and the path would be resolved to another one. They are valid names nowhere.
    if name in ("", ".", ".."):
        raise errors.Invalid(f"{name!r} is not a valid name")
    try:
        return quote(name, safe="")
    except UnicodeEncodeError as error:
        raise errors.Invalid(f"{name!r} is not a valid name: {error}") from error


def fields(**all_fields: Any) -> dict[str, Any]:
    """A body without the fields that are `None`: absent means the server's default."""
    return {name: value for name, value in all_fields.items() if value is not None}


def encode(body: Any) -> bytes:
    try:
        return msgspec.json.encode(body)
    except (TypeError, UnicodeEncodeError, OverflowError) as error:
        raise errors.Invalid(f"the request cannot be written as JSON: {error}") from error


def decode(body: bytes | msgspec.Raw, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        # The server has acted, and said something that this client cannot read.
        raise errors.Unavailable(f"the answer cannot be read: {error}", done="unknown") from error


def new_key() -> str:
    """An `Idempotency-Key` that nobody else has."""
    return secrets.token_hex(16)


def check_reply(request: Request, reply: Reply, retry_after: str | None, *, retried: bool) -> Reply:
    """Returns the reply if the request succeeded, and raises its error otherwise."""
    if reply.status < 300:
        return reply
    problem = read_problem(reply.body)
    if request.refusal_is_value and problem.get("code") == "LimitReached":
        return reply
    if request.gone_is_success and retried and reply.status == 404:
        return reply
    raise errors.error_from(reply.status, problem, _seconds_of(retry_after))


def read_problem(body: bytes | msgspec.Raw) -> dict[str, Any]:
    """The problem document, or `{}` if the answer is none: then it comes from something between client and server."""
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.DecodeError:
        return {}


def _seconds_of(retry_after: str | None) -> float | None:
    """`Retry-After` in seconds. Its other form, a date, is not used by Limina and counts as absent."""
    return float(retry_after) if retry_after is not None and retry_after.isdigit() else None


class _Results(msgspec.Struct):
    results: list[msgspec.Raw]


class _Status(msgspec.Struct):
    status: int


def join_batch(name: str, items: list[bytes]) -> bytes:
    return b'{"%b":[%b]}' % (name.encode(), b",".join(items))


def split_batch(reply: Reply, expected: int) -> list[Reply]:
    """The replies of the items of a batch."""
    results = reply.read(_Results).results
    if len(results) != expected:
        raise errors.Unavailable(f"{len(results)} results for a batch of {expected}", done="unknown")
    return [Reply(decode(result, _Status).status, result, reply.sent_at) for result in results]
