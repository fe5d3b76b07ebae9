"""A small kubelet: runs each pod of a namespace by Podman from its specification, and reports its end.

    python -m tests.deploy.kubelet API TOKEN FOLDER PODMAN...

There is one node, no probe and no restart; every claim of a volume is FOLDER/claim. The names of schedulers'
services are those of their pods, for other pods and, in /etc/hosts, for programs of the node.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

NAMESPACE = "mscam"
NETWORK = "pods"
USER = 10001
_UNVERIFIED = ssl._create_unverified_context()


class Kubelet:
    """What runs on the node.

    Parameters
    ----------
    api, token
        Address and token of the API server.
    folder
        Volumes and logs of the pods.
    podman
        The beginning of a podman command.
    """

    def __init__(self, api: str, token: str, folder: Path, podman: list[str]) -> None:
        self._api, self._token = api, token
        self._folder = folder
        self._podman = podman
        self._started: dict[str, list[str]] = {}

    def request(self, method: str, path: str, body: Any = None) -> Any:
        call = urllib.request.Request(
            f"{self._api}/api/v1/namespaces/{NAMESPACE}/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self._token}",
                "Content-Type": "application/merge-patch+json",
            },
        )
        try:
            with urllib.request.urlopen(call, timeout=30, context=_UNVERIFIED) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code in (404, 409):  # gone, or changed meanwhile: looked at again in a second
                return None
            raise

    def podman(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self._podman, *command], capture_output=True, text=True, check=False
        )

    def look(self) -> None:
        """Start, watch and remove containers until they are what the pods ask for."""
        pods = {item["metadata"]["uid"]: item for item in self.request("GET", "pods")["items"]}
        for uid in [uid for uid in self._started if uid not in pods]:
            self.remove(uid)
        for pod in pods.values():
            if "phase" not in pod["status"] or pod["status"]["phase"] == "Pending":
                add_host("127.0.0.2", pod)  # a service without a ready pod refuses connections
        for uid, pod in pods.items():
            name = pod["metadata"]["name"]
            if "deletionTimestamp" in pod["metadata"]:
                self.remove(uid)
                self.request("DELETE", f"pods/{name}?gracePeriodSeconds=0")
            elif pod["status"].get("phase") not in ("Succeeded", "Failed"):
                self.advance(name, pod)

    def remove(self, uid: str) -> None:
        for container in self._started.pop(uid, []):
            self.keep_log(container)
            self.podman("rm", "--force", "--time=5", container)
            say(f"removed {container}")

    def keep_log(self, container: str) -> None:
        done = self.podman("logs", container)
        with (self._folder / f"{container}.log").open("a") as log:
            log.write(done.stdout + done.stderr)

    def advance(self, name: str, pod: Any) -> None:
        """Start the pod's next container, or report that one runs or has ended."""
        spec = pod["spec"]
        inits = spec.get("initContainers", [])
        for container in (*inits, *spec["containers"]):
            is_init = container in inits
            full = f"{name}-{container['name']}-{pod['metadata']['uid'][:8]}"
            state = self.podman(
                "inspect", full,
                "--format={{.State.Status}} {{.State.ExitCode}} {{.NetworkSettings.Networks.pods.IPAddress}}",
            )  # fmt: skip
            if state.returncode != 0:
                self.start(full, name, pod, container)
                return
            word, code, *address = state.stdout.split()
            if word != "exited":
                is_new = pod["status"].get("phase") != "Running"
                if word == "running" and not is_init and is_new:
                    add_host(address[0], pod)
                    self.report(name, running(container, address[0]))
                return
            if not (is_init and code == "0"):
                self.keep_log(full)
                self.report(name, ended(container, int(code), is_init))
                return

    def report(self, name: str, status: Any) -> None:
        self.request("PATCH", f"pods/{name}/status", {"status": status})
        say(f"{name}: {status['phase']}")

    def start(self, full: str, name: str, pod: Any, container: Any) -> None:
        labels = pod["metadata"]["labels"]
        security = {**pod["spec"]["securityContext"], **container["securityContext"]}
        line = [
            "run", "--detach", "--pull=never", "--runtime=runc", f"--name={full}", f"--network={NETWORK}",
            f"--user={security['runAsUser']}:{security['runAsGroup']}", "--ulimit=nofile=1024:1024",
            "--ulimit=nproc=4096:4096",
        ]  # fmt: skip
        line += [f"--network-alias={alias}" for alias in service_names(labels)]
        if security["readOnlyRootFilesystem"]:
            line += ["--read-only", "--read-only-tmpfs=false"]
        line += [f"--cap-drop={name}" for name in security["capabilities"]["drop"]]
        if not security["allowPrivilegeEscalation"]:
            line.append("--security-opt=no-new-privileges")
        line.append(f"--memory={container['resources']['limits']['memory'].lower().rstrip('i')}")
        api = urlsplit(self._api)
        environment = {
            "KUBERNETES_SERVICE_HOST": str(api.hostname),
            "KUBERNETES_SERVICE_PORT": str(api.port),
            **dict(variables(container, pod)),
        }
        line += [f"--env={key}={value}" for key, value in environment.items()]
        volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", [])}
        for mount in container.get("volumeMounts", []):
            source = self.volume(volumes[mount["name"]], name)
            mode = ":ro" if mount.get("readOnly") else ""
            line.append(f"--volume={source}:{mount['mountPath']}{mode}")
        words = [*container.get("command", []), *container.get("args", [])]
        self._started.setdefault(pod["metadata"]["uid"], []).append(full)
        done = self.podman(
            *line, container["image"], *(expand(word, environment) for word in words)
        )
        say(f"started {full} {done.returncode} {done.stderr.strip()[-300:]}")

    def volume(self, volume: Any, pod: str) -> Path:
        if "persistentVolumeClaim" in volume:
            return self._folder / "claim"
        place: Path = self._folder / pod / volume["name"]
        place.mkdir(parents=True, exist_ok=True)
        place.chmod(0o777 if "emptyDir" in volume else 0o755)
        source = volume.get("secret") or volume.get("configMap")
        if source is not None:
            kind = "secrets" if "secret" in volume else "configmaps"
            data = self.request("GET", f"{kind}/{source.get('secretName') or source['name']}")[
                "data"
            ]
            for item in source.get("items") or [{"key": key, "path": key} for key in data]:
                text = data[item["key"]]
                content = base64.b64decode(text) if kind == "secrets" else text.encode()
                (place / item["path"]).write_bytes(content)
                subprocess.run(["chown", f"0:{USER}", place / item["path"]], check=True)
                (place / item["path"]).chmod(source.get("defaultMode", 0o644))
        return place


