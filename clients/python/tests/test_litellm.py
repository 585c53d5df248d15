"""Budgets and limits in LiteLLM as a library and under its router. LiteLLM mocks the models; the server of Limina is the real one.

`test_litellm_proxy.py` does it in LiteLLM's proxy."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, date, datetime
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest

from limina import Limina
from limina.errors import Invalid

from .conformance import closed_port

if find_spec("litellm") is None:
    pytest.skip("litellm is only installed for the full run", allow_module_level=True)

# The prices of the models come from the package, not from the network.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import litellm
from litellm import acompletion as imported_before
from litellm import completion as imported_before_too

import limina.litellm
from limina.litellm import Budget, CallInvalid, CallRefused, DecisionUnavailable, LiminaHook, Limit, Price, Settings
from limina.litellm._tokens import FEWEST_SAMPLES, Learned, Model, use_of_chunks

# LiteLLM has tasks that belong to the first event loop of the process.
LOOP = asyncio.new_event_loop()
MESSAGES = [{"role": "user", "content": "What is a fencing token?"}]
PROMPT = 13
ANSWER = "A number that only grows."
COMPLETION = 6
MONTH = f"{datetime.now(UTC):%Y-%m}"
ANN = f"budget/user=ann/{MONTH}"
# Billionths of a dollar for a token of gpt-4o.
INPUT, OUTPUT = 2500, 10000
COUNTED = PROMPT * INPUT + COMPLETION * OUTPUT


@pytest.fixture
def client(server: str, namespace: str) -> Iterator[Limina]:
    with Limina(f"http://{server}", namespace=namespace, timeout=20) as client:
        yield client


@pytest.fixture
def make(server: str, namespace: str) -> Iterator[Callable[..., LiminaHook]]:
    """Installs a hook."""
    hooks: list[LiminaHook] = []

    def make(**given: Any) -> LiminaHook:
        given = {"url": f"http://{server}", "namespace": namespace, "timeout": 20, "budgets": (Budget(1, ("user",)),), **given}
        hook = LiminaHook(Settings(**given))
        hooks.append(hook)
        litellm.callbacks = [hook]
        return hook

    yield make
    litellm.logging_callback_manager._reset_all_callbacks()
    for hook in hooks:
        hook.close()


def run(calls: Awaitable[Any]) -> Any:
    return LOOP.run_until_complete(asyncio.wait_for(calls, 60))


def options(**given: Any) -> dict[str, Any]:
    return {"model": "gpt-4o", "user": "ann", "messages": MESSAGES, "max_tokens": 500, "mock_response": ANSWER, **given}


def completion(**given: Any) -> Any:
    return litellm.acompletion(**options(**given))


def spent(client: Limina, name: str = ANN) -> int:
    return client.ledger.limit(name).commit_value


def settled(hook: LiminaHook, calls: int) -> None:
    """Waits until so many calls have been booked: those that end in a finalizer are booked a moment later."""
    deadline = time.monotonic() + 20
    while hook.metrics.snapshot()["settled"] + hook.metrics.snapshot()["settled_late"] < calls:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_several_budgets_and_limits_are_one_decision(client: Limina, make: Callable[..., LiminaHook]) -> None:
    budgets = (Budget(1, ("user",)), Budget(2, ("team",), "day"), Budget(3, ("team", "model"), "total"), Budget(4))
    limits = (Limit("tokens", 1000, ("user",), 60), Limit("requests", 10, ("team",), 60), Limit("parallel", 2))
    make(budgets=budgets, limits=limits)
    answer = run(completion(metadata={"limina": {"team": "research"}}))
    cost = answer.usage.prompt_tokens * INPUT + answer.usage.completion_tokens * OUTPUT
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    names = [ANN, f"budget/team=research/{today}", "budget/team=research,model=gpt-4o/total", f"budget/all/{MONTH}"]
    assert {limit.name: (limit.commit_value, limit.ceiling) for limit in client.ledger.limits().items} == {
        name: (cost, round(usd * limina.litellm.NANODOLLARS)) for name, usd in zip(names, (1, 2, 3, 4), strict=True)
    }
    used = {rule.name: client.rules.groups(rule.name) for rule in client.rules.list().items}
    assert used["litellm/tokens/user/60s"][0].used == answer.usage.total_tokens
    assert used["litellm/requests/team/60s"][0].used == 1
    assert [group.used for group in used["litellm/parallel/all"]] in ([], [0])


def test_a_stream_that_reports_no_use_is_counted(client: Limina, make: Callable[..., LiminaHook]) -> None:
    hook = make()

    async def read() -> None:
        async for _ in await completion(stream=True):
            pass

    run(read())
    assert spent(client) == COUNTED
    assert hook.metrics.snapshot()["usage_counted"] == 1


def test_an_answer_that_reports_a_use_of_0_is_counted(client: Limina, make: Callable[..., LiminaHook]) -> None:
    make()
    nothing = litellm.Usage(prompt_tokens=0, completion_tokens=0, total_tokens=0)
    choice = {"message": {"role": "assistant", "content": ANSWER}, "finish_reason": "stop"}
    run(completion(mock_response=litellm.ModelResponse(model="gpt-4o", choices=[choice], usage=nothing)))
    assert spent(client) == COUNTED


@pytest.mark.parametrize("how", ["close", "forget"])
def test_an_abandoned_stream_is_booked_at_once_by_what_arrived(client: Limina, make: Callable[..., LiminaHook], how: str) -> None:
    hook = make()

    async def leave() -> None:
        stream = await completion(stream=True)
        await stream.__anext__()
        if how == "close":
            await stream.aclose()
        del stream

    run(leave())
    gc.collect()
    settled(hook, 1)
    assert PROMPT * INPUT < spent(client) < COUNTED
    assert client.ledger.limit(ANN).hold_value == 0
    assert hook.metrics.snapshot()["streams_abandoned"] == 1


def test_a_cancelled_call_is_booked_as_estimated_at_once(client: Limina, make: Callable[..., LiminaHook]) -> None:
    """Nobody knows what the provider bills for it."""
    hook = make()

    async def cancel() -> None:
        task = asyncio.create_task(completion(mock_delay=60))
        while hook.metrics.snapshot()["decided"] == 0:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(cancel())
    settled(hook, 1)
    assert spent(client) == PROMPT * INPUT + 500 * OUTPUT
    assert client.ledger.limit(ANN).hold_value == 0


def test_a_failed_call_costs_nothing(client: Limina, make: Callable[..., LiminaHook]) -> None:
    hook = make()
    with pytest.raises(litellm.InternalServerError):
        run(completion(mock_response="litellm.InternalServerError"))
    with pytest.raises(litellm.InternalServerError):
        litellm.completion(**options(mock_response="litellm.InternalServerError"))
    settled(hook, 2)
    value = client.ledger.limit(ANN)
    assert (value.commit_value, value.hold_value) == (0, 0)


def test_synchronous_calls_are_limited_too(client: Limina, make: Callable[..., LiminaHook]) -> None:
    hook = make()
    answer = litellm.completion(**options())
    booked = answer.usage.prompt_tokens * INPUT + answer.usage.completion_tokens * OUTPUT
    assert spent(client) == booked
    for _ in litellm.completion(**options(stream=True)):
        pass
    assert spent(client) == booked + COUNTED
    stream = litellm.completion(**options(stream=True))
    next(stream)
    del stream
    gc.collect()
    settled(hook, 3)
    assert booked + COUNTED < spent(client) < booked + 2 * COUNTED
    with pytest.raises(CallRefused):
        litellm.completion(**options(max_tokens=100_000))


def test_embeddings_and_the_responses_api_are_limited(client: Limina, make: Callable[..., LiminaHook]) -> None:
    make()
    answer = run(litellm.aembedding(model="text-embedding-3-small", input=["hello"] * 100, user="ann", mock_response=[0.1]))
    assert spent(client) == answer.usage.prompt_tokens * 20
    run(litellm.aresponses(model="gpt-4o", input="hello", user="ann", max_output_tokens=100, mock_response=ANSWER))
    assert spent(client) > 10 * OUTPUT


def test_a_call_that_cannot_be_limited_is_refused(make: Callable[..., LiminaHook]) -> None:
    hook = make()
    with pytest.raises(CallInvalid, match=r"imported before `limina\.litellm`"):
        run(imported_before(**options()))
    with pytest.raises(CallInvalid, match=r"imported before `limina\.litellm`"):
        imported_before_too(**options())
    for image in (litellm.image_generation, lambda **given: run(litellm.aimage_generation(**given))):
        with pytest.raises(CallInvalid, match="cannot be limited"):
            image(model="dall-e-3", prompt="a fence", mock_response="x")
    with pytest.raises(CallInvalid, match="cannot be limited"):
        run(hook.async_pre_call_hook(SimpleNamespace(user_id=None), None, {}, "pass_through_endpoint"))
    allowing = make(other_calls="allow")
    litellm.image_generation(model="dall-e-3", prompt="a fence", mock_response="x")
    assert allowing.metrics.snapshot()["not_limited"] == 1
    assert hook.metrics.snapshot()["decided"] == 0


def test_without_the_hook_litellm_is_as_it_was() -> None:
    assert run(completion()).choices[0].message.content == ANSWER
    assert imported_before_too(**options()).choices[0].message.content == ANSWER


def test_a_refusal_says_what_and_until_when_and_is_not_retried(client: Limina, make: Callable[..., LiminaHook]) -> None:
    hook = make(budgets=(Budget(0.01, ("user",)), Budget(0.02)), limits=(Limit("tokens", 1000, (), 3600),))
    parameters = {"model": "gpt-4o", "api_key": "x", "mock_response": ANSWER}
    deployments = [{"model_name": name, "litellm_params": {**parameters}} for name in ("chat", "chat", "spare")]
    router = litellm.Router(model_list=deployments, num_retries=3, fallbacks=[{"chat": ["spare"]}])

    def ask(**given: Any) -> Any:
        return run(router.acompletion(model="chat", messages=MESSAGES, user="ann", **given))

    ask(max_tokens=900)
    with pytest.raises(CallRefused) as refused:
        ask(max_tokens=980)
    assert hook.metrics.snapshot()["refused"] == 1
    assert {refusal.name for refusal in refused.value.refusals} == {ANN, "litellm/tokens/all/3600s"}
    assert all(refusal.until is not None for refusal in refused.value.refusals)
    assert f"{ANN}: the call may cost $0.009832, and $0.009775 of $0.01 is left, until 20" in str(refused.value)
    assert isinstance(refused.value, litellm.RateLimitError)
    assert int(refused.value.headers["retry-after"]) == pytest.approx(refused.value.retry_after, abs=1)
    # The deployment is not in a cooldown.
    ask(max_tokens=100)


@pytest.mark.parametrize("synchronous", [False, True])
def test_each_fallback_is_a_decision(client: Limina, make: Callable[..., LiminaHook], synchronous: bool) -> None:
    hook = make(budgets=(Budget(1, ("user", "model")),))
    given = options(mock_response=None, mock_testing_fallbacks=None, api_key="x", api_base=f"http://{closed_port()}")
    given |= {"fallbacks": [{"model": "gpt-4o-mini", "mock_response": ANSWER}], "num_retries": 0}
    answer = litellm.completion(**given) if synchronous else run(litellm.acompletion(**given))
    assert answer.choices[0].message.content == ANSWER
    assert hook.metrics.snapshot()["decided"] == 2
    settled(hook, 2)
    booked = {limit.name.split(",")[1].split("/")[0]: limit.commit_value for limit in client.ledger.limits().items}
    assert booked == {
        "model=gpt-4o": 0,
        "model=gpt-4o-mini": answer.usage.prompt_tokens * 150 + answer.usage.completion_tokens * 600,
    }


def test_a_price_that_is_not_known_is_refused_or_estimated(client: Limina, make: Callable[..., LiminaHook]) -> None:
    make()
    with pytest.raises(CallInvalid, match="price of openai/our-own is not known"):
        run(completion(model="openai/our-own"))
    make(budgets=(), limits=(Limit("tokens", 1000, (), 60),))
    run(completion(model="openai/our-own"))
    hook = make(unknown_price=Price(1e-6, 2e-6))
    answer = run(completion(model="openai/our-own"))
    assert spent(client) == answer.usage.prompt_tokens * 1000 + answer.usage.completion_tokens * 2000
    assert hook.metrics.snapshot()["price_unknown_estimated"] == 1


def test_a_deployment_may_have_a_price_of_its_own(client: Limina, make: Callable[..., LiminaHook]) -> None:
    make()
    price = {"input_cost_per_token": 3e-6, "output_cost_per_token": 5e-6}
    answer = run(completion(model="openai/our-own", **price))
    assert spent(client) == answer.usage.prompt_tokens * 3000 + answer.usage.completion_tokens * 5000


def test_without_the_server_calls_are_refused_or_pass_and_are_counted(make: Callable[..., LiminaHook]) -> None:
    away = f"http://{closed_port()}"
    hook = make(url=away)
    with pytest.raises(DecisionUnavailable) as refused:
        run(completion())
    assert refused.value.status_code == 503
    assert hook.metrics.snapshot()["unavailable_refused"] == 1
    hook = make(url=away, on_unavailable="allow", timeout=0.2)
    assert run(completion()).choices[0].message.content == ANSWER
    assert hook.metrics.snapshot()["unavailable_allowed"] == 1


def test_a_call_that_passed_without_a_decision_is_booked_later(
    client: Limina, make: Callable[..., LiminaHook], monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = make(on_unavailable="allow", limits=(Limit("tokens", 10, ("user",), 60),), budgets=(Budget(0.00001, ("user",)),))
    monkeypatch.setattr(hook, "_client", limina.AsyncLimina(f"http://{closed_port()}", retries=0))
    answer = run(completion())
    settled(hook, 1)
    # Past the ceiling and the limit: it has happened.
    assert spent(client) == answer.usage.prompt_tokens * INPUT + answer.usage.completion_tokens * OUTPUT
    assert client.rules.groups("litellm/tokens/user/60s")[0].used == answer.usage.total_tokens
    monkeypatch.undo()
    with pytest.raises(CallRefused):
        run(completion())


def test_a_learned_estimate_lets_more_calls_in(client: Limina, make: Callable[..., LiminaHook]) -> None:
    hook = make(estimate="learned")
    for _ in range(FEWEST_SAMPLES):
        run(completion())
    assert hook.metrics.snapshot()["estimates_learned"] == 0
    run(completion())
    held = [entry.value for entry in client.ledger.entries(ANN, limit=1000).items if entry.type == "hold"]
    used = run(completion()).usage.completion_tokens
    assert held == [PROMPT * INPUT + 500 * OUTPUT] * FEWEST_SAMPLES + [PROMPT * INPUT + used * OUTPUT]
    assert hook.metrics.coverage == 1.0
    # What is above the estimate is booked all the same.
    before = spent(client)
    long = run(completion(mock_response=ANSWER, mock_tool_calls=None, max_tokens=500)).usage
    assert spent(client) == before + long.prompt_tokens * INPUT + long.completion_tokens * OUTPUT


def test_what_arrived_is_read_in_every_form() -> None:
    model = Model("gpt-4o", None, Price(1e-6, 2e-6), True, None)
    words = " and and and and and"

    def sent(*events: dict[str, Any]) -> list[bytes]:
        """LiteLLM passes Anthropic's streams on as bytes, in pieces of any size."""
        whole = b"".join(b"event: x\ndata: " + json.dumps(event).encode() + b"\n\n" for event in events)
        return [whole[:30], whole[30:]]

    begins = {"type": "message_start", "message": {"usage": {"input_tokens": 7, "cache_read_input_tokens": 4, "output_tokens": 1}}}
    delta = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": words}}
    ends = {"type": "message_delta", "usage": {"output_tokens": 9}}
    completed = {"type": "response.completed", "response": {"usage": {"input_tokens": 11, "output_tokens": 9}}}
    function = {"choices": [{"delta": {"tool_calls": [{"function": {"name": "and", "arguments": " and"}}]}}]}
    for chunks, complete, prompt, completion in (
        (sent(begins, delta, ends), True, 11, 9),
        (sent(begins, delta), False, 11, 5),
        ([{"type": "response.output_text.delta", "delta": words}, completed], True, 11, 9),
        ([{"type": "response.output_text.delta", "delta": words}], False, 3, 5),
        ([{"choices": [{"delta": {"reasoning_content": words}}]}, function], False, 3, 7),
        ([], False, 3, 0),
    ):
        use = use_of_chunks(model, 3, chunks, complete=complete)
        assert (use.prompt, use.completion) == (prompt, completion)
        assert use.cost == prompt * 1000 + completion * 2000


