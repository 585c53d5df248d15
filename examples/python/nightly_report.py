"""A job that cron starts on several machines, and that runs on one of them at a time.

pip install ./clients/python
limina &
python examples/python/nightly_report.py & python examples/python/nightly_report.py
"""

import os
import socket
import sys
import time

from limina import Limina, Lost, Refused, Unavailable

client = Limina(os.environ.get("LIMINA_URL", "http://127.0.0.1:7070"), namespace="jobs")
STEPS = int(os.environ.get("STEPS", "5"))


def main() -> int:
    try:
        # The lock lives for 30 seconds without a heartbeat. The guard sends one every 10 seconds, from a thread of its own.
        with client.lock({"job": "nightly-report"}, ttl=30, owner=socket.gethostname()) as lock:
            for step in range(STEPS):
                lock.raise_if_lost()  # Somebody else may have the lock by now: stop.
                # Send the fencing token with every write, and let the database reject a smaller one than it has seen.
                print(f"step {step + 1} of {STEPS}, fencing token {lock.fencing_token}", flush=True)
                time.sleep(0.2)
    except Refused as error:
        print(f"{error.problem.get('owner')} is already at work", flush=True)
        return 0
    except (Lost, Unavailable) as error:
        # A lock is never assumed: without an answer the job does not run.
        print(f"not finished: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
