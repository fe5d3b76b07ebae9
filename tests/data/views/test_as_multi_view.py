"""as_multi_view: every way of handing over views gives the same rows; errors say what to do."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from numpy.typing import NDArray
from scipy import sparse

from mscam_dask.data.views.as_multi_view import as_multi_view
from mscam_dask.data.views.multi_view import MultiViewData
from mscam_dask.data.views.sources import ArrayRows
from mscam_dask.data.views.validation import validate
from mscam_dask.errors import DataError
from tests.messages import quotes, raises
from tests.processes import printed
from tests.synthetic import distances_between, values_of

COLOUR = np.array([[0.0, 1, 2], [3, 0, 5], [6, 7, 0], [0, 0, 1]])
SHAPE = np.array([[1.0, 0], [0, 4], [2, 2], [9, 0]])

FORMS: dict[str, Callable[[NDArray[np.float64]], Any]] = {
    "numpy": lambda x: x,
    "fortran": np.asfortranarray,
    "big-endian": lambda x: x.astype(">f8"),
    "integers": lambda x: x.astype(np.int16),
    "lists": lambda x: x.tolist(),
    "masked": np.ma.masked_array,
    "csr": sparse.csr_array,
    "coo": sparse.coo_array,
    "csr matrix": sparse.csr_matrix,
    "dask": lambda x: da.from_array(x, chunks=(3, 2)),
    "dask of sparse": lambda x: da.from_array(x, chunks=(2, -1)).map_blocks(sparse.csr_array),
    "frame": pd.DataFrame,
    "nullable frame": lambda x: pd.DataFrame(x).convert_dtypes(),
    "data array": lambda x: xr.DataArray(x, dims=("sample", "feature")),
    "chunked data array": lambda x: xr.DataArray(x, dims=("sample", "feature")).chunk(2),
    "row source": lambda x: ArrayRows(x, "colour"),
}


def assert_holds(data: MultiViewData, **expected: NDArray[np.float64]) -> None:
    assert data.view_names == tuple(expected)
    for name, values in values_of(data).items():
        np.testing.assert_array_equal(values, expected[name])


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_table_gives_the_same_rows(form: str) -> None:
    data = as_multi_view({"colour": FORMS[form](COLOUR), "shape": SHAPE})
    assert_holds(data, colour=COLOUR, shape=SHAPE)
    assert data.n_samples == 4
    assert data.nbytes == 8 * 4 * 5
    assert data.sample_ids is None
    assert data.digest() == as_multi_view({"colour": COLOUR, "shape": SHAPE}).digest()
    if form not in ("lists", "row source"):
        assert_holds(as_multi_view(FORMS[form](COLOUR)), view_0=COLOUR)


def test_float64_tables_are_not_copied() -> None:
    assert np.shares_memory(as_multi_view([COLOUR]).views[0].read(1, 3), COLOUR)


@pytest.mark.parametrize("name", ["label", "labels", "ground_truth", "gt"])
def test_dataset_views_ids_and_labels(name: str) -> None:
    dataset = xr.Dataset(
        {
            "colour": (("object", "channel"), COLOUR),
            "shape": (("moment", "object"), SHAPE.T),
            name: ("object", ["b", "a", "b", "c"]),
        },
        coords={"object": ["w", "x", "y", "z"]},
    )
    data = as_multi_view(dataset)
    assert_holds(data, colour=COLOUR, shape=SHAPE)
    assert data.sample_ids == ("w", "x", "y", "z")
    assert data.labels.tolist() == [1, 0, 1, 2]
    assert data.label_names == ("a", "b", "c")


@pytest.mark.parametrize("other", ["cell", "patient", "obs", "f"])
def test_a_dimension_called_sample_has_the_samples_whatever_others_are_shared(other: str) -> None:
    variables = dict.fromkeys("ab", (("sample", other), COLOUR))
    assert_holds(
        as_multi_view(xr.Dataset(variables).transpose(other, "sample")), a=COLOUR, b=COLOUR
    )


@pytest.mark.filterwarnings("ignore:Duplicate dimension names")
@pytest.mark.parametrize(
    "variables",
    [
        {"a": (("u", "v"), COLOUR), "b": (("u", "v"), COLOUR)},
        {"a": (("p", "q"), COLOUR), "b": (("r", "s"), SHAPE)},
        {"a": (("sample", "q"), COLOUR), "weight": ("sample", np.ones(4))},
        {"d": (("sample", "sample"), np.eye(4)), "a": (("sample", "q"), COLOUR)},
    ],
    ids=["which dimension", "no shared dimension", "no view", "a dimension twice"],
)
def test_datasets_that_are_no_views_are_refused(variables: Any) -> None:
    with pytest.raises(DataError):
        as_multi_view(xr.Dataset(variables))


# ----------------------------------------------------------------------------- errors


# dask.dataframe needs pyarrow
_DASK_FRAME = type(
    "DataFrame", (), {"__module__": "dask.dataframe", "__array__": lambda _: COLOUR}
)()


@pytest.mark.parametrize(
    ("views", "quoted"),
    [
        ([], []),
        ([ArrayRows(COLOUR, "a"), ArrayRows(SHAPE, "a")], ["['a']", "['a', 'a']"]),
        ([COLOUR, SHAPE[:3]], ["'view_0': 4, 'view_1': 3"]),
        ([COLOUR, SHAPE.T, SHAPE], ["'view_0': 4, 'view_1': 2, 'view_2': 4", "['view_1']"]),
        ({"a": COLOUR, "b": [1.0, 2.0, 3.0, 4.0]}, ["'b'", 1, (4,), "(n, 1)"]),
        ({"a": [[1.0], [2.0, 3.0]]}, ["'a'"]),
        ({"a": np.array([["x"]])}, ["'a'", "<U1"]),
        ({"a": object()}, ["'a'", "builtins.object"]),
        ({"a": "x.csv"}, ["'a'", "'x.csv'", "mscam-dask ingest"]),
        (_DASK_FRAME, ["'view_0'", "to_dask_array(lengths=True)"]),
        (np.zeros((2, 3, 4)), ["'view_0'", (2, 3, 4), "list(array)"]),
        (7, ["builtins.int"]),
    ],
)
def test_what_is_no_collection_of_views_is_refused(views: Any, quoted: list[object]) -> None:
    with pytest.raises(DataError, match=quotes(*quoted)):
        as_multi_view(views)


@pytest.mark.parametrize("as_arrow", [False, True], ids=["polars", "arrow"])
def test_polars_and_arrow_tables_keep_names_of_columns(as_arrow: bool) -> None:
    pl = pytest.importorskip("polars", reason="polars is not installed")

    def table(columns: dict[str, list[Any]]) -> Any:
        made = pl.DataFrame(columns)
        return made.to_arrow() if as_arrow else made

    views = {"v": table({"x": [1, None, 3], "y": [True, None, False], "z": [0.5, 1.0, 2.0]})}
    for given_views in (views, views["v"]):
        (view,) = as_multi_view(given_views).views
        assert view.feature_names == ("x", "y", "z")
        np.testing.assert_array_equal(
            view.read(0, 3), [[1, 1, 0.5], [np.nan, np.nan, 1], [3, 0, 2]]
        )
    with pytest.raises(DataError):
        as_multi_view({"v": table({"x": [1, 2], "city": ["a", "b"]})})


@pytest.mark.parametrize(
    ("form", "kind"),
    [*(("polars", kind) for kind in ("Int128", "Decimal", "Object")), ("batch", "List")],
)
def test_columns_that_are_no_numbers_are_named_whatever_they_hold(form: str, kind: str) -> None:
    pl = pytest.importorskip("polars", reason="polars is not installed")
    odd = {
        "List": pl.Series([[1.0], [2.0]]),
        "Int128": pl.Series([1, 2], dtype=pl.Int128),
        "Decimal": pl.Series(["1.5", "2"]).cast(pl.Decimal(10, 2)),
        "Object": pl.Series([{1}, {2}], dtype=pl.Object),
    }[kind]
    table: Any = pl.DataFrame({"x": [0.5, 1.5]}).with_columns(odd.alias("odd"))
    if form == "batch":
        table = table.to_arrow().combine_chunks().to_batches()[0]
    with pytest.raises(DataError):
        as_multi_view({"v": table})


@pytest.mark.parametrize("numbers", [["i2", "f4"], []], ids=str)
def test_bool_columns_beside_numbers_count_as_zero_and_one(numbers: list[str]) -> None:
    frame = pd.DataFrame({"b": [True, False, True]})
    for column, dtype in enumerate(numbers):
        frame[column] = np.array([1, 2, 3], dtype=dtype)
    (view,) = as_multi_view([frame]).views
    np.testing.assert_array_equal(
        view.read(0, 3), [[b, *[n] * len(numbers)] for b, n in [(1, 1), (0, 2), (1, 3)]]
    )


# ----------------------------------------------------------------------------- ids


def test_frames_with_the_same_ids_are_put_in_the_order_of_the_first() -> None:
    order = [0, 2, 1, 3]
    index = np.array(list("pqrs"))
    data = as_multi_view(
        {"a": pd.DataFrame(COLOUR, index), "b": pd.DataFrame(SHAPE[order], index[order])}
    )
    assert data.sample_ids == tuple("pqrs")
    assert as_multi_view({"a": pd.DataFrame(COLOUR, index), "c": SHAPE}).sample_ids == tuple("pqrs")
    assert_holds(data, a=COLOUR, b=SHAPE)
    table = xr.DataArray(SHAPE[order], dims=("s", "f"), coords={"s": index[order]})
    assert_holds(as_multi_view({"a": pd.DataFrame(COLOUR, index), "b": table}), a=COLOUR, b=SHAPE)


@pytest.mark.parametrize(
    ("kind", "is_first", "columns"),
    [
        ("distance", True, "ids"),
        ("kernel", False, "ids"),
        ("distance", True, "others"),
        ("distance", False, "none"),
    ],
)
def test_one_rule_for_pairwise_frames_with_rows_and_columns_in_two_orders(
    kind: str, is_first: bool, columns: str
) -> None:
    """Columns with the ids of the rows are matched by id; others are refused."""
    rng = np.random.default_rng(0)
    index = np.array([f"s{i}" for i in range(8)])
    points = rng.standard_normal((8, 3))
    pairs = points @ points.T if kind == "kernel" else distances_between(points)
    names = {"ids": index, "others": [f"t{i}" for i in range(8)], "none": range(8)}[columns]
    rows, order = rng.permutation(8), rng.permutation(8) if columns == "ids" else np.arange(8)
    table = pd.DataFrame(pairs, index, columns=names).iloc[rows, order]
    views = {"pairs": table, "a": pd.DataFrame(points, index)}
    kinds: Any = {"pairs": kind} if is_first else pd.Series({"pairs": kind})
    data = as_multi_view(views if is_first else dict(reversed(views.items())), view_type=kinds)
    if columns != "ids":
        with pytest.raises(DataError):
            validate(data, n_clusters=2, n_neighbors=3)
        return
    validate(data, n_clusters=2, n_neighbors=3)
    wanted = rows if is_first else np.arange(8)
    assert data.sample_ids == tuple(index[wanted])
    np.testing.assert_array_equal(values_of(data)["pairs"], pairs[np.ix_(wanted, wanted)])
    np.testing.assert_array_equal(values_of(data)["a"], points[wanted])


@pytest.mark.parametrize("reset", ["a", "b"])
def test_a_default_index_is_not_matched_with_its_numbers_in_another_order(reset: str) -> None:
    """Such a frame may have lost its index after its rows were moved; both answers run."""
    order = [2, 0, 1, 3]
    views = {"a": pd.DataFrame(COLOUR).iloc[order], "b": pd.DataFrame(SHAPE).iloc[order]}
    lost = views | {reset: views[reset].reset_index(drop=True)}
    with pytest.raises(
        DataError, match=quotes("'a'", "'b'", "reset_index(drop=True)", "frame.loc[other.index]")
    ):
        as_multi_view(lost)
    assert_holds(as_multi_view(views), a=COLOUR[order], b=SHAPE[order])
    by_row = {name: view.reset_index(drop=True) for name, view in lost.items()}
    assert_holds(as_multi_view(by_row), a=COLOUR[order], b=SHAPE[order])
    other = views["b" if reset == "a" else "a"]
    in_order = lost | {reset: pd.DataFrame(COLOUR if reset == "a" else SHAPE).loc[other.index]}
    assert_holds(as_multi_view(in_order), a=COLOUR[order], b=SHAPE[order])


@pytest.mark.parametrize("name", ["sample", "obs", "cell", "Patient", "barcode", "subject_id"])
def test_data_arrays_with_samples_on_columns_are_refused_by_their_names(name: str) -> None:
    turned = xr.DataArray(COLOUR.T, dims=("channel", name))
    for views in (turned, [turned], {"a": turned}, turned.rename(channel="gene_id")):
        with pytest.raises(DataError):
            as_multi_view(views)
    assert_holds(as_multi_view([turned.T]), view_0=COLOUR)
    # new samples' distances to those of a fit
    assert as_multi_view([turned], view_type="distance").views[0].shape == (3, 4)
    assert as_multi_view([turned.rename(channel="samples")]).views[0].shape == (3, 4)


def test_digest_depends_on_values_names_metrics_and_order_but_not_on_labels() -> None:
    a, b = ArrayRows(np.eye(3), "a"), ArrayRows(2 * np.eye(3), "b")
    base = MultiViewData((a, b))
    others = [
        MultiViewData((b, a)),
        MultiViewData((a,)),
        MultiViewData((a, ArrayRows(2 * np.eye(3), "c"))),
        MultiViewData((a, ArrayRows(2 * np.eye(3), "b", "kernel"))),
        MultiViewData((a, ArrayRows(3 * np.eye(3), "b"))),
    ]
    assert len({base.digest(), *(other.digest() for other in others)}) == len(others) + 1
    labelled = MultiViewData((a, b), labels=np.arange(3), sample_ids=("x", "y", "z"))
    assert labelled.digest() == base.digest()


def test_views_of_training_and_of_test_samples_are_told_apart() -> None:
    sizes = {"x_train": (6, 3), "x_test": (2, 3), "y_train": (6, 5), "y_test": (2, 5)}
    with raises(DataError, "'x_test': 2", "'y_train': 6", "training", "--view"):
        MultiViewData(tuple(ArrayRows(np.ones(shape), name) for name, shape in sizes.items()))


def test_samples_may_be_the_columns_that_are_as_many_as_labels() -> None:
    a, b, c = (ArrayRows(np.ones((3, d)), name) for name, d in [("a", 4), ("b", 5), ("c", 4)])
    with raises(DataError, 4, "labels", 3, "4 columns", "samples_in='columns'"):
        MultiViewData((a, c), labels=np.arange(4))
    with raises(DataError, 4, "labels", 3) as caught:
        MultiViewData((a, b), labels=np.arange(4))
    assert "columns" not in str(caught.value)


def test_heavy_packages_are_imported_only_when_needed() -> None:
    code = (
        "import sys, numpy; from mscam_dask.data import datasets, ingest; from mscam_dask.data.views import as_multi_view, validation; "
        "as_multi_view.as_multi_view([numpy.eye(3)]); "
        "heavy = {'dask', 'distributed', 'h5py', 'pandas', 'sklearn', 'xarray', 'zarr'}; "
        "print(heavy & set(sys.modules))"
    )
    assert printed(code).strip() == "set()"


# ------------------------------------------------------------------------- ids of samples in tables


def in_two_orders() -> tuple[dict[str, pd.DataFrame], NDArray[np.int64]]:
    """Two frames with the same ids in a column, the second in another order, and this order."""
    rng = np.random.default_rng(0)
    order, values = rng.permutation(12), rng.normal(size=(12, 5))
    ids = pd.DataFrame({"patient_id": 101 + 7 * np.arange(12)})
    first, second = (
        pd.concat([ids, pd.DataFrame(values[:, part]).add_prefix(name)], axis=1)
        for name, part in (("a", slice(3)), ("b", slice(3, 5)))
    )
    return {"a": first, "b": second.iloc[order].reset_index(drop=True)}, order


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_a_column_of_ids_is_no_order_of_rows(kind: str) -> None:
    """Ids in another order are refused, and told as features in the same one."""
    frames, order = in_two_orders()
    views: dict[str, Any] = {**frames}
    if kind == "polars":
        pl = pytest.importorskip("polars", reason="polars is not installed")
        views = {name: pl.DataFrame(frame.to_dict("list")) for name, frame in frames.items()}
    with pytest.raises(DataError):
        as_multi_view(views)
    frames["b"] = frames["b"].iloc[np.argsort(order)].reset_index(drop=True)
    issues = validate(as_multi_view(frames), n_clusters=2, n_neighbors=3).issues
    assert [issue.others for issue in issues if issue.kind == "label columns"] == [
        ("patient_id",)
    ] * 2
    indexed = {name: one.set_index("patient_id") for name, one in frames.items()}
    assert not validate(as_multi_view(indexed), n_clusters=2, n_neighbors=3).issues


@pytest.mark.parametrize("name", ["patient_id", "Sample", "index", "age"])
def test_ids_in_the_index_and_in_a_column_do_not_contradict_each_other(name: str) -> None:
    """Rows have the same ids both ways, or are refused; ranks of each view may be in any order."""
    rng = np.random.default_rng(0)
    ids, numbers, order = np.array([*"abcdefghij"]), rng.permutation(99)[:10], rng.permutation(10)
    first, second = (pd.DataFrame({i: rng.random(10), name: numbers}, ids) for i in "ab")
    as_multi_view([first, second.iloc[order]])
    for moved in (second.set_axis(ids[order]), second.iloc[order].set_axis(ids)):
        with nullcontext() if name == "age" else pytest.raises(DataError):
            as_multi_view([first, moved])


@pytest.mark.parametrize("name", ["patient_id", None])
def test_arrow_tables_of_frames_keep_their_index(name: str | None) -> None:
    pa = pytest.importorskip("pyarrow")
    frames, order = in_two_orders()
    first, second = (frame.set_index("patient_id").rename_axis(name) for frame in frames.values())
    data = as_multi_view({"a": pa.Table.from_pandas(first), "b": pa.Table.from_pandas(second)})
    assert data.sample_ids == tuple(map(str, first.index))
    back = second.to_numpy()[np.argsort(order)]
    assert_holds(data, a=first.to_numpy(), b=back)
    assert data.views[0].feature_names == tuple(first.columns)


@pytest.mark.parametrize("form", ["pandas", "polars", "arrow"])
def test_columns_that_are_called_as_all_samples_name_the_rows_too(form: str) -> None:
    pytest.importorskip(form if form == "polars" else "pandas")
    rng = np.random.default_rng(1)
    points, order = rng.normal(size=(8, 3)), rng.permutation(8)
    ids = np.array([f"s{place}" for place in range(8)])
    pairs = distances_between(points)
    table: Any = pd.DataFrame(pairs[np.ix_(order, order)], columns=ids[order])
    if form == "polars":
        table = pytest.importorskip("polars").DataFrame(table.to_dict("list"))
    if form == "arrow":
        table = pytest.importorskip("pyarrow").Table.from_pandas(table)
    data = as_multi_view({"a": pd.DataFrame(points, ids), "d": table}, view_type={"d": "distance"})
    assert data.sample_ids == tuple(ids)
    assert_holds(data, a=points, d=pairs)


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "?", "f4"])
@pytest.mark.parametrize("form", ["coo", "csr", "csc", "bsr"])
def test_repeated_entries_of_a_sparse_view_are_summed_without_overflow(
    form: str, dtype: str
) -> None:
    kind: Any = np.dtype(dtype)
    entries = np.full(5, 1 if kind.kind in "bf" else np.iinfo(kind).max, dtype)
    rows, columns, starts = np.array([0, 0, 1, 2, 3]), np.array([1, 1, 0, 2, 1]), [0, 2, 3, 4, 5]
    wanted = np.zeros((4, 3))
    np.add.at(wanted, (rows, columns), entries.astype(float))
    matrix: Any = {
        "coo": sparse.coo_array((entries, (rows, columns)), shape=(4, 3)),
        "csr": sparse.csr_array((entries, columns, starts), shape=(4, 3)),
        "csc": sparse.csc_array((entries, columns, starts), shape=(3, 4)),
        "bsr": sparse.bsr_array((entries.reshape(5, 1, 1), columns, starts), shape=(4, 3)),
    }[form]
    wanted = wanted.T if form == "csc" else wanted
    found = as_multi_view([matrix]).views[0].read(0, len(wanted))
    np.testing.assert_array_equal(found, np.minimum(wanted, 1) if dtype == "?" else wanted)


@pytest.mark.parametrize("is_hidden", [False, True])
def test_masked_values_are_missing_cells(is_hidden: bool) -> None:
    masked = np.ma.masked_less(COLOUR, 1)

    class Table:
        def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[np.float64]:
            return masked

    known = {"view_0": np.where(COLOUR < 1, np.nan, COLOUR)}
    assert_holds(as_multi_view([Table() if is_hidden else masked]), **known)


@pytest.mark.parametrize("n_views", [2, 3])
def test_a_table_of_the_views_that_samples_have_is_named(n_views: int) -> None:
    rng = np.random.default_rng(0)
    views = [rng.random((20, 3)) for _ in range(n_views)]
    for values, is_told in (
        (rng.integers(0, 2, (20, n_views)), True),
        (rng.integers(0, 2, (20, n_views + 1)), False),
        (rng.integers(0, 3, (20, n_views)), False),
        (rng.random((20, n_views)).round(1), False),
        (np.eye(4)[rng.integers(0, 4, 20)], True),  # classes or folds
    ):
        issues = validate(as_multi_view([*views, values]), n_clusters=2, n_neighbors=3).issues
        assert ("presence table" in {issue.kind for issue in issues}) == is_told
    folds = [rng.integers(0, 2, (20, n_views)) for _ in range(5)]
    issues = validate(as_multi_view([*views, *folds]), n_clusters=2, n_neighbors=3).issues
    assert [issue.kind for issue in issues].count("presence table") == len(folds)


def test_default_columns_of_a_square_frame_are_no_ids() -> None:
    """They count the rows of their own frame, which another may have as ids in another order."""
    rng = np.random.default_rng(0)
    points = pd.DataFrame(rng.normal(size=(12, 3))).iloc[rng.permutation(12)]
    pairs = pd.DataFrame(distances_between(points.to_numpy()))
    with pytest.raises(DataError):
        as_multi_view({"a": points, "d": pairs}, view_type={"d": "distance"})
    types = pd.Series({"d": "distance"})  # by the names of views, as a mapping
    kept = as_multi_view({"a": points, "d": pairs.to_numpy()}, view_type=types)
    assert_holds(kept, a=points.to_numpy(), d=pairs.to_numpy())


@pytest.mark.parametrize("are_unique", [True, False])
def test_a_coordinate_of_ids_that_is_no_index_matches_samples(are_unique: bool) -> None:
    ids, order = np.array([*"wxyz"] if are_unique else [*"wwxx"]), [2, 0, 3, 1]
    first, second = (
        xr.DataArray(values, dims=("obs", "f"), coords={"patient_id": ("obs", own), "f": [*names]})
        for values, own, names in ((COLOUR, ids, "abc"), (COLOUR[order], ids[order], "def"))
    )
    data = as_multi_view({"a": first, "b": second})
    assert_holds(data, a=COLOUR, b=COLOUR if are_unique else COLOUR[order])
    assert data.sample_ids == (tuple(ids) if are_unique else None)
    assert as_multi_view(xr.Dataset({"a": first})).sample_ids == data.sample_ids


@pytest.mark.parametrize("name", ["gt", "y_true", "patient_id", "index", "__index_level_0__"])
def test_labels_and_ids_as_a_view_or_column_are_told(name: str) -> None:
    rng = np.random.default_rng(0)
    points, numbers = rng.normal(size=(20, 3)), rng.permutation(20)[:, None]
    for views, is_told in (
        ({"a": points, name: numbers}, True),
        ({"a": points, name: numbers + 0.5}, False),
        ({"a": points, name: np.hstack([numbers, points])}, False),
        ({"a": pd.DataFrame(points).assign(**{name: numbers})}, True),
    ):
        issues = validate(as_multi_view(views), n_clusters=2, n_neighbors=3).issues
        told = [issue.others for issue in issues if issue.kind == "label columns"]
        assert told == [(name,)] * is_told
