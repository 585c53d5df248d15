"""A hook for LiteLLM: every call of a model is decided before it is made, and settled with what it really used.

    litellm.callbacks = [LiminaHook(client, key_values=lambda call: {"user": call.get("user") or "anonymous"})]

Before the call the hook makes one decision: one request, the estimated tokens, and the estimated cost if there is a budget.
After the call it commits the actual numbers; if the call fails, it rolls back. It acts on the asynchronous calls
(`acompletion`, `aembedding`, …, a `Router`, the LiteLLM proxy), because LiteLLM has no hook that can refuse a synchronous one.
"""

from __future__ import annotations

import logging
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Literal

import litellm
from litellm.integrations.custom_logger import CustomLogger

from ._async.client import AsyncLimina
from ._clock import Seconds
from ._wire import KeyValues
from .errors import LiminaError, NotFound, Refused, Unavailable
from .types import Check, Hold

Call = Mapping[str, Any]
"""The arguments of a call of LiteLLM: `model`, `messages`, `user`, `max_tokens`, `metadata`, …"""

log = logging.getLogger("limina.litellm")
MOST_OPEN_CALLS = 100_000


def rough_estimate(call: Call) -> int:
    """Tokens of a call: a quarter of its characters, plus the most that it may answer. It is settled later."""
    asked = call.get("messages") or call.get("input") or call.get("prompt") or ""
    answered = call.get("max_completion_tokens") or call.get("max_tokens") or 1024
    return len(str(asked)) // 4 + int(answered)


class LiminaHook(CustomLogger):  # type: ignore[misc,unused-ignore]
    """Limits requests, tokens and cost.

    `key_values(call)` says who calls: the rules of the limiter are asked for it twice, with `meter` = `requests` (one hit) and with
    `meter` = `tokens` (the estimate, then the actual). `budget(call)` may name a limit of the ledger and the estimated cost in
    millionths of a dollar; it is settled with LiteLLM's own cost of the call.

    If there is no decision, a call passes with `on_unavailable="allow"`; a call with a budget never does.
    """

    def __init__(
        self,
        client: AsyncLimina,
        *,
        key_values: Callable[[Call], KeyValues],
        estimate: Callable[[Call], int] = rough_estimate,
        budget: Callable[[Call], Hold | None] = lambda call: None,
        ttl: Seconds = 600,
        on_unavailable: Literal["allow", "refuse"] = "allow",
    ) -> None:
        super().__init__()
        self._client = client
        self._key_values = key_values
        self._estimate = estimate
        self._budget = budget
        self._ttl = ttl
        self._on_unavailable = on_unavailable
        # The open decision of each call. Bounded, because LiteLLM does not say when the reader of a stream goes away: then the
        # decision ends with its `ttl`.
        self._open: OrderedDict[str, _Open] = OrderedDict()

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> None:
        """Before each attempt to call a model."""
        about = dict(self._key_values(kwargs))
        budget = self._budget(kwargs)
        operation = _Open(uuid.uuid4().hex, None if budget is None else budget.limit_name)
        try:
            await self._client.decide(
                operation.operation_id,
                checks=[
                    Check({**about, "meter": "requests"}, name="requests"),
                    Check({**about, "meter": "tokens"}, hits=self._estimate(kwargs), name="tokens", estimate=True),
                ],
                holds=[] if budget is None else [budget],
                create_missing=budget is not None,
                ttl=self._ttl,
                # The call may take minutes, and its end may never be told. So the `ttl` is long, and nothing keeps it alive.
                heartbeats=False,
            )
        except Refused as error:
            raise litellm.RateLimitError(str(error), llm_provider="limina", model=str(kwargs.get("model"))) from error
        except Unavailable as error:
            if self._on_unavailable == "allow" and budget is None:
                log.warning("a call passes without a decision: %s", error)
                return
            raise litellm.ServiceUnavailableError(str(error), llm_provider="limina", model=str(kwargs.get("model"))) from error
        self._open[kwargs["litellm_call_id"]] = operation
        while len(self._open) > MOST_OPEN_CALLS:
            self._open.popitem(last=False)

    async def async_post_call_success_deployment_hook(self, request_data: dict[str, Any], response: Any, call_type: Any) -> None:
        """After a call that was answered at once."""
        await self._settle(request_data, response)

    async def async_log_success_event(self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any) -> None:
        """After a stream has been read to its end, and after an answer from the cache."""
        if kwargs.get("cache_hit"):
            await self._roll_back(kwargs)
        else:
            await self._settle(kwargs, response_obj)

    async def async_post_call_failure_deployment_hook(
        self, request_data: Mapping[str, Any], exception: Exception, call_type: Any, fallback_depth: int | None = None
    ) -> None:
        """After each attempt that failed."""
        await self._roll_back(request_data)

    async def async_log_failure_event(self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any) -> None:
        """After a call that failed in another way, such as a stream that broke."""
        await self._roll_back(kwargs)

    async def _settle(self, call: Call, response: Any) -> None:
        operation = self._open.pop(str(call.get("litellm_call_id")), None)
        if operation is None:
            return
        usage = getattr(response, "usage", None)
        tokens = getattr(usage, "total_tokens", None)
        holds = {} if operation.limit_name is None else {operation.limit_name: _cost(response)}
        try:
            # It has happened, so it is booked in any case: also past the estimate, and after the `ttl`.
            await self._client.decisions.commit(
                operation.operation_id, {} if tokens is None else {"tokens": tokens}, holds=holds, record=True
            )
        except LiminaError as error:
            log.warning("the use of a call was not booked: %s", error)

    async def _roll_back(self, call: Call) -> None:
        operation = self._open.pop(str(call.get("litellm_call_id")), None)
        if operation is None:
            return
        try:
            await self._client.decisions.rollback(operation.operation_id)
        except NotFound:
            pass  # It has ended already.
        except LiminaError as error:
            log.warning("a decision was not rolled back, and ends with its ttl: %s", error)


class _Open:
    def __init__(self, operation_id: str, limit_name: str | None) -> None:
        self.operation_id = operation_id
        self.limit_name = limit_name


def _cost(response: Any) -> int:
    """The cost of a call in millionths of a dollar."""
    try:
        return int(litellm.completion_cost(completion_response=response) * 1_000_000 + 0.5)
    except Exception:  # LiteLLM raises many kinds of errors for a model whose price it does not know.
        log.warning("LiteLLM does not know the cost of this call; it is booked with 0")
        return 0
