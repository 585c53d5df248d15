"""The guide `docs/llm.md`: its files start the proxy, its commands answer as written, its program prints what it says."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("litellm") is None:
    pytest.skip("litellm is only installed for the full run", allow_module_level=True)

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import litellm

from limina.litellm import Settings
from limina.litellm._settings import budget_of, limit_of

from . import llm_gateway
from .llm_provider import Provider

GUIDE = (Path(__file__).parents[3] / "docs" / "llm.md").read_text()
# What is different each time, or on other days.
VARYING = [(r"\d{4}-\d\d-\d\d(T00:00:00Z)?", "DATE"), (r'"created_position":\d+', '"created_position":N')]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.S | re.M)


def same(text: str) -> str:
    for pattern, replacement in VARYING:
        text = re.sub(pattern, replacement, text)
    return text.strip()


@pytest.mark.long
def test_the_proxy_answers_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = Provider()
    server = llm_gateway.limina(tmp_path)
    server.start()
    (settings,), (config,) = blocks("toml"), blocks("yaml")
    monkeypatch.setenv("LITELLM_MASTER_KEY", "sk-master")
    proxy = llm_gateway.proxy(tmp_path, settings=settings, provider=provider.url, limina=server.url, config=config)
    proxy.start()
    played = 0
    try:
        for command, written in re.findall(r"^\$ (curl .*)\n((?:[^$].*\n)*)", "".join(blocks("console")), re.M):
            today = f"{llm_gateway.today():%Y-%m-%d}"
            meant = re.sub(r"\d{4}-\d\d-\d\d", today, command)
            meant = meant.replace("localhost:4000", proxy.url[7:]).replace("localhost:7070", server.url[7:])
            answer = subprocess.run(
                [*shlex.split(meant), "-sS"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
            )
            assert same(answer.stdout) == same(written)
            played += 1
    finally:
        proxy.kill()
        server.kill()
        provider.close()
    assert played == 3


def test_the_program_prints_what_it_says(server: str) -> None:
    (program,), (output,) = blocks("python"), blocks("output")
    program = program.replace("Settings(\n", f'Settings(\n    url="http://{server}",\n')
    try:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(program, "docs/llm.md", "exec"), {})
    finally:
        for hook in litellm.callbacks:
            hook.close()
        litellm.logging_callback_manager._reset_all_callbacks()
    assert printed.getvalue() == output


def test_the_metadata_and_the_settings_are_valid() -> None:
    for block in blocks("json"):
        wish = json.loads(block)["limina"]
        assert [budget_of(entry, ("team",)) for entry in wish["budgets"]]
        assert [limit_of(entry, ("team",)) for entry in wish["limits"]]
    names = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", GUIDE, re.M))))
    assert set(Settings.__dataclass_fields__) - {"budgets", "limits"} <= names
