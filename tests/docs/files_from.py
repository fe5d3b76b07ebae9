"""Files of docs/files-from.md, as R, Excel, MATLAB, muon, databases and instruments write them.

Each kind describes twelve samples of three clusters.
"""

from __future__ import annotations

import csv
from pathlib import Path

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
    genes = pd.DataFrame(_values(rng, 4), _IDS, ["TP53", "EGFR", "MYC", "KRAS"])
    protein = pd.DataFrame(_values(rng, 3), _IDS, ["CD3", "CD19", "CD56"])
    order = rng.permutation(_N)
    # R
    quoted = csv.QUOTE_NONNUMERIC
    genes.to_csv(folder / "expression.txt", sep=" ", quoting=quoted, index_label=False)
    protein.iloc[order].to_csv(folder / "protein.csv", quoting=quoted, index_label="")
    (folder / "methylation.rds").write_bytes(b"\x1f\x8b\x08\x00")
    # Excel
    sheet = protein.rename_axis("Probe").reset_index()
    sheet.to_excel(folder / "cytometry.xlsx", index=False, sheet_name="Messung 1")
    blood = protein.set_axis(["Hb", "WBC", "CRP"], axis=1)
    blood.iloc[0, 1] = np.nan
    table = blood.to_csv(sep=";", decimal=",", index_label="Probe")
    (folder / "blood.csv").write_text(f"sep=;\n{table}")
    _write_matlab(folder, genes.to_numpy(), protein.to_numpy())
    _write_cells(folder, rng)
    _write_database(folder, genes.to_numpy(), protein.to_numpy(), order)
    _write_instruments(folder, genes.T)


def _values(rng: np.random.Generator, n_features: int) -> NDArray[np.float64]:
    """Rounded values of the samples, (n, n_features)."""
    centers = 4 * rng.standard_normal((3, n_features))
    return np.round(6 + centers[_KIND] + 0.5 * rng.standard_normal((_N, n_features)), 2)


def _write_matlab(
    folder: Path, expression: NDArray[np.float64], protein: NDArray[np.float64]
) -> None:
    labels = _KIND[:, None] + 1
    savemat(folder / "leaves.mat", {"X": cells(expression, protein), "gt": labels})
    savemat(folder / "images.mat", {"X": np.stack([expression, expression], axis=2)})
    save_version_73(folder / "struct_v73.mat", data={"color": expression, "shape": protein})
    kernels = np.stack([view @ view.T for view in (expression, protein)], axis=2)
    savemat(folder / "kernels.mat", {"K": kernels, "Y": labels})


def _write_cells(folder: Path, rng: np.random.Generator) -> None:
    import anndata as ad
    import mudata as md

    barcodes = [f"{''.join(code)}-1" for code in rng.choice(list("ACGT"), (_N, 8))]
    kinds = pd.DataFrame({"cell_type": np.array(["B", "NK", "T"])[_KIND]}, index=barcodes)
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
    visits = pd.DataFrame(expression[:, :3], numbers, ["sbp", "dbp", "pulse"])
    visits.to_csv(folder / "visits.csv", index_label="fallnr")
    labs = pd.DataFrame(protein[:, :2], numbers, ["hb", "crp"]).iloc[order]
    labs.to_csv(folder / "labs.csv", index_label="fallnr")
    some = pd.DataFrame(protein, numbers, ["il6", "tnf", "ifn"]).iloc[order[:-3]]
    some.to_csv(folder / "cytokines.csv", index_label="fallnr")
    biobank = some.set_axis([f"00{number}" for number in some.index])
    biobank.to_csv(folder / "biobank.csv", index_label="sample")


def _write_instruments(folder: Path, genes: pd.DataFrame) -> None:
    described = genes.rename_axis("NAME")
    described.insert(0, "Description", "tumor gene")
    table = described.to_csv(sep="\t")
    (folder / "array.gct").write_text(f"#1.2\n4\t{_N}\n{table}")
    accessions = [f"GSM{2450153 + i}" for i in range(_N)]
    probes = pd.Index(["1007_s_at", "1053_at", "117_at", "121_at"], name="ID_REF")
    series = pd.DataFrame(genes.to_numpy(), probes, accessions)
    table = series.to_csv(sep="\t", quoting=csv.QUOTE_NONNUMERIC)
    (folder / "GSE94648_series_matrix.txt").write_text(
        '!Series_title\t"Blood of twelve donors"\n!series_matrix_table_begin\n'
        f"{table}!series_matrix_table_end\n"
    )
    spectra = genes.set_axis([f"mz_{1 + j}" for j in range(4)])
    table = spectra.to_csv(index_label="feature")
    (folder / "spectra.csv").write_text(f"# LC-MS export 3.1\n# operator: A. B.\n{table}")
