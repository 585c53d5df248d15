"""Budgets and limits for LiteLLM: in its proxy, under its router, and in a program that calls `litellm.completion`.

In the proxy's config.yaml, with the path of the settings in the environment variable `LIMINA_LITELLM`:

    litellm_settings:
      callbacks: limina.litellm.instance

In a program:

    litellm.callbacks = [LiminaHook(Settings.read("limina-litellm.toml"))]

`docs/llm.md` is the guide.
"""

from __future__ import annotations

import threading
from typing import Any

from ._caller import Call, Caller
from ._hook import LiminaHook
from ._instrument import instrument
from ._metrics import Metrics
from ._refusals import CallInvalid, CallRefused, DecisionUnavailable, Refusal
from ._settings import NANODOLLARS, Budget, Limit, Price, Settings

__all__ = [
    "NANODOLLARS",
    "Budget",
    "Call",
    "CallInvalid",
    "CallRefused",
    "Caller",
    "DecisionUnavailable",
    "LiminaHook",
    "Limit",
    "Metrics",
    "Price",
    "Refusal",
    "Settings",
]

instrument()
_making = threading.Lock()


def __getattr__(name: str) -> Any:
    """`instance` is made when it is asked for first, so that a program that does not need it needs no settings."""
    if name != "instance":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with _making:
        if "instance" not in globals():
            hook = LiminaHook(Settings.from_environment())
            _register(hook.metrics)
            globals()["instance"] = hook
    return globals()["instance"]


def _register(metrics: Metrics) -> None:
    """Shows the counters among LiteLLM's own, if it has any."""
    try:
        from prometheus_client import REGISTRY
    except ImportError:
        return
    REGISTRY.register(metrics)
