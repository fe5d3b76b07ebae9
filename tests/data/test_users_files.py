"""Kinds of files that users have: right values, or a typed error that names what is wrong."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mscam_dask.data.ingest import ingest
from mscam_dask.data.readers.base import Source
from mscam_dask.data.readers.registry import table_of
from mscam_dask.data.store.dataset import open_store
from mscam_dask.errors import DataError
from tests.data.known_tables import (
    DISTANCES,
    NUMBERS,
    ORDER,
    A,
    B,
    beside,
    csv_of,
    difference,
    outcome,
    read,
    table,
)
from tests.messages import quotes, raises


def of_r(frame: pd.DataFrame, mark: str) -> str:
    lines = [[f'"{name}"' for name in frame.columns]]
    lines += [
        [f'"{item}"', *map(repr, map(float, row))]
        for item, row in zip(frame.index, frame.to_numpy(), strict=True)
    ]
    return "\n".join(mark.join(line) for line in lines) + "\n"


IN_NUMBERS = A.set_axis(NUMBERS)
COUNTED = A.set_axis(range(1, 13))
IN_NUMBERS_OF_GENES = A.set_axis(["7157", "4609", "1956", "3845"], axis=1)
YEARS = A.set_axis(["2001", "2002", "2003", "2004"], axis=1)
SPACED = A.set_axis([f"patient {row}" for row in range(12)])
GERMAN = csv_of(A, sep=";", decimal=",")
LINES = csv_of(A).splitlines()
TITLE = "what,we,found,last,year\n"
HASHED = A.set_axis(["age", "# of visits", "bmi", "no#"], axis=1)
PRECISE = A * np.pi * 1e-7
GCT = "#1.2\n4\t12\n" + csv_of(
    A.T.assign(Description=7)[["Description", *A.index]], "Name", sep="\t"
)
GTEX = "#1.2\n4\t12\n" + csv_of(
    A.T.assign(Name=A.columns, Description="x").reset_index(drop=True)[
        ["Name", "Description", *A.index]
    ],
    sep="\t",
)
WHOLE = A.abs().round().astype(int)
FEW_GONE = A.mask(np.eye(12, 4) == 1)
EVERY_ROW = A.mask(np.arange(4) == np.arange(12)[:, None] % 4)
NAMELESS = EVERY_ROW.reset_index(drop=True).set_axis(pd.RangeIndex(4), axis=1)
COUNTS = "# Program:featureCounts v2.0\n" + csv_of(
    A.T.assign(Chr="1;1", Start="1;5", Length=900)[["Chr", "Start", "Length", *A.index]],
    "Geneid",
    sep="\t",
)

READ: dict[str, tuple[Any, Any]] = {
    "write.table": beside(of_r(A, " "), "a.txt"),
    "write.table, numbers": beside(of_r(IN_NUMBERS, " "), "a.txt", IN_NUMBERS),
    "write.table, blanks in ids": beside(of_r(SPACED, " "), "a.txt", SPACED),
    "sep=;": beside("sep=;\r\n" + GERMAN.replace("\n", "\r\n")),
    "columns without names at the end": beside("\n".join(f"{line},,," for line in LINES)),
    "a property of the file above rows": (
        {"a.txt": "# Wave length: 5\n" + A.to_csv(sep=" ", index=False, header=False)},
        (A.reset_index(drop=True).set_axis(pd.RangeIndex(4), axis=1),),
    ),
    "comments": beside("# made by x, y, z\n# a,b,c,d,e\n" + csv_of(A)),
    "years below a comment": beside("# a,b,c,d,e\n" + csv_of(YEARS), frame=YEARS),
    "# of QIIME": beside(csv_of(A, "#SampleID", sep="\t"), "a.txt"),
    "# alone above ids": beside(csv_of(A, "#")),
    "# above a name with a colon": beside(csv_of(HASHED.rename(columns={"bmi": "scan: bmi"}), "#ID", sep="\t"), "a.txt", HASHED.rename(columns={"bmi": "scan: bmi"})),
    "# in names": beside(csv_of(HASHED), frame=HASHED),
    "GCT": beside(GCT, "a.gct"),
    "GCT of GTEx": beside(GTEX, "a.gct"),
    "tab, a cell empty in every row": beside(csv_of(EVERY_ROW, sep="\t"), "a.txt", EVERY_ROW),
    "the same without names": (
        {"a.txt": EVERY_ROW.to_csv(sep="\t", index=False, header=False)},
        (NAMELESS,),
    ),
    "#N/A": beside(csv_of(EVERY_ROW, na_rep="#N/A"), frame=EVERY_ROW),
    "minus signs": beside(csv_of(A - 5).replace("-", "\u2212"), frame=A - 5),
    "all digits": beside(csv_of(PRECISE), frame=PRECISE),
    "SPSS": beside(csv_of(FEW_GONE, na_rep="#NULL!"), frame=FEW_GONE),
    "mothur": (
        {"a.shared": WHOLE.reset_index(names="Group").assign(label=0.03, numOtus=4)[["label", "Group", "numOtus", *A]].to_csv(sep="\t", index=False)},
        (WHOLE.astype(float),),
    ),
    "a text that is the same in every row": beside(csv_of(A.assign(event="baseline")[["event", *A]])),
    "numbers of patients beside remarks": beside(
        csv_of(COUNTED.assign(remark=[f"seen by {name}" for name in "abcdefghijkl"])), frame=COUNTED
    ),
    "reasons why a value is missing": beside(
        csv_of(FEW_GONE, na_rep=".").replace(",.,", ",.a,", 1), frame=FEW_GONE
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", READ)
def test_files_that_are_read(tmp_path: Path, kind: str) -> None:
    assert read(tmp_path, *READ[kind]) == "right"


def changed(line: int, old: str, new: str) -> str:
    lines = [*LINES]
    assert old in lines[line]
    lines[line] = lines[line].replace(old, new, 1)
    return "\n".join(lines)


def test_a_table_of_as_many_genes_as_there_are(tmp_path: Path) -> None:
    """Its lines have more characters than Python's csv module allows a field."""
    wide = table(3, 400, ids=["P1", "P2", "P3"]).add_prefix("gene " * 80)
    assert len(csv_of(wide).splitlines()[0]) > 2**17
    assert read(tmp_path, {"a.txt": csv_of(wide, sep="\t")}, (wide,)) == "right"


