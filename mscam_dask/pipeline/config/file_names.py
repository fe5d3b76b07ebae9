"""Names that files and directories are called by: one plain part of a path, on any system."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

from mscam_dask.errors import ConfigurationError
from mscam_dask.pipeline.config.errors import shown

__all__ = ["are_one_name", "check_name", "name_of_pipeline", "name_problem"]

# What is added to a name, such as ".….whole.zarr", still has room in the usual 255 bytes.
_MAX_BYTES = 200
_FORBIDDEN = re.compile(r"[/\\:*?\"<>|\x00-\x1f\x7f]")
_DEVICE = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?", re.IGNORECASE)


def name_problem(name: str) -> str | None:
    """Return why no file can be called by a name, and what is allowed; None when it can be.

    Names that begin with a dot are those of files that are still being written, or ``..``.

    Examples
    --------
    >>> name_problem("MSRC-v1 (5 views)") is None
    True
    >>> name_problem("../elsewhere")
    "begins with '.'; allowed is one plain name, without / or other parts of a path"
    """
    forbidden = _FORBIDDEN.search(name)
    if not name:
        reason = "is empty"
    elif name.startswith("."):
        reason = "begins with '.'"
    elif forbidden is not None:
        reason = f"has {forbidden[0]!r}"
    elif name[-1] in ". ":
        reason = f"ends with {name[-1]!r}"
    elif _DEVICE.fullmatch(name):
        reason = "is the name of a device on Windows"
    elif (n_bytes := len(name.encode(errors="replace"))) > _MAX_BYTES:
        reason = f"has {n_bytes} bytes, and names have at most {_MAX_BYTES}"
    else:
        return None
    return f"{reason}; allowed is one plain name, without / or other parts of a path"


def are_one_name(name: str, other: str) -> bool:
    """Tell whether files of two names may be one: where case and the form of letters do not count.

    Examples
    --------
    >>> are_one_name("MSRC", "msrc")
    True
    >>> are_one_name("u\u0308", "\u00dc"), are_one_name("u", "\u00fc")
    (True, False)
    """
    name, other = (unicodedata.normalize("NFC", text).casefold() for text in (name, other))
    return name == other


def check_name(name: str, what: str, remedy: str) -> None:
    """Refuse a name that no file can be called by.

    Parameters
    ----------
    name
    what
        Is called so, for the message.
    remedy
        Closing sentence of the message.

    Raises
    ------
    ConfigurationError
    """
    problem = name_problem(name)
    if problem is not None:
        raise ConfigurationError(f"{what} {shown(name)} {problem}. {remedy}")


def name_of_pipeline(path: str | Path) -> str:
    """Return the name of a pipeline file without ending, which directories of runs begin with.

    Raises
    ------
    ConfigurationError
        When none can be called by it.
    """
    name = Path(path).stem
    check_name(
        name, f"{path}: the pipeline's name", "Directories are called by it; rename the file."
    )
    return name
