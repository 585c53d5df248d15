"""Calls of a language model within limits: tokens an hour for each user, and a budget for each team.

    pip install './clients/python[litellm]'
    limina &
    python examples/python/llm_gateway.py

The model's answer is mocked, so the example needs no key of a provider. docs/llm.md is the guide, also for LiteLLM's proxy.
"""

import asyncio
import os

import litellm

from limina import Limina
from limina.litellm import NANODOLLARS, Budget, CallRefused, LiminaHook, Limit, Settings

URL = os.environ.get("LIMINA_URL", "http://127.0.0.1:7070")
SETTINGS = Settings(
    url=URL,
    namespace="llm",
    budgets=(Budget(5, scope=("team",), period="total"),),
    limits=(Limit("tokens", 3000, scope=("user",), per=3600),),
)


async def main() -> None:
    litellm.callbacks = [LiminaHook(SETTINGS)]

    for question in ("What is a fencing token?", "And a ledger?", "And a very long story?"):
        try:
            answer = await litellm.acompletion(
                model="gpt-4o",
                user="ann",
                metadata={"limina": {"team": "research"}},
                messages=[{"role": "user", "content": question}],
                max_tokens=5000 if "long" in question else 500,
                mock_response="A number that only grows." if "token" in question else "A book of accounts.",
            )
            print(f"{answer.choices[0].message.content} ({answer.usage.total_tokens} tokens)")
        except CallRefused as error:
            print(f"refused: {error}")

    with Limina(URL, namespace="llm") as client:
        used = client.check({"user": "ann", "meter": "tokens"}, 0).limits[0].used
        spent = client.ledger.limit("budget/team=research/total").commit_value
        print(f"ann has used {used} tokens; the team has spent {spent / NANODOLLARS} dollars")


if __name__ == "__main__":
    asyncio.run(main())