LARGE = A.assign(a1=(A["a1"].abs() * 1000 + 20000).round(1))
DOUBTED: dict[str, tuple[tuple[Any, Any], str]] = {
    "a cell lost": (beside("\n".join([*LINES[:5], ",".join(LINES[5].split(",")[:-1])])), "a.csv"),
    "a mark at the end of rows": (beside("\n".join([LINES[0], *(f"{x}," for x in LINES[1:])])), "a.csv"),
    "units": (beside("\n".join([LINES[0], ",mg,mmol,%,U", *LINES[1:]])), "--skip"),
    "two headers": (beside("\n".join([",clinical,,lab,", *LINES])), "--skip"),
    "levels without ids": (({"a.csv": A.to_csv(index=False).replace("\n", "\n1,2,1,2\n", 1)}, (A,)), "--header"),
    "a title": (beside("\n".join(["Table S1", "", *LINES])), "a.csv"),
    "a title above two columns": (({"a.csv": "\n".join(["Table S1", *(",".join(line.split(",")[:2]) for line in LINES)])}, (A[["a0"]],)), "Table S1"),
    "a title of a sheet": (beside("\n".join(["Table S1,,,,", *LINES])), "--skip"),
    "a title above years": (beside(TITLE + csv_of(YEARS, "site"), frame=YEARS), "site"),
    "delimiters above the header": (beside(",,,,\n" + csv_of(A)), "--skip 1"),
    "a title above ids": (beside(TITLE + csv_of(A)), "--skip"),
    "two tables side by side, read and written by pandas": (
        ({"a.csv": csv_of(A.assign(**{"id.1": A.index[ORDER], "b0": 1.5}))}, (A,)), "side by side"),
    "two tables merged by row": (
        ({"a.csv": csv_of(A.assign(id_y=A.index[ORDER], b0=1.5), "id_x")}, (A,)), "side by side"),
    "two tables side by side": (
        ({"a.csv": "\n".join(map(",,".join, zip(LINES, csv_of(B.iloc[ORDER]).splitlines(), strict=True)))}, (A,)), "side by side"),
    "doses": (beside(csv_of(A.assign(dose=[f"{k}mg" for k in range(12)]))), "dose"),
    "amounts of money": (beside(csv_of(A.assign(cost=[f"${k}.5" for k in range(12)]))), "cost"),
    "hexadecimals": (beside(csv_of(A.assign(code=[*map(hex, range(12))]))), "code"),
    "a total below": (beside("\n".join([*LINES, "Total,1,2,3,4"])), "Total"),
    "statistics below": ((({"a.csv": csv_of(pd.concat([A, A.agg(["median", "std"]).round(2)]))}), (A,)), "median"),
    "a remark beside the table": (beside("\n".join([f"{line},{'see below' if k == 3 else ''}" for k, line in enumerate(LINES)])), "''"),
    "numbers without a name": (beside("\n".join([f"{line},{k % 3 if k else ''}" for k, line in enumerate(LINES)]), frame=A.assign(x=[k % 3 for k in range(1, 13)]).rename(columns={"x": ""})), "''"),
    "a summary below": ((({"a.csv": csv_of(pd.concat([A, A.describe()]))}), (A,)), "count"),
    "a German total below": (({"a.csv": csv_of(pd.concat([A, A.agg(["sum"]).set_axis(["Gesamt"])]))}, (A,)), "Gesamt"),
    "means above": (({"a.csv": csv_of(pd.concat([A.agg(["mean"]).round(2), A]))}, (A,)), "mean"),
    "a total without ids": (({"a.csv": pd.concat([A, A.agg(["sum"])]).to_csv(index=False)}, (A.reset_index(drop=True),)), "row 12"),
    "statistics without ids": (({"a.csv": pd.concat([A, A.agg(["mean", "std"])]).to_csv(index=False)}, (A.reset_index(drop=True),)), "row 12"),
    "dates of SAS": (({"a.csv": csv_of(A.set_axis(range(1, 13)).assign(visit=[f"{k:02d}JAN2015" for k in range(1, 13)]), "USUBJID")}, (A,)), "visit"),
    "dates of Excel": (beside(csv_of(A.assign(visit=[f"Jan {k}, 2015" for k in range(1, 13)]))), "visit"),
    "ages": (beside(csv_of(A.assign(old=[f"{k} months" for k in range(1, 13)]))), "old"),
    "below a limit": (beside(changed(4, LINES[4].split(",")[2], "<0.01")), "<0.01"),
    "dates": (beside(csv_of(A.assign(TIMESTAMP="2024-01-02"))), "TIMESTAMP"),
    "thousands": (beside(csv_of(LARGE.assign(a1=LARGE["a1"].map("{:,.1f}".format))), frame=LARGE), "a1"),
    "German thousands": (
        beside(csv_of(LARGE.assign(a1=[f"{k}.234" for k in range(10, 22)]), sep=";", decimal=","), frame=LARGE.assign(a1=np.arange(10, 22) * 1000 + 234.0)),
        "a1",
    ),
    "NUL": (beside(csv_of(A).replace("P05", "P05\0")), "a.csv"),
    "a comment below": (({"a.txt": A.to_csv(sep=" ", index=False, header=False) + "# end of data\n"}, (A.reset_index(drop=True).set_axis(pd.RangeIndex(4), axis=1),)), "a.txt"),
    "fixed positions, a cell empty in every row": (
        ({"a.txt": NAMELESS.to_string(header=False, index=False, na_rep="")}, (NAMELESS,)), "a.txt"),
    "numbers that touch": (({"a.txt": "13.1-123.021 4.5\n31.3-141.276 2.5\n41.1-133.1 3.5\n"}, (A,)), "13.1-123.021"),
    "integers that touch below a header": (({"a.txt": "    a    b    c\n   121234512345\n   341234567890\n"}, (A,)), "read_fwf"),
    "integers that touch in some rows": (({"a.txt": "   12   34   56\n   121234512345\n   34   56   78\n"}, (A,)), "read_fwf"),
    "a byte order mark in a row": (beside(changed(1, "P01", "\ufeffP01")), "U+FEFF"),
    "thousands with blanks": (beside(csv_of(LARGE.assign(a1=[f"{k} 234" for k in range(10, 22)]), sep="\t"), "a.txt"), "a1"),
    "vectors in cells": (beside(csv_of(A.assign(v="1 2 3"), sep="\t"), "a.txt"), "'v'"),
    "infinite": (beside(changed(4, LINES[4].split(",")[2], "1e400")), "a"),
    "text for missing": (beside(changed(4, LINES[4].split(",")[2], "-")), "a.csv"),
    "featureCounts": (beside(COUNTS, "a.txt"), "a.txt"),
}  # fmt: skip


