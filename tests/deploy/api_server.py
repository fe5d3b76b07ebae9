"""An API server that answers as Kubernetes does, with or without the Dask operator behind it."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.files import script_environment

__all__ = ["CLUSTERS", "JOBS", "ApiServer", "Operated", "ended_pod", "operator", "serving"]

JOBS = "/apis/kubernetes.dask.org/v1/namespaces/mscam/daskjobs"
PODS = "/api/v1/namespaces/mscam/pods"
CLUSTERS = "clusters of the operator"


class ApiServer:
    """Objects by path; a created job takes the given course, one word for each time it is asked."""

    def __init__(self, context: list[str]) -> None:
        self.context = context
        self.objects: dict[str, Any] = {}
        self.calls: list[tuple[str, str]] = []
        self.failures = 0
        self.tokens: set[str | None] = set()
        self.pod: Any = {"status": {"phase": "Running"}}

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        self.calls.append((method, path))
        if self.failures:
            self.failures -= 1
            return 503, {"message": "the server is being upgraded"}
        if path == f"{PODS}/mscam-nightly-runner":
            return 404 if self.pod is None else 200, self.pod
        return self.answer_about_jobs(method, path, body)

    def answer_about_jobs(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        if method == "POST":
            path = f"{path}/{body['metadata']['name']}"
            if path in self.objects:
                return 409, {"message": "already exists"}
            self.objects[path] = body
            return 201, body
        if path not in self.objects:
            return 404, {"message": "not found"}
        if method == "DELETE":
            return 200, self.objects.pop(path)
        job = self.objects[path]
        if "status" not in job or job["status"]["jobStatus"] not in ("Successful", "Failed"):
            job = self.objects[path] = {**job, "status": {"jobStatus": self.next_status()}}
        return 200, job

    def next_status(self) -> str:
        return self.context.pop(0) if len(self.context) > 1 else self.context[0]

    @property
    def changes(self) -> list[str]:
        return [method for method, _ in self.calls if method != "GET"]


def ended_pod(code: int, why: str = "Error", **status: Any) -> Any:
    """A pod whose container ended with an exit code."""
    end = {"terminated": {"exitCode": code, "reason": why}}
    return {"status": {"phase": "Failed", "containerStatuses": [{"state": end}], **status}}


def operator() -> Any:
    """The Dask operator's own code."""
    return pytest.importorskip("dask_kubernetes.operator.controller.controller")


class Operated(ApiServer):
    """An API server with a kubelet that ends runs with the given exit codes, and the Dask operator.

    What the operator makes of the pod's phase is its own code; the kubelet gives the phase that
    Kubernetes documents for the manifest's restart policy.
    """

    def __init__(self, exit_codes: list[int]) -> None:
        super().__init__([])
        self.exit_codes = exit_codes
        self.history: list[str] = []

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        code, value = super().answer(method, path, body)
        if (method, path) == ("POST", JOBS):
            self.start(body)
        elif method == "DELETE":  # owned by the job, so the garbage collector takes them with it
            self.pod = None
            self.objects.pop(CLUSTERS, None)
        return code, value

    def next_status(self) -> str:
        return str(self.status["jobStatus"])

    def start(self, job: Any) -> None:
        controller = operator()
        name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
        pod = controller.build_job_pod_spec(
            name, name, namespace, job["spec"]["job"]["spec"], {}, {}
        )
        assert f"{PODS}/{pod['metadata']['name']}" == f"{PODS}/mscam-nightly-runner"
        self.objects[CLUSTERS] = name
        self.status: dict[str, Any] = {"jobStatus": "Running"}
        code = self.exit_codes.pop(0)
        restarts = pod["spec"]["restartPolicy"] == "Always" or (
            pod["spec"]["restartPolicy"] == "OnFailure" and code
        )
        self.pod = {**pod, **ended_pod(code)}
        self.pod["status"]["phase"] = "Running" if restarts else "Failed" if code else "Succeeded"
        self.history.append(self.pod["status"]["phase"])
        self.operate()

    def operate(self) -> None:
        """Call the operator's handler of the pod's phase."""
        controller, server = operator(), self

        class Resource:
            @classmethod
            async def get(cls, name: str, namespace: str) -> Resource:
                return cls()

            async def delete(self) -> None:
                del server.objects[CLUSTERS]

            async def patch(self, value: Any, subresource: str) -> None:
                server.status = value["status"]

        handlers = {
            "Succeeded": controller.handle_runner_status_change_succeeded,
            "Failed": controller.handle_runner_status_change_failed,
        }
        if (handler := handlers.get(self.pod["status"]["phase"])) is None:
            return
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # its clock
            patch.setattr(controller, "DaskCluster", Resource)
            patch.setattr(controller, "DaskJob", Resource)
            asyncio.run(
                handler(
                    meta=self.pod["metadata"], namespace="mscam", logger=logging.getLogger("test")
                )
            )


@contextmanager
def serving(server: ApiServer, tmp_path: Path) -> Iterator[dict[str, str]]:
    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            server.tokens.add(self.headers["Authorization"])
            length = int(self.headers["Content-Length"] or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            code, value = server.answer(self.command, self.path, body)
            self.send_response(code)
            self.end_headers()
            self.wfile.write(json.dumps(value).encode())

        do_GET = do_POST = do_DELETE = handle_any  # noqa: N815 - names are http.server's

        def log_message(self, format: str, *args: Any) -> None: ...

    (tmp_path / "token").write_text("of the pod\n")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield script_environment(
            KUBERNETES_SERVICE_HOST="127.0.0.1",
            KUBERNETES_SERVICE_PORT=str(http.server_port),
            MSCAM_ACCOUNT=str(tmp_path),
            MSCAM_POLL_S="0.002",
            MSCAM_RETRY_S="0.002",
        )
        http.shutdown()
        thread.join()
