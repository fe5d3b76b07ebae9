"""Text files, which may be compressed, as streams."""

from __future__ import annotations

import gzip
import io
from contextlib import closing
from typing import IO, Any

from mscam_dask.data.readers.base import Source, check_size
from mscam_dask.errors import DataError

__all__ = ["open_bytes", "open_text"]

# Bytes that one byte of gzip can stand for, and those that are unpacked at a time.
_MAX_DEFLATE = 1032
_READ_BYTES = 2**20


def open_bytes(source: Source) -> IO[bytes]:
    """Open a text file as bytes, unpacked where its name ends in .gz or .zst.

    Raises
    ------
    DataError
        When the text of a compressed file has more than `Source.max_bytes`, or what reads .zst is missing.
    """
    if source.compression is None:
        return source.file.open("rb")
    may_be_large = _MAX_DEFLATE * source.file.stat().st_size > source.max_bytes
    if source.compression == ".zst" or may_be_large:
        with closing(_unpacked(source)) as content:
            n_bytes = 0
            while n_bytes <= source.max_bytes and (part := content.read(_READ_BYTES)):
                n_bytes += len(part)
        check_size(source, "its text", n_bytes)
    unpacked: IO[bytes] = _unpacked(source)
    return unpacked


def open_text(source: Source) -> IO[str]:
    """Open a text file as UTF-8, without a byte order mark.

    Raises
    ------
    DataError
        As `open_bytes`.
    """
    return io.TextIOWrapper(open_bytes(source), encoding="utf-8-sig", newline="")


def _unpacked(source: Source) -> Any:
    if source.compression == ".gz":
        return gzip.open(source.file)
    try:
        import pyarrow as pa
    except ImportError as error:
        raise DataError(
            f"{source.path} is compressed with Zstandard, which needs pyarrow. Install it (pip install "
            "'mscam-dask[parquet]'), or unpack the file."
        ) from error
    return io.BufferedReader(pa.input_stream(str(source.file), compression="zstd"))