@pytest.mark.parametrize("kind", DOUBTED)
def test_files_that_are_read_or_refused(tmp_path: Path, kind: str) -> None:
    (files, known), quoted = DOUBTED[kind]
    samples_in = "columns" if kind == "featureCounts" else "rows"
    found = read(tmp_path, files, known, samples_in=samples_in)
    assert found == "right" or re.match(quotes("refused", quoted), found), found


KINDS = ["x", "y", "x", "z"] * 3
WITHOUT_NAMES: dict[str, pd.DataFrame] = {
    "labels last": A.assign(kind=KINDS).reset_index(drop=True),
    "ids, labels": A.assign(kind=KINDS).set_axis(NUMBERS)[["kind", *A]].reset_index(),
    "labels first": A.assign(kind=KINDS)[["kind", *A]].reset_index(drop=True),
    "ids twice": A.assign(again=A.index)[["again", *A]].reset_index(),
    "ids, counts, labels": WHOLE.assign(kind=KINDS).reset_index(),
    "ids and labels": pd.Series(KINDS, A.index).reset_index(),
    "a missing number": A.assign(a1=["?", *A["a1"][1:]], kind=KINDS).reset_index(drop=True),
}


@pytest.mark.parametrize("mark", [",", "\t", " ", ";"])
@pytest.mark.parametrize("kind", WITHOUT_NAMES)
def test_a_first_line_like_the_others_is_a_sample(tmp_path: Path, kind: str, mark: str) -> None:
    """Text in it makes it no header, as in many files of archives."""
    file = tmp_path / "a.txt"
    WITHOUT_NAMES[kind].to_csv(file, header=False, index=False, sep=mark)
    found = table_of(Source(file))
    assert not found.has_header
    assert found.head == table_of(Source(file, header=False)).head
    WITHOUT_NAMES[kind].to_csv(file, index=False, sep=mark)
    assert table_of(Source(file)).has_header


