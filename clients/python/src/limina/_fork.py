"""Survives `fork`: the child has none of the parent's threads, and must not use its connections and locks."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forkable(Protocol):
    def after_fork(self) -> None:
        """Called in the child, before anything else runs there: begin anew, and touch nothing that other threads may hold."""


_objects: weakref.WeakSet[Forkable] = weakref.WeakSet()


def watch(thing: Forkable) -> None:
    """Calls `thing.after_fork()` in every child process."""
    _objects.add(thing)


def _after_fork() -> None:
    for thing in list(_objects):
        thing.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
