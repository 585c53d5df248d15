"""The circuit breaker, and the count of requests without a decision, by a clock that the tests move."""

from __future__ import annotations

import asyncio
import logging

import pytest

from limina import AsyncLimina, Breaker, Invalid, Limina, Unavailable
from limina._breaker import Circuit
from limina._undecided import Undecided

from .conformance import closed_port

pytestmark = pytest.mark.smoke


class Clock:
    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


def fail(circuit: Circuit) -> None:
    with pytest.raises(Unavailable, match="no answer"), circuit.request():
        raise Unavailable("no answer", done="unknown")


def succeed(circuit: Circuit) -> None:
    with circuit.request():
        pass


def assert_refuses(circuit: Circuit, retry_after: float | None = None) -> None:
    with pytest.raises(Unavailable, match="circuit breaker") as caught, circuit.request():
        pytest.fail("the request was sent")
    assert caught.value.done == "no"
    if retry_after is not None:
        assert caught.value.retry_after == pytest.approx(retry_after)


def test_it_opens_after_failures_in_a_row() -> None:
    circuit = Circuit(Breaker(), Clock())
    for _ in range(4):
        fail(circuit)
    succeed(circuit)
    for _ in range(4):
        fail(circuit)
    assert not circuit.is_open
    fail(circuit)
    assert circuit.is_open
    assert_refuses(circuit, 1.0)


def test_an_answer_that_is_an_error_is_an_answer() -> None:
    circuit = Circuit(Breaker(failures=1), Clock())
    with pytest.raises(Invalid), circuit.request():
        raise Invalid("the field is wrong")
    assert not circuit.is_open


def test_after_the_pause_one_request_decides() -> None:
    clock = Clock()
    circuit = Circuit(Breaker(failures=1, pause=1.0), clock)
    fail(circuit)
    clock.time += 0.9
    assert_refuses(circuit, 0.1)
    clock.time += 0.1
    with circuit.request():
        assert_refuses(circuit)
    assert not circuit.is_open
    fail(circuit)
    clock.time += 1.0
    fail(circuit)
    assert_refuses(circuit, 1.0)


def test_a_probe_that_is_cancelled_lets_another_request_try() -> None:
    clock = Clock()
    circuit = Circuit(Breaker(failures=1), clock)
    fail(circuit)
    clock.time += 1.0
    with pytest.raises(asyncio.CancelledError), circuit.request():
        raise asyncio.CancelledError
    assert circuit.is_open
    succeed(circuit)
    assert not circuit.is_open


def test_it_opens_when_nothing_was_answered_for_a_second() -> None:
    clock = Clock()
    circuit = Circuit(Breaker(), clock)
    with circuit.request():
        clock.time += 0.9
        circuit.refuse_if_open()
        clock.time += 0.1
        assert_refuses(circuit, 1.0)
        assert circuit.is_open
    assert not circuit.is_open


def test_a_slow_request_beside_answered_ones_is_no_hang() -> None:
    clock = Clock()
    circuit = Circuit(Breaker(), clock)
    with circuit.request():
        for _ in range(10):
            clock.time += 0.9
            succeed(circuit)
        clock.time += 60.0
        succeed(circuit)
    assert not circuit.is_open


def test_one_timeout_of_a_second_opens_it() -> None:
    clock = Clock()
    circuit = Circuit(Breaker(), clock)

    def time_out() -> None:
        with circuit.request():
            clock.time += 1.0
            raise Unavailable("no answer", done="unknown")

    with pytest.raises(Unavailable):
        time_out()
    assert circuit.is_open


def test_the_client_stops_asking_and_does_not_retry() -> None:
    with Limina(f"http://{closed_port()}", retries=0) as client:
        messages = []
        for _ in range(7):
            with pytest.raises(Unavailable) as caught:
                client.check({"tenant": "a"})
            messages.append("circuit breaker" in str(caught.value))
    assert messages == [False] * 5 + [True] * 2

    async def run() -> Unavailable:
        async with AsyncLimina(f"http://{closed_port()}", retries=9, breaker=Breaker(failures=1)) as client:
            with pytest.raises(Unavailable) as caught:
                await client.check({"tenant": "a"}, alone=True)
            assert client._namespace.transport.circuit._failures == 1
            return caught.value

    assert "circuit breaker" not in str(asyncio.run(run()))


def test_without_a_breaker_every_check_is_sent() -> None:
    with Limina(f"http://{closed_port()}", retries=0, breaker=None) as client:
        for _ in range(7):
            with pytest.raises(Unavailable) as caught:
                client.check({"tenant": "a"})
            assert "circuit breaker" not in str(caught.value)


def test_locks_are_asked_for_while_the_breaker_is_open() -> None:
    with Limina(f"http://{closed_port()}", retries=0, breaker=Breaker(failures=1)) as client:
        for call in (lambda: client.check({"a": 1}), lambda: client.lock({"a": 1}, ttl=1)):
            with pytest.raises(Unavailable) as caught:
                call()
            assert "circuit breaker" not in str(caught.value)


def test_undecided_requests_are_counted_and_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    undecided = Undecided(clock)
    error = Unavailable("away", done="no")
    with caplog.at_level(logging.WARNING, "limina"):
        for _ in range(3):
            undecided.count(error, passed=True)
        clock.time += 59.9
        undecided.count(error, passed=False)
        assert len(caplog.records) == 1
        clock.time += 0.1
        undecided.count(error, passed=True)
    assert (undecided.passed, undecided.refused) == (4, 1)
    assert [record.getMessage() for record in caplog.records] == [
        "no decision from the limiter: 1 requests passed since the last such line; away",
        "no decision from the limiter: 4 requests passed since the last such line; away",
    ]
