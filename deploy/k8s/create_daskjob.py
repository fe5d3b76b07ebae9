"""Create a DaskJob and wait for its end; what the nightly CronJob runs in its pod.

    python create_daskjob.py JOB.yaml

The job has a fixed name, which is the lock: one that still runs is left alone (exit code 75), one
that has ended is deleted first. Talks to the API server as the pod's service account, which may
create, get and delete DaskJobs (rbac.yaml) and nothing else.

Exit codes: 0 the run succeeded, 1 it failed, 2 wrong arguments or file, 4 the API server refused or
does not answer, 75 the last run has not ended.
"""

from __future__ import annotations

import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import yaml

ACCOUNT = Path(os.environ.get("MSCAM_ACCOUNT", "/var/run/secrets/kubernetes.io/serviceaccount"))
POLL_S = float(os.environ.get("MSCAM_POLL_S", "10"))
PATIENCE = 30
"""Answers in a row that may fail (an API server that is being upgraded) before we give up."""

ENDED = {"Successful": 0, "Failed": 1}


class Refused(Exception):
    """The API server said no, or nothing."""


def request(method: str, path: str, body: Any = None) -> Any:
    """Return the API server's answer; None when there is no such object."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    scheme = "https" if (ACCOUNT / "ca.crt").is_file() else "http"
    context = ssl.create_default_context(cafile=ACCOUNT / "ca.crt") if scheme == "https" else None
    host = f"[{host}]" if ":" in host else host
    call = urllib.request.Request(
        f"{scheme}://{host}:{port}{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={
            "Authorization": f"Bearer {(ACCOUNT / 'token').read_text().strip()}",
            "Content-Type": "application/json",
        },
    )
    try:
        with urllib.request.urlopen(call, timeout=30, context=context) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code == 404 and method != "POST":
            return None
        detail = error.read().decode(errors="replace")[:500]
        raise Refused(f"{method} {path}: {error.code} {error.reason}. {detail}") from error
    except OSError as error:
        raise Refused(f"{method} {path}: {error}") from error


def status_of(job: Any) -> str:
    """Return the operator's word for where a job is; empty before it has seen it."""
    return str((job.get("status") or {}).get("jobStatus", ""))


def replace_ended(jobs: str, name: str) -> bool:
    """Delete the job of an earlier night; False when it has not ended."""
    earlier = request("GET", f"{jobs}/{name}")
    if earlier is None:
        return True
    if status_of(earlier) not in ENDED:
        return False
    request("DELETE", f"{jobs}/{name}", {"propagationPolicy": "Foreground"})
    for _ in range(PATIENCE):
        if request("GET", f"{jobs}/{name}") is None:
            return True
        time.sleep(POLL_S)
    raise Refused(f"{name} was deleted, but is still there after {PATIENCE * POLL_S:g} s.")


def wait(jobs: str, name: str) -> int:
    """Follow a job to its end."""
    seen, failures = "", 0
    while True:
        try:
            job, failures = request("GET", f"{jobs}/{name}"), 0
        except Refused as error:
            failures += 1
            if failures > PATIENCE:
                raise
            say(str(error))
            time.sleep(POLL_S)
            continue
        if job is None:
            raise Refused(f"{name} was deleted while it ran.")
        status = status_of(job)
        if status != seen:
            say(f"{name}: {status}")
            seen = status
        if status in ENDED:
            return ENDED[status]
        time.sleep(POLL_S)


def say(text: str) -> None:
    """Write a line to the pod's log."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> int:
    """Create the job of a file and wait for it."""
    if len(arguments) != 1:
        say("One argument is needed: the file with the DaskJob.")
        return 2
    try:
        job = yaml.safe_load(Path(arguments[0]).read_text(encoding="utf-8"))
        name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
        api_version, kind = job["apiVersion"], job["kind"]
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        say(f"{arguments[0]} holds no DaskJob with name and namespace: {error!r}.")
        return 2
    if (api_version, kind) != ("kubernetes.dask.org/v1", "DaskJob"):
        say(f"{arguments[0]} holds a {kind} of {api_version}, not a DaskJob.")
        return 2
    jobs = f"/apis/kubernetes.dask.org/v1/namespaces/{namespace}/daskjobs"
    try:
        if not replace_ended(jobs, name):
            say(f"{name} of an earlier night has not ended; this night is skipped.")
            return 75
        request("POST", jobs, job)
        say(f"{name}: created")
        return wait(jobs, name)
    except Refused as error:
        say(f"The API server: {error}")
        return 4


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
