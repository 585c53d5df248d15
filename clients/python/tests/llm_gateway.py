"""The real proxy of LiteLLM and a server of Limina, as processes that a test can kill."""

from __future__ import annotations

import datetime
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx2

from .conformance import closed_port
from .conftest import server_binary

CONFIG = """
model_list:
  - model_name: chat
    litellm_params:
      model: openai/gpt-4o
      api_base: os.environ/OPENAI_BASE_URL
      api_key: none
      {prices}
litellm_settings:
  callbacks: limina.litellm.instance
general_settings:
  master_key: sk-master
  custom_auth: llm_auth.user_api_key_auth
"""
AUTH = Path(__file__).with_name("llm_auth.py")
LONGEST_START = 120


class Process:
    """Begins again at the same address."""

    def __init__(self, name: str, folder: Path, command: list[str], environment: dict[str, str], address: str, ready: str) -> None:
        self.url = f"http://{address}"
        self.log = folder / f"{name}.log"
        self._command = command
        self._environment = {**os.environ, **environment}
        self._folder = folder
        self._ready = ready
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, cwd=self._folder, env=self._environment)
        deadline = time.monotonic() + LONGEST_START
        while not self._is_ready():
            assert self._process.poll() is None, self.log.read_text()[-4000:]
            assert time.monotonic() < deadline, self.log.read_text()[-4000:]
            time.sleep(0.1)

    def _is_ready(self) -> bool:
        try:
            return httpx2.get(f"{self.url}{self._ready}", timeout=2).status_code == 200
        except httpx2.TransportError:
            return False

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(30)


def limina(folder: Path) -> Process:
    address = closed_port()
    command = [server_binary(), "--listen", address, "--data", str(folder / "data"), "--shards", "4", "--memory-mib", "512"]
    return Process("limina", folder, command, {"NO_COLOR": "1"}, address, "/readyz")


def proxy(folder: Path, *, settings: str, provider: str, limina: str, config: str | None = None, prices: str = "") -> Process:
    (folder / "config.yaml").write_text(config if config is not None else CONFIG.replace("{prices}", prices))
    (folder / "limina.toml").write_text(settings)
    shutil.copy(AUTH, folder / AUTH.name)
    address = closed_port()
    host, port = address.split(":")
    program = Path(sys.executable).with_name("litellm")
    command = [str(program), "--config", "config.yaml", "--host", host, "--port", port]
    environment = {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "OPENAI_BASE_URL": provider,
        "OPENAI_API_KEY": "none",
        "LIMINA_URL": limina,
        "LIMINA_LITELLM": str(folder / "limina.toml"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return Process("proxy", folder, command, environment, address, "/health/liveliness")


def today() -> datetime.date:
    """The day of budgets: in UTC."""
    return datetime.datetime.now(datetime.UTC).date()
