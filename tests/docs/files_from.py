"""Files of docs/files-from.md, as R, Excel, MATLAB, muon, databases and instruments write them.

Each kind describes twelve samples of three clusters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.io import savemat

from tests.data.readers.matlab_files import cells, save_version_73

_N = 12
_IDS = [f"P-{number:03d}" for number in range(1, _N + 1)]
_KIND = np.arange(_N) % 3


def write_files(folder: Path) -> None:
    """Write all files of the page."""
    rng = np.random.default_rng(7)
    expression = _values(rng, 4)
    protein = _values(rng, 3)
    order = rng.permutation(_N)
    _write_r(folder, expression, protein, order)
    _write_excel(folder, protein)
    _write_matlab(folder, expression, protein)
    _write_cells(folder, rng)
    _write_database(folder, expression, protein, order)
    _write_instruments(folder, expression.T)


def _values(rng: np.random.Generator, n_features: int) -> NDArray[np.float64]:
    """Rounded values of the samples, (n, n_features)."""
    centers = 4 * rng.standard_normal((3, n_features))
    return np.round(6 + centers[_KIND] + 0.5 * rng.standard_normal((_N, n_features)), 2)


def _lines(file: Path, lines: Iterable[Sequence[Any]], delimiter: str) -> None:
    text = "".join(delimiter.join(map(str, line)) + "\n" for line in lines)
    file.write_text(text, encoding="utf-8")


def _write_r(
    folder: Path,
    expression: NDArray[np.float64],
    protein: NDArray[np.float64],
    order: NDArray[np.intp],
) -> None:
    def quoted(text: str) -> str:
        return f'"{text}"'

    genes = [quoted(gene) for gene in ("TP53", "EGFR", "MYC", "KRAS")]
    rows = [[quoted(_IDS[i]), *expression[i]] for i in range(_N)]
    _lines(folder / "expression.txt", [genes, *rows], " ")
    header = ['""', *map(quoted, ("CD3", "CD19", "CD56"))]
    _lines(folder / "protein.csv", [header, *([quoted(_IDS[i]), *protein[i]] for i in order)], ",")
    (folder / "methylation.rds").write_bytes(b"\x1f\x8b\x08\x00")


def _write_excel(folder: Path, protein: NDArray[np.float64]) -> None:
    sheet = pd.DataFrame(protein, columns=["CD3", "CD19", "CD56"])
    sheet.insert(0, "Probe", _IDS)
    sheet.to_excel(folder / "cytometry.xlsx", index=False, sheet_name="Messung 1")
    rows = [[name, *(str(value).replace(".", ",") for value in row)] for name, *row in sheet.values]
    rows[0][2] = ""
    _lines(folder / "blood.csv", [["sep=", ""], ["Probe", "Hb", "WBC", "CRP"], *rows], ";")


def _write_matlab(
    folder: Path, expression: NDArray[np.float64], protein: NDArray[np.float64]
) -> None:
    views = cells(expression, protein)
    savemat(folder / "leaves.mat", {"X": views, "gt": _KIND[:, None] + 1})
    savemat(folder / "images.mat", {"X": np.stack([expression, expression], axis=2)})
    save_version_73(folder / "struct_v73.mat", data={"color": expression, "shape": protein})
    kernels = np.stack([view @ view.T for view in (expression, protein)], axis=2)
    savemat(folder / "kernels.mat", {"K": kernels, "Y": _KIND[:, None] + 1})


def _write_cells(folder: Path, rng: np.random.Generator) -> None:
    import anndata as ad
    import mudata as md

    cells = [f"{''.join(code)}-1" for code in rng.choice(list("ACGT"), (_N, 8))]
    kinds = pd.DataFrame({"cell_type": np.array(["B", "NK", "T"])[_KIND]}, index=cells)
    counts = rng.poisson(np.exp(1.5 * rng.standard_normal((3, 30)))[_KIND]).astype(np.float32)
    rna = ad.AnnData(counts, obs=kinds)
    rna.layers["log1p"] = np.log1p(counts)
    rna.write_h5ad(folder / "pbmc.h5ad")
    tags = ad.AnnData(rng.poisson(9, (_N, 5)).astype(np.float32), obs=kinds[[]])
    both = md.MuData({"rna": rna, "adt": tags[::-1].copy()})
    both.obs["cell_type"] = kinds["cell_type"]
    both.write(folder / "cite.h5mu")


def _write_database(
    folder: Path,
    expression: NDArray[np.float64],
    protein: NDArray[np.float64],
    order: NDArray[np.intp],
) -> None:
    numbers = 1000 + 37 * np.random.default_rng(3).permutation(_N)
    visits = [[numbers[i], *expression[i, :3]] for i in range(_N)]
    _lines(folder / "visits.csv", [["fallnr", "sbp", "dbp", "pulse"], *visits], ",")
    labs = [[numbers[i], *protein[i, :2]] for i in order]
    _lines(folder / "labs.csv", [["fallnr", "hb", "crp"], *labs], ",")
    biobank = [[f"00{numbers[i]}", *protein[i]] for i in order[:-3]]
    _lines(folder / "biobank.csv", [["sample", "il6", "tnf", "ifn"], *biobank], ",")
    some = [[numbers[i], *protein[i]] for i in order[:-3]]
    _lines(folder / "cytokines.csv", [["fallnr", "il6", "tnf", "ifn"], *some], ",")


def _write_instruments(folder: Path, genes: NDArray[np.float64]) -> None:
    names = ["TP53", "EGFR", "MYC", "KRAS"]
    rows = [[name, "tumor gene", *row] for name, row in zip(names, genes, strict=True)]
    gct: list[list[object]] = [["#1.2"], [4, _N], ["NAME", "Description", *_IDS], *rows]
    _lines(folder / "array.gct", gct, "\t")
    accessions = [f"GSM{2450153 + i}" for i in range(_N)]
    series = [
        ["!Series_title", '"Blood of twelve donors"'],
        ["!series_matrix_table_begin"],
        ['"ID_REF"', *(f'"{name}"' for name in accessions)],
        *(
            [f'"{probe}"', *row]
            for probe, row in zip(("1007_s_at", "1053_at", "117_at", "121_at"), genes, strict=True)
        ),
        ["!series_matrix_table_end"],
    ]
    _lines(folder / "GSE94648_series_matrix.txt", series, "\t")
    spectra = [[f"mz_{1 + j}", *row] for j, row in enumerate(genes)]
    above = [["# LC-MS export 3.1"], ["# operator: A. B."]]
    _lines(folder / "spectra.csv", [*above, ["feature", *_IDS], *spectra], ",")
