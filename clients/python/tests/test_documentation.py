"""The examples: those of the README, those of the server's reference, and the programs under `examples/python`."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from limina import Limina

from .conformance import closed_port

CLIENT = Path(__file__).parents[1]
EXAMPLES = CLIENT.parents[1] / "examples" / "python"
REFERENCE = CLIENT.parents[1] / "crates" / "server" / "assets" / "docs"
CHAPTERS = ["limiter", "locks", "events", "ledger", "decisions"]
SNIPPET = re.compile(r"^py:(?P<imports>.*)\n(?P<code>(?:\|.*\n)+)", re.M)
BLOCK = re.compile(r"(<!-- needs: (?P<needs>\w+) -->\n)?```(?P<language>python|output)\n(?P<text>.*?)```", re.S)


@pytest.mark.smoke
def test_the_readme_prints_what_it_says(server: str, namespace: str, features: frozenset[str]) -> None:
    readme = (
        (CLIENT / "README.md").read_text().replace("127.0.0.1:7070", server).replace('namespace="shop"', f'namespace="{namespace}"')
    )
    scope: dict[str, object] = {}
    printed = ""
    for block in BLOCK.finditer(readme):
        if block["needs"] and block["needs"] not in features:
            continue
        if block["language"] == "output":
            assert printed == block["text"]
        else:
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(compile(block["text"], "README.md", "exec"), scope)
            printed = output.getvalue()


@pytest.mark.smoke
def test_the_snippets_of_the_reference_run(server: str, namespace: str) -> None:
    """In the order of the page: later ones use what earlier ones have made."""
    count = 0
    with Limina(f"http://{server}", namespace=namespace, timeout=20) as client:
        for chapter in CHAPTERS:
            for snippet in SNIPPET.finditer((REFERENCE / f"{chapter}.txt").read_text()):
                code = re.sub(r"^\| ?", "", snippet["code"], flags=re.M)
                imports = f"from limina import {snippet['imports']}\n" if snippet["imports"].strip() else ""
                with contextlib.redirect_stdout(io.StringIO()):
                    exec(compile(imports + code, f"{chapter}.txt", "exec"), {"client": client})
                count += 1
    assert count > 40


def start(name: str, server: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", str(EXAMPLES / name)],
        env={**os.environ, "LIMINA_URL": f"http://{server}", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@contextlib.contextmanager
def running(process: subprocess.Popen[str]) -> Iterator[Iterator[str]]:
    """The lines that the process prints."""
    assert process.stdout is not None
    try:
        yield iter(process.stdout.readline, "")
    finally:
        process.terminate()
        process.communicate(timeout=30)


def test_the_web_api_limits_its_callers(server: str) -> None:
    with running(start("web_api.py", server, PORT=closed_port().split(":")[1])) as lines:
        address = next(found[1] for line in lines if (found := re.search(r"running on (\S+)", line)))
        answers = [httpx2.get(address, headers={"x-api-key": "ann"}) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 200]
        assert answers[0].headers["ratelimit-policy"] == '"per-caller";q=10;w=1;burst=20'
        with Limina(f"http://{server}", namespace="web-api", timeout=20) as client:
            client.rules.patch("per-caller", limit=0)
        assert httpx2.get(address, headers={"x-api-key": "bob"}).status_code == 429


def test_the_nightly_report_runs_once_at_a_time(server: str) -> None:
    with running(start("nightly_report.py", server, STEPS="1000")) as first:
        assert "step 1 of 1000" in next(first)
        second, _ = start("nightly_report.py", server, STEPS="1").communicate(timeout=60)
        assert "is already at work" in second
    with Limina(f"http://{server}", namespace="jobs", timeout=20) as client:
        # The first one was killed, so its lock would live until its `ttl` ends.
        for held in client.locks.list().items:
            client.locks.release_by_force(held.lock_id)
    third, _ = start("nightly_report.py", server, STEPS="1").communicate(timeout=60)
    assert "step 1 of 1, fencing token" in third


def test_the_llm_gateway_settles_what_was_used(server: str, features: frozenset[str]) -> None:
    if "decisions" not in features:
        pytest.skip("the server does not have decisions")
    printed, _ = start("llm_gateway.py", server, LITELLM_LOCAL_MODEL_COST_MAP="True").communicate(timeout=120)
    assert "A number that only grows." in printed
    assert "refused: " in printed
    used = re.search(r"ann has used (\d+) tokens; the team has spent ([\d.]+) dollars", printed)
    assert used, printed
    assert 0 < int(used[1]) < 500
    assert 0 < float(used[2]) < 0.01
