"""What a call will take, and what it has taken: tokens and billionths of a dollar."""

from __future__ import annotations

import functools
import json
import logging
import math
import threading
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import litellm

from ._caller import Call
from ._settings import NANODOLLARS, Price, Settings

log = logging.getLogger("limina.litellm")
UNKNOWN_MAXIMUM = 4096
"""Tokens of an answer if neither the call nor LiteLLM's map of models says how many it may have."""
MAXIMUMS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
SAMPLES = 64
FEWEST_SAMPLES = 20
MOST_LEARNED = 10_000


@dataclass(frozen=True, slots=True)
class Model:
    """The model of a call, and its price. `custom` prices are those of the deployment, which LiteLLM's map does not have."""

    name: str
    provider: str | None
    price: Price
    custom: bool
    longest_answer: int | None

    def cost(self, prompt: int, completion: int, usage: Any = None) -> int:
        """Billionths of a dollar, rounded up. Never 0 for tokens that have a price."""
        flat = prompt * self.price.input + completion * self.price.output
        dollars = flat
        if not self.custom:
            try:
                # LiteLLM knows more: cached tokens, higher prices for long prompts, reasoning, audio.
                parts = litellm.cost_per_token(
                    model=self.name,
                    prompt_tokens=prompt,
                    completion_tokens=completion,
                    custom_llm_provider=self.provider,
                    usage_object=usage,
                )
                dollars = sum(parts) or flat
            except Exception as error:  # LiteLLM raises many kinds of errors here.
                log.info("LiteLLM cannot compute the cost of %s: %s", self.name, error)
        return nanodollars(dollars)


def nanodollars(dollars: float) -> int:
    # Products such as 17 × 0.0000025 are not exact. What is left of a thousandth of a billionth is such an error.
    return math.ceil(round(dollars * NANODOLLARS, 3))


def model_of(call: Call) -> Model | None:
    """The model, or `None` if its price is not known."""
    name = str(call.get("model") or "")
    provider = call.get("custom_llm_provider")
    info = _info_of(name, provider)
    price, custom = _deployment_price(call), True
    if price is None and info is not None:
        price, custom = _listed_price(info), False
    if price is None:
        return None
    return Model(name, provider, price, custom, (info or {}).get("max_output_tokens"))


def model_at(call: Call, price: Price) -> Model:
    """A model whose price is not known, at the price of the settings."""
    name = str(call.get("model") or "")
    provider = call.get("custom_llm_provider")
    return Model(name, provider, price, True, (_info_of(name, provider) or {}).get("max_output_tokens"))


def _info_of(name: str, provider: str | None) -> Mapping[str, Any] | None:
    try:
        info: Mapping[str, Any] = litellm.get_model_info(name, custom_llm_provider=provider)
        return info
    except Exception:  # LiteLLM raises different errors for a model that it does not know.
        return None


def _deployment_price(call: Call) -> Price | None:
    """The price that the deployment has in the configuration of a router or the proxy."""
    info = call.get("model_info")
    info = info if isinstance(info, Mapping) else {}
    base_model = call.get("base_model") or info.get("base_model")
    sources: list[Any] = [call, info, litellm.model_cost.get(info.get("id")), litellm.model_cost.get(base_model)]
    for source in sources:
        if isinstance(source, Mapping) and source.get("input_cost_per_token") is not None:
            return Price(float(source["input_cost_per_token"]), float(source.get("output_cost_per_token") or 0))
    return None


def _listed_price(info: Mapping[str, Any]) -> Price | None:
    """The price in LiteLLM's map. LiteLLM says 0 for a price that is missing there, which is not the same as free."""
    price = Price(float(info.get("input_cost_per_token") or 0), float(info.get("output_cost_per_token") or 0))
    listed = litellm.model_cost.get(info.get("key")) or {}
    known = price.input > 0 or price.output > 0 or "input_cost_per_token" in listed
    return price if known else None


def count(model: str, *, text: str | None = None, messages: Any = None, tools: Any = None) -> int:
    """LiteLLM's own count. At least 1 for what is not empty, also if LiteLLM's counter is switched off or fails."""
    try:
        counted = litellm.token_counter(model=_without_provider(model), text=text, messages=messages, tools=tools)
    except Exception as error:  # Such as a message of a form that the counter does not know.
        log.info("LiteLLM cannot count the tokens for %s: %s", model, error)
        counted = 0
    if counted > 0:
        return int(counted)
    raw = text if text is not None else json.dumps([messages, tools], default=str)
    return math.ceil(len(raw.encode()) / 3)