def test_what_is_learned_is_bounded_and_follows_the_calls() -> None:
    learned = Learned()
    for size in range(100):
        learned.learn("m", "k", size)
    assert learned.usual("m", "k") == 96
    # Another key of the same model begins with what the model's other calls took.
    assert learned.usual("m", "other") == 96
    assert learned.usual("n", "k") is None
    for _ in range(64):
        learned.learn("m", "k", 7)
    assert learned.usual("m", "k") == 7


def test_a_changed_budget_changes_the_ceiling(client: Limina, make: Callable[..., LiminaHook]) -> None:
    make(budgets=(Budget(0.000001, ("user",)),))
    with pytest.raises(CallRefused):
        run(completion())
    make(budgets=(Budget(0.01, ("user",)),))
    run(completion())
    make(budgets=(Budget(5, ("user",)),))
    run(completion())
    assert client.ledger.limit(ANN).ceiling == 5 * limina.litellm.NANODOLLARS


def test_metadata_of_keys_teams_users_and_organizations(client: Limina, make: Callable[..., LiminaHook]) -> None:
    types = pytest.importorskip("litellm.proxy._types")
    hook = make(budgets=(Budget(1, ("team",)),), limits=(Limit("tokens", 9000, ("team",), 60),))
    wish = {"limina": {"budgets": [{"usd": 2}], "limits": [{"tokens": 5000, "per": "1m"}, {"parallel": 3}]}}
    key = {"limina": {"budgets": [{"usd": 0.5, "period": "day"}]}}
    auth = types.UserAPIKeyAuth(
        api_key="sk-1",
        user_id="ann",
        team_id="research",
        org_id="acme",
        metadata=key,
        team_metadata=wish,
        organization_metadata=wish,
    )
    data: dict[str, Any] = {"metadata": {"user_api_key_auth": auth, "limina": {"team": "forged"}}}

    class Cache:
        async def async_get_cache(self, key: str) -> Any:
            return SimpleNamespace(metadata={"limina": {"budgets": [{"usd": 7}]}}) if key == "ann" else None

    run(hook.async_pre_call_hook(auth, Cache(), data, "completion"))
    run(completion(**data))
    ceilings = {limit.name.rsplit("/", 1)[0]: limit.ceiling or 0 for limit in client.ledger.limits().items}
    assert {name: ceiling / limina.litellm.NANODOLLARS for name, ceiling in ceilings.items()} == {
        f"budget/key={auth.api_key}": 0.5,
        "budget/team=research": 2,
        "budget/user=ann": 7,
        "budget/organization=acme": 2,
    }
    assert client.rules.overrides("litellm/tokens/team/60s").items[0].limit == 5000
    assert client.rules.get("litellm/parallel/organization").limit == -1
    auth.metadata["limina"] = {"budget": 1}
    with pytest.raises(CallInvalid, match="the metadata of the key is not valid"):
        run(completion(**data))


