"""Views, sample ids and labels of tables with named columns: text, Excel, Parquet and Feather files."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mscam_dask.data.readers.base import Selection, SourceContents
from mscam_dask.data.readers.fields import (
    Column,
    are_counted,
    are_names,
    are_padded,
    are_whole,
    is_missing,
    is_value,
    notes_of_keys,
    notes_of_labels,
    notes_of_statistics,
    notes_of_thousands,
    parsed_labels,
    unlike_most,
)
from mscam_dask.data.readers.roles import (
    TWIN,
    IdColumn,
    MayBeIds,
    Table,
    TableRows,
    check_order,
    id_columns,
    values_of,
    with_ids,
)
from mscam_dask.data.views.conversion import CERTAIN, id_strength, label_rank
from mscam_dask.data.views.sample_ids import check_sample_ids
from mscam_dask.data.views.sources import ArrayRows, listed
from mscam_dask.errors import DataError

_OF_GENES = re.compile(
    r"((entrez|hugo|ensembl)?[_ .]?(gene|probe)?[_ .]?(ids?|names?|symbols?|type|biotype|length))|entrez|chr(om|"
    r"omosome)?|start|end|strand|((eff(ective)?|protein)[_ ])?length|description|combined (total|unique|spectral) .*|"
    r"(row )?(m/z|retention time)|average (mz|rt) ?(\(min\))?|(mz|rt)(med|min|max)?|npeaks|"
    r"basemean|log2?_?(fc|fold_?change)|(adj[._]?)?p[._]?val(ue)?|padj|fdr|q[._]?val(ue)?|confidence|.*probability|"
    r".*(detection[. _]?p[. _]?val(ue)?|avg_nbeads|bead_stderr)",  # beside each sample of GenomeStudio
    re.IGNORECASE,
)
_FEATURE_IDS = re.compile(
    r"gene|protein|peptide|probe|transcript|metabolite|compound|taxon|otu|asv|cpg|id_ref|"
    r"^(ENS[A-Z]*[GTP]\d{11}|cg\d{8}$|rs\d+$|\w+_at$|ILMN_\d|[a-z]{3}-(mir|let)-)",
    re.IGNORECASE,
)
_SAMPLE_IDS = re.compile(
    r"(TCGA|GTEX|TARGET)-\w.*|(GSM|[SED]RR|SAM[NED]A?)\d+|[ACGT]{10,}([-_.]\d+)?"
)
_OF_NO_GENE = re.compile(  # rows that HTSeq and STAR write around the counts
    r"__(no_feature|ambiguous|too_low_aQual|not_aligned|alignment_not_unique)|"
    r"N_(unmapped|multimapping|noFeature|ambiguous)"
)
_MEASURE = re.compile(  # in names of columns of which a sample has several
    r"[\W_]*(?<![^\W_])((max|razor)?lfq|intensity|ibaq|ms/ms|spectral|counts?|unique|total|razor|peptides?|sequence coverage|"
    r"tpm|[fr]pkm|cpm|abundance|quantity|num|frac|percent)(?![^\W_])[\W_]*",
    re.IGNORECASE,
)
_NUMBERED = re.compile(
    r"([FVfvwxz]|(?i:pc|dim|feat(ure)?|col(umn)?|var|factor|component))[ _.]?\d+"
)
_HEADINGS = 3  # first rows, of which the first may be a second header
_ROW_NUMBERS = "row numbers"  # why a column is left out
_LONG = 3  # columns of a long table: samples, features and values
_SOME_SAMPLES = 8  # beyond all of which most values of a sample hardly are
_TURN = "if the other columns are the samples, set --samples-in columns"
_TEXTS = 20  # columns of numbers that are kept as text too


def read_tables(
    sources: Sequence[SourceContents | Table], selection: Selection
) -> list[SourceContents]:
    """Read tables of the same samples, one view of each, and take the ids that they share with each other and with archives."""
    sources = [
        _on_columns(source, selection)
        if isinstance(source, Table) and source.samples_in == "columns"
        else source
        for source in sources
    ]
    upright = [source for source in sources if isinstance(source, Table)]
    archives = [source for source in sources if isinstance(source, SourceContents)]
    others = {
        table: {
            name.lower()
            for other in sources
            if other is not table
            for name in (other.columns if isinstance(other, Table) else other.may_be_ids)
        }
        for table in upright
    }
    rows = {table: _rows_of(table, others[table], selection) for table in upright}
    may_be_ids: dict[SourceContents | Table, MayBeIds] = {
        table: MayBeIds.of_table(table, rows[table].texts) for table in upright
    }
    if upright or any(archive.may_be_ids for archive in archives):
        may_be_ids |= {archive: MayBeIds.of_archive(archive) for archive in archives}
    ids = dict(zip(may_be_ids, id_columns([*may_be_ids.values()]), strict=True))

    def contents(source: SourceContents | Table) -> SourceContents:
        if isinstance(source, SourceContents):
            return with_ids(source, ids.get(source))
        found = _on_rows(source, rows[source], ids[source], selection)
        keys = {c.name or "": tuple(c.texts) for c in rows[source].texts.values() if c.is_unique}
        found = replace(found, may_be_ids=keys)
        names = (name for view in found.views for name in view.feature_names or ())
        own = [name.lower() for name in names if not _NUMBERED.fullmatch(name)]
        theirs = others[source].difference(map(str.lower, found.sample_ids or ()))  # of pairs
        if 2 * sum(name in theirs for name in own) < max(_SOME_SAMPLES, len(own)):
            return found
        note = f"{source.where}: names of columns are those of another file; {_TURN}."
        return replace(found, notes=(*found.notes, note))

    return [*map(contents, sources)]


def _rows_of(table: Table, elsewhere: Collection[str], selection: Selection) -> TableRows:
    """Rows of a table: columns that have numbers, and as text those that may have ids or labels; `elsewhere` are names in other sources."""
    told = table.told_ids
    only_text = {*_label_columns(table, selection), *table.left_out}
    if told is not None:
        only_text.add(told.position)
    free = [place for place in range(len(table.columns)) if place not in only_text]
    only_text.update(place for place in free if table.head_of(place).is_text)
    numbers = [place for place in free if place not in only_text]

    def may_have_ids(place: int) -> bool:
        column, name = table.head_of(place), table.columns[place]
        if column.strength == CERTAIN and (place == free[0] or name != ""):
            return True
        is_named = column.may_number_rows or id_strength(TWIN.sub("", name))
        if (is_named and not column.has_decimals) or are_padded(column.texts):
            return True
        may_be_shared = place in (*free[:2], *numbers[:2]) or name.lower() in elsewhere
        if may_be_shared and column.mostly_differs:  # some missing or repeated are refused
            return are_whole([text for text in column.texts if not is_missing(text)])
        return are_counted(column.texts)

    may_be_ids = itertools.islice(filter(may_have_ids, numbers), _TEXTS)
    return TableRows(table, {*only_text, *may_be_ids}, numbers)


def _label_columns(table: Table, selection: Selection) -> list[int]:
    """Columns of labels by their names, the one that is told first."""
    told = table.told_ids
    names = {
        name: place
        for place, name in enumerate(table.columns)
        if (told is None or place != told.position)
        and (place not in table.left_out or name == selection.labels)
    }
    known = _label_names(names, selection)
    repeated = [name for name in known if table.columns.count(name) > 1]
    if repeated:
        raise DataError(
            f"{table.where}: several columns are called {repeated[0]!r}, a name of labels. Drop or rename all but one."
        )
    return [names[name] for name in known]


def _label_names(names: Iterable[str], selection: Selection) -> list[str]:
    """Names that labels may have, the one that is told first, then the surest."""
    known = [name for name in names if label_rank(name) or name == selection.labels]
    return sorted(known, key=lambda name: (name != selection.labels, label_rank(name)))


def _on_rows(
    table: Table, rows: TableRows, ids: IdColumn | None, selection: Selection
) -> SourceContents:
    """Contents of a table with a sample on each row."""
    names = table.columns
    labels = [
        place
        for place in _label_columns(table, selection)
        if names[place] == selection.labels or not rows.texts[place].tells_rows_apart
    ]
    own = None if ids is None else rows.texts[ids.position]
    left_out, notes = _left_out(table, rows, labels, own)
    taken = {*left_out, *labels, None if ids is None else ids.position}
    features = [place for place in range(len(names)) if place not in taken]
    if own is not None:
        _check_names(table, own)
    values = np.empty((0, 0))
    if features or not labels:
        values = values_of(table, rows, features)
    named = [names[place] for place in features]
    have_ids = own is not None and not own.numbers_rows
    if have_ids or table.source.id_column is None:
        notes += notes_of_keys(values, named, have_ids=have_ids)
    if table.source.id_column is None and own is None:
        notes += _notes_of_long(table, values, named)
        if _is_axis(values):
            axis = f"column {named[0]!r} alone rises or falls from row to row, as an axis does"
            notes.append(f"{axis}; {_TURN}.")
    feature_names = table.names_of(features)
    sample_ids = None if own is None else tuple(own.texts)
    if feature_names == sample_ids and (filled := _mirrored(values)) is not None:
        values = filled
        notes.append("missing cells filled with those beyond the diagonal.")
    notes += notes_of_labels(values, named, has_names=table.has_header)
    return _contents(
        table,
        values,
        feature_names,
        sample_ids,
        {names[place]: rows.texts[place].texts for place in labels},
        selection,
        key=ids,
        left_out={names[place]: reason for place, reason in left_out.items()},
        notes=notes,
    )


def _left_out(
    table: Table, rows: TableRows, labels: Sequence[int], ids: Column | None
) -> tuple[dict[int, str], list[str]]:
    """Columns beside ids and labels that are no features, and why; notes on those that may be none, and on rows that may be features."""
    left_out = {place: why for place, why in table.left_out.items() if place not in labels}
    notes: list[str] = []
    n_barcodes = sum(1 for name in table.columns if _SAMPLE_IDS.fullmatch(name))
    ends = () if ids is None else (ids.name or "", *ids.texts[:1], *ids.texts[-1:])
    if ids is not None and (
        any(_FEATURE_IDS.search(text) or _OF_NO_GENE.fullmatch(text) for text in ends)
        or 2 * n_barcodes >= len(table.columns)
    ):
        notes.append(f"each row taken as a sample; {_TURN} (samples_in='columns').")
    # columns in front that number the rows
    numbered = [0] if ids is not None and ids is rows.texts.get(0) and ids.numbers_rows else []
    for place, column in rows.texts.items():
        if left_out.get(place) == "empty" and any(column.texts):
            raise DataError(
                f"{table.where}: the last column has no name and no first values, but later ones such as "
                f"{next(filter(None, column.texts))!r}. Correct the header, or the row with one field too many."
            )
        if place in left_out or place in labels or column is ids:
            continue
        if ids is not None:
            check_order(table.where, ids, column)
        is_behind_numbers = numbered == [*range(place)]
        reason = _why_no_feature(place, column, ids, is_behind_numbers=is_behind_numbers)
        if reason:
            left_out[place] = reason
        elif column.strength or (place > 0 and is_behind_numbers and column.is_key):
            name = table.columns[place]
            notes.append(f"column {name!r} taken as a feature; --id-column if it has ids.")
        numbered += [place] if reason == _ROW_NUMBERS else []
    return left_out, notes


def _check_names(table: Table, ids: Column) -> None:
    """Refuse a second header: a row that is called as its column is, or a first one without a name; and ids of no samples."""
    rows = [row for row, text in enumerate(ids.texts) if text and text == ids.name]
    if [*map(is_missing, ids.texts[:_HEADINGS])] == [True, False, False]:
        rows = [0]
    if rows:
        raise DataError(
            f"{table.where}: row {rows[0]} (counted from 0 below the header) is called {ids.texts[rows[0]]!r}: it seems to be a second header, "
            "of units, types or levels. Remove it, leave out the lines above it (--skip) if it has the names of columns, or name it in its "
            "first column if it is none."
        )
    if table.samples_in == "columns":
        return
    hashed = [text for text in ids.texts if text.startswith("#")]
    if 0 < 2 * len(hashed) < len(ids.texts):
        raise DataError(
            f"{table.where}: the sample ids [{listed(hashed)}] begin with #, unlike most. Set comment='#' (--comment '#') to leave "
            "these rows out, or rename them."
        )
    if not any(map(is_missing, ids.texts)):
        check_sample_ids(ids.texts, where=repr(table.where))


def _why_no_feature(
    place: int, column: Column, ids: Column | None, *, is_behind_numbers: bool
) -> str:
    """Why a column, given that of the sample ids, is left out; empty if it is a feature."""
    if is_behind_numbers and place > 0 and are_counted(column.texts):
        return _ROW_NUMBERS
    if label_rank(column.name or "") and column.tells_rows_apart:
        return "named as labels are, but differs in every row"
    is_apart = ids is not None or column.name == ""
    may_number = column.may_number_rows and (is_behind_numbers or column.name != "")
    signs = (is_apart, may_number, place == 0 and column.counts_rows)
    if sum(signs) > 1 and column.is_key:
        return _ROW_NUMBERS
    if ids is not None:
        has_name = column.strength > 1 and (place == 0 or column.name != "")
        if (has_name and not column.has_decimals) or column.texts == ids.texts:
            return "ids too"
        if column.is_unique and are_names(column.texts):
            return "ids too" if column.strength else "text that differs in every row"
    is_one = column.is_text and len(column.texts) > 1 and len({*column.texts}) == 1
    return "the same text in every row" if is_one else ""


def _notes_of_long(table: Table, values: NDArray[Any], names: Sequence[str]) -> list[str]:
    """A note on two first columns that have no combination twice, and all or sorted ones, as keys of a long table; of three in all they are refused."""
    n_rows, n_columns = values.shape
    pairs = values[:, :2].astype(np.float64)
    steps = np.diff(pairs, axis=0).T
    are_whole_numbers = (np.floor(pairs) == pairs).all()
    if n_columns < _LONG or (n_columns > _LONG and not are_whole_numbers):
        return []
    sizes = [len(np.unique(keys)) for keys in pairs.T]
    are_sorted = are_whole_numbers and any(
        ((a > 0) | ((a == 0) & (b > 0))).all() for a, b in (steps, steps[::-1])
    )
    are_all = math.prod(sizes) == n_rows == len(np.unique(pairs, axis=0))
    if not (are_sorted or are_all) or min(sizes) < 2 or 2 * max(sizes) > n_rows:
        return []
    first, second, third = names[:_LONG]
    found = f"{first!r} and {second!r} have no combination of their {sizes[0]} and {sizes[1]} values twice, as "
    if n_columns > _LONG:
        return [
            f"columns {found}keys of rows have, and are taken as features; drop them if they are keys."
        ]
    raise DataError(
        f"{table.where}: {found}a long table with several rows for a sample has. Give each sample one row (pandas: "
        f"frame.pivot(index={first!r}, columns={second!r}, values={third!r})), or set id_column=False (--id-column none) if each row is one."
    )


def _names_of_features(table: Table) -> IdColumn | None:
    """The column with the names of features: the first, where its values are unlike samples, else that of ids."""
    first, places = table.head_of(0), range(len(table.columns))
    may_be_names = {
        place: table.head_of(place)
        for place in places
        if place not in table.left_out and (table.head_of(place).is_text or place == 0)
    }
    are_texts = first.is_text and first.is_unique
    may_be_entrez = first.is_key and not are_counted(first.texts)
    may_be_entrez &= first.strength > 0 or table.columns[0].lower() == "entrez"
    leading = [table.head_of(place).numbers for place in places[:2]]
    is_axis = len(may_be_names) == 1 and _is_axis(np.array(leading).T)
    if table.told_ids is None and (are_texts or may_be_entrez or is_axis):
        table = replace(table, id_position=0)
    (key,) = id_columns([MayBeIds.of_table(table, may_be_names)])
    return key


def _descriptions(table: Table, own: int | None) -> dict[int, str]:
    """Columns that describe the features, of which `own` has the names, or number their rows, and why they are no samples."""
    names, first = table.columns, table.head_of(0)
    places = [p for p in range(len(names)) if p not in table.left_out and p != own]
    found = []
    for p in places:
        known = [text for text in table.head_of(p).texts if not is_missing(text)]
        # marks such as + are beside numbers that are no samples
        are_words = bool(known) and all(
            any(map(str.isalnum, text)) and not is_value(text, table.decimal) for text in known
        )
        if are_words or _OF_GENES.fullmatch(names[p]):
            found.append(p)
    found += [  # empty ones behind them, such as descriptions of proteins
        p for p in places if p - 1 in (own, *found) and all(map(is_missing, table.head_of(p).texts))
    ]
    found += _between_texts(table, [p for p in places if p not in found])
    left_out = {**table.left_out, **dict.fromkeys(found, "describes the features")}
    if own and first.may_number_rows and first.is_key:
        left_out[0] = _ROW_NUMBERS
    return left_out


def _on_columns(table: Table, selection: Selection) -> SourceContents:
    """Contents of a table with a sample on each column."""
    names, key = table.columns, _names_of_features(table)
    own = None if key is None else key.position
    left_out = _descriptions(table, own)
    samples = [p for p in range(len(names)) if p not in left_out and p != own]
    _check_one_each(table, samples)
    words = [p for p in left_out if p not in table.left_out and table.head_of(p).is_text]
    if len(words) > max(_SOME_SAMPLES, len(samples)):
        shown = table.head_of(words[-1])
        raise DataError(
            f"{table.where}: {len(words)} columns have text such as {shown.texts[0]!r} in {names[words[-1]]!r}, and only {len(samples)} have "
            "numbers. Write numbers for categories (0, 1 and 2 for genotypes), or drop the columns that describe the features."
        )
    of_labels: dict[str, list[str]] = {}
    feature_names: tuple[str, ...] | None = None
    rows = TableRows(table, [] if key is None else [key.position], samples)
    if key is not None and samples:
        texts = rows.texts[key.position].texts
        kept = []
        for row, name in enumerate(texts):
            if _label_names([name], selection) or _OF_NO_GENE.fullmatch(name):
                of_labels[name] = [
                    rows.bad.get(place, {}).pop(row, np.format_float_positional(value, trim="-"))
                    for place, value in zip(rows.numbers, rows.values[row], strict=True)
                ]
            else:
                kept.append(row)
        feature_names = tuple(texts[row] for row in kept)
        _check_names(table, table.column(key.position, feature_names))
        if of_labels:
            rows.values = rows.values[kept]
    values = values_of(table, rows, samples).T
    notes = _check_descriptions(table, samples, values)
    notes += notes_of_labels(values, feature_names or (), has_names=True)
    if table.has_header:
        notes.append(f"first line taken as sample ids: {listed([names[p] for p in samples])}.")
    return _contents(
        table,
        values,
        feature_names,
        table.names_of(samples),
        of_labels,
        selection,
        key=key,
        left_out={names[place]: reason for place, reason in left_out.items()},
        notes=notes,
    )


def _check_one_each(table: Table, samples: Sequence[int]) -> None:
    """Refuse several columns for a sample: S1 Intensity and S1 Spectral Count."""
    known: dict[str, str] = {}
    for name in (table.columns[place] for place in samples):
        sample = _MEASURE.sub(" ", name).strip()
        if sample and known.setdefault(sample, name) != name:
            raise DataError(
                f"{table.where}: {known[sample]!r} and {name!r} seem to be columns of one sample, {sample!r}. Keep one column "
                "for each, and write those of another kind to another file; rename them if they are different samples."
            )


def _check_descriptions(table: Table, samples: Sequence[int], values: NDArray[Any]) -> list[str]:
    """Refuse columns with names unlike the others, or without a number that these have, and with values unlike theirs.

    Such values lie mostly outside the range of the others, are the only zeros and ones, or rise or fall in the first column alone.
    Where names tell nothing, a note is on columns outside the range of all others.
    """
    names = [table.columns[place] for place in samples]
    are_apart = np.array([re.search(r"\d", name) is None for name in names])
    are_apart[unlike_most(names, 1)] = True  # two of a kind, KO1 and KO2, are told
    are_apart[:2] |= not table.has_header  # start and end, as of BED files
    others = values[~are_apart]
    tell_apart = len(others) >= max(_SOME_SAMPLES, len(names) - len(others))
    if tell_apart:
        low, high = np.fmin.reduce(others, axis=0), np.fmax.reduce(others, axis=0)
    elif len(names) > _SOME_SAMPLES:
        low, high = np.partition(values, (1, -2), axis=0)[[1, -2]]  # NaN last
    else:
        return []
    are_odd = 2 * ((values < low) | (values > high)).sum(axis=1) > values.shape[1]
    if tell_apart:
        if not np.isin(others, (0, 1)).all():
            are_odd |= np.isin(values, (0, 1)).all(axis=1)
        are_odd[0] |= _is_axis(values.T)
        are_odd &= are_apart
    listing = listed([names[place] for place in np.flatnonzero(are_odd)])
    if are_odd.any() and tell_apart:
        raise DataError(
            f"{table.where}: columns [{listing}] have values, and names if any, unlike those of {len(others)} others. Remove them if they "
            "describe the features (--id-column takes one as the names of these), or name them as the others if they are samples."
        )
    note = f"columns [{listing}] have values outside the range of all others; remove them if they describe the features."
    return [note] if are_odd.any() else []


def _is_axis(values: NDArray[Any]) -> bool:
    """Return whether the first column rises, or falls, in each of several rows, as an axis does, and the second does not."""
    if len(values) < _SOME_SAMPLES or values.shape[1] < 2:
        return False
    steps = np.sign(np.diff(values[:, :2].astype(np.float64), axis=0))
    first, second = np.abs(steps.sum(axis=0)) == len(steps)
    return bool(first and not second)


def _between_texts(table: Table, numbers: Sequence[int]) -> list[int]:
    """Columns of numbers in front of a column of text that has most of them, the samples, behind it.

    Those that another column of text separates from the samples may be either, and are refused.
    """
    runs = [
        [place for _, place in run]
        for _, run in itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
    ]
    samples = max(runs, key=len, default=[])
    if 2 * len(samples) <= len(numbers):
        return []
    behind = [table.columns[place] for place in numbers if place > samples[-1]]
    if behind:
        text = table.columns[samples[-1] + 1]
        raise DataError(
            f"{table.where}: columns [{listed(behind)}] of numbers stand behind {text!r}, apart from the {len(samples)} samples "
            "in front of it. Remove them if they describe the features, or move them to the others if they are samples."
        )
    return [place for place in numbers if place < samples[0]]


def _contents(  # noqa: PLR0913 - what was decided of a table
    table: Table,
    values: NDArray[Any],
    feature_names: tuple[str, ...] | None,
    sample_ids: tuple[str, ...] | None,
    labels: Mapping[str, Sequence[str]],
    selection: Selection,
    *,
    key: IdColumn | None,
    left_out: Mapping[str, str],
    notes: Sequence[str],
) -> SourceContents:
    """Contents of a table, with a note on each role: `key` is the column of ids; of `labels` one is taken."""
    usual, asked = _label_names(labels, selection), selection.labels
    may_be = (n for n in usual if n == asked or not Column(labels[n]).tells_rows_apart)
    truth = next((name for name in may_be if asked in (None, name)), None)
    others = [name for name in labels if name != truth]
    left_out = {**left_out, **{n: "labels too" if n in usual else "counts no gene" for n in others}}
    line = "column" if table.samples_in == "rows" else "row"
    labeled = "none" if truth is None else f"{line} {truth!r}"
    said, ids = [], "by row"
    if table.samples_in == "columns" and table.has_header:
        ids = "header"
    if key is not None:
        name = repr(table.columns[key.position])
        ids = f"{name}, {key.reason}" if table.samples_in == "rows" else ids
        role = "sample ids" if table.samples_in == "rows" else "names of features"
        said.append(f"column {name} taken as {role} ({key.reason}).")
    if truth is not None:
        said.append(f"{labeled} taken as labels.")
    for reason in dict.fromkeys(left_out.values()):
        names = [
            repr(name)
            for name, why in left_out.items()
            if why == reason and (name or reason == _ROW_NUMBERS)
        ]
        said += [f"{', '.join(names)} left out ({reason})."] if names else []
    notes = [*notes, *notes_of_statistics(values, sample_ids or (), table.where)]
    if values.size and table.decimal == ".":
        notes += notes_of_thousands(
            values, feature_names or [f"column {j}" for j in range(values.shape[1])]
        )
    return SourceContents(
        where=table.where,
        views=(ArrayRows(values, table.view, feature_names=feature_names),) if values.size else (),
        labels=None if truth is None else parsed_labels(labels[truth]),
        sample_ids=sample_ids,
        labels_explicit=truth is not None and truth == selection.labels,
        notes=(*table.notes, *(f"{table.where}: {note}" for note in (*said, *notes))),
        origin={
            "source": table.where.replace(str(table.source.path), table.source.file.name),
            "read as": table.form,
            "sample ids": ids,
            "labels": labeled,
            "left out": ", ".join(repr(name) for name in left_out if name) or "none",
            "missing cells": str(int(np.isnan(values).sum())),
        },
    )


def _mirrored(values: NDArray[Any]) -> NDArray[Any] | None:
    """A matrix that is symmetric once missing cells are filled with those beyond the diagonal; None if it is not, or was."""
    if values.shape[0] != values.shape[1] or np.array_equal(values, values.T, equal_nan=True):
        return None
    filled = np.where(np.isnan(values), values.T, values)
    return filled if np.array_equal(filled, filled.T, equal_nan=True) else None
