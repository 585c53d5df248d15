"""A proxy between a client and Limina that loses, delays and cuts what passes through it.

The conformance scripts steer it over a control port. README.md describes the faults and the control port.

The proxy speaks HTTP/1.1 and opens a connection to the server for each request. It ends when its standard input is closed, so
that it never outlives the test that started it.
"""

import argparse
import asyncio
import fnmatch
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any


class Hangup(Exception):
    """The other side closed the connection."""


class Reader:
    """Reads HTTP messages from a connection. Other than `StreamReader`, it can watch for the end of the connection without
    consuming what arrives meanwhile."""

    def __init__(self, stream: asyncio.StreamReader) -> None:
        self._stream = stream
        self._buffer = bytearray()

    async def _fill(self) -> None:
        data = await self._stream.read(65536)
        if not data:
            raise Hangup
        self._buffer += data

    async def until(self, end: bytes) -> bytes:
        while (found := self._buffer.find(end)) < 0:
            await self._fill()
        return self._take(found + len(end))

    async def exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            await self._fill()
        return self._take(size)

    async def hangup(self) -> None:
        """Returns when the other side has closed the connection."""
        try:
            while True:
                await self._fill()
        except (Hangup, OSError):
            return

    async def rest(self) -> AsyncIterator[bytes]:
        """Everything until the connection ends."""
        while True:
            if self._buffer:
                yield self._take(len(self._buffer))
            try:
                await self._fill()
            except Hangup:
                return

    def _take(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken


@dataclass
class Message:
    """The head of a request or an answer."""

    first: str
    headers: list[tuple[str, str]]

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name), None)

    def encode(self) -> bytes:
        lines = [self.first, *(f"{key}: {value}" for key, value in self.headers)]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def read_head(reader: Reader) -> Message:
    first, *lines = (await reader.until(b"\r\n\r\n"))[:-4].decode("latin-1").split("\r\n")
    return Message(first, [(key.strip(), value.strip()) for key, value in (line.split(":", 1) for line in lines)])


async def read_body(reader: Reader, head: Message, *, to_the_end: bool) -> AsyncIterator[bytes]:
    """The body in the pieces in which it arrives, without chunk framing. An answer without a length reaches to the end."""
    if "chunked" in (head.header("transfer-encoding") or ""):
        while size := int((await reader.until(b"\r\n")).split(b";")[0], 16):
            yield (await reader.exactly(size + 2))[:-2]
        await reader.until(b"\r\n")
    elif length := head.header("content-length"):
        yield await reader.exactly(int(length))
    elif to_the_end:
        async for piece in reader.rest():
            yield piece


@dataclass
class Fault:
    """What is done to the next requests that match."""

    do: str
    method: str | None = None
    path: str = "*"
    times: int = 1
    ms: int = 0
    gate: str = ""
    after_events: int | None = None
    status: int = 503
    headers: dict[str, str] = field(default_factory=dict)
    body: Any = None

    def matches(self, method: str, path: str) -> bool:
        return self.times != 0 and self.method in (None, method) and fnmatch.fnmatchcase(path, self.path)


