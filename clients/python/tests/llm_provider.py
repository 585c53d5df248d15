"""A provider of models with OpenAI's interface, for tests. It bills each call, as a real one does: by what it has sent.

The message of a call says how it goes: `call=17 how=break answer=120 send=8`. Each chunk of a stream is one token.
"""

from __future__ import annotations

import contextlib
import json
import re
import select
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import litellm

MODEL = "gpt-4o"
LISTED = (2500, 10000)
"""The prices of a token in billionths of a dollar, in LiteLLM's map."""
WORD = " and"
STALL = 20.0


class Provider:
    """`bills` has what each call costs, by its number. It is 0 for a call that failed."""

    def __init__(self, price: tuple[int, int] = LISTED) -> None:
        """`price` is that of a token of a prompt, and of an answer."""
        self.price = price
        self.bills: dict[int, int] = {}
        self.calls = 0
        self.open = 0
        self._lock = threading.Lock()
        self._read: dict[int, threading.Event] = {}
        provider = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Each chunk leaves at once.
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with provider.counted():
                    _Call(self, provider, body).answer()

            def log_message(self, *arguments: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            request_queue_size = 1024
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # A gateway that was killed.

        self._server = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        with self._lock:
            self.calls += 1
            self.open += 1
        try:
            yield
        finally:
            with self._lock:
                self.open -= 1

    def has_read(self, call: int) -> threading.Event:
        """Set by the client of a stream that breaks: a connection takes with it what LiteLLM has not read by then."""
        with self._lock:
            return self._read.setdefault(call, threading.Event())

    def bill(self, call: int, prompt: int, completion: int) -> None:
        asked, answered = self.price
        with self._lock:
            self.bills[call] = self.bills.get(call, 0) + prompt * asked + completion * answered

    def close(self) -> None:
        self._server.shutdown()


class _Call:
    def __init__(self, handler: BaseHTTPRequestHandler, provider: Provider, body: dict[str, Any]) -> None:
        said = dict(re.findall(r"(\w+)=(\w+)", body["messages"][-1]["content"]))
        self.handler, self.provider, self.body = handler, provider, body
        self.call = int(said.get("call", -1))
        self.how = said.get("how", "plain")
        most = body.get("max_tokens") or body.get("max_completion_tokens") or 1 << 20
        self.completion = min(int(said.get("answer", 20)), most)
        self.send = min(int(said.get("send", self.completion)), self.completion)
        self.pause = int(said.get("pause", 0)) / 1000
        self.prompt = litellm.token_counter(model=MODEL, messages=body["messages"])

    def answer(self) -> None:
        time.sleep(self.pause)
        if self.how == "fail":
            self._json(500, {"error": {"message": "the model is not well", "type": "server_error"}})
        elif self.body.get("stream"):
            self._stream()
        else:
            self._bill(self.completion)
            usage = self._usage() if self.how != "silent" else {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
            text = WORD * self.completion
            message = {"role": "assistant", "content": text}
            self._json(
                200, {**self._head(), "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}
            )

    def _stream(self) -> None:
        self.handler.send_response(200)
        self.handler.send_header("content-type", "text/event-stream")
        self.handler.send_header("transfer-encoding", "chunked")
        self.handler.end_headers()
        sent = 0
        try:
            for _ in range(self.send):
                self._chunk({"index": 0, "delta": {"role": "assistant", "content": WORD}, "finish_reason": None})
                sent += 1
                time.sleep(self.pause / 20)
            if self.how == "stall":
                self._wait_until_the_reader_leaves()
            elif self.how == "break":
                self.provider.has_read(self.call).wait(STALL)
            else:
                self._finish()
        finally:
            self._bill(sent)
            if self.how in ("break", "stall"):
                self.handler.close_connection = True
                self.handler.connection.shutdown(socket.SHUT_RDWR)

    def _finish(self) -> None:
        self._chunk({"index": 0, "delta": {}, "finish_reason": "stop"})
        if self.how != "silent" and (self.body.get("stream_options") or {}).get("include_usage"):
            self._event({**self._head(), "choices": [], "usage": self._usage()})
        self._write(b"data: [DONE]\n\n")
        self.handler.wfile.write(b"0\r\n\r\n")

    def _wait_until_the_reader_leaves(self) -> None:
        readable, _, _ = select.select([self.handler.connection], [], [], STALL)
        assert not readable or self.handler.connection.recv(1) == b""

    def _bill(self, completion: int) -> None:
        self.provider.bill(self.call, self.prompt, completion)

    def _usage(self) -> dict[str, int]:
        total = self.prompt + self.completion
        return {"prompt_tokens": self.prompt, "completion_tokens": self.completion, "total_tokens": total}

    def _head(self) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self.body.get("stream") else "chat.completion"
        return {"id": f"call-{self.call}", "object": kind, "created": 1, "model": MODEL}

    def _chunk(self, choice: dict[str, Any]) -> None:
        self._event({**self._head(), "choices": [choice]})

    def _event(self, event: dict[str, Any]) -> None:
        self._write(b"data: " + json.dumps(event).encode() + b"\n\n")

    def _write(self, data: bytes) -> None:
        self.handler.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _json(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.handler.send_response(status)
        self.handler.send_header("content-type", "application/json")
        self.handler.send_header("content-length", str(len(data)))
        self.handler.end_headers()
        self.handler.wfile.write(data)
