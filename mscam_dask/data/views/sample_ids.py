"""Samples of several holders, which are files, frames or modalities, matched by id."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from mscam_dask.errors import ConfigurationError, DataError

Join = Literal["inner", "outer"]
"""Samples that every holder has, or that any holder has."""

_SHOWN = 3

# Ids of a side that are compared in other spellings, at most.
_COMPARED = 200_000

MISSING = {
    *("", "na", "n/a", "nan", "null", "none", "#n/a", "#na", "<na>", "-nan", "+nan", "nat"),
    *("\\n", "."),  # of MySQL and PostgreSQL, and of SAS and Stata
    *("#n/a n/a", "#null!", "1.#ind", "-1.#ind", "1.#qnan", "-1.#qnan"),
}
"""Fields, in any case, that stand for a missing value."""

# Control characters act on a terminal and break lines of a CSV file; surrogates are no UTF-8; characters
# without width and those that turn the direction of text make different ids look the same.
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def join_samples(
    ids: Mapping[str, Sequence[str] | None], join: Join | None
) -> tuple[tuple[str, ...] | None, dict[str, NDArray[np.int64]]]:
    """Ids of all samples, in the order in which holders name them first, and the row of each in each holder that has ids (n,), −1 where absent.

    The ids are None when no holder has some. Without a join the holders have the same samples, in any order, and one
    without ids has them in the one order of all others.
    """
    if join not in (None, *get_args(Join)):
        raise ConfigurationError(
            f"join={join!r} is not usable: allowed are 'inner' (samples that every source has), 'outer' "
            "(samples that any source has) and None (all sources have the same samples)."
        )
    known = {name: tuple(own) for name, own in ids.items() if own is not None}
    nameless = [name for name, own in ids.items() if own is None]
    if join is not None and nameless:
        raise DataError(
            f"join={join!r} matches samples by id, but {nameless[0]} has no ids. Name the column of ids "
            "(--id-column, [data] id_column), or remove join if row i is the same sample everywhere."
        )
    if not known:
        return None, {}
    for name, own in known.items():
        check_sample_ids(own, where=repr(name))
    wanted = next(iter(known.values()))
    places = {name: np.arange(len(wanted)) for name in known}
    if any(own != wanted for own in known.values()):
        wanted = _wanted(known, join)
        places = {name: places_of(own, wanted) for name, own in known.items()}
        if nameless:
            raise DataError(
                f"{', '.join(map(repr, known))} hold the same sample ids in different orders, and "
                f"{nameless[0]!r} has no ids: its rows may be in any of these. Give its ids too (frames: "
                "as index), or put all in one order (frames: b.loc[a.index])."
            )
    return wanted, places


def check_sample_ids(ids: Sequence[str], *, where: str) -> None:
    """Refuse ids that are missing, repeat, or cannot be printed in one line, with a `DataError`."""
    check_printable(ids, f"sample id of {where}", at="in row")
    gone = [row for row, name in enumerate(ids) if name.lower() in MISSING or name.isspace()]
    if gone:
        raise DataError(
            f"{len(gone)} of {len(ids)} sample ids in {where} are missing: the first is {ids[gone[0]]!r}, in "
            f"row {gone[0]}. Give every sample an id, or drop these rows."
        )
    if len({*ids}) < len(ids):
        repeated = [name for name, count in Counter(ids).items() if count > 1]
        rows = [row for row, name in enumerate(ids) if name == repeated[0]][:5]
        raise DataError(
            f"{len(repeated)} sample id(s) occur more than once in {where}; the first is {repeated[0]!r}, "
            f"in rows {rows}. Ids must be unique: drop or rename the repeated samples, and spread a long table, with "
            "several rows for a sample, over columns (pandas: frame.pivot); spreadsheets round long numbers that are not in the format of text; frames whose index is no id, as after pandas.concat, go by row after frame.reset_index(drop=True)."
        )


def check_printable(texts: Iterable[str], what: str, *, at: str = "at position") -> None:
    """Refuse texts with control characters, line separators or invisible characters."""
    texts = tuple(texts)
    if not _UNPRINTABLE.search("".join(texts)):
        return
    found = map(_UNPRINTABLE.search, texts)
    row, match = next((row, match) for row, match in enumerate(found) if match)
    raise DataError(
        f"The {what} {texts[row]!a} {at} {row} has the character U+{ord(match[0]):04X}, which is a control "
        "character or cannot be seen; allowed are texts that can be printed in one line. Remove it."
    )


def linked_groups(
    presence: NDArray[np.bool_], n_needed: int, *, share: float = 0.5
) -> tuple[list[list[int]], int]:
    """Groups of views that `n_needed` samples, or a `share` of one's, link; the most two groups share."""
    groups = [[view] for view in range(presence.shape[1])]
    while True:
        has = [presence[:, group].any(axis=1) for group in groups]
        most = 0
        for one, other in itertools.combinations(range(len(groups)), 2):
            n_shared = int(np.count_nonzero(has[one] & has[other]))
            smaller = min(int(np.count_nonzero(has[at])) for at in (one, other))
            if n_shared >= min(n_needed, int(share * smaller) + 1):
                groups[one] += groups.pop(other)
                break
            most = max(most, n_shared)
        else:
            return groups, most


