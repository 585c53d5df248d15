"""Time and durations."""

from __future__ import annotations

import time
from datetime import timedelta

Seconds = float | int | timedelta
"""A duration in the API of this package: seconds, or a `timedelta`."""


def seconds(duration: Seconds) -> float:
    return duration.total_seconds() if isinstance(duration, timedelta) else float(duration)


def milliseconds(duration: Seconds) -> int:
    return round(seconds(duration) * 1000)


if hasattr(time, "CLOCK_BOOTTIME"):

    def now() -> float:
        """Seconds of a clock that never goes back, and that also runs while the machine is suspended: a grant expires at the
        server meanwhile."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:
    now = time.monotonic