@pytest.mark.parametrize("mark", [",", ";", "\t", " "])
@pytest.mark.parametrize("of_header", [",", ";", "\t", " "])
def test_a_header_with_another_delimiter_than_the_rows(
    tmp_path: Path, mark: str, of_header: str
) -> None:
    header, *rows = csv_of(A).splitlines()
    text = "\n".join([header.replace(",", of_header), *(row.replace(",", mark) for row in rows)])
    found = read(tmp_path, *beside(text, "a.txt"))
    is_asked = re.match(quotes("refused", "a.txt", "delimiter"), found)
    assert found == "right" or (mark != of_header and is_asked), found


@pytest.mark.parametrize("words", [("True", "False"), ("TRUE", "FALSE"), ("false", "true")])
def test_truth_values_are_numbers(tmp_path: Path, words: tuple[str, str]) -> None:
    cells = [None, *words * 5, words[0]]
    known = A.assign(high=[np.nan if cell is None else cell.lower() == "true" for cell in cells])
    text = csv_of(A.assign(high=cells))
    assert read(tmp_path, *beside(text, frame=known)) == "right"


def test_decimals_as_names_of_columns(tmp_path: Path) -> None:
    """Masses and wavelengths: names above ids; without ids asked for, since they rise as no sample does."""
    waves = table(12, 9).set_axis(np.arange(400.5, 409), axis=1)
    assert read(tmp_path, *beside(csv_of(waves, ""), frame=waves)) == "right"
    waves.to_csv(tmp_path / "a.csv", index=False)
    with raises(DataError, "400.5", "--header", "--no-header"):
        ingest(tmp_path / "a.csv", tmp_path / "s.zarr", overwrite=True)
    waves.iloc[:, :5].to_csv(tmp_path / "a.csv", index=False)
    notes = ingest(tmp_path / "a.csv", tmp_path / "s.zarr", overwrite=True).notes
    assert any("400.5" in note and "--header" in note for note in notes)