def places_of(own: Sequence[str], wanted: Sequence[str]) -> NDArray[np.int64]:
    """Return the position of each wanted id among `own`, −1 where it is absent."""
    rows = {name: row for row, name in enumerate(own)}
    return np.fromiter((rows.get(name, -1) for name in wanted), np.int64, len(wanted))


def _wanted(known: Mapping[str, tuple[str, ...]], join: Join | None) -> tuple[str, ...]:
    """Ids of the joined samples, in the order in which holders name them first."""
    first = next(iter(known.values()))
    sets = {name: frozenset(own) for name, own in known.items()}
    for (name, own), (other, others) in itertools.combinations(sets.items(), 2):
        if own != others:
            _check_spelling(known, name, other)
            if join is None:
                sides = ((name, sorted(own - others)), (other, sorted(others - own)))
                only = " and ".join(
                    f"{len(ids)} id(s) are only in {side!r} (first: {ids[:_SHOWN]})"
                    for side, ids in sides
                    if ids
                )
                remedy = (
                    "Files: set join='inner' or join='outer' (--join, [data] join); frames: give each view all "
                    "samples, with rows of NaN for those that it does not have (frame.reindex(ids))"
                )
                raise DataError(
                    f"{name!r} and {other!r} hold different samples: {only}. "
                    f"{_CHECK if own.isdisjoint(others) else remedy}."
                )
    if join is None:
        return first
    union = tuple(dict.fromkeys(name for own in known.values() for name in own))
    if join == "inner":
        everywhere = frozenset.intersection(*sets.values())
        if not everywhere:
            raise DataError(
                f"join='inner': no sample id is in all of {_examples(known)}. {_CHECK}, or set join='outer' "
                "if each two of them share some."
            )
        return tuple(name for name in union if name in everywhere)
    has = np.stack([places_of(own, union) >= 0 for own in known.values()], axis=1)
    groups, _ = linked_groups(has, 1)
    if len(groups) > 1:
        names = list(known)
        parts = " and ".join(_examples({names[i]: known[names[i]] for i in g}) for g in groups[:2])
        raise DataError(
            f"join={join!r}: {parts} share no sample, and views without a sample in common cannot be "
            f"clustered together. {_CHECK}, or leave one group out."
        )
    return union


def _examples(known: Mapping[str, Sequence[str]]) -> str:
    return ", ".join(f"{name!r} (first ids: {list(own[:_SHOWN])})" for name, own in known.items())


_CHECK = (
    "Check that these are ids of the same samples, written in one way, and do not number the rows (--id-column takes "
    "another column of a file, or none; frame.reset_index(drop=True) leaves out the index of a frame; samples_in='columns', --samples-in "
    "columns, reads a file with samples on columns)"
)

_SEPARATOR = re.compile(r"[\W_]+")


def _without_power(text: str) -> str:
    """A whole number that is written as 1.1E+07 in digits."""
    is_power = re.fullmatch(r"\d{1,4}(\.\d+)?e\+?\d{1,2}", text, re.ASCII | re.IGNORECASE)
    number = float(text) if is_power else 0.5
    return str(int(number)) if number.is_integer() else text


