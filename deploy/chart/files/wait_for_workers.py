"""Wait until a Dask cluster has a worker; runs in the runner's pod before the run itself.

    python wait_for_workers.py http://SCHEDULER:8787 [SECONDS]

The operator starts the run, the scheduler and the workers at the same time, and a run ends with 75
when nothing listens at the scheduler's address. Asks the scheduler's HTTP port for its number of
workers every few seconds, for half an hour by default.

Exit codes: 0 there is one, 2 wrong arguments, 75 there was none in time: try again later.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.request

POLL_S = 3.0
PATIENCE_S = 1800.0
USAGE = "python wait_for_workers.py http://SCHEDULER:8787 [SECONDS]"


def workers_of(url: str) -> int:
    """Return how many workers a scheduler has."""
    with urllib.request.urlopen(f"{url}/json/counts.json", timeout=10) as answer:
        return int(json.load(answer)["workers"])


def main(arguments: list[str]) -> int:
    """Wait for the first worker."""
    try:
        url, patience_s = arguments[0].rstrip("/"), float((arguments[1:] or [PATIENCE_S])[0])
    except (IndexError, ValueError):
        url, patience_s = "", 0.0
    if not url.startswith("http://"):
        sys.stderr.write(f"{' '.join(arguments)!r} is no URL and seconds. Allowed is: {USAGE}\n")
        return 2
    deadline = time.monotonic() + patience_s
    while True:
        try:
            if workers_of(url):
                return 0
            state = "it has no worker"
        except (OSError, ValueError, KeyError) as error:
            state = f"it does not answer: {error}"
        left = deadline - time.monotonic()
        if left <= 0:
            break
        time.sleep(min(POLL_S, left))
    sys.stderr.write(
        f"The scheduler at {url} has had no worker for {patience_s:g} s ({state}): the cluster has "
        "no room for scheduler or workers, or they end at once. Look at their pods.\n"
    )
    return 75


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
