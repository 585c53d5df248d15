"""LiteLLM's functions: those that are limited, those that cannot be, and the call that runs now."""

from __future__ import annotations

from contextvars import ContextVar

from ._operation import Operation

ASYNCHRONOUS = {
    "acompletion": "chat",
    "atext_completion": "text",
    "aembedding": "embedding",
    "aresponses": "responses",
    "anthropic_messages": "messages",
}
SYNCHRONOUS = {"completion": "chat", "text_completion": "text", "embedding": "embedding", "responses": "responses"}
LIMITED = {**ASYNCHRONOUS, **SYNCHRONOUS}
_OTHERS = (
    *("image_generation", "image_edit", "image_variation", "speech", "transcription", "rerank", "ocr", "search"),
    *("create_video", "video_generation", "video_remix", "video_edit", "video_extension"),
    *("generate_content", "generate_content_stream", "create_interaction", "run_thread", "run_thread_stream"),
    *("create_batch", "create_fine_tuning_job", "llm_passthrough_route", "realtime_calls"),
)
# As LiteLLM names them in its hooks.
_CONNECTIONS = {"pass_through_endpoint", "_arealtime", "_aresponses_websocket"}
COSTS_MONEY = {name for other in _OTHERS for name in (other, f"a{other}")} | _CONNECTIONS
# The call that runs now. LiteLLM implements some functions by others: what is called inside belongs to the call outside.
current: ContextVar[Operation | None] = ContextVar("limina_litellm_current", default=None)
# Whether a function runs that only calls others, which are limited themselves.
only_hands_over: ContextVar[bool] = ContextVar("limina_litellm_only_hands_over", default=False)


def is_limited() -> bool:
    """Whether a call is under way, or one that makes others."""
    return current_operation() is not None or only_hands_over.get()


def current_operation() -> Operation | None:
    operation = current.get()
    return None if operation is None or operation.ended else operation