@functools.lru_cache(1024)
def _without_provider(model: str) -> str:
    """LiteLLM's counter knows the tokens of `gpt-4o`, but not those of `openai/gpt-4o`."""
    try:
        return str(litellm.get_llm_provider(model)[0])
    except Exception:  # LiteLLM raises different errors for a model that it does not know.
        return model


def prompt_tokens(call: Call) -> int:
    model, tools = str(call.get("model") or ""), call.get("tools")
    messages = call.get("messages")
    if isinstance(messages, list):
        system = call.get("system")
        return count(model, messages=messages, tools=tools) + (count(model, text=_flat(system)) if system else 0)
    asked = next((given for name in ("input", "prompt") if (given := call.get(name)) is not None), "")
    instructions = call.get("instructions") or ""
    return count(model, text=_flat(asked) + _flat(instructions) + (_flat(tools) if tools else ""))


def _flat(given: Any) -> str:
    if isinstance(given, str):
        return given
    if isinstance(given, list) and all(isinstance(part, str) for part in given):
        return "\n".join(given)
    return json.dumps(given, default=str)


def longest_answer(call: Call, kind: str, model: Model) -> int:
    """The most tokens that the answer may have."""
    if kind == "embedding":
        return 0
    asked = next((given for name in MAXIMUMS if (given := call.get(name)) is not None), None)
    most = int(asked) if asked is not None else (model.longest_answer or UNKNOWN_MAXIMUM)
    return most * max(1, int(call.get("n") or 1), int(call.get("best_of") or 1))


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a call reserves."""

    prompt: int
    completion: int
    cost: int
    learned: bool
    counted_prompt: int
    """The prompt without the margin."""

    @property
    def tokens(self) -> int:
        return self.prompt + self.completion


def estimate(call: Call, kind: str, model: Model, key: str | None, settings: Settings, learned: Learned) -> Estimate:
    counted = prompt_tokens(call)
    prompt = math.ceil(counted * settings.prompt_margin)
    most = longest_answer(call, kind, model)
    usual = learned.usual(model.name, key) if settings.estimate == "learned" else None
    completion = most if usual is None else min(most, usual)
    return Estimate(prompt, completion, model.cost(prompt, completion), usual is not None, counted)


class Learned:
    """How many tokens the answers to similar calls had: of the same model and key or, until there are enough, of the same model.

    Remembers 64 answers of each of the 10,000 models and keys that were used last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._samples: OrderedDict[tuple[str, str | None], array[int]] = OrderedDict()
        self._seen: dict[tuple[str, str | None], int] = {}

    def usual(self, model: str, key: str | None) -> int | None:
        """What 95 of 100 answers did not exceed. `None` if there were too few."""
        with self._lock:
            for about in ((model, key), (model, None)):
                samples = self._samples.get(about)
                if samples is not None and len(samples) >= FEWEST_SAMPLES:
                    return sorted(samples)[math.ceil(0.95 * len(samples)) - 1]
        return None

    def learn(self, model: str, key: str | None, completion: int) -> None:
        with self._lock:
            for about in {(model, key), (model, None)}:
                samples = self._samples.setdefault(about, array("q"))
                self._samples.move_to_end(about)
                place = self._seen.get(about, 0)
                self._seen[about] = place + 1
                if len(samples) < SAMPLES:
                    samples.append(completion)
                else:
                    samples[place % SAMPLES] = completion
            while len(self._samples) > MOST_LEARNED:
                forgotten, _ = self._samples.popitem(last=False)
                del self._seen[forgotten]

    def after_fork(self) -> None:
        self._lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Use:
    """What a call has taken."""

    prompt: int
    completion: int
    cost: int
    reported: bool
    """Whether the provider said so. Otherwise it was counted."""

    @property
    def tokens(self) -> int:
        return self.prompt + self.completion


def use_of_answer(model: Model, prompt: int, response: Any) -> Use:
    """The use that the response reports, or else that of its text: a use of 0 is not known."""
    usage = read_usage(response)
    completion = usage.completion
    if usage.completion == 0 and usage.prompt == 0:
        completion = counted_text(model.name, [response])
    return _use(model, prompt, completion, usage, cost_of(response))


