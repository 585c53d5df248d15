"""The hook: decides before a call, and has its use booked after it."""

from __future__ import annotations

import asyncio
import datetime
import logging
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from litellm.integrations.custom_logger import CustomLogger

from .. import _fork
from .._async.client import AsyncLimina
from .._sync.client import Limina
from ..errors import Invalid, LiminaError, Refused, Unavailable
from ._book import Book
from ._caller import USER_METADATA, Call, Caller, UserMetadata, caller_of
from ._functions import COSTS_MONEY, LIMITED, SYNCHRONOUS, is_limited
from ._metrics import Metrics
from ._operation import Operation, Plan
from ._refusals import CallInvalid, CallRefused, DecisionUnavailable, refusals_of
from ._settings import Price, Settings
from ._settler import Settlement, Settler
from ._tokens import MAXIMUMS, Learned, Model, estimate, model_at, model_of

log = logging.getLogger("limina.litellm")
LONG_PROMPT = 20_000
"""Characters from which on the tokens of a prompt are not counted in the event loop."""
QUIET = 60.0
"""Seconds between two lines in the log about calls that pass without a decision."""


class LiminaHook(CustomLogger):  # type: ignore[misc,unused-ignore]
    """Limits what LiteLLM's callers spend: budgets of dollars, tokens and requests in a window, and calls at the same time.

        litellm.callbacks = [LiminaHook(Settings.read("limina-litellm.toml"))]

    Each attempt to call a model is one decision. It reserves the estimated tokens and cost, and is settled with what was used.
    `caller` replaces the way in which the hook finds out who calls.
    """

    def __init__(self, settings: Settings, *, caller: Callable[[Call, Settings], Caller] = caller_of) -> None:
        super().__init__()
        self.settings = settings
        self.metrics = Metrics()
        self._caller = caller
        url, token, namespace, timeout = settings.url, settings.token, settings.namespace, settings.timeout
        client = AsyncLimina(url, token=token, namespace=namespace, timeout=timeout)
        threads_client = Limina(url, token=token, namespace=namespace, timeout=timeout)
        self._settler = Settler(threads_client, self.metrics)
        # If calls may pass without a decision, waiting for retries costs their users more than that.
        retries = 2 if settings.on_unavailable == "refuse" else 0
        self._client = client.with_retries(retries)
        self._threads_client = threads_client.with_retries(retries)
        self._book = Book(self._threads_client, settings)
        self._learned = Learned()
        self._logged_at = -QUIET
        for part in (self.metrics, self._learned):
            _fork.watch(part)

    async def begin(self, call: Call, kind: str) -> Operation:
        """Decides. Raises if the call must not be made."""
        long = len(str(call.get("messages") or call.get("input") or call.get("prompt") or "")) > LONG_PROMPT
        plan = await asyncio.to_thread(self._plan, call, kind) if long else self._plan(call, kind)
        operation_id = uuid.uuid4().hex
        self._settler.start()
        try:
            if not self._book.is_up_to_date(plan):
                await asyncio.to_thread(self._book.update, plan)
            guard = await self._client.decide(operation_id, **self._request(plan))
        except LiminaError as error:
            return self._without_decision(operation_id, plan, error)
        except BaseException:  # The caller has gone. The server may have decided.
            self._take_back(operation_id)
            raise
        return self._begun(operation_id, plan, guard)

    def begin_now(self, call: Call, kind: str) -> Operation:
        """The same for synchronous calls."""
        plan = self._plan(call, kind)
        operation_id = uuid.uuid4().hex
        self._settler.start()
        try:
            self._book.update(plan)
            guard = self._threads_client.decide(operation_id, **self._request(plan)).__enter__()
        except LiminaError as error:
            return self._without_decision(operation_id, plan, error)
        except BaseException:
            self._take_back(operation_id)
            raise
        return self._begun(operation_id, plan, guard)

    def close(self) -> None:
        """Books what is waiting, and ends the connections of synchronous calls."""
        self._settler.close()
        self._threads_client.close()

    # What LiteLLM calls.

    async def async_pre_call_hook(self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: Any) -> None:
        """In the proxy, before a call is routed. It keeps the metadata of the key's user, which LiteLLM does not pass on, and stops
        requests that the proxy only passes through, because they have no other hook."""
        if call_type not in LIMITED:
            self.refuse_what_is_not_limited(str(call_type), data.get("model"))
        user = getattr(user_api_key_dict, "user_id", None)
        found = await cache.async_get_cache(key=user) if user else None
        metadata = found.get("metadata") if isinstance(found, Mapping) else getattr(found, "metadata", None)
        for name in ("litellm_metadata", "metadata"):
            if isinstance(data.get(name), dict):
                data[name][USER_METADATA] = UserMetadata(metadata if isinstance(metadata, Mapping) else {})

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> None:
        """Before each attempt. It finds calls that are not limited, and stops them."""
        function = str(getattr(call_type, "value", call_type))
        # Some synchronous functions call this in a thread that does not know of them. `function_setup` judges those.
        if function not in SYNCHRONOUS:
            self.refuse_what_is_not_limited(function, kwargs.get("model"))

    def refuse_what_is_not_limited(self, function: str, model: object) -> None:
        if is_limited():
            return
        if function in LIMITED:
            raise CallInvalid(
                f"`{function}` was imported before `limina.litellm`, so this call cannot be limited: "
                f"import `limina.litellm` first, or call it as `litellm.{function}`",
                str(model),
            )
        if function in COSTS_MONEY:
            if self.settings.other_calls == "refuse":
                message = f'`{function}` cannot be limited. It may pass with the setting `other_calls = "allow"`'
                raise CallInvalid(message, str(model))
            self.metrics.count("not_limited")

    # How it decides.

    def _request(self, plan: Plan) -> dict[str, Any]:
        holds = plan.holds()
        return {"checks": plan.checks(), "holds": holds, "create_missing": bool(holds), "ttl": self.settings.ttl}

    def _plan(self, call: Call, kind: str) -> Plan:
        try:
            caller = self._caller(call, self.settings)
        except Invalid as error:
            log.error("a call is refused: %s", error)
            raise CallInvalid(str(error), str(call.get("model"))) from error
        model = model_of(call) or self._unknown_model(call, caller)
        extra = self._maximum(call, kind)
        expected = estimate({**call, **extra}, kind, model, caller.who.get("key"), self.settings, self._learned)
        self.metrics.count("estimates_learned" if expected.learned else "estimates_worst")
        today = datetime.datetime.now(datetime.UTC).date()
        budgets = {budget.limit_name(caller.who, today): budget for budget in caller.budgets}
        return Plan(kind, caller, model, expected, budgets, extra)

    def _unknown_model(self, call: Call, caller: Caller) -> Model:
        if not caller.budgets:
            return model_at(call, Price(0, 0))  # Nothing is booked in dollars.
        price = self.settings.unknown_price
        if isinstance(price, Price):
            self.metrics.count("price_unknown_estimated")
            return model_at(call, price)
        self.metrics.count("price_unknown_refused")
        raise CallInvalid(
            f"the price of {call.get('model')} is not known. Give the deployment `input_cost_per_token` and "
            "`output_cost_per_token`, or set `unknown_price` for limina.litellm",
            str(call.get("model")),
        )

    def _maximum(self, call: Call, kind: str) -> dict[str, int]:
        """A maximum for a call that names none, so that the provider keeps to what is reserved."""
        most = self.settings.default_max_tokens
        if most is None or kind == "embedding" or any(call.get(name) is not None for name in MAXIMUMS):
            return {}
        return {"max_output_tokens" if kind == "responses" else "max_tokens": most}

    def _begun(self, operation_id: str, plan: Plan, guard: Any) -> Operation:
        if guard is not None:
            self.metrics.count("decided")
        return Operation(operation_id, plan, guard, settler=self._settler, learned=self._learned, metrics=self.metrics)

    def _without_decision(self, operation_id: str, plan: Plan, error: LiminaError) -> Operation:
        if isinstance(error, Refused):
            self.metrics.count("refused")
            today = datetime.datetime.now(datetime.UTC).date()
            raise CallRefused(refusals_of(error, plan.budgets, plan.estimate, today), plan.model.name) from error
        if not isinstance(error, Unavailable):
            # A bug or a missing right. It must not switch the limits off.
            log.error("there is no decision: %s", error)
            self._unavailable(plan, error)
        if error.done == "unknown":
            self._take_back(operation_id)
        if self.settings.on_unavailable == "refuse":
            self._unavailable(plan, error)
        self.metrics.count("unavailable_allowed")
        self._log(error)
        return self._begun(uuid.uuid4().hex, plan, None)

    def _unavailable(self, plan: Plan, error: LiminaError) -> NoReturn:
        self.metrics.count("unavailable_refused")
        raise DecisionUnavailable(str(error), plan.model.name, getattr(error, "retry_after", None)) from error

    def _log(self, error: LiminaError) -> None:
        now = time.monotonic()
        if now - self._logged_at >= QUIET:
            self._logged_at = now
            passed = self.metrics.snapshot()["unavailable_allowed"]
            log.warning("calls pass without a decision (%s until now), and will be booked later: %s", passed, error)

    def _take_back(self, operation_id: str) -> None:
        self._settler.submit(Settlement(operation_id, lambda: None))