def test_a_forked_child_does_not_book_the_calls_of_its_parent(client: Limina, make: Callable[..., LiminaHook]) -> None:
    hook = make()
    stream = litellm.completion(**options(stream=True))
    next(stream)
    child = os.fork()
    if child == 0:
        del stream
        gc.collect()
        booked = hook.metrics.snapshot()["settled"]
        litellm.completion(**options(user="bob"))
        os._exit(0 if booked == 0 and hook.metrics.snapshot()["settled"] == 1 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert client.ledger.limit(ANN).hold_value > 0
    for _ in stream:
        pass
    assert spent(client) == COUNTED
    assert spent(client, f"budget/user=bob/{MONTH}") > 0


def test_the_counters_are_shown_among_those_of_litellm(make: Callable[..., LiminaHook]) -> None:
    prometheus_client = pytest.importorskip("prometheus_client")
    hook = make()
    run(completion())
    registry = prometheus_client.CollectorRegistry()
    registry.register(hook.metrics)
    assert "limina_litellm_decided_total 1.0" in prometheus_client.generate_latest(registry).decode()


def test_a_long_name_of_an_end_user_is_allowed(make: Callable[..., LiminaHook]) -> None:
    make(budgets=(Budget(1, ("end_user",)),))
    run(completion(metadata={"limina": {"end_user": "é" * 5000}}))


def test_settings_are_read_strictly() -> None:
    settings = Settings.of(
        {
            "ttl": "2m",
            "unknown_price": {"input": 5, "output": 15},
            "budget": [{"usd": 100, "for": ["model", "team"]}, {"usd": 1, "for": "all", "period": "day"}],
            "limit": [{"tokens": 10, "per": "1m30s", "for": "key"}, {"parallel": 5, "for": "all"}],
        }
    )
    assert settings.ttl == 120
    assert settings.unknown_price == Price(5e-6, 15e-6)
    assert settings.budgets == (Budget(100, ("team", "model")), Budget(1, (), "day"))
    assert settings.limits == (Limit("tokens", 10, ("key",), 90), Limit("parallel", 5))
    wrongs: list[dict[str, Any]] = [
        {"budgets": []},
        {"estimate": "guess"},
        {"ttl": 60},
        {"unknown_price": 0},
        {"unknown_price": {"input": 0, "output": 1}},
        {"budget": [{"usd": -1, "for": "key"}]},
        {"budget": [{"usd": 1}]},
        {"budget": [{"usd": 1, "for": "planet"}]},
        {"budget": [{"usd": 1, "for": "key", "period": "week"}]},
        {"limit": [{"tokens": 5, "for": "key"}]},
        {"limit": [{"tokens": 5, "requests": 5, "per": "1m", "for": "key"}]},
        {"limit": [{"tokens": 5, "per": "1m", "for": "key"}] * 2},
    ]
    for wrong in wrongs:
        with pytest.raises(Invalid):
            Settings.of(wrong)


def test_budgets_have_names_and_ends() -> None:
    budget = Budget(1, ("team", "model"))
    assert (
        budget.limit_name({"team": "a/b,c", "model": "gpt-4o"}, date(2026, 12, 31)) == "budget/team=a%2Fb%2Cc,model=gpt-4o/2026-12"
    )
    assert budget.ends(date(2026, 12, 31)) == datetime(2027, 1, 1, tzinfo=UTC)
    assert Budget(1, (), "day").ends(date(2026, 2, 28)) == datetime(2026, 3, 1, tzinfo=UTC)
    assert Budget(1, (), "total").ends(date(2026, 2, 28)) is None
    assert len(budget.limit_name({"team": "x" * 500, "model": "m"}, date(2026, 1, 1))) < 100
