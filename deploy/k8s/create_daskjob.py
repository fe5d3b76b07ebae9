"""Create a DaskJob and wait for its end; the program of the nightly CronJob.

    python create_daskjob.py JOB.yaml

The job has a fixed name, which is the lock: one that still runs is left alone (exit code 75), one
that has ended is deleted first. A run that ends with 75, or whose pod is taken away with its node,
is tried again, six times, ten minutes apart, and resumes. Talks to the API server as
the pod's service account, which may create, get and delete DaskJobs and get the runner's pod
(rbac.yaml), and nothing else.

Exit codes: 0 the run succeeded; 1 it failed without an exit code of its own; 2 wrong arguments or file, 4 the API server refused
or does not answer, 75 the last run has not ended; otherwise that of the run.
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
RETRY_S = float(os.environ.get("MSCAM_RETRY_S", "600"))
RETRIES = 6
"""How often a run that ended with 75 is tried again in one night."""
PATIENCE = 30
"""Answers in a row that may fail (an API server that is being upgraded) before we give up."""

SUCCEEDED, FAILED, LATER = 0, 1, 75
ENDED = ("Successful", "Failed")
STARTED = ("ClusterCreated", "Running")
"""Words of the operator for a job that has ended, and for one whose pod it has made."""


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


def runner_of(jobs: str, name: str) -> Any:
    """Return the pod that the operator made for a job's run; None when it is gone."""
    namespace = jobs.split("/")[-2]
    return request("GET", f"/api/v1/namespaces/{namespace}/pods/{name}-runner")


def is_over(runner: Any) -> bool:
    """Say whether a run's pod is gone, or will not start again."""
    return runner is None or runner["status"].get("phase") in ("Succeeded", "Failed")


def has_succeeded(status: str, runner: Any) -> bool:
    """Say whether a run ended with 0, by the operator's word or by the pod's own."""
    return status == "Successful" or (
        runner is not None and runner["status"].get("phase") == "Succeeded"
    )


def exit_code(runner: Any) -> tuple[int, bool]:
    """Return how a run ended that did not succeed, and whether it is worth another try."""
    if runner is None:
        say("The run's pod was taken away.")
        return LATER, True
    status = runner["status"]
    ends = [
        one["state"]["terminated"]
        for kind in ("initContainerStatuses", "containerStatuses")
        for one in status.get(kind) or []
        if "terminated" in one.get("state", {})
    ]
    code, why = next(
        ((end["exitCode"], end.get("reason")) for end in ends if end["exitCode"]), (None, None)
    )
    why = status.get("reason") or why
    say(f"The run's pod: {why or 'no reason given'}, exit code {code}.")
    if status.get("reason") == "DeadlineExceeded":
        say("Its time is over (activeDeadlineSeconds); the next night resumes it.")
        return LATER, False
    if status.get("reason"):  # of the pod, not of a container: evicted, or its node was shut down
        return LATER, True
    return (FAILED, False) if code is None else (code, code == LATER)


def replace_ended(jobs: str, name: str) -> bool:
    """Delete the job of an earlier run; False when it has not ended."""
    earlier = request("GET", f"{jobs}/{name}")
    if earlier is None:
        return True
    status = status_of(earlier)
    if status not in ENDED and not (status in STARTED and is_over(runner_of(jobs, name))):
        return False
    request("DELETE", f"{jobs}/{name}", {"propagationPolicy": "Foreground"})
    for _ in range(PATIENCE):
        if request("GET", f"{jobs}/{name}") is None:
            return True
        time.sleep(POLL_S)
    raise Refused(f"{name} was deleted, but is still there after {PATIENCE * POLL_S:g} s.")


def look(jobs: str, name: str) -> tuple[str | None, Any]:
    """Return a job's status, None when it is gone, and its run's pod."""
    job = request("GET", f"{jobs}/{name}")
    if job is None:
        return None, None
    status = status_of(job)
    return status, runner_of(jobs, name) if status in (*STARTED, *ENDED) else {"status": {}}


def wait(jobs: str, name: str) -> tuple[int, bool]:
    """Follow a job to its end; its exit code, and whether it is worth another try."""
    seen, failures, over = "", 0, 0
    while True:
        try:
            (status, runner), failures = look(jobs, name), 0
        except Refused as error:
            failures += 1
            if failures > PATIENCE:
                raise
            say(str(error))
            time.sleep(POLL_S)
            continue
        if status is None:
            raise Refused(f"{name} was deleted while it ran.")
        if status != seen:
            say(f"{name}: {status}")
            seen = status
        # The operator frees the cluster and says so once it has seen the pod's end, which it
        # misses when the pod is gone before.
        over = over + 1 if is_over(runner) else 0
        if status in ENDED or over > PATIENCE:
            return (SUCCEEDED, False) if has_succeeded(status, runner) else exit_code(runner)
        time.sleep(POLL_S)


def one_night(jobs: str, name: str, job: Any) -> int:
    """Run the job, again while that is worth it; the exit code of the last run."""
    for tries_left in range(RETRIES, -1, -1):
        if not replace_ended(jobs, name):
            say(f"{name} of an earlier night has not ended; this night is skipped.")
            return LATER
        request("POST", jobs, job)
        say(f"{name}: created")
        code, passes = wait(jobs, name)
        if not (passes and tries_left):
            break
        say(f"That passes by itself: again in {RETRY_S:g} s, {tries_left} tries left.")
        time.sleep(RETRY_S)
    return code


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
        return one_night(jobs, name, job)
    except Refused as error:
        say(f"The API server: {error}")
        return 4


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
