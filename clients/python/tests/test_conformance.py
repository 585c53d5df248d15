"""The conformance scripts, with both clients."""

from __future__ import annotations

from typing import Any

import pytest

from .conformance import AsyncioSubject, Player, Script, ThreadsSubject, load_scripts
from .conftest import Proxy


def cases() -> list[Any]:
    """Each script with each client. The short run plays each of its scripts with one of them, in turn."""
    found = []
    for number, script in enumerate(load_scripts()):
        for turn, subject in enumerate((ThreadsSubject, AsyncioSubject)):
            marks = [pytest.mark.smoke] if "smoke" in script.get("tags", []) and number % 2 == turn else []
            name = f"{subject.__name__.removesuffix('Subject')}: {script['file']}: {script['name']}"
            found.append(pytest.param(script, subject, id=name, marks=marks))
    return found


@pytest.mark.parametrize(("script", "subject"), cases())
def test_script(
    script: Script,
    subject: type[ThreadsSubject | AsyncioSubject],
    server: str,
    proxy: Proxy,
    namespace: str,
    features: frozenset[str],
) -> None:
    if missing := set(script.get("needs", [])) - features:
        pytest.skip(f"the server does not have {missing}")
    Player(script, subject, server, proxy, namespace).play()