class Proxy:
    """The queue of faults, the log of requests, and the gates."""

    def __init__(self, upstream: tuple[str, int]) -> None:
        self.upstream = upstream
        self.faults: list[Fault] = []
        self.requests: list[dict[str, Any]] = []
        self.last_arrival: float | None = None
        self.gates: dict[str, asyncio.Event] = {}

    def gate(self, name: str) -> asyncio.Event:
        return self.gates.setdefault(name, asyncio.Event())

    def take_fault(self, method: str, path: str) -> Fault:
        for fault in self.faults:
            if fault.matches(method, path):
                fault.times -= 1 if fault.times > 0 else 0
                return fault
        return Fault("pass")

    def note(self, head: Message, body: bytes) -> dict[str, Any]:
        method, target, _ = head.first.split(" ", 2)
        path, _, query = target.partition("?")
        now = time.monotonic()
        gap = 0.0 if self.last_arrival is None else now - self.last_arrival
        self.last_arrival = now
        token = head.header("authorization")
        entry = {
            "method": method,
            "path": path,
            "query": query,
            "key": head.header("idempotency-key"),
            "token": token.removeprefix("Bearer ") if token else None,
            "last_event_id": head.header("last-event-id"),
            "body": json.loads(body) if body else None,
            "do": None,
            "gap_ms": int(gap * 1000),
            "status": None,
        }
        self.requests.append(entry)
        return entry

    async def serve(self, stream: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A connection of a client."""
        reader = Reader(stream)
        try:
            while True:
                head = await read_head(reader)
                body = b"".join([piece async for piece in read_body(reader, head, to_the_end=False)])
                entry = self.note(head, body)
                fault = self.take_fault(entry["method"], entry["path"])
                entry["do"] = None if fault.do == "pass" else fault.do
                # A client that hangs up must not keep the server waiting: the server then releases what it would have granted.
                work = asyncio.ensure_future(self.exchange(head, body, entry, fault, writer))
                gone = asyncio.ensure_future(reader.hangup())
                done, pending = await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
                for task in pending:
                    task.cancel()
                await asyncio.gather(*pending, return_exceptions=True)
                if work not in done:
                    return
                work.result()
        except (Hangup, OSError):
            pass
        finally:
            writer.close()

    async def exchange(
        self, head: Message, body: bytes, entry: dict[str, Any], fault: Fault, client: asyncio.StreamWriter
    ) -> None:
        """Answers one request. Raises `Hangup` to close the client's connection."""
        if fault.do == "drop_request":
            raise Hangup
        if fault.do == "answer":
            entry["status"] = fault.status
            client.write(own_answer(fault))
            await client.drain()
            return
        if fault.do == "gate":
            await self.gate(fault.gate).wait()

        server_stream, server = await asyncio.open_connection(*self.upstream)
        try:
            hop = ("connection", "transfer-encoding", "content-length", "keep-alive")
            kept = [(key, value) for key, value in head.headers if key.lower() not in hop]
            server.write(Message(head.first, [*kept, ("content-length", str(len(body))), ("connection", "close")]).encode() + body)
            await server.drain()
            reader = Reader(server_stream)
            answer = await read_head(reader)
            status = int(answer.first.split(" ", 2)[1])
            pieces = read_body(reader, answer, to_the_end=status != 204)
            entry["status"] = status

            if fault.do == "drop_answer":
                async for _ in pieces:
                    pass
                raise Hangup
            if fault.do == "delay":
                await asyncio.sleep(fault.ms / 1000)
            if fault.do == "gate_answer":
                await self.gate(fault.gate).wait()

            kept = [(key, value) for key, value in answer.headers if key.lower() not in hop]
            if status == 204:
                client.write(Message(answer.first, kept).encode())
            elif fault.do == "cut" and fault.after_events is None:
                whole = b"".join([piece async for piece in pieces])
                client.write(Message(answer.first, [*kept, ("content-length", str(len(whole)))]).encode())
                client.write(whole[: len(whole) // 2])
                await client.drain()
                raise Hangup
            else:
                client.write(Message(answer.first, [*kept, ("transfer-encoding", "chunked")]).encode())
                async for piece in self.up_to(pieces, fault.after_events if fault.do == "cut" else None):
                    client.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                    await client.drain()
                client.write(b"0\r\n\r\n")
            await client.drain()
        finally:
            server.close()

    @staticmethod
    async def up_to(pieces: AsyncIterator[bytes], events: int | None) -> AsyncIterator[bytes]:
        """The pieces, cut with `Hangup` after so many server-sent events."""
        if events is None:
            async for piece in pieces:
                yield piece
            return
        buffer = b""
        async for piece in pieces:
            buffer += piece
            while b"\n\n" in buffer:
                event, buffer = buffer.split(b"\n\n", 1)
                yield event + b"\n\n"
                # Comments and `retry:` are not events.
                events -= b"data:" in event
                if events <= 0:
                    raise Hangup

    async def control(self, stream: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A connection of the test that steers the proxy."""
        reader = Reader(stream)
        try:
            while True:
                head = await read_head(reader)
                body = b"".join([piece async for piece in read_body(reader, head, to_the_end=False)])
                method, path, _ = head.first.split(" ", 2)
                try:
                    status, answer = 200, self.steer(method, path, json.loads(body) if body else None)
                except (LookupError, TypeError) as error:
                    status, answer = 400, {"detail": f"{method} {path}: {error}"}
                payload = json.dumps(answer).encode()
                headers = [("content-type", "application/json"), ("content-length", str(len(payload)))]
                writer.write(Message(f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", headers).encode() + payload)
                await writer.drain()
        except (Hangup, OSError):
            pass
        finally:
            writer.close()

    def steer(self, method: str, path: str, body: Any) -> Any:
        match method, path.strip("/").split("/"):
            case "POST", ["faults"]:
                self.faults += [Fault(**fault) for fault in body]
            case "DELETE", ["faults"]:
                self.faults = []
                for gate in self.gates.values():
                    gate.set()
                self.gates = {}
            case "POST", ["gates", name]:
                self.gate(name).set()
            case "GET", ["requests"]:
                return self.requests
            case "DELETE", ["requests"]:
                self.requests = []
            case _:
                raise LookupError("no such call")
        return {}


def own_answer(fault: Fault) -> bytes:
    payload = json.dumps(fault.body).encode() if fault.body is not None else b""
    headers = {"content-type": "application/problem+json", "content-length": str(len(payload)), **fault.headers}
    return Message(f"HTTP/1.1 {fault.status} Proxy", list(headers.items())).encode() + payload


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--upstream", required=True, metavar="HOST:PORT", help="address of the server")
    host, _, port = parser.parse_args().upstream.rpartition(":")
    proxy = Proxy((host, int(port)))
    addresses = {}
    for name, handler in (("listen", proxy.serve), ("control", proxy.control)):
        server = await asyncio.start_server(handler, "127.0.0.1", 0)
        addresses[name] = "{}:{}".format(*server.sockets[0].getsockname())
    print(json.dumps(addresses), flush=True)
    await asyncio.to_thread(sys.stdin.buffer.read)
    # Without the clean-up of asyncio, which would report every connection that is still open.
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())
