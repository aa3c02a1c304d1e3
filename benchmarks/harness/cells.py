# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""The cells of the grid as data, and the arrays that a cell stands for."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from . import machine

ROW_BYTES = (1, 4, 8, 16, 32, 64, 100, 256, 1 << 10, 4 << 10, 64 << 10)
ORDERS = ("sequential", "uniform", "zipf", "all equal")
# The largest outputs: those of the main grid, and those of what is varied beside it.
MOST_BYTES, SIDE_BYTES = 512 << 20, 64 << 20

# Tables by where they fit.
IN_L2, IN_LLC, BEYOND_LLC = "in L2", "in LLC", "4x LLC"
# Dimensions before the rows of the table: (of the batch, between the batch and the axis).
LAYOUTS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "axis 0": ((), ()),
    "middle axis": ((), (8,)),
    "last axis": ((), (8, 4)),
    "batch_dims 1": ((16,), ()),
    "batch_dims 2": ((4, 4), ()),
}
DTYPES = {
    "float32": np.dtype(np.float32),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "int8": np.dtype(np.int8),
}


@dataclasses.dataclass(frozen=True)
class Cell:
    """One point of the grid. A family reads the fields that it varies."""

    family: str
    row_bytes: int
    indices: int
    order: str = "uniform"
    table: str = BEYOND_LLC
    layout: str = "axis 0"
    index_type: str = "int32"
    dtype: str = ""  # "": float32, or int8 where a row is no whole number of floats
    inputs: int = 1
    variant: str = ""

    @property
    def element(self) -> np.dtype:
        name = self.dtype or ("float32" if self.row_bytes % 4 == 0 else "int8")
        return DTYPES[name]

    @property
    def label(self) -> str:
        """The cell in words: what differs from the defaults, after row size and count."""
        words = [size(self.row_bytes), f"x {count(self.indices)}"]
        for field in dataclasses.fields(self)[3:]:
            value = getattr(self, field.name)
            if field.name == "order" or value != field.default:
                words.append(f"{value} inputs" if field.name == "inputs" else str(value))
        return " ".join(words)


def cross(family: str, most_bytes: int = MOST_BYTES, **axes: Iterable[Any]) -> list[Cell]:
    """Every combination of the values; counts whose output passes the most bytes are lowered."""
    cells = []
    for values in itertools.product(*axes.values()):
        cell = Cell(family, **dict(zip(axes, values, strict=True)))
        rows_per_index = math.prod(LAYOUTS[cell.layout][1])
        most = most_bytes // (cell.row_bytes * rows_per_index)
        cells.append(dataclasses.replace(cell, indices=min(cell.indices, most)))
    return cells


def size(number_of_bytes: float) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if number_of_bytes >= unit:
            return f"{number_of_bytes / unit:.3g} {name}"
    return f"{number_of_bytes:.0f} B"


def count(number: int) -> str:
    power = round(math.log10(number)) if number else 0
    return f"10^{power}" if power > 2 and number == 10**power else str(number)


@dataclasses.dataclass(frozen=True)
class Geometry:
    """The shapes of a gather cell: params [*batch, *outer, rows, *row], and so on."""

    batch: tuple[int, ...]
    outer: tuple[int, ...]
    rows: int
    row: tuple[int, ...]
    per_batch: int

    @property
    def params_shape(self) -> tuple[int, ...]:
        return (*self.batch, *self.outer, self.rows, *self.row)

    @property
    def indices_shape(self) -> tuple[int, ...]:
        return (*self.batch, self.per_batch)

    @property
    def output_shape(self) -> tuple[int, ...]:
        return (*self.batch, *self.outer, self.per_batch, *self.row)

    @property
    def axis(self) -> int:
        return len(self.batch) + len(self.outer)

    @property
    def batch_dims(self) -> int:
        return len(self.batch)

    def flat(self, array: np.ndarray) -> np.ndarray:
        """params or output as [batches, outer, rows or indices, elements of a row]."""
        shape = math.prod(self.batch), math.prod(self.outer), array.shape[self.axis]
        return array.reshape(*shape, math.prod(self.row))


def geometry(cell: Cell) -> Geometry:
    batch, outer = LAYOUTS[cell.layout]
    elements = cell.row_bytes // cell.element.itemsize
    row = () if cell.layout == "last axis" else (elements,)
    if cell.layout == "last axis" and elements != 1:
        raise ValueError("along the last axis a row is one element")
    rows = table_bytes(cell.table) // (cell.row_bytes * math.prod(batch) * math.prod(outer))
    return Geometry(batch, outer, max(2, rows), row, max(1, cell.indices // math.prod(batch)))


def table_bytes(table: str) -> int:
    caches = machine.cache_bytes()
    return {
        IN_L2: caches["L2"] // 2,
        IN_LLC: caches["LLC"] // 2,
        BEYOND_LLC: caches["LLC"] * 4,
    }[table]


def make_indices(
    order: str, rows: int, shape: Sequence[int], dtype: str, seed: int = 1
) -> np.ndarray:
    """Indices into [0, rows)."""
    random = np.random.default_rng(seed)
    number = math.prod(shape)
    if order == "sequential":
        flat = np.arange(number) % rows
    elif order == "uniform":
        flat = random.integers(rows, size=number)
    elif order == "zipf":
        # P(rank) ~ 1 / rank; the ranks are then scattered over the table.
        rank = (np.exp(random.random(number) * math.log(rows)) - 1).astype(np.int64)
        flat = rank * 2_654_435_761 % rows
    elif order == "all equal":
        flat = np.full(number, rows // 2)
    else:
        raise ValueError(f"unknown order {order!r}")
    return flat.astype(dtype).reshape(shape)


@functools.cache
def _whole_numbers(limit: int) -> np.ndarray:
    return np.random.default_rng(2).integers(-limit, limit, size=1_000_003)


def values(shape: Sequence[int], dtype: np.dtype, limit: int = 8) -> np.ndarray:
    """Whole numbers in [-limit, limit): sums of a million of the default ones are exact."""
    numbers = _whole_numbers(min(limit, 128) if dtype.itemsize == 1 else limit)
    return np.resize(numbers.astype(dtype), tuple(shape))


def flat_rows(indices: np.ndarray, rows: int) -> np.ndarray:
    """[batch..., n] indices as one list of row numbers in a table of all batches' rows."""
    by_batch = indices.reshape(-1, indices.shape[-1]).astype(np.int64)
    return (by_batch + rows * np.arange(len(by_batch))[:, None]).reshape(-1)


@dataclasses.dataclass(frozen=True)
class Load:
    """How the indices fall on the rows."""

    distinct_rows: int
    hottest_share: float  # of the indices, on the row that most of them name


def load(row_numbers: np.ndarray) -> Load:
    hits = np.bincount(row_numbers)
    return Load(int(np.count_nonzero(hits)), float(hits.max() / len(row_numbers)))
