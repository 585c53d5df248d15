"""Who makes a call, and what their metadata says."""

from __future__ import annotations

import hashlib
import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import Invalid
from ._settings import SCOPES, Budget, Limit, Settings, budget_of, limit_of

Call = Mapping[str, Any]
"""The arguments of a call of LiteLLM: `model`, `messages`, `user`, `max_tokens`, `metadata`, …"""

USER_METADATA = "limina_user_metadata"
LONGEST_VALUE = 1024
log = logging.getLogger("limina.litellm")


class UserMetadata(dict[str, Any]):
    """The metadata of a user, as the proxy knows it. It is a class of its own so that the body of a request cannot forge it."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The values of the scopes that are known, and the budgets and limits that apply."""

    who: Mapping[str, str]
    budgets: tuple[Budget, ...] = ()
    limits: tuple[Limit, ...] = field(default=())
    """Limits from metadata: they replace those of the settings that have the same rule."""


def caller_of(call: Call, settings: Settings) -> Caller:
    """In the proxy, the key decides who calls. Elsewhere `user` and `metadata={"limina": {"team": …}}` do."""
    buckets = [bucket for name in ("litellm_metadata", "metadata") if isinstance(bucket := call.get(name), Mapping)]
    model = next((group for bucket in buckets if (group := bucket.get("model_group"))), call.get("model"))
    for bucket in buckets:
        auth = bucket.get("user_api_key_auth")
        if _is_auth(auth):
            return _proxy_caller(auth, bucket.get(USER_METADATA), call, model, settings)
    told = next((told for bucket in buckets if isinstance(told := bucket.get("limina"), Mapping)), {})
    values = {**told, "user": told.get("user") or call.get("user"), "model": model}
    return _caller(values, {}, settings)


def _is_auth(auth: object) -> bool:
    """Whether it is the proxy's own object. A client can send any JSON as metadata, but no object of this class."""
    types = sys.modules.get("litellm.proxy._types")
    return types is not None and isinstance(auth, types.UserAPIKeyAuth)


def _proxy_caller(auth: Any, user_metadata: object, call: Call, model: object, settings: Settings) -> Caller:
    values = {
        "key": auth.api_key or auth.token,
        "team": auth.team_id,
        "user": auth.user_id,
        "organization": auth.org_id,
        "end_user": auth.end_user_id or call.get("user"),
        "model": model,
    }
    metadata = {
        "key": auth.metadata,
        "team": auth.team_metadata,
        "user": user_metadata if isinstance(user_metadata, UserMetadata) else None,
        "organization": auth.organization_metadata,
    }
    return _caller(values, metadata, settings)


def _caller(values: Mapping[str, object], metadata: Mapping[str, object], settings: Settings) -> Caller:
    who = {name: _bounded(str(value)) for name in SCOPES if (value := values.get(name)) not in (None, "")}
    budgets = {(budget.scope, budget.period): budget for budget in settings.budgets}
    limits = {}
    for scope, said in metadata.items():
        wish = said.get("limina") if isinstance(said, Mapping) else None
        if wish is None or scope not in who:
            continue
        for budget in _wishes(wish, "budgets", budget_of, scope):
            budgets[budget.scope, budget.period] = budget
        for limit in _wishes(wish, "limits", limit_of, scope):
            limits[limit.rule_name] = limit
    applying = tuple(budget for budget in budgets.values() if all(name in who for name in budget.scope))
    return Caller(who, applying, tuple(limits.values()))


def _bounded(value: str) -> str:
    """The end user can be any text that a client sends."""
    return value if len(value.encode()) <= LONGEST_VALUE else hashlib.sha256(value.encode()).hexdigest()


def _wishes(wish: object, name: str, read: Any, scope: str) -> list[Any]:
    """The budgets or limits in the metadata of a key, a team, a user or an organization."""
    try:
        if not isinstance(wish, Mapping) or not set(wish) <= {"budgets", "limits"}:
            raise Invalid("`limina` has the fields `budgets` and `limits`")
        return [read(entry, (scope,)) for entry in wish.get(name, ())]
    except (Invalid, TypeError) as error:
        # A mistake must not switch a limit off.
        raise Invalid(f"the metadata of the {scope} is not valid: {error}") from error
