# Made from _async/events.py by unasync.py.
"""Streams of events: submit, and follow."""

from __future__ import annotations

from collections.abc import Iterator

from .._clock import Seconds, milliseconds
from .._retry import backoff
from .._wire import Request, decode, fields
from ..errors import Unavailable
from ..types import Change, Incubating, KeyFrame, Message, Page, Stream, StreamMode, Submitted
from .io import sleep
from .namespace import Namespace


class Events:
    """`client.events`."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def put(
        self,
        stream: str,
        *,
        mode: StreamMode,
        duration: Seconds,
        max_events: int | None = None,
        key_frame_every: Seconds | None = None,
    ) -> Stream:
        """Creates a stream, or changes its settings except the mode."""
        body = fields(
            mode=mode,
            duration_ms=milliseconds(duration),
            max_events=max_events,
            key_frame_every_ms=None if key_frame_every is None else milliseconds(key_frame_every),
        )
        return self._namespace.change(Stream, "PUT", self._namespace.path("events/{}", stream), body)

    def get(self, stream: str) -> Stream:
        return self._namespace.get(Stream, self._namespace.path("events/{}", stream))

    def list(self, *, limit: int | None = None, after: str | None = None) -> Page[Stream]:
        return self._namespace.get(Page[Stream], self._namespace.path("events", limit=limit, after=after))

    def delete(self, stream: str) -> None:
        self._namespace.delete(self._namespace.path("events/{}", stream))

    def submit(self, stream: str, event: str) -> Submitted:
        """Submits an event. Raises `Refused` (`EventConflict`) if the same event happened within the stream's duration."""
        target = self._namespace.path("events/{}", stream)
        return self._namespace.change(Submitted, "POST", target, {"event": event})

    def incubating(self, stream: str) -> Incubating:
        """The events that are accepted and not yet published."""
        return self._namespace.get(Incubating, self._namespace.path("events/{}/incubating", stream))

    def follow(self, stream: str, *, after: int | None = None) -> Iterator[Change | KeyFrame]:
        """Every change of a stream, for ever. Connects again after an interruption, and misses nothing and repeats nothing.

        The first message is a `KeyFrame` with all incubating events. With `after`, the clock of the last message that you
        have seen, the changes after it come first. A later `KeyFrame` replaces all that you know: it comes from time to
        time, and where some changes are no longer kept.

        Raises `NotFound` if there is no such stream (any more), and `Unauthorized` or `Forbidden` if you may not follow it.
        """
        target = self._namespace.path("events/{}/stream", stream)
        transport = self._namespace.transport
        retries = Request("GET", target, repeatable=True).retries(transport.config, transport.budget)
        clock, connected, failures = after, False, 0
        while True:
            try:
                with transport.stream(target, clock) as messages:
                    connected = True
                    for message in messages:
                        if not message.data:
                            continue
                        # The type checker does not know that a union of types can be read as a type.
                        read: Message = decode(message.data.encode(), Message)  # type: ignore[arg-type]
                        change = read if isinstance(read, KeyFrame) else Change.of(read)
                        failures = 0
                        if isinstance(change, KeyFrame) or clock is None or change.clock > clock:
                            clock = change.clock
                            yield change
                # The server ended the stream: it stops, or the stream is gone. The next attempt will tell.
                failures += 1
                sleep(backoff(failures))
            except Unavailable as error:
                failures += 1
                if connected:
                    sleep((error.retry_after or 0) + backoff(failures))
                else:
                    sleep(retries.pause(error))
