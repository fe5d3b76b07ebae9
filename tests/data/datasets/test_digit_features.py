"""Feature families against slow definitions and their invariances."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from mscam_dask.data.datasets import (
    FAMILIES,
    fourier_magnitudes,
    gradient_orientations,
    profiles,
    zernike_magnitudes,
)

Images = NDArray[np.float64]
SIDE = 8

images = hnp.arrays(
    np.float64, (2, SIDE, SIDE), elements=st.integers(0, 16).map(lambda level: level / 16)
)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shape", [(8, 8), (7, 10)], ids=str)
def test_one_finite_row_per_image_whatever_stands_beside_it(
    family: str, shape: tuple[int, int]
) -> None:
    stack = np.random.default_rng(0).random((5, *shape))
    stack[2] = 0
    rows = FAMILIES[family](stack)
    assert rows.shape[0] == 5
    assert rows.dtype == np.float64
    assert np.isfinite(rows).all()
    alone = np.concatenate([FAMILIES[family](image[None]) for image in stack])
    np.testing.assert_allclose(rows, alone, rtol=1e-12, atol=1e-15)


def outline(line: list[bool]) -> int:
    return line.index(True) if any(line) else len(line)


@settings(max_examples=30)
@given(stack=images)
def test_profiles_by_definition(stack: Images) -> None:
    for image, row in zip(stack, profiles(stack), strict=True):
        ink = (image >= image.max() / 2) & (image.max() > 0)
        expected = [image[i].mean() for i in range(SIDE)]
        expected += [image[:, j].mean() for j in range(SIDE)]
        expected += [outline(ink[i].tolist()) for i in range(SIDE)]
        expected += [outline(ink[i].tolist()[::-1]) for i in range(SIDE)]
        expected += [outline(ink[:, j].tolist()) for j in range(SIDE)]
        expected += [outline(ink[:, j].tolist()[::-1]) for j in range(SIDE)]
        expected += [
            image[i : i + 2, j : j + 2].mean() for i in range(0, SIDE, 2) for j in range(0, SIDE, 2)
        ]
        np.testing.assert_allclose(row, expected, atol=1e-15)


@settings(max_examples=30)
@given(stack=images, down=st.integers(0, SIDE), right=st.integers(0, SIDE))
def test_fourier_magnitudes_do_not_change_under_cyclic_shifts(
    stack: Images, down: int, right: int
) -> None:
    moved = np.roll(stack, (down, right), axis=(1, 2))
    np.testing.assert_allclose(fourier_magnitudes(moved), fourier_magnitudes(stack), atol=1e-13)


def test_fourier_magnitudes_by_definition() -> None:
    image = np.random.default_rng(1).random((4, 6))
    (row,) = fourier_magnitudes(image[None])
    expected = [
        abs(
            sum(
                image[i, j] * cmath.exp(-2j * math.pi * (u * i / 4 + v * j / 6))
                for i in range(4)
                for j in range(6)
            )
        )
        / 24
        for u in range(4)
        for v in range(4)
    ]
    np.testing.assert_allclose(row, expected, atol=1e-14)


@pytest.mark.parametrize("orientation", range(8))
def test_a_ramp_has_all_its_gradient_in_one_orientation(orientation: int) -> None:
    angle = 2 * np.pi * orientation / 8
    down, right = np.mgrid[:SIDE, :SIDE]
    ramp = np.cos(angle) * right + np.sin(angle) * down
    histograms = gradient_orientations(ramp[None]).reshape(9, 8)
    np.testing.assert_allclose(histograms, np.tile(np.eye(8)[orientation], (9, 1)), atol=1e-5)


@settings(max_examples=30)
@given(stack=images)
def test_gradient_histograms_turn_with_the_image(stack: Images) -> None:
    """A quarter turn of the image turns the grid of cells and moves orientations by two bins."""
    turned = np.rot90(stack, axes=(1, 2))  # counter-clockwise: right becomes up
    histograms = gradient_orientations(stack).reshape(2, 3, 3, 8)
    expected = np.roll(np.rot90(histograms, axes=(1, 2)), -2, axis=3)
    found = gradient_orientations(turned).reshape(2, 3, 3, 8)
    np.testing.assert_allclose(found, expected, atol=1e-9)
    assert (np.linalg.norm(found, axis=3) <= 1).all()


@settings(max_examples=30)
@given(stack=images, turns=st.integers(1, 3))
def test_zernike_magnitudes_do_not_change_under_quarter_turns(stack: Images, turns: int) -> None:
    turned = np.rot90(stack, turns, axes=(1, 2))
    np.testing.assert_allclose(zernike_magnitudes(turned), zernike_magnitudes(stack), atol=1e-12)


RADIAL: dict[tuple[int, int], Callable[[float], float]] = {
    (0, 0): lambda r: 1.0,
    (1, 1): lambda r: r,
    (2, 0): lambda r: 2 * r**2 - 1,
    (2, 2): lambda r: r**2,
    (3, 1): lambda r: 3 * r**3 - 2 * r,
    (3, 3): lambda r: r**3,
    (4, 0): lambda r: 6 * r**4 - 6 * r**2 + 1,
    (4, 2): lambda r: 4 * r**4 - 3 * r**2,
    (4, 4): lambda r: r**4,
}


def test_zernike_magnitudes_by_definition() -> None:
    image = np.random.default_rng(2).random((SIDE, SIDE))
    (row,) = zernike_magnitudes(image[None], max_order=4)
    assert len(row) == len(RADIAL)
    circle = SIDE / math.sqrt(2)  # radius of the circle through the corners, in pixels
    for found, ((order, repetition), radial) in zip(row, RADIAL.items(), strict=True):
        moment = 0j
        for i in range(SIDE):
            for j in range(SIDE):
                y, x = (i - (SIDE - 1) / 2) / circle, (j - (SIDE - 1) / 2) / circle
                kernel = radial(math.hypot(x, y)) * cmath.exp(-1j * repetition * math.atan2(y, x))
                moment += image[i, j] * kernel / circle**2
        assert found == pytest.approx(abs(moment) * (order + 1) / math.pi, abs=1e-12)