ADVICE: dict[str, tuple[str, list[str]]] = {
    "a web page": ("<table><tr><td>id</td></tr></table>", ["a.csv", "web page", "CSV"]),
    "an open quote": (csv_of(A).replace("P05", '"P05'), ["row 4", "P05", "quotes"]),
    "a comment below": (csv_of(A) + "# 12 samples\n", ["row 12", "--comment"]),
    "a title beside empty cells": (
        "\n".join(["Table S4,,,,,", *(f",{line}" for line in LINES)]),
        ["Table S4", "--skip 1"],
    ),
    "a sample behind a hash": (changed(4, "P04", "#P04"), ["'#P04'", "--comment '#'"]),
    "types of QIIME 2": (
        "\n".join([LINES[0], "#q2:types" + ",numeric" * 4, *LINES[1:]]),
        ["#q2:types", "--comment '#'"],
    ),
    "types of Perseus": (
        "\n".join([LINES[0], "#!{Type}T" + ",E" * 4, *LINES[1:]]),
        ["#!{Type}T", "--comment '#'"],
    ),
    "JSON": (A.to_json(orient="records"), ["a.csv", "JSON", "CSV"]),
    "thousands with blanks that do not break": (
        csv_of((A.abs() * 300).map(lambda x: f"{x:,.1f}".replace(",", "\u00a0"))),
        ["'a0'", "thousands"],
    ),
    "two rows of names without ids": (
        "\n".join(
            [
                "rain,rain,rain,temp,temp",
                "2001,2002,2003,2001,2002",
                *(f"{line.partition(',')[2]},0.5" for line in LINES[1:]),
            ]
        ),
        ["rain", "2001", "--skip"],
    ),
    "wavelengths below names without ids": (
        "\n".join(
            [
                ",".join(f"w{k}" for k in range(9)),
                table(13, 9).set_axis(np.arange(400.5, 409), axis=1).to_csv(index=False),
            ]
        ),
        ["400.5", "--skip", "--header"],
    ),
    "questions and codes below the header": (
        "\n".join([LINES[0], ",age?,sex?,bmi?,sum?", ",Q1,Q2,Q3,Q4", *LINES[1:]]),
        ["Remove these rows", "row 0", "headings"],
    ),
}


@pytest.mark.parametrize("above", ["", "# from biom\n"])
def test_a_header_behind_a_hash_is_no_line_above_it(tmp_path: Path, above: str) -> None:
    (tmp_path / "a.txt").write_text(above + csv_of(A, "#OTU ID", sep="\t"))
    assert ("1 line above" in table_of(Source(tmp_path / "a.txt")).form) == bool(above)


@pytest.mark.parametrize("kind", ADVICE)
def test_advice_on_a_file_that_is_refused(tmp_path: Path, kind: str) -> None:
    text, quoted = ADVICE[kind]
    found = read(tmp_path, {"a.csv": text}, (A,))
    assert re.match(quotes("refused", *quoted), found), found


ON_COLUMNS = {
    "cBioPortal": csv_of(A.T.assign(Entrez_Gene_Id=[7157, 1956, 672, 675])[["Entrez_Gene_Id", *A.index]], "Hugo_Symbol", sep="\t"),
    "QIIME": "# from biom\n" + csv_of(A.T.assign(taxonomy="k__B; p__F"), "#OTU ID", sep="\t"),
    "Entrez": csv_of(IN_NUMBERS_OF_GENES.T, "entrez"),
    "without a name": csv_of(IN_NUMBERS_OF_GENES.T.assign(description=["a b", "", "e f", "g h"]), ""),
    "row numbers": csv_of(A.T.rename_axis("gene").reset_index(), ""),
    "length": csv_of(A.T.rename_axis("gene").reset_index().set_axis([1709, 312, 2408, 960]), "length"),
    "DIA-NN": csv_of(
        A.T.assign(Ids=[f"{k};{k}-2" for k in A], Proteotypic=1, Sequence=["PEP", "TID", "PEP", "AKR"], Charge=2, Id=[*"wxyz"])[
            ["Ids", "Proteotypic", "Sequence", "Charge", "Id", *A.index]
        ], "Protein.Group", sep="\t"),
    "empty descriptions of DIA-NN": csv_of(A.T.assign(Genes=[*"wxyz"], About=np.nan)[["Genes", "About", *A.index]], "Protein.Group", sep="\t"),
    "QIIME 2": csv_of(A.T.assign(Taxon="k__B", Confidence=[0.7, 0.9, 0.8, 1]), "Feature ID", sep="\t"),
    "DESeq2": csv_of(A.T.assign(log2FoldChange=1.5, padj=0.1)[["log2FoldChange", "padj", *A.index]], ""),
    "GenomeStudio": "\n".join(
        ["ID_REF\t" + "\tDetection Pval\t".join(A.index) + "\tDetection Pval",
         *(f"{k}\t" + "\t0\t".join(map(str, A[k])) + "\t0" for k in A)]),
    "mzMine": csv_of(A.T.assign(mz=[101.5, 88, 75.25, 301])[["mz", *A.index]], "row ID").replace("mz", "row m/z"),
    "HTSeq": csv_of(A.T, "gene", sep="\t") + "".join("\t".join([name, *"7" * 12]) + "\n" for name in ("__no_feature", "__ambiguous")),
    "series of GEO": '!Series_title\t"X"\n!Sample_title\t"s"\t"t"\n!series_matrix_table_begin\n' + csv_of(A.T, "ID_REF", sep="\t", quoting=2) + "!series_matrix_table_end\n",
    "data set of GEO": "^DATABASE = Geo\n!Database_name = x\n^DATASET = GDS1\n#ID_REF = probe\n!dataset_table_begin\n"
    + csv_of(A.T.assign(IDENTIFIER=[*"wxyz"])[["IDENTIFIER", *A.index]], "ID_REF", sep="\t") + "!dataset_table_end\n",
}  # fmt: skip


