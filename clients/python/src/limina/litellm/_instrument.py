"""Puts the hook around LiteLLM's functions.

LiteLLM's own hooks cannot do this. None can refuse a synchronous call, and none is called when a call is cancelled or when the
reader of a stream leaves. So the functions of the module `litellm` are replaced by functions that ask the hook first. They do
nothing unless there is a `LiminaHook` in `litellm.callbacks`. The router and the proxy call the same functions, once for each
attempt.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any

import litellm

from ._functions import ASYNCHRONOUS, SYNCHRONOUS, current, current_operation, only_hands_over
from ._hook import LiminaHook
from ._operation import Operation, settled, settled_now

# The functions are found in these modules too. `litellm.responses` itself is a function, which hides its package.
MODULES = [importlib.import_module(name) for name in ("litellm", "litellm.main", "litellm.responses.main")]
UTILITIES: Any = importlib.import_module("litellm.utils")


def installed() -> LiminaHook | None:
    return next((callback for callback in litellm.callbacks if isinstance(callback, LiminaHook)), None)


def instrument() -> None:
    """Replaces LiteLLM's functions. Does nothing the second time."""
    if getattr(litellm.acompletion, "limited_by_limina", False):
        return
    if "is_async_call" not in inspect.signature(UTILITIES.function_setup).parameters:
        raise ImportError("limina.litellm cannot limit the synchronous calls of this version of LiteLLM: install 1.106.2")
    for names, around in ((ASYNCHRONOUS, _around_async), (SYNCHRONOUS, _around_sync)):
        for name, kind in names.items():
            original = getattr(litellm, name)
            limited: Any = around(original, kind)
            limited.limited_by_limina = True
            for module in MODULES:
                if getattr(module, name, None) is original:
                    setattr(module, name, limited)
    UTILITIES.function_setup = _around_setup(UTILITIES.function_setup)


def _around_async(original: Callable[..., Awaitable[Any]], kind: str) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(original)
    async def limited(*args: Any, **kwargs: Any) -> Any:
        hook = installed()
        call = _call_of(original, args, kwargs)
        if hook is None or current_operation() is not None or _is_inner(call):
            return await original(*args, **kwargs)
        if call.get("fallbacks"):
            with _handing_over():
                return await original(*args, **kwargs)
        operation = await hook.begin(call, kind)
        outer = current.set(operation)
        try:
            response = await original(*args, **{**kwargs, **operation.plan.extra})
        except BaseException as error:
            operation.failed(error)
            raise
        finally:
            current.reset(outer)
        if _is_stream(response):
            return _watched(response, operation, hook.settings.timeout)
        await settled(operation.answered(response), hook.settings.timeout)
        return response

    return limited


def _around_sync(original: Callable[..., Any], kind: str) -> Callable[..., Any]:
    @functools.wraps(original)
    def limited(*args: Any, **kwargs: Any) -> Any:
        hook = installed()
        call = _call_of(original, args, kwargs)
        if hook is None or current_operation() is not None or _is_inner(call):
            return original(*args, **kwargs)
        if call.get("fallbacks"):
            with _handing_over():
                return original(*args, **kwargs)
        operation = hook.begin_now(call, kind)
        outer = current.set(operation)
        try:
            response = original(*args, **{**kwargs, **operation.plan.extra})
        except BaseException as error:
            operation.failed(error)
            raise
        finally:
            current.reset(outer)
        if _is_stream(response):
            return _watched(response, operation, hook.settings.timeout)
        settled_now(operation.answered(response), hook.settings.timeout)
        return response

    return limited


def _around_setup(original: Callable[..., Any]) -> Callable[..., Any]:
    """Every function of LiteLLM begins with `function_setup`, also one that was imported before this module."""

    @functools.wraps(original)
    def setup(*args: Any, **kwargs: Any) -> Any:
        hook = installed()
        if hook is not None and kwargs.get("is_async_call") is False:
            hook.refuse_what_is_not_limited(str(_call_of(original, args, kwargs)["original_function"]), kwargs.get("model"))
        return original(*args, **kwargs)

    return setup