def use_of_chunks(model: Model, prompt: int, chunks: Iterable[Any], *, complete: bool) -> Use:
    """The use of a stream by what arrived of it."""
    parts = list(chunks)
    if all(isinstance(part, bytes | str) for part in parts):
        # LiteLLM passes some providers' streams on as they are.
        parts = events(b"".join(part if isinstance(part, bytes) else part.encode() for part in parts))
    usage = _Usage(0, 0, None)
    for part in parts:
        usage = usage.joined(read_usage(part))
    completion = usage.completion
    if completion == 0 or not complete:
        # A stream that broke may have reported what it had sent by then, or nothing.
        completion = max(completion, counted_text(model.name, parts))
    return _use(model, prompt, completion, usage, None)


def _use(model: Model, prompt: int, completion: int, usage: _Usage, cost: float | None) -> Use:
    reported = usage.completion == completion and usage.prompt > 0
    asked = usage.prompt or prompt
    if cost is not None and reported and cost > 0:
        return Use(asked, completion, nanodollars(cost), reported)
    return Use(asked, completion, model.cost(asked, completion, usage.details if reported else None), reported)


@dataclass(frozen=True, slots=True)
class _Usage:
    prompt: int
    completion: int
    details: Any

    def joined(self, later: _Usage) -> _Usage:
        """Both together: some providers report the prompt at the beginning and the answer at the end."""
        whole = later.details if later.prompt and later.completion else self.details
        return _Usage(max(self.prompt, later.prompt), max(self.completion, later.completion), whole)


def read_usage(thing: Any) -> _Usage:
    """The use that an answer or a part of a stream reports. Zeros if it reports none."""
    usage = _get(thing, "usage") or _get(_get(thing, "response"), "usage") or _get(_get(thing, "message"), "usage")
    if usage is None:
        return _Usage(0, 0, None)
    prompt = _get(usage, "prompt_tokens") or _anthropic_prompt(usage)
    completion = _get(usage, "completion_tokens") or _get(usage, "output_tokens") or 0
    details = usage if isinstance(usage, litellm.Usage) else None
    return _Usage(int(prompt), int(completion), details)


def _anthropic_prompt(usage: Any) -> int:
    """The tokens of a prompt whose cached parts are reported apart."""
    cached = ("cache_creation_input_tokens", "cache_read_input_tokens")
    return int(_get(usage, "input_tokens") or 0) + sum(int(_get(usage, name) or 0) for name in cached)


def cost_of(response: Any) -> float | None:
    """The cost that LiteLLM has computed for a response."""
    hidden = _get(response, "_hidden_params")
    cost = _get(hidden, "response_cost")
    return float(cost) if isinstance(cost, int | float) else None


def counted_text(model: str, parts: Iterable[Any]) -> int:
    """LiteLLM's count of the text that the parts contain."""
    text = "".join(written for part in parts for written in _texts(part))
    return count(model, text=text) if text else 0


def _texts(part: Any) -> Iterable[str]:
    """What a model has written: the text, the reasoning, and the arguments of the functions that it calls."""
    for choice in _get(part, "choices") or ():
        message = _get(choice, "delta") or _get(choice, "message")
        yield from _strings(choice, "text")
        yield from _strings(message, "content", "reasoning_content", "refusal")
        functions = [_get(call, "function") for call in _get(message, "tool_calls") or ()]
        for function in (*functions, _get(message, "function_call")):
            yield from _strings(function, "name", "arguments")
    # The events of the Responses API, and those of Anthropic's.
    kind = _get(part, "type")
    if isinstance(kind, str) and kind.endswith(".delta"):
        yield from _strings(part, "delta")
    if kind == "content_block_delta":
        yield from _strings(_get(part, "delta"), "text", "thinking", "partial_json")
    for block in _blocks(part):
        yield from _strings(block, "text", "thinking", "arguments")


def _blocks(part: Any) -> Iterable[Any]:
    """The blocks of a whole answer of the Responses API or of Anthropic's."""
    for item in _get(part, "output") or _get(part, "content") or ():
        yield item
        inner = _get(item, "content")
        yield from inner if isinstance(inner, list) else ()


def _strings(thing: Any, *names: str) -> Iterable[str]:
    for name in names:
        value = _get(thing, name)
        if isinstance(value, str):
            yield value


def _get(thing: Any, name: str) -> Any:
    return thing.get(name) if isinstance(thing, Mapping) else getattr(thing, name, None)


def events(sent: bytes) -> list[Any]:
    """The JSON of server-sent events."""
    found = []
    for line in sent.decode(errors="replace").splitlines():
        if line.startswith("data:"):
            try:
                found.append(json.loads(line[5:]))
            except ValueError:
                continue  # `[DONE]`, or an event that was cut.
    return found