@pytest.mark.parametrize("kind", ON_COLUMNS)
def test_samples_on_columns(tmp_path: Path, kind: str) -> None:
    """Rows and columns about genes are no samples."""
    files = {"a.txt": ON_COLUMNS[kind], "b.csv": csv_of(B)}
    frame = IN_NUMBERS_OF_GENES if kind in ("Entrez", "without a name") else A
    assert read(tmp_path, files, (frame, B), samples_in="columns") == "right"


def test_marks_of_features_are_beside_columns_that_are_no_samples(tmp_path: Path) -> None:
    """As in proteinGroups.txt of MaxQuant."""
    marked = A.T.assign(Peptides=[3, 4, 5, 6], Reverse=["", "+", "", ""])
    found = read(tmp_path, {"a.csv": csv_of(marked, "Protein IDs")}, (A,), samples_in="columns")
    assert re.match(quotes("refused", "Reverse"), found), found
    scored = A.T.assign(Fasta=["a b", "c d", "e f", "g h"], Points=[70, 85, 90, 12])
    found = read(tmp_path, {"a.csv": csv_of(scored, "Protein IDs")}, (A,), samples_in="columns")
    assert re.match(quotes("refused", "Points", "Fasta", "12 samples"), found), found


def test_genotypes_are_no_descriptions_of_features(tmp_path: Path) -> None:
    """In a HapMap file, where positions are the only numbers."""
    calls = np.array(["AA", "AG", "GG"])[A.T.round().astype(int) % 3]
    found = pd.DataFrame(calls, A.columns, A.index)
    found = found.assign(alleles="A/G", pos=[101, 250, 333, 471])
    said = read(tmp_path, {"a.txt": csv_of(found, "rs#")}, (A,), samples_in="columns")
    assert re.match(quotes("refused", "a.txt", "13 columns", "only 1", "genotypes"), said), said


@pytest.mark.parametrize("kind", ["HTSeq", "STAR"])
def test_rows_that_count_no_gene_tell_that_samples_are_on_columns(
    tmp_path: Path, kind: str
) -> None:
    counts = A.abs().round().rename(columns={"a3": "__ambiguous"})
    if kind == "STAR":
        counts = counts.rename(columns={"a0": "N_unmapped", "__ambiguous": "a3"})
    counts.T.to_csv(tmp_path / "a.txt", sep="\t")
    notes = ingest(tmp_path / "a.txt", tmp_path / "s.zarr").notes
    assert any("--samples-in columns" in note for note in notes)


def test_a_quote_that_is_open_far_below_is_named_in_short(tmp_path: Path) -> None:
    long = table(400).set_axis([f"P{row}" for row in range(400)])
    lines = csv_of(long).splitlines()
    lines[300] = lines[300].rpartition(",")[0] + ',"5'
    (tmp_path / "a.csv").write_text("\n".join(lines))
    with raises(DataError, "a.csv", "row 299", "Close the quote") as caught:
        ingest(tmp_path / "a.csv", tmp_path / "s.zarr")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("odd", [np.arange(20) / 10 + 4, 6 - np.arange(20) / 10, np.arange(20) % 2])
def test_values_of_features_among_those_of_samples(tmp_path: Path, odd: Any) -> None:
    """Within the range of these; beside rows, an axis is named in a note."""
    known = table(12, 20)
    found = known.T.assign(odd=odd)[["odd", *known.index]]
    files = {"a.csv": csv_of(found, "probe")}
    said = read(tmp_path, files, (known,), samples_in="columns")
    assert re.match(quotes("refused", "a.csv", "'odd'"), said), said
    found.to_csv(tmp_path / "b.csv", index=False)
    notes = ingest(tmp_path / "b.csv", tmp_path / "b.zarr").notes
    assert any(re.match(quotes("'odd'", "--samples-in"), n) for n in notes) == (odd[2] > 1)


