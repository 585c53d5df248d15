"""Calls of a language model within limits: tokens a minute for each user, and a budget for each team.

    pip install './clients/python[litellm]'
    limina &
    python examples/python/llm_gateway.py

The model's answer is mocked, so the example needs no key of a provider.
"""

import asyncio
import os

import litellm

from limina import AsyncLimina, Hold, Rule, fixed
from limina.litellm import Call, LiminaHook

client = AsyncLimina(os.environ.get("LIMINA_URL", "http://127.0.0.1:7070"), namespace="llm")


def budget(call: Call) -> Hold:
    """Holds a cent before the call, in millionths of a dollar. At the end the actual cost is booked."""
    return Hold("budget/research", 10_000, ceiling=5_000_000)


async def main() -> None:
    per_user = Rule("tokens-per-user", limit=3000, group_by=["user"], selection={"meter": "tokens"}, window=fixed(3600))
    await client.rules.put(per_user)
    litellm.callbacks = [LiminaHook(client, key_values=lambda call: {"user": call["user"]}, budget=budget)]

    for question in ("What is a fencing token?", "And a ledger?", "And a very long story?"):
        try:
            answer = await litellm.acompletion(
                model="gpt-4o",
                user="ann",
                messages=[{"role": "user", "content": question}],
                max_tokens=5000 if "long" in question else 500,
                mock_response="A number that only grows." if "token" in question else "A book of accounts.",
            )
            print(f"{answer.choices[0].message.content} ({answer.usage.total_tokens} tokens)")
        except litellm.RateLimitError as error:
            print(f"refused: {error.message}")

    used = (await client.check({"user": "ann", "meter": "tokens"}, 0)).limits[0].used
    spent = (await client.ledger.limit("budget/research")).commit_value
    print(f"ann has used {used} tokens; the team has spent {spent} millionths of a dollar")
    await client.aclose()


if __name__ == "__main__":
    asyncio.run(main())
