"""Small pictures with a palette, as PNG."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

__all__ = ["encode_png", "png_url"]


def encode_png(levels: NDArray[np.uint8], palette: NDArray[np.uint8]) -> bytes:
    """Encode a picture of palette entries.

    Parameters
    ----------
    levels : (height, width) uint8
    palette : (at most 256, 3) uint8
        Red, green, blue of each level.

    References
    ----------
    PNG specification, third edition, https://www.w3.org/TR/png-3/ (colour type 3, depth 8).
    """
    height, width = levels.shape
    rows = np.zeros((height, width + 1), dtype=np.uint8)  # filter type 0 before each row
    rows[:, 1:] = levels
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", palette.tobytes()),
            _chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)),
            _chunk(b"IEND", b""),
        )
    )


def _chunk(kind: bytes, content: bytes) -> bytes:
    check = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)


def png_url(levels: NDArray[np.uint8], palette: NDArray[np.uint8]) -> str:
    """Return a picture as a data URL."""
    return "data:image/png;base64," + base64.b64encode(encode_png(levels, palette)).decode()