@pytest.mark.parametrize("at_end", [False, True])
def test_columns_of_numbers_under_other_names_describe_features(
    tmp_path: Path, at_end: bool
) -> None:
    """Their names have no number, and their values are beyond those of samples; samples may lack a number, or be two of a kind."""
    found = A.T.assign(span=[900, 2100, 60, 31000], weight=[0.5, 99.5, -70, 88])
    found = found if at_end else found[["span", "weight", *A.index]]
    said = read(tmp_path, {"a.csv": csv_of(found, "probe")}, (A,), samples_in="columns")
    assert re.match(quotes("refused", "a.csv", "'span'", "'weight'"), said), said
    for known in (
        A.rename({"P03": "Control"}),
        A.rename({"P03": "KO1", "P04": "KO2"}).mul(np.where(np.arange(12) // 2 == 1, 9, 1), axis=0),
        A.set_axis([*"abcdefghijkl"]) * np.arange(1, 13)[:, None],
    ):
        files = {"a.csv": csv_of(known.T, "probe")}
        assert read(tmp_path, files, (known,), samples_in="columns") == "right"


def test_columns_outside_the_range_of_samples_whose_names_tell_nothing_are_told(
    tmp_path: Path,
) -> None:
    tissues = A[:9].set_axis([*"abcdefghi"]).T.assign(size=[900, 2100, 1060, 31000])
    tissues.to_csv(tmp_path / "a.csv", index_label="gene")
    source = Source(tmp_path / "a.csv", samples_in="columns")
    notes = ingest(source, tmp_path / "s.zarr").notes
    assert any(re.match(quotes("a.csv", ["size"], "outside the range"), note) for note in notes)


# ----------------------------------------------------------------------------- other formats


@pytest.mark.parametrize("cell", [[1.0], {"x": 1}, b"x"], ids=["list", "struct", "binary"])
def test_columns_of_arrow_files_that_are_no_numbers_are_named(tmp_path: Path, cell: Any) -> None:
    pytest.importorskip("pyarrow")
    A.assign(odd=[cell, None] * 6).to_parquet(tmp_path / "a.parquet")
    found = outcome([tmp_path / "a.parquet"], {"a": A}, tmp_path / "s.zarr")
    assert re.match(quotes("refused", "a.parquet", "odd"), found)


def test_decimal_commas_of_text_in_a_sheet_are_told(tmp_path: Path) -> None:
    """Beside cells that are numbers."""
    pytest.importorskip("openpyxl")
    A.assign(a1=A["a1"].map(lambda x: f"{x}".replace(".", ","))).to_excel(tmp_path / "a.xlsx")
    found = outcome([tmp_path / "a.xlsx"], {"a": A}, tmp_path / "s.zarr")
    assert re.match(quotes("refused", "a.xlsx", "'a1'", "--decimal"), found), found
    told = Source(tmp_path / "a.xlsx", decimal=",")
    assert outcome([told], {"a": A}, tmp_path / "s.zarr") == "right"


@pytest.mark.parametrize(("dimension", "key"), [("row_dimensions", 3), ("column_dimensions", "C")])
def test_hidden_sheets_are_views_if_they_are_asked_for_and_hidden_cells_are_read(
    tmp_path: Path, dimension: str, key: Any
) -> None:
    pytest.importorskip("openpyxl")
    with pd.ExcelWriter(tmp_path / "a.xlsx") as book:
        for name, frame in {"a": A, "b": B, "old": A + 1}.items():
            frame.to_excel(book, sheet_name=name)
        book.sheets["old"].sheet_state = "hidden"
        getattr(book.sheets["a"], dimension)[key].hidden = True
    report = ingest(tmp_path / "a.xlsx", tmp_path / "s.zarr")
    assert [view.name for view in report.views] == ["a", "b"]
    assert any(re.match(quotes("a.xlsx", "'old'", "--view"), note) for note in report.notes)
    assert any(re.match(quotes("a.xlsx", "hidden rows"), note) for note in report.notes)
    assert difference(open_store(report.output), "a", A) is None
    (tmp_path / "c.csv").write_text(csv_of(A))
    for files in (["a.xlsx"], ["c.csv", "a.xlsx"]):
        with raises(DataError, "none", "'a'", "'b'", "'old'"):
            ingest([tmp_path / f for f in files], tmp_path / "n.zarr", views=["none"])
    views = ingest(tmp_path / "a.xlsx", tmp_path / "t.zarr", views=["old", "b"]).views
    assert [view.name for view in views] == ["old", "b"]


@pytest.mark.parametrize("suffix", [".xlsx", ".parquet"])
def test_days_are_ids_as_text_has_them(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("openpyxl" if suffix == ".xlsx" else "pyarrow")
    days = pd.date_range("2020-01-01", periods=12)
    known = A.set_axis(days.strftime("%Y-%m-%d"))
    write = pd.DataFrame.to_excel if suffix == ".xlsx" else pd.DataFrame.to_parquet
    write(A.set_axis(days), tmp_path / f"a{suffix}")
    (tmp_path / "b.csv").write_text(csv_of(B.set_axis(known.index).iloc[ORDER], "day"))
    sources = [tmp_path / f"a{suffix}", tmp_path / "b.csv"]
    frames = {"a": known, "b": B.set_axis(known.index)}
    assert outcome(sources, frames, tmp_path / "s.zarr") == "right"


def test_a_truth_value_among_the_numbers_of_a_sheet_is_none(tmp_path: Path) -> None:
    pytest.importorskip("openpyxl")
    odd = A.astype(object)
    odd.iloc[4, 2] = True
    odd.to_excel(tmp_path / "a.xlsx")
    found = outcome([tmp_path / "a.xlsx"], {"a": A}, tmp_path / "s.zarr")
    assert re.match(quotes("refused", "a.xlsx", "'a2'", "row 4"), found), found
    known = A.assign(high=A["a2"] > 5)
    known.to_excel(tmp_path / "a.xlsx")
    assert outcome([tmp_path / "a.xlsx"], {"a": known}, tmp_path / "s.zarr") == "right"


def test_text_under_the_name_of_a_workbook(tmp_path: Path) -> None:
    assert read(tmp_path, {"a.xls": csv_of(A, sep="\t")}, (A,)) == "right"


@pytest.mark.parametrize("name", ["a.rds", "a.sav", "a.svm"])
def test_files_of_other_programs_are_refused_with_the_way_out(tmp_path: Path, name: str) -> None:
    found = read(tmp_path, {name: gzip.compress(b"X\n\0\0\0\3")}, (A,))
    assert re.match(quotes("refused", name), found)
    if name == "a.rds":
        assert re.search("write", found.removeprefix("refused"))


# ------------------------------------------------------------------------------------- messages


def test_arrays_of_objects_are_refused_with_the_way_out(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", A.to_numpy(dtype=object))
    np.save(tmp_path / "y.npy", np.array(["u", "v"] * 6, dtype=object))
    with raises(DataError, "a.npy", "Python objects", "astype(float)"):
        ingest(tmp_path / "a.npy", tmp_path / "s.zarr")
    (tmp_path / "b.csv").write_text(csv_of(B))
    with raises(DataError, "y.npy", "Python objects", "astype(str)"):
        ingest(tmp_path / "b.csv", tmp_path / "s.zarr", labels=tmp_path / "y.npy")


def test_names_of_columns_that_two_files_share_may_be_samples(tmp_path: Path) -> None:
    """Such as genes on rows, below the same samples; not the names of a matrix of pairs."""
    counts = table(12, 9, ids=[*"pqrstuvwxyz0"])
    for name in "ab":
        counts.to_csv(tmp_path / f"{name}.csv")
    sources = [tmp_path / "a.csv", tmp_path / "b.csv"]
    notes = ingest(sources, tmp_path / "s.zarr").notes
    assert [note for note in notes if "another file" in note and "--samples-in columns" in note]
    for source in sources:
        DISTANCES.to_csv(source)
    notes = ingest(sources, tmp_path / "t.zarr", view_type="distance").notes
    assert not [note for note in notes if "--samples-in" in note]


@pytest.mark.parametrize(
    "form", ["{} Intensity,{} Spectral Count", "MS/MS count {},LFQ intensity {}", "{},{}_TPM"]
)
def test_several_columns_for_a_sample_are_no_samples(tmp_path: Path, form: str) -> None:
    forms = form.split(",")
    wide = pd.concat(
        [A.T.add_prefix("x").set_axis([f.format(n) for n in A.index], axis=1) for f in forms],
        axis=1,
    )
    files = {"a.csv": csv_of(wide, "Protein IDs")}
    found = read(tmp_path, files, (A,), samples_in="columns")
    assert re.match(quotes("refused", *(f.format("P01") for f in forms)), found), found
    one = {"a.csv": csv_of(wide.iloc[:, : len(A)], "Protein IDs")}
    known = A.set_axis([forms[0].format(n) for n in A.index])
    assert read(tmp_path, one, (known,), samples_in="columns") == "right"
