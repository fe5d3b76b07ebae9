"""Dask clusters on Kubernetes: KubeCluster with a manifest, certificates and a limit on its start."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dask_kubernetes.operator import KubeCluster
from dask_kubernetes.operator.kubecluster.kubecluster import CreateMode, DaskCluster
from dask_kubernetes.operator.networking import get_scheduler_address, wait_for_scheduler
from distributed import Security
from distributed.core import rpc
from kr8s.asyncio.objects import Service
from yaml import YAMLError, safe_load_all

from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.security import has_certificates, security_of
from mscam_dask.pipeline.settings import ExecutionTable

_START_TIMEOUT_S = 600.0
_CLUSTER_LABEL = "dask.org/cluster-name"


class ManifestCluster(KubeCluster):  # type: ignore[misc]  # untyped base
    """Cluster of a DaskCluster manifest.

    KubeCluster itself connects without encryption, waits for the pod of the scheduler without a limit
    and for a phase that the operator may overwrite, and its own manifest calls `dask-scheduler`, which distributed does not have any more.
    """

    def __init__(
        self,
        manifest: Mapping[str, Any],
        *,
        security: Security | None,
        start_timeout_s: float,
        **options: Any,
    ) -> None:
        self.security = security
        self._start_timeout_s = start_timeout_s
        try:
            super().__init__(
                custom_cluster_spec=manifest,
                create_mode=CreateMode.CREATE_ONLY,
                shutdown_on_close=True,
                quiet=True,
                **options,
            )
        except KeyboardInterrupt:  # here, while the loop goes on
            with suppress(Exception):
                self.close()
            raise

    async def _start(self) -> None:
        try:
            await asyncio.wait_for(super()._start(), self._start_timeout_s)
        except BaseException as error:
            with suppress(Exception):  # the first error is the one to report
                await self._close()
            if isinstance(error, TimeoutError) and not str(error):
                raise TimeoutError(
                    f"the scheduler of the DaskCluster {self.name} has not started within "
                    f"{self._start_timeout_s:g} s; is the Dask operator running?"
                ) from error
            raise

    async def _create_cluster(self) -> None:
        cluster = await DaskCluster(self._custom_cluster_spec, namespace=self.namespace)
        await cluster.create()
        # KubeCluster waits for the phase "Running", after which the operator may still set "Pending"
        await wait_for_scheduler(self.name, self.namespace)
        await Service.get(
            f"{self.name}-scheduler", namespace=self.namespace, timeout=round(self._start_timeout_s)
        )
        address = await self._get_scheduler_address()
        if self.security is None:
            self.scheduler_comm = rpc(address)
        else:
            self.scheduler_comm = rpc(
                address.replace("tcp://", "tls://"),
                connection_args=self.security.get_connection_args("client"),
            )
        dashboard = await get_scheduler_address(
            f"{self.name}-scheduler",
            self.namespace,
            port_name="http-dashboard",
            port_forward_cluster_ip=self.port_forward_cluster_ip,
            local_port=self.scheduler_forward_port,
        )
        self.forwarded_dashboard_port = dashboard.rpartition(":")[2]


def kubernetes_cluster(execution: ExecutionTable, options: Mapping[str, Any]) -> ManifestCluster:
    """Start the cluster of a manifest under a name of its own."""
    rest = dict(options)
    manifest = manifest_of(
        Path(rest.pop("custom_cluster_spec")),
        n_workers=execution.workers or (execution.adapt.minimum if execution.adapt else 1),
        image=rest.pop("image", None),
    )
    rest.setdefault("namespace", manifest["metadata"].get("namespace"))
    return ManifestCluster(
        manifest,
        security=security_of(execution) if has_certificates(execution) else None,
        start_timeout_s=execution.start_timeout or _START_TIMEOUT_S,
        **rest,
    )


def manifest_of(file: Path, *, n_workers: int, image: str | None = None) -> Any:
    """Read the DaskCluster of a YAML file, and give it a name of its own."""
    try:
        documents = list(safe_load_all(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, YAMLError) as error:
        raise ConfigurationError(
            f"custom_cluster_spec = '{file}' cannot be read: {' '.join(str(error).split())}. Give a YAML "
            "file with a DaskCluster."
        ) from error
    found = [
        document
        for document in documents
        if isinstance(document, dict) and document.get("kind") == "DaskCluster"
    ]
    if len(found) != 1:
        raise ConfigurationError(
            f"custom_cluster_spec = '{file}' has {len(found)} documents of the kind DaskCluster. Give a "
            "YAML file with one, such as deploy/k8s/cluster.yaml."
        )
    (manifest,) = found
    try:
        name = f"{manifest['metadata']['name']}-{secrets.token_hex(4)}"
        manifest["metadata"]["name"] = name
        manifest["spec"]["scheduler"]["service"]["selector"][_CLUSTER_LABEL] = name
        manifest["spec"]["worker"]["replicas"] = max(n_workers, 1)
        for role in ("scheduler", "worker"):
            pod = manifest["spec"][role]["spec"]
            for container in (*pod.get("initContainers", ()), *pod["containers"]):
                container["image"] = image or container["image"]
    except (KeyError, TypeError) as error:
        raise ConfigurationError(
            f"The DaskCluster of custom_cluster_spec = '{file}' is not complete: {error}. Compare it with "
            "deploy/k8s/cluster.yaml."
        ) from error
    return manifest
