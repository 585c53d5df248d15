"""Keys of the proxy in tests: `sk-ann-research` is a key of ann in the team research. Elsewhere LiteLLM's database has them."""

from __future__ import annotations

from litellm.proxy._types import UserAPIKeyAuth

TEAMS = {"metered": {"limina": {"budgets": [{"usd": 0.5}], "limits": [{"tokens": 100, "per": "1m"}]}}}


async def user_api_key_auth(request: object, api_key: str) -> UserAPIKeyAuth:
    _, user, team = api_key.split("-")
    return UserAPIKeyAuth(api_key=api_key, user_id=user, team_id=team, team_metadata=TEAMS.get(team, {}))
