"""Locations of stores: directories, and prefixes in an object store, with credentials from the environment."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from mscam_dask.errors import ConfigurationError, DataError, TemporaryFailure

# Seconds and attempts: an endpoint that does not answer is given up within a minute.
_OPTIONS: dict[str, dict[str, Any]] = {
    "s3": {
        "use_listings_cache": False,
        "max_concurrency": 1,  # else the size is asked for before each object
        "config_kwargs": {
            "connect_timeout": 5,
            "read_timeout": 30,
            "retries": {"total_max_attempts": 2, "mode": "standard"},
        },
    },
    "gs": {"use_listings_cache": False, "timeout": 30},
    "az": {"use_listings_cache": False, "connection_timeout": 5, "read_timeout": 30},
}

# Other names of the services, as their own tools write them.
_ALIASES = {"gcs": "gs", "abfs": "az"}

_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}

# Packages whose exceptions are no OSError.
_LIBRARIES = frozenset({"aiohttp", "azure", "botocore", "gcsfs", "google"})
_NO_CREDENTIALS = (
    "NoCredentialsError",
    "PartialCredentialsError",
    "CredentialRetrievalError",
    "ProfileNotFound",
    "DefaultCredentialsError",
    "RefreshError",
    "CredentialUnavailableError",
)
_REFUSALS = (errno.EINVAL, errno.ENOSYS, errno.EPERM, getattr(errno, "EREMCHG", errno.EINVAL))

_URL = re.compile(r"(s3|gs|az)://([a-z0-9][a-z0-9._-]{1,220}[a-z0-9])/([^?#\0]+)")


@dataclass(frozen=True)
class ObjectPath:
    """Object or prefix, "s3://bucket/prefix" as `as_location` checked it, with the methods of a `Path`."""

    url: str

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, part: str) -> ObjectPath:
        return ObjectPath(f"{self.url}/{part}")

    @property
    def scheme(self) -> str:
        """The service: s3, gs or az."""
        return self.url.partition("://")[0]

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]

    @property
    def parent(self) -> ObjectPath:
        return ObjectPath(self.url.rpartition("/")[0])

    def absolute(self) -> ObjectPath:
        return self

    def is_absolute(self) -> bool:
        return True

    def is_file(self) -> bool:
        try:
            return bool(self._request("info", self.url)["type"] == "file")
        except FileNotFoundError:
            return False

    def is_dir(self) -> bool:
        return any(file != self for file in self.sizes())

    def exists(self) -> bool:
        return bool(self.sizes())

    def read_bytes(self) -> bytes:
        """Content of an object; FileNotFoundError when there is none."""
        return bytes(self._request("cat_file", self.url))

    def write_bytes(self, content: bytes) -> None:
        """Write or replace an object: readers see the old content or the new one."""
        self._request("pipe_file", self.url, content)

    def rglob(self, name: str) -> Iterator[ObjectPath]:
        """Objects below it with this name (no pattern)."""
        return (file for file in self.sizes() if file.name == name)

    def sizes(self) -> dict[ObjectPath, int]:
        """Every object of this name and below it, with its size in bytes; needs a bucket."""
        found: dict[str, Any] = {}
        with suppress(FileNotFoundError):
            found = self._request("find", self.url, detail=True)
            if isinstance(found, list):  # adlfs, of an object itself
                found = {path: self._request("info", path) for path in found}
        bucket = self.url.split("/")[2]
        if not found:
            try:
                self._request("info", f"{self.scheme}://{bucket}")
            except FileNotFoundError as error:
                raise DataError(
                    f"There is no bucket {bucket!r} for {self}. Check its name and the endpoint, "
                    "or make it."
                ) from error
        return {
            ObjectPath(f"{self.scheme}://{path}"): int(info["size"]) for path, info in found.items()
        }

    def remove(self, files: list[ObjectPath]) -> None:
        """Remove objects below it."""
        if files:
            self._request("rm", [file.url for file in files])

    def _request(self, method: str, *args: Any, **options: Any) -> Any:
        with translate_errors(self):
            return getattr(self.files(), method)(*args, **options)

    def files(self) -> Any:
        """Return the fsspec file system, one for all of a scheme."""
        import fsspec

        try:
            return fsspec.filesystem(self.scheme, **_OPTIONS[self.scheme])
        except ValueError as error:  # adlfs, without an account
            raise _no_credentials(self, str(error)) from error


Location = Path | ObjectPath


def as_location(place: str | Location) -> Location:
    """Return the place that a path or a URL (s3, gs or gcs, az or abfs, file) names."""
    if not isinstance(place, str | Location):
        raise ConfigurationError(
            f"{place!r} is not a location; allowed are paths and URLs (s3://bucket/name.zarr)."
        )
    if not isinstance(place, str) or "://" not in place:
        return Path(place) if isinstance(place, str) else place
    if place.startswith("file:///"):
        return Path(unquote(place.removeprefix("file://")))
    scheme, _, rest = place.rstrip("/").partition("://")
    url = f"{_ALIASES.get(scheme, scheme)}://{rest}"
    parts = _URL.fullmatch(url)
    if parts is None or any(part in ("", ".", "..") for part in parts[3].split("/")):
        raise ConfigurationError(
            f"{place} is not the URL of a store; allowed are s3://bucket/name.zarr, "
            "gs://bucket/name.zarr, az://container/name.zarr, file:///directory and plain paths. Set credentials and "
            "endpoint in the environment, not in the URL."
        )
    return ObjectPath(url)


@contextmanager
def translate_errors(place: Location) -> Iterator[None]:
    """Turn errors of an object store into those of the package; a missing object stays a FileNotFoundError."""
    if isinstance(place, Path):
        yield
        return
    try:
        yield
    except ImportError as error:
        raise ConfigurationError(
            f"{place} needs a library that is not installed ({error}). "
            f"Install it: pip install 'mscam-dask[{place.scheme}]'"
        ) from error
    except FileNotFoundError:
        raise
    except Exception as error:
        packages = {cls.__module__.partition(".")[0] for cls in type(error).__mro__}
        if not isinstance(error, OSError) and packages.isdisjoint(_LIBRARIES):
            raise
        raise _typed(place, error) from error


def _typed(place: ObjectPath, error: Exception) -> ConfigurationError | TemporaryFailure:
    reason = f"{type(error).__name__}: {error}"
    code = getattr(error, "code", None) or getattr(error, "status_code", None)
    if type(error).__name__ in _NO_CREDENTIALS:
        return _no_credentials(place, reason)
    if isinstance(error, PermissionError) or code in (401, 403):
        return ConfigurationError(
            f"Access to {place} was refused ({reason}). Check the credentials in the environment "
            f"({_CREDENTIALS[place.scheme]}) and what they allow: reading needs Get and List, "
            "writing also Put and Delete."
        )
    if getattr(error, "errno", None) in _REFUSALS:
        return ConfigurationError(
            f"The object store does not accept requests for {place} ({reason}). Check region, "
            "endpoint and the age of the credentials."
        )
    return TemporaryFailure(
        f"{place} cannot be reached ({reason}). Check the network and the endpoint (AWS_ENDPOINT_URL "
        "where it is not the provider's own), and run the same command again."
    )


def _no_credentials(place: ObjectPath, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"No usable credentials for {place} ({reason}). They come from the environment only: "
        f"set {_CREDENTIALS[place.scheme]}."
    )


def size_of(place: Location) -> int:
    """Bytes of all files or objects below a place."""
    if isinstance(place, ObjectPath):
        return sum(place.sizes().values())
    return sum(file.stat().st_size for file in place.rglob("*") if file.is_file())


def zarr_place(place: Location, *, writable: bool = False) -> Any:
    """Return the Zarr store of a location; a missing object is a FileNotFoundError and never a chunk of zeros."""
    if isinstance(place, Path):
        return place
    from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper
    from zarr.storage import FsspecStore

    # The one client of this process, which is closed at its end; Zarr's own would not be.
    return FsspecStore(
        AsyncFileSystemWrapper(place.files(), asynchronous=True),
        read_only=not writable,
        path=place.url.partition("://")[2],
        allowed_exceptions=(FileNotFoundError,) if writable else (),
    )