def variables(container: Any, pod: Any) -> Iterator[tuple[str, str]]:
    """Yield the variables of a container; values may name earlier ones."""
    seen: dict[str, str] = {}
    for entry in container.get("env", []):
        if "value" in entry:
            seen[entry["name"]] = expand(entry["value"], seen)
        else:
            (label,) = re.findall(r"labels\['(.*)'\]", entry["valueFrom"]["fieldRef"]["fieldPath"])
            seen[entry["name"]] = pod["metadata"]["labels"][label]
    yield from seen.items()


def service_names(labels: Mapping[str, str]) -> list[str]:
    """Names of the service that the operator makes for a pod: those of the cluster's scheduler."""
    if labels.get("dask.org/component") != "scheduler":
        return []
    name = f"{labels['dask.org/cluster-name']}-scheduler"
    return [name, f"{name}.{NAMESPACE}", f"{name}.{NAMESPACE}.svc.cluster.local"]


def add_host(address: str, pod: Any) -> None:
    """Let programs of the node find a service by its names, which resolve to the newest pod."""
    names = service_names(pod["metadata"]["labels"])
    if names:
        file = Path("/etc/hosts")
        kept = [line for line in file.read_text().splitlines() if names[0] not in line.split()]
        file.write_text("\n".join([*kept, " ".join([address, *names]), ""]))


def expand(text: str, known: Mapping[str, str]) -> str:
    return re.sub(r"\$\((\w+)\)", lambda found: known.get(found[1], found[0]), text)


def running(container: Any, address: str) -> Any:
    state = {"running": {"startedAt": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}}
    conditions = [
        {"type": "Ready", "status": "True"},
        {"type": "ContainersReady", "status": "True"},
    ]
    return {
        "phase": "Running",
        "podIP": address,
        "conditions": conditions,
        "containerStatuses": [one_status(container, state, ready=True)],
    }


def ended(container: Any, code: int, is_init: bool) -> Any:
    reason = "Error" if code else "Completed"
    state = {"terminated": {"exitCode": code, "reason": reason}}
    return {
        "phase": "Failed" if code else "Succeeded",
        "initContainerStatuses" if is_init else "containerStatuses": [
            one_status(container, state, ready=False)
        ],
    }


def one_status(container: Any, state: Any, ready: bool) -> Any:
    known = {"name": container["name"], "image": container["image"], "imageID": "none"}
    return {**known, "restartCount": 0, "ready": ready, "state": state}


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(api: str, token: str, folder: str, *podman: str) -> None:
    kubelet = Kubelet(api, token, Path(folder), list(podman))
    kubelet.podman("rm", "--force", "--all")  # of an earlier machine
    done = kubelet.podman("network", "create", NETWORK)
    say(f"network {done.returncode} {done.stderr.strip()}")
    while True:
        kubelet.look()
        time.sleep(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