def _call_of(original: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    if not args:
        return kwargs
    names = list(inspect.signature(original).parameters)
    return {**dict(zip(names, args, strict=False)), **kwargs}


def _is_inner(call: Mapping[str, Any]) -> bool:
    """LiteLLM implements an asynchronous function by the synchronous one, with its own name as an argument."""
    return any(call.get(name) is True for name in ASYNCHRONOUS)


@contextlib.contextmanager
def _handing_over() -> Iterator[None]:
    """With `fallbacks`, the function calls itself for one model after the other. Each of these calls is limited."""
    outer = only_hands_over.set(True)
    try:
        yield
    finally:
        only_hands_over.reset(outer)


def _is_stream(response: Any) -> bool:
    return hasattr(response, "__anext__") or hasattr(response, "__next__")


class _Watch:
    """What has arrived of a stream."""

    def __init__(self, operation: Operation, most: float, chunks: list[Any] | None) -> None:
        self.operation = operation
        self.most = most
        self._own: list[Any] | None = None if chunks is not None else []
        # LiteLLM's wrapper of a chat stream keeps its chunks, with the use that it does not pass on.
        self.chunks: list[Any] = chunks if chunks is not None else self._own or []

    def arrived(self, chunk: Any) -> None:
        if self._own is not None:
            self._own.append(chunk)
            self.chunks = self._own

    def left(self) -> Future[None] | None:
        return self.operation.stream_broke(self.chunks, None)


def _async_next(kind: Any) -> Any:
    async def __anext__(stream: Any) -> Any:
        watch: _Watch = stream.limina_watch
        try:
            chunk = await kind.__anext__(stream)
        except StopAsyncIteration:
            await settled(watch.operation.stream_ended(watch.chunks), watch.most)
            raise
        except BaseException as error:
            watch.operation.stream_broke(watch.chunks, error)
            raise
        watch.arrived(chunk)
        return chunk

    return __anext__


def _sync_next(kind: Any) -> Any:
    def __next__(stream: Any) -> Any:
        watch: _Watch = stream.limina_watch
        try:
            chunk = kind.__next__(stream)
        except StopIteration:
            settled_now(watch.operation.stream_ended(watch.chunks), watch.most)
            raise
        except BaseException as error:
            watch.operation.stream_broke(watch.chunks, error)
            raise
        watch.arrived(chunk)
        return chunk

    return __next__


def _async_close(kind: Any) -> Any:
    async def aclose(stream: Any) -> None:
        watch: _Watch = stream.limina_watch
        done = watch.left()
        await kind.aclose(stream)
        await settled(done, watch.most)

    return aclose


def _sync_close(kind: Any) -> Any:
    def close(stream: Any) -> None:
        watch: _Watch = stream.limina_watch
        done = watch.left()
        kind.close(stream)
        settled_now(done, watch.most)

    return close


def _finalize(kind: Any) -> Any:
    def __del__(stream: Any) -> None:
        stream.limina_watch.left()
        if hasattr(kind, "__del__"):
            kind.__del__(stream)

    return __del__


class _Passing:
    """A stream whose class cannot be extended, such as a generator."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _AsyncPassing(_Passing):
    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        return await self._stream.__anext__()

    async def aclose(self) -> None:
        await self._stream.aclose()


class _SyncPassing(_Passing):
    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        return next(self._stream)

    def close(self) -> None:
        self._stream.close()


def _watched(stream: Any, operation: Operation, most: float) -> Any:
    """The same stream, which tells the operation how it ends. It keeps its class: the router asks for it."""
    if getattr(stream, "custom_llm_provider", None) == "cached_response":
        operation.from_cache()
        return stream
    chunks = getattr(stream, "chunks", None)
    watch = _Watch(operation, most, chunks if isinstance(chunks, list) else None)
    if not hasattr(stream, "__dict__"):
        stream = _AsyncPassing(stream) if hasattr(stream, "__anext__") else _SyncPassing(stream)
    stream.limina_watch = watch
    kind: Any = type(stream)
    stream.__class__ = _watched_class(kind)
    return stream


@functools.cache
def _watched_class(kind: Any) -> Any:
    """A class like this one, whose streams tell how they end."""
    around = {"__anext__": _async_next, "__next__": _sync_next, "aclose": _async_close, "close": _sync_close}
    methods = {name: method(kind) for name, method in around.items() if hasattr(kind, name)}
    return type(kind.__name__, (kind,), {**methods, "__del__": _finalize(kind), "__module__": kind.__module__})
