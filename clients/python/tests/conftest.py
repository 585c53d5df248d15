"""The server, and the proxy in front of it. Both live as long as the test run; each test has namespaces of its own."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

CONFORMANCE = Path(__file__).parents[2] / "conformance"


def server_binary() -> str:
    binary = os.environ.get("LIMINA_BIN")
    if binary is None:
        pytest.fail("LIMINA_BIN must be the path of the server's binary")
    return binary


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server, such as `127.0.0.1:7070`."""
    data = tmp_path_factory.mktemp("data")
    # A memory budget, so that the server does not take that of the other tests on the machine.
    command = [server_binary(), "--listen", "127.0.0.1:0", "--data", str(data), "--shards", "4", "--memory-mib", "512"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "NO_COLOR": "1"})
    assert process.stderr is not None
    log = []
    for line in process.stderr:
        log.append(line)
        if found := re.search(r"listening on http://(\S+?),", line):
            break
    else:
        pytest.fail("the server did not start:\n" + "".join(log))
    # Nobody reads the log any more: it must not fill the pipe.
    drain = subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL)
    yield found[1]
    process.terminate()
    process.wait(30)
    drain.wait(30)
    shutil.rmtree(data, ignore_errors=True)


class Proxy:
    """Steers the proxy."""

    def __init__(self, addresses: dict[str, str]) -> None:
        self.address = addresses["listen"]
        self._control = httpx2.Client(base_url=f"http://{addresses['control']}", timeout=30)

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        response = self._control.request(method, path, json=body)
        assert response.status_code == 200, response.text
        return response.json()

    def add_faults(self, *faults: dict[str, Any]) -> None:
        self._call("POST", "/faults", list(faults))

    def open_gate(self, name: str) -> None:
        self._call("POST", f"/gates/{name}")

    def requests(self) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = self._call("GET", "/requests")
        return entries

    def clear_requests(self) -> None:
        self._call("DELETE", "/requests")

    def reset(self) -> None:
        self._call("DELETE", "/faults")
        self.clear_requests()


@pytest.fixture(scope="session")
def proxy_process(server: str) -> Iterator[Proxy]:
    command = [sys.executable, str(CONFORMANCE / "proxy.py"), "--upstream", server]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    yield Proxy(json.loads(process.stdout.readline()))
    process.communicate(timeout=30)


@pytest.fixture
def proxy(proxy_process: Proxy) -> Iterator[Proxy]:
    proxy_process.reset()
    yield proxy_process
    proxy_process.reset()


@pytest.fixture
def namespace() -> str:
    return f"t-{secrets.token_hex(6)}"


@pytest.fixture(scope="session")
def features(server: str) -> frozenset[str]:
    """What the server can do, as far as scripts ask for it."""
    paths = {"decisions": "/v1/decisions", "rule_sets": "/v1/limiter/rule-sets"}
    answers = {feature: httpx2.get(f"http://{server}{path}") for feature, path in paths.items()}
    found = {feature for feature, answer in answers.items() if answer.status_code != 404 or answer.json().get("code") != "NotFound"}
    schemas = httpx2.get(f"http://{server}/openapi.json").json()["components"]["schemas"]
    return frozenset(found | ({"slots"} if "waiting" in schemas["LimitStatus"]["properties"] else set()))
