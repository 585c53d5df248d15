# Made from _async/namespace.py by unasync.py.
"""A namespace, as the families see it: the calls that all of them are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from .._keeper import Keeper
from .._wire import Request, encode, new_key, path, release_request
from .transport import Transport

T = TypeVar("T")


@dataclass(frozen=True)
class Namespace:
    name: str
    transport: Transport
    keeper: Keeper

    def path(self, template: str, *names: str, **query: Any) -> str:
        return path(self.name, template, *names, query=query)

    def get(self, kind: type[T], target: str) -> T:
        return (self.transport.call(Request("GET", target, repeatable=True))).read(kind)

    def query(self, kind: type[T], target: str, body: Mapping[str, Any]) -> T:
        """A POST that only reads."""
        return (self.transport.call(Request("POST", target, encode(body), repeatable=True))).read(kind)

    def change(self, kind: type[T], method: str, target: str, body: Any, *, key: str | None = None) -> T:
        """A POST or PUT that changes something. It always has a key, so a lost answer can be asked for again."""
        request = Request(method, target, encode(body), key or new_key(), repeatable=True)
        return (self.transport.call(request)).read(kind)

    def patch(self, kind: type[T], target: str, body: Mapping[str, Any]) -> T:
        return (self.transport.call(Request("PATCH", target, encode(body)))).read(kind)

    def delete(self, target: str) -> None:
        self.transport.call(Request("DELETE", target))

    def release(self, target: str) -> None:
        self.transport.call(release_request(target))