# Changes that make ids equal which differ in this way only.
_DIFFERENCES: dict[str, Callable[[str], str]] = {
    "their Unicode form": partial(unicodedata.normalize, "NFKC"),
    "surrounding blanks": str.strip,
    "quotes": lambda text: text.strip("\"'"),
    "powers of ten": _without_power,
    "zero padding": partial(re.compile(r"(?<!\d)0+(?=\d)").sub, ""),
    "decimals": partial(re.compile(r"\.0+$").sub, ""),
    "punctuation": partial(_SEPARATOR.sub, "-"),
    "the X that R puts before digits": partial(re.compile(r"^X(?=[\d.])").sub, ""),
    "upper and lower case": str.casefold,
}


def _in_one_spelling(text: str) -> str:
    for change in _DIFFERENCES.values():
        text = change(text)
    return text.strip("-")


def _check_spelling(known: Mapping[str, tuple[str, ...]], name: str, other: str) -> None:
    """Refuse ids of two holders if half of those that differ would be equal if they were written alike."""
    own, others = set(known[name]), set(known[other])
    left = [text for text in known[name] if text not in others][:_COMPARED]
    right = [text for text in known[other] if text not in own][:_COMPARED]
    shared = len(own & others)
    # where half of the ids are equal, prefixes and suffixes may tell samples apart
    pairs = _alike(left, right, affixes=2 * shared < min(len(own), len(others)))
    if pairs and 2 * len(pairs) >= min(len(left), len(right)):
        examples = [[pair[side] for pair in pairs[:_SHOWN]] for side in (0, 1)]
        raise DataError(
            f"The sample ids of {name!r} ({examples[0]}) and {other!r} ({examples[1]}) are written in two ways: "
            f"{shared} are equal, and {len(pairs)} more would be but for {_difference(pairs)}. Write them in one "
            "way in both, or leave them out if they number the rows (--id-column none; frame.reset_index(drop=True))."
        )


def _alike(left: Sequence[str], right: Sequence[str], *, affixes: bool) -> list[tuple[str, str]]:
    """Ids of both sides that are equal in one spelling, or without what one side has before or after them."""
    sides = [{_in_one_spelling(text): text for text in side} for side in (left, right)]
    found = [(text, sides[1][key]) for key, text in sides[0].items() if key in sides[1]]
    for short, long in (sides, sides[::-1]) if affixes and left and right else ():
        parts: dict[str, str] = {}
        for key, text in long.items():
            for cut in _SEPARATOR.finditer(key):
                parts.setdefault(key[: cut.start()], text)
                parts.setdefault(key[cut.end() :], text)
            parts.setdefault("".join(filter(str.isdigit, key)), text)
        cut_off = [(text, parts[key]) for key, text in short.items() if key in parts]
        if len(cut_off) > len(found):
            found = cut_off if short is sides[0] else [pair[::-1] for pair in cut_off]
    return found


def _difference(pairs: Sequence[tuple[str, str]]) -> str:
    """Difference of the spellings of some ids."""
    for what, change in _DIFFERENCES.items():
        if all(change(one) == change(other) for one, other in pairs):
            return what
    return "prefixes, suffixes, or several of blanks, case, zeros and punctuation"


# in CSV files -----------------------------------------------------------------------------------

_FORMULA = tuple("=+-@|\uff1d\uff0b\uff0d\uff20\uff5c")
_NUMBER = re.compile(r"[+-]?[0-9]+([.][0-9]+)?")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


def encoded_id(sample: str) -> str:
    r"""Return a sample id as CSV files have it, harmless to spreadsheets and terminals.

    An id that starts like a formula (= + - @ |, unless it is a number), after blanks too, or with an apostrophe, or that
    holds a control character, gets an apostrophe in front; in it, backslashes are doubled and
    control characters are written as \xNN. Other ids are unchanged.

    Examples
    --------
    >>> encoded_id("=1+1"), encoded_id(" |calc"), encoded_id("-7"), encoded_id("a b")
    ("'=1+1", "' |calc", '-7', 'a b')
    """
    is_formula = sample.lstrip().startswith(_FORMULA) and not _NUMBER.fullmatch(sample)
    if not (is_formula or _CONTROL.search(sample) or sample.startswith("'")):
        return sample
    escaped = sample.replace("\\", "\\\\")
    return "'" + _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", escaped)


def decoded_id(text: str) -> str:
    """Return the sample id that `encoded_id` wrote."""
    if not text.startswith("'"):
        return text
    return re.sub(
        r"\\(\\|x([0-9a-f]{2}))",
        lambda match: chr(int(match[2], 16)) if match[2] else "\\",
        text[1:],
    )
