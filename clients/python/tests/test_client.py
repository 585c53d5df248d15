"""What the conformance scripts cannot say: threads, forks, cancellation, queues, pickling."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import pickle
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from limina import AsyncLimina, Conflict, Invalid, Limina, Lost, NotFound, Override, Rule, Unavailable, fixed, sliding
from limina._clock import now
from limina._keeper import Grant, Keeper
from limina._sync.io import Batcher
from limina._wire import Config, Reply, path, release_request
from limina.types import RuleStatus

from .conftest import Proxy

PATIENCE = 30.0


@pytest.fixture
def client(server: str, namespace: str) -> Iterator[Limina]:
    with Limina(f"http://{server}", namespace=namespace, timeout=20, breaker=None) as client:
        yield client


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.01)


@pytest.mark.smoke
def test_many_threads_share_a_client_and_a_limit_is_exact(client: Limina) -> None:
    client.rules.create("r", group_by=["tenant"], limit=100, window=fixed(86_400))
    with ThreadPoolExecutor(16) as pool:
        decisions = list(pool.map(lambda number: client.check({"tenant": "a", "n": number}), range(400)))
    assert sum(decision.allowed for decision in decisions) == 100


@pytest.mark.smoke
def test_many_tasks_share_a_client_and_a_limit_is_exact(server: str, namespace: str) -> None:
    async def run() -> int:
        async with AsyncLimina(f"http://{server}", namespace=namespace, timeout=20, breaker=None) as client:
            await client.rules.create("r", group_by=["tenant"], limit=100, window=fixed(86_400))
            decisions = await asyncio.gather(*(client.check({"tenant": "a", "n": n}) for n in range(1000)))
            return sum(decision.allowed for decision in decisions)

    assert asyncio.run(run()) == 100


def test_an_asyncio_client_works_in_several_event_loops(server: str, namespace: str) -> None:
    client = AsyncLimina(f"http://{server}", namespace=namespace, timeout=20, breaker=None)
    for _ in range(2):
        assert asyncio.run(client.check({"tenant": "a"})).allowed


def test_an_asyncio_client_forgets_event_loops_that_have_ended(server: str, namespace: str) -> None:
    client = AsyncLimina(f"http://{server}", namespace=namespace, timeout=20, breaker=None)
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def check() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await client.check({"tenant": "a"})

    for _ in range(5):
        asyncio.run(check())
    gc.collect()
    assert sum(loop() is not None for loop in loops) <= 1


@pytest.mark.smoke
def test_a_forked_child_uses_connections_and_heartbeats_of_its_own(client: Limina) -> None:
    client.rules.create("r", group_by=["tenant"], limit=100, window=fixed(86_400))
    client.check({"tenant": "a"})
    with client.lock({"job": "parent"}, ttl=60) as lock:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                client.check({"tenant": "a"})
                with client.lock({"job": "child"}, ttl=3) as own:
                    eventually(lambda: client.locks.get(own.lock_id).held_ms > 3200)
                # The child leaves a copy of the parent's block, too.
                lock.__exit__(None, None, None)
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert client.check({"tenant": "a"}, 0).limits[0].used == 2
        assert [held.locks[0].key_values for held in client.locks.list().items] == [{"job": "parent"}]


def test_a_child_can_be_forked_while_other_threads_are_in_the_middle_of_checks(client: Limina) -> None:
    stop = threading.Event()

    def keep_checking() -> None:
        while not stop.is_set():
            client.check({"tenant": "a"})

    threads = [threading.Thread(target=keep_checking) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            child = os.fork()
            if child == 0:
                os._exit(0 if client.check({"tenant": "a"}).allowed else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@pytest.mark.smoke
def test_heartbeats_do_not_need_the_event_loop(server: str, proxy: Proxy, namespace: str) -> None:
    async def run() -> None:
        async with (
            AsyncLimina(f"http://{proxy.address}", namespace=namespace, timeout=20, breaker=None) as client,
            client.lock({"job": "x"}, ttl=3) as lock,
        ):
            # The event loop is blocked until two heartbeats have been answered.
            eventually(lambda: sum(entry["status"] == 200 and "heartbeat" in entry["path"] for entry in proxy.requests()) >= 2)
            assert not lock.lost

    asyncio.run(run())


def test_a_lost_lock_tells_its_listener_in_the_event_loop(server: str, namespace: str) -> None:
    async def run() -> None:
        async with AsyncLimina(f"http://{server}", namespace=namespace, timeout=20, breaker=None) as client:
            lock = await client.lock({"job": "x"}, ttl=3)
            lost = asyncio.Event()
            lock.on_lost(lost.set)
            await client.locks.release_by_force(lock.lock_id)
            await asyncio.wait_for(lost.wait(), PATIENCE)
            assert lock.lost

    asyncio.run(run())


def test_a_listener_that_fails_harms_no_other_guard(client: Limina) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    lost = threading.Event()
    with client.lock({"job": "x"}, ttl=3) as first, client.lock({"job": "y"}, ttl=3) as second:
        first.on_lost(fail)
        second.on_lost(lost.set)
        client.locks.release_by_force(first.lock_id)
        eventually(lambda: first.lost)
        client.locks.release_by_force(second.lock_id)
        assert lost.wait(PATIENCE)
        with pytest.raises(Lost):
            second.raise_if_lost()


def test_a_guard_that_nobody_refers_to_is_not_kept_alive(client: Limina) -> None:
    guard = client.lock({"job": "x"}, ttl=0.5)
    reference = weakref.ref(guard)
    del guard
    gc.collect()
    assert reference() is None
    eventually(lambda: client.locks.list().items == [])


def test_a_guard_keeps_its_lock_over_many_ttls(client: Limina) -> None:
    with client.lock({"job": "x"}, ttl=3, owner="me") as lock:
        eventually(lambda: client.locks.get(lock.lock_id).held_ms > 6500)
        assert not lock.lost


@pytest.mark.smoke
def test_the_keeper_looks_once_at_a_grant_that_was_scheduled_often() -> None:
    keeper = Keeper(Config("http://127.0.0.1:1", None, 1.0, 0), None)
    granted = Reply(200, b'{"expires_in_ms": 60000}', now())
    grant = Grant(keeper, granted, ttl=60, path="/", body=b"", release=release_request("/"))
    for _ in range(3):
        keeper._schedule(grant)
    assert [keeper._pop() for _ in range(3)].count(grant) == 1
    keeper.close()


def test_a_grant_whose_caller_is_cancelled_is_given_back(server: str, proxy: Proxy, namespace: str) -> None:
    # The answer arrives so late that a heartbeat must confirm it, and that one does not return.
    proxy.add_faults(
        {"path": "*/locks", "do": "gate", "gate": "grant"}, {"path": "*/heartbeat", "do": "gate", "gate": "beat"}
    )

    async def run() -> None:
        async with AsyncLimina(f"http://{proxy.address}", namespace=namespace, timeout=20, breaker=None) as client:
            acquiring = asyncio.create_task(client.lock({"job": "x"}, ttl=60).__aenter__())
            while not proxy.requests():
                await asyncio.sleep(0.01)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Grant, "late", True)
                proxy.open_gate("grant")
                while not any("heartbeat" in entry["path"] for entry in proxy.requests()):
                    await asyncio.sleep(0.01)
                acquiring.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await acquiring
            proxy.open_gate("beat")
            while (await client.locks.list()).items:
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(run(), PATIENCE))


def test_an_exception_in_the_block_releases_the_lock_and_passes(client: Limina) -> None:
    with pytest.raises(ZeroDivisionError), client.lock({"job": "x"}, ttl=60):
        raise ZeroDivisionError
    assert client.locks.list().items == []


def test_a_cancelled_check_does_not_harm_those_that_travel_with_it(server: str, proxy: Proxy, namespace: str) -> None:
    proxy.add_faults({"path": "*/limiter/check", "do": "gate", "gate": "g"})

    async def run() -> None:
        async with AsyncLimina(f"http://{proxy.address}", namespace=namespace, timeout=20, breaker=None) as client:
            first = asyncio.create_task(client.check({"n": 0}))
            while not proxy.requests():
                await asyncio.sleep(0.01)
            others = [asyncio.create_task(client.check({"n": n})) for n in range(1, 5)]
            await asyncio.sleep(0)
            first.cancel()
            others[0].cancel()
            assert all(decision.allowed for decision in await asyncio.gather(*others[1:]))
            with pytest.raises(asyncio.CancelledError):
                await first

    asyncio.run(run())
    batches = [entry["body"]["checks"] for entry in proxy.requests() if entry["path"].endswith("/batch")]
    assert [[check["key_values"]["n"] for check in batch] for batch in batches] == [[2, 3, 4]]


def test_a_call_that_never_leaves_the_queue_has_done_nothing() -> None:
    entered, leave = threading.Event(), threading.Event()

    def send(items: list[bytes]) -> list[Reply]:
        entered.set()
        leave.wait(PATIENCE)
        return [Reply(200, item) for item in items]

    batcher = Batcher(send, timeout=0.05)  # type: ignore[arg-type]
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(batcher.submit, b"1")
        entered.wait(PATIENCE)
        with pytest.raises(Unavailable) as caught:
            batcher.submit(b"2")
        assert caught.value.done == "no"
        leave.set()
        assert first.result(PATIENCE).body == b"1"
    assert batcher.submit(b"3").body == b"3"


def test_batches_under_many_threads_lose_and_mix_up_nothing() -> None:
    sizes = []

    def send(items: list[bytes]) -> list[Reply]:
        sizes.append(len(items))
        return [Reply(200, item) for item in items]

    batcher = Batcher(send, timeout=PATIENCE)  # type: ignore[arg-type]

    def work(number: int) -> None:
        for turn in range(50):
            item = f"{number}/{turn}".encode()
            assert batcher.submit(item).body == item

    with ThreadPoolExecutor(64) as pool:
        list(pool.map(work, range(64)))
    assert sum(sizes) == 64 * 50
    assert max(sizes) <= 256


def test_a_decision_without_an_id_gets_one_and_is_rolled_back_if_its_answer_is_lost(
    proxy: Proxy, server: str, namespace: str, features: frozenset[str]
) -> None:
    if "decisions" not in features:
        pytest.skip("the server does not have decisions")
    with Limina(f"http://{proxy.address}", namespace=namespace, timeout=20, retries=0) as client:
        client.ledger.create_limit("budget", ceiling=10)
        with client.decide(holds={"budget": 4}) as first, client.decide(holds={"budget": 4}) as second:
            assert first.operation_id != second.operation_id
        proxy.add_faults({"path": "*/decisions", "do": "drop_answer"})
        with pytest.raises(Unavailable):
            client.decide(holds={"budget": 10})
        eventually(lambda: client.decisions.list().items == [])


def test_errors_can_be_pickled(client: Limina) -> None:
    with pytest.raises(NotFound) as caught:
        client.locks.get("unknown")
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (type(copy), copy.code, copy.status, str(copy)) == (NotFound, caught.value.code, 404, str(caught.value))
    unavailable = pickle.loads(pickle.dumps(Unavailable("away", done="unknown", retry_after=2)))
    assert (unavailable.done, unavailable.retry_after) == ("unknown", 2)


def test_what_was_read_can_be_sent_back(client: Limina) -> None:
    client.rules.create("r", group_by=["tenant"], limit=5, window=sliding(60), selection={"tier": {"in": ["free", "pro"]}})
    rule = client.rules.get("r")
    client.rules.put_override("r", "acme", {"tenant": "acme"}, limit=50)
    assert client.rules.put(rule) == client.rules.get("r")
    assert client.rules.patch("r", limit=6, description="six").limit == 6
    assert [found.name for found in client.rules.match({"tenant": "acme", "tier": "pro"})] == ["r"]
    assert [override.name for override in client.rules.overrides("r").items] == ["acme"]
    assert isinstance(client.rules.list().items[0], RuleStatus)


def test_rule_sets(client: Limina, features: frozenset[str]) -> None:
    if "rule_sets" not in features:
        pytest.skip("the server does not have rule sets")
    override = Override({"tenant": "acme"}, 50, "acme")
    rules = [Rule("a", 5, group_by=["tenant"], window=fixed(60), overrides=[override]), Rule("b", 1)]
    assert client.rule_sets.diff("mine", rules).created == ["a", "b"]
    assert client.rule_sets.put("mine", rules).created == ["a", "b"]
    assert client.rules.get("a").managed_by == "mine"
    assert [(found.name, found.rules) for found in client.rule_sets.list().items] == [("mine", 2)]
    read = client.rule_sets.get("mine")
    assert client.rule_sets.put("mine", read.rules).changed == []
    with pytest.raises(Conflict):
        client.rules.delete("a")
    assert client.rule_sets.diff("other", rules).conflicts[0].code == "RuleManagedBySet"
    changes = client.rule_sets.put("mine", [Rule("a", 6, group_by=["tenant"], window=fixed(30))])
    assert (changes.changed[0].starts_empty, changes.deleted) == (True, ["b"])
    client.rule_sets.delete("mine")
    assert client.rules.list().items == []


def test_the_ledger(client: Limina) -> None:
    client.ledger.create_limit("a", ceiling=100)
    client.ledger.hold("o", {"a": 60}, expires_after=60)
    assert client.ledger.operation("o").holds[0].held_value == 60
    assert client.ledger.extend("o", None).holds[0].expires_in_ms is None
    assert [operation.operation_id for operation in client.ledger.operations().items] == ["o"]
    assert client.ledger.commit("o", {"a": 40}).values[0].commit_value == 40
    assert client.ledger.values(["a"], operation_id="o").values[0].hold_value == 60
    assert client.ledger.set_ceiling("a", None).ceiling is None
    assert [entry.type for entry in client.ledger.entries("a").items] == ["hold", "commit"]
    assert [limit.name for limit in client.ledger.limits().items] == ["a"]


def test_counters_leases_and_streams(client: Limina) -> None:
    client.rules.create("slots", group_by=["gpu"], limit=4)
    assert client.counters.add({"gpu": "g"}, 2).counters == 2
    assert client.counters.add({"gpu": "g"}, -1).counters == 1
    with client.lease({"gpu": "g"}, 2, ttl=60, owner="me") as lease:
        assert client.leases.list(owner="me").items[0].lease_id == lease.lease_id
        assert client.leases.get(lease.lease_id).hits == 2
        assert client.rules.groups("slots")[0].used == 3
    assert client.counters.query({"gpu": "g"}).items[0].leased == 0
    client.events.put("s", mode="only_once", duration=60)
    client.events.submit("s", "e")
    assert client.events.incubating("s").events[0].event == "e"
    assert client.events.get("s").incubating == 1
    assert [stream.name for stream in client.events.list().items] == ["s"]
    client.events.delete("s")
    with pytest.raises(NotFound):
        client.events.get("s")


def test_names_are_percent_encoded(client: Limina) -> None:
    name = "a/b c?d#e%20ü"
    client.rules.create(name, limit=1)
    assert client.rules.get(name).name == name
    assert path("n/s", "limiter/rules/{}", "x{}") == "/v1/ns/n%2Fs/limiter/rules/x%7B%7D"


@pytest.mark.smoke
@pytest.mark.parametrize("name", ["", ".", "..", "\ud800"])
def test_a_name_that_would_lead_to_another_path_is_refused(name: str) -> None:
    with Limina("http://127.0.0.1:1") as client:
        for call in [client.events.delete, client.with_namespace(name).rules.delete]:
            with pytest.raises(Invalid):
                call(name)


@pytest.mark.smoke
@pytest.mark.parametrize("kind", [Limina, AsyncLimina])
@pytest.mark.parametrize("token", ["limina_SECRET\nx", "limina_SECRET\0", "limina_SECRET\x7f", "limina_SECRETü", "limina_SECRET€"])
def test_a_token_that_no_header_can_have_is_refused_and_not_shown(kind: Callable[..., Any], token: str) -> None:
    with pytest.raises(Invalid) as caught:
        kind("http://127.0.0.1:1", token=token)
    assert "SECRET" not in repr(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.smoke
@pytest.mark.parametrize("kind", [Limina, AsyncLimina])
@pytest.mark.parametrize("url", ["http://ann:SECRET@127.0.0.1:1", "http://SECRET@[::1", "ftp://ann:SECRET@127.0.0.1:1", "SECRET"])
def test_a_url_that_would_show_a_password_is_refused_and_not_shown(kind: Callable[..., Any], url: str) -> None:
    with pytest.raises(Invalid) as caught:
        kind(url)
    assert "SECRET" not in repr(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.smoke
def test_a_blank_token_is_none(server: str) -> None:
    with Limina(f"http://{server}", token=" \n", timeout=20, breaker=None) as client:
        assert client.check({"tenant": "a"}).allowed


@pytest.mark.smoke
def test_the_settings_do_not_show_the_token() -> None:
    assert "SECRET" not in repr(Config("http://127.0.0.1:1", "limina_SECRET", 1.0, 0))


@pytest.mark.smoke
def test_a_request_that_is_not_valid_http_is_a_mistake_of_the_caller(server: str, namespace: str) -> None:
    key = f"{namespace}\nx"
    with Limina(f"http://{server}", timeout=20, breaker=None) as client, pytest.raises(Invalid) as caught:
        client.check({"tenant": "a"}, idempotency_key=key)
    assert namespace not in "".join(traceback.format_exception(caught.value))


@pytest.mark.smoke
@pytest.mark.parametrize("kind", [Limina, AsyncLimina])
def test_a_url_without_a_scheme_is_a_mistake_of_the_caller(kind: Callable[..., Any]) -> None:
    with pytest.raises(Invalid, match="must begin with http:// or https://"):
        kind("limina.example:7070")


@pytest.mark.smoke
def test_the_session_of_a_grant_is_sent_but_not_logged(proxy: Proxy, namespace: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with Limina(f"http://{proxy.address}", namespace=namespace, timeout=20, breaker=None) as client:
        with client.lock({"job": "x"}, ttl=60), client.lease({"gpu": "g"}, ttl=60):
            pass
        assert client.locks.list(limit=7).items == []

    async def run() -> None:
        async with AsyncLimina(f"http://{proxy.address}", namespace=namespace, timeout=20, breaker=None) as client:
            async with client.lock({"job": "x"}, ttl=60), client.lease({"gpu": "g"}, ttl=60):
                pass
            assert (await client.locks.list()).items == []

    asyncio.run(run())
    releases = [entry for entry in proxy.requests() if entry["method"] == "DELETE"]
    assert [entry["status"] for entry in releases] == [204] * 4
    for entry in releases:
        assert f"DELETE http://{proxy.address}{entry['path']} " in caplog.text
        assert entry["query"].removeprefix("session_id=") not in caplog.text
    # Other queries are logged as ever.
    assert "locks?limit=7 " in caplog.text


def test_the_synchronous_client_is_up_to_date() -> None:
    script = Path(__file__).parents[1] / "unasync.py"
    result = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True)
    assert result.returncode == 0, f"run unasync.py: {result.stdout}"
