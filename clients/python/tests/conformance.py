"""Plays the conformance scripts with this client. `clients/conformance/README.md` describes their steps."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import httpx2
import msgspec

from limina import AsyncLimina, Change, Check, Hold, Limina, LiminaError, Lock, Rule
from limina.types import Event

from .conftest import CONFORMANCE, Proxy

PATIENCE = 30.0
Script = dict[str, Any]
Outcome = dict[str, Any]


def load_scripts() -> list[Script]:
    files = sorted((CONFORMANCE / "scripts").glob("*.json"))
    return [{**script, "file": file.stem} for file in files for script in json.loads(file.read_text())]


class Mismatch(AssertionError):
    pass


class Variables(dict[str, Any]):
    """Replaces and compares the variables of a script."""

    def replace(self, value: Any) -> Any:
        match value:
            case str() if value.startswith("$") and value[1:] in self:
                return self[value[1:]]
            case str():
                return re.sub(r"\$(\w+)", lambda found: str(self.get(found[1], found[0])), value)
            case list():
                return [self.replace(item) for item in value]
            case dict():
                return {name: self.replace(item) for name, item in value.items()}
        return value

    def compare(self, expected: Any, actual: Any, where: str = "") -> None:
        def fail(reason: str) -> None:
            raise Mismatch(f"{where or 'value'}: {reason}; got {json.dumps(actual, ensure_ascii=False)}")

        match expected:
            case str() if re.fullmatch(r"\$\w+", expected):
                if actual is None:
                    fail("expected a value")
                if self.setdefault(expected[1:], actual) != actual:
                    fail(f"expected {expected} = {self[expected[1:]]!r}")
            case {"$absent": True}:
                if actual is not None:
                    fail("expected nothing")
            case {"$length": length}:
                self.compare(length, None if actual is None else len(actual), f"{where}.length")
            case {"$every": each}:
                for index, item in enumerate(actual):
                    self.compare(each, item, f"{where}[{index}]")
            case {"$set": items}:
                if not isinstance(actual, list) or len(actual) != len(items):
                    fail(f"expected {len(items)} elements")
                for item in items:
                    if not any(self._matches(item, candidate) for candidate in actual):
                        fail(f"expected an element like {item}")
            case dict() if {"$gte", "$lte"} & expected.keys():
                if not isinstance(actual, int | float):
                    fail("expected a number")
                if not expected.get("$gte", actual) <= actual <= expected.get("$lte", actual):
                    fail(f"expected {expected}")
            case dict():
                if not isinstance(actual, dict):
                    fail(f"expected {expected}")
                for name, item in expected.items():
                    self.compare(item, actual.get(name), f"{where}.{name}")
            case list():
                if not isinstance(actual, list) or len(actual) != len(expected):
                    fail(f"expected {len(expected)} elements")
                for index, (item, candidate) in enumerate(zip(expected, actual, strict=True)):
                    self.compare(item, candidate, f"{where}[{index}]")
            case _:
                wanted = self.replace(expected)
                if type(wanted) is not type(actual) or wanted != actual:
                    fail(f"expected {wanted!r}")

    def _matches(self, expected: Any, actual: Any) -> bool:
        try:
            self.compare(expected, actual)
        except Mismatch:
            return False
        return True


class ThreadsSubject:
    """The client for threads."""

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self.client: Any = Limina(url, **options)

    def start(self, work: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return future

    def run(self, work: Callable[[], Any]) -> Any:
        return work()

    def leave(self, guard: Any) -> Any:
        return guard.__exit__(None, None, None)

    def follow(self, stream: str, after: int | None) -> Callable[[], Any]:
        messages = self.client.events.follow(stream, after=after)
        return lambda: next(messages)

    def close(self) -> None:
        self.client.close()


class AsyncioSubject:
    """The client for asyncio, in an event loop of its own."""

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self.client: Any = AsyncLimina(url, **options)
        self._streams: list[Any] = []

    def start(self, work: Callable[[], Any]) -> Future[Any]:
        async def run() -> Any:
            outcome = work()
            return await outcome if hasattr(outcome, "__await__") else outcome

        return asyncio.run_coroutine_threadsafe(run(), self._loop)

    def run(self, work: Callable[[], Any]) -> Any:
        return self.start(work).result(PATIENCE * 2)

    def leave(self, guard: Any) -> Coroutine[Any, Any, Any]:
        leaving: Coroutine[Any, Any, Any] = guard.__aexit__(None, None, None)
        return leaving

    def follow(self, stream: str, after: int | None) -> Callable[[], Any]:
        messages = self.client.events.follow(stream, after=after)
        self._streams.append(messages)
        return lambda: self.run(lambda: anext(messages))

    def close(self) -> None:
        for messages in self._streams:
            self.run(messages.aclose)
        self.run(self.client.aclose)
        self._loop.call_soon_threadsafe(self._loop.stop)


class Player:
    """Plays one script."""

    def __init__(
        self, script: Script, subject: type[ThreadsSubject | AsyncioSubject], server: str, proxy: Proxy, name: str
    ) -> None:
        self.script = script
        self.proxy = proxy
        self.variables = Variables(ns=name, ns2=f"{name}-2")
        self.server = httpx2.Client(base_url=f"http://{server}", timeout=PATIENCE)
        settings = dict(script.get("client", {}))
        options: dict[str, Any] = {"namespace": name, "timeout": settings.pop("timeout_ms", 10_000) / 1000}
        # The scripts test retries, also of a server that is slow or fails often.
        options["breaker"] = None
        address = closed_port() if settings.pop("closed_port", False) else proxy.address
        self.subject = subject(f"http://{address}", {**options, **settings})
        self.guards: dict[str, Any] = {}
        self.followers: dict[str, Callable[[], Any]] = {}
        self.started: dict[str, list[tuple[dict[str, Any], Future[Any]]]] = {}
        self.attempts = self._count_attempts()

    def play(self) -> None:
        try:
            for number, step in enumerate(self.script["steps"]):
                try:
                    self.play_step(step)
                except Mismatch as error:
                    requests = "\n".join(json.dumps(entry) for entry in self.proxy.requests())
                    raise AssertionError(f"step {number + 1}, {json.dumps(step)}:\n{error}\nrequests:\n{requests}") from error
        finally:
            self.subject.close()

    def play_step(self, step: dict[str, Any]) -> None:
        deadline = time.monotonic() + (PATIENCE if step.get("await") else 0)
        while True:
            try:
                self.try_step(step)
                return
            except Mismatch:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(0.02)

    def try_step(self, step: dict[str, Any]) -> None:
        match step:
            case {"server": request, **rest}:
                method, path = self.variables.replace(request).split(" ")
                response = self.server.request(method, self.whole_path(path), json=self.variables.replace(rest.get("body")))
                body = response.json() if response.content else None
                self.variables.compare(rest.get("expect", {}), {"status": response.status_code, "body": body})
            case {"fault": faults}:
                listed = self.variables.replace(faults if isinstance(faults, list) else [faults])
                self.proxy.add_faults(*(f | {"path": self.whole_path(f["path"])} if "path" in f else f for f in listed))
            case {"open": gate}:
                self.proxy.open_gate(gate)
            case {"call": _, **rest}:
                outcome = self.outcome(lambda: self.subject.run(self.call(step)), rest.get("as"))
                self.compare_outcome(rest.get("expect"), outcome)
            case {"start": calls, "as": name}:
                self.started[name] = []
                for call in calls:
                    for _ in range(call.get("times", 1)):
                        self.started[name].append((call, self.start(call)))
            case {"join": name, **rest}:
                outcomes = [
                    self.outcome(partial(future.result, PATIENCE * 2), call.get("as")) for call, future in self.started[name]
                ]
                if "expect" in rest:
                    self.variables.compare(rest["expect"], outcomes)
            case {"on": name, "do": action, **rest}:
                outcome = self.outcome(lambda: self.subject.run(self.act(name, action, rest.get("with", {}))), None)
                self.compare_outcome(rest.get("expect"), outcome)
            case {"on": name, "expect": expected}:
                self.variables.compare(expected, state_of(self.guards[name]))
            case {"follow": stream, "as": name, **rest}:
                self.followers[name] = self.subject.follow(stream, self.variables.replace(rest.get("after")))
            case {"next": name, "expect": {"error": expected}}:
                self.variables.compare({"error": expected}, self.outcome(self.followers[name], None))
            case {"next": name, "expect": expected}:
                for message in expected:
                    self.variables.compare(message, message_of(self.followers[name]()))
            case {"requests": pattern, "expect": expected}:
                method, path = self.variables.replace(pattern).split(" ")
                path = self.whole_path(path)
                seen = [e for e in self.proxy.requests() if e["method"] == method and fnmatchcase(e["path"], path)]
                self.variables.compare(expected, seen)
            case {"clear": "requests"}:
                self.proxy.clear_requests()
            case _:
                raise ValueError(f"unknown step {step}")

    def whole_path(self, path: str) -> str:
        return path if path == "*" else f"/v1/ns/{self.variables['ns']}{path}"

    def start(self, call: dict[str, Any]) -> Future[Any]:
        """Starts a call, and returns when the client has taken it."""
        before = self.taken()
        future = self.subject.start(self.call(call))
        deadline = time.monotonic() + PATIENCE
        while self.taken() == before and not future.done():
            assert time.monotonic() < deadline, "the client does not take the call"
            time.sleep(0.001)
        return future

    def taken(self) -> tuple[int, int]:
        transport = self.subject.client._namespace.transport
        return self.subject.run(transport.accepted), self.attempts[0]

    def _count_attempts(self) -> list[int]:
        transport = self.subject.client._namespace.transport
        original, count = transport.attempt, [0]

        def attempt(*args: Any, **options: Any) -> Any:
            count[0] += 1
            return original(*args, **options)

        transport.attempt = attempt
        return count

    def outcome(self, work: Callable[[], Any], guard: str | None) -> Outcome:
        try:
            value = work()
        except LiminaError as error:
            return {"error": error_of(error)}
        if guard is not None:
            self.guards[guard] = value
        return {
            "value": state_of(value) if hasattr(value, "fencing_token") and hasattr(value, "lost") else msgspec.to_builtins(value)
        }

    def compare_outcome(self, expected: Any, outcome: Outcome) -> None:
        if expected is None:
            if "error" in outcome:
                raise Mismatch(f"expected a value; got {outcome}")
        else:
            self.variables.compare(expected, outcome)

    def act(self, name: str, action: str, given: dict[str, Any]) -> Callable[[], Any]:
        guard = self.guards[name]
        match action:
            case "leave":
                return lambda: self.subject.leave(guard)
            case "release":
                return lambda: guard.release()
            case "rollback":
                return lambda: guard.rollback()
            case "commit":
                hits = {check["name"]: check["hits"] for check in given.get("checks", [])}
                holds = {hold["limit_name"]: hold["value"] for hold in given.get("holds", [])}
                return lambda: guard.commit(hits, holds=holds, record=given.get("record", False))
        raise ValueError(f"unknown action {action}")

    def call(self, step: dict[str, Any]) -> Callable[[], Any]:
        client = self.subject.client
        if "namespace" in step:
            client = client.with_namespace(self.variables.replace(step["namespace"]))
        given = with_seconds(self.variables.replace(step.get("with", {})))
        match step["call"]:
            case "check" | "wait" | "lease" as name:
                return lambda: getattr(client, name)(given.pop("key_values"), **given)
            case "lock":
                locks = [msgspec.convert(lock, Lock) for lock in given.pop("locks", [])]
                what = locks or given.pop("key_values")
                return lambda: client.lock(what, **given)
            case "decide":
                for name, kind in (("checks", Check), ("holds", Hold), ("locks", Lock)):
                    if name in given:
                        given[name] = msgspec.convert(given[name], list[kind])  # type: ignore[valid-type]
                if "event" in given:
                    given["event"] = msgspec.convert(given["event"], Event)
                return lambda: client.decide(given.pop("operation_id"), **given)
            case "counters":
                return lambda: client.counters.add(given["key_values"], given["counters"])
            case "ledger.hold":
                changes = msgspec.convert(given.pop("changes"), list[Hold])
                return lambda: client.ledger.hold(given.pop("operation_id"), changes, **given)
            case "ledger.commit":
                amounts = {change["limit_name"]: change.get("value") for change in given.get("changes", [])}
                return lambda: client.ledger.commit(given["operation_id"], amounts or None)
            case "ledger.rollback":
                return lambda: client.ledger.rollback(given["operation_id"])
            case "ledger.values":
                return lambda: client.ledger.values(given.pop("limit_names"), **given)
            case "rules.put":
                return lambda: client.rules.put(msgspec.convert(given, Rule))
            case "rules.create" | "rules.patch" | "rules.get" | "rules.delete" as name:
                return lambda: getattr(client.rules, name.removeprefix("rules."))(given.pop("name"), **given)
            case "rules.list":
                return lambda: client.rules.list(**given)
            case "events.put":
                return lambda: client.events.put(given.pop("stream"), **given)
            case "events.submit":
                return lambda: client.events.submit(given["stream"], given["event"])
        raise ValueError(f"unknown call {step['call']}")


def with_seconds(given: dict[str, Any]) -> dict[str, Any]:
    """Durations are milliseconds in scripts, and seconds in this client."""
    return {
        name.removesuffix("_ms"): value / 1000 if name.endswith("_ms") else value
        for name, value in json.loads(json.dumps(given)).items()
    }


def state_of(guard: Any) -> dict[str, Any]:
    state: dict[str, Any] = {
        "lost": guard.lost,
        "remaining_ms": int(guard.remaining * 1000),
        "fencing_token": guard.fencing_token,
    }
    if hasattr(guard, "limits"):
        state["limits"] = msgspec.to_builtins(guard.limits)
    return state


def error_of(error: LiminaError) -> dict[str, Any]:
    retry_after = getattr(error, "retry_after", None)
    return {
        "kind": type(error).__name__,
        "code": error.code,
        "status": error.status,
        "done": getattr(error, "done", None),
        "field": getattr(error, "field", None),
        "needs": getattr(error, "needs", None),
        "retry_after_ms": None if retry_after is None else round(retry_after * 1000),
    }


def message_of(message: Any) -> dict[str, Any]:
    if isinstance(message, Change):
        event_time = {"event": message.event, "time": message.time}
        return {"messageType": f"{message.kind.upper()}_EVENT", "clock": message.clock, "eventTime": event_time}
    return {"messageType": "KEY_FRAME", "clock": message.clock, "snapshot": msgspec.to_builtins(message.snapshot)}


def closed_port() -> str:
    """An address where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"
