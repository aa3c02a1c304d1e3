# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Stitch: raw op against the better of stock's two raw ops."""

from __future__ import annotations

import gather_stitch
import numpy as np
import tensorflow as tf

from .harness import cells as grid
from .harness.cells import Cell
from .harness.frameworks import Shared, jax, share, torch
from .harness.jobs import Job, equal_at
from .harness.names import OURS, STOCK

FAMILY = "stitch_forward"
PERMUTATION, IN_ORDER = "permutation", "in order"
DUPLICATES, HOLES = "duplicates", "holes"


def cells(full: bool) -> list[Cell]:
    def cross(**axes):
        return grid.cross(FAMILY, **axes)

    def beside(**axes):
        return grid.cross(FAMILY, grid.SIDE_BYTES, **axes)

    patterns = (PERMUTATION, DUPLICATES, HOLES)
    if not full:
        return [
            *cross(row_bytes=(4,), indices=(10**5,), order=patterns[:2], inputs=(8,)),
            *cross(row_bytes=(64,), indices=(10**5,), order=patterns, inputs=(8,)),
            *cross(row_bytes=(64,), indices=(10**4,), order=patterns[:1], inputs=(1, 64)),
        ]
    return [
        *cross(row_bytes=grid.ROW_BYTES, indices=(10**4, 10**6), order=(PERMUTATION,), inputs=(8,)),
        *beside(
            row_bytes=(4, 16, 64, 256, 4 << 10),
            indices=(10**4, 10**6),
            order=patterns,
            inputs=(1, 8, 64),
        ),
        *beside(row_bytes=(16,), indices=(100,), order=patterns, inputs=(1, 8)),
        *beside(
            row_bytes=(4, 64),
            indices=(10**6,),
            order=(PERMUTATION, IN_ORDER),
            inputs=(8,),
            dtype=("float32", "int8"),
        ),
        *beside(
            row_bytes=(4, 64),
            indices=(10**6,),
            order=(PERMUTATION,),
            inputs=(8,),
            index_type=("int64",),
        ),
    ]


def make_inputs(cell: Cell) -> list[np.ndarray]:
    """The indices of each input; together they are the pattern that the cell names."""
    random = np.random.default_rng(3)
    number = cell.indices // cell.inputs * cell.inputs
    if cell.order == IN_ORDER:
        indices = np.arange(number)
    elif cell.order == PERMUTATION:
        indices = random.permutation(number)
    elif cell.order == DUPLICATES:  # Two to a row on average, and every row has one.
        half = -(-number // 2)
        indices = np.r_[np.arange(half), random.integers(half, size=number - half)]
        random.shuffle(indices)
    elif cell.order == HOLES:  # Every other row.
        indices = 2 * random.permutation(number)
    else:
        raise ValueError(f"unknown order {cell.order!r}")
    return np.split(indices.astype(cell.index_type), cell.inputs)


def prepare(cell: Cell) -> Job:
    inputs = [share(ids) for ids in make_inputs(cell)]
    row = (cell.row_bytes // cell.element.itemsize,)
    data = [share(grid.values((len(ids.np), *row), cell.element, 1 << 20)) for ids in inputs]
    ids = np.concatenate([part.np for part in inputs])
    expected = np.zeros((int(ids.max()) + 1, *row), cell.element)
    write_in_order(inputs, data, expected)
    hits = np.bincount(ids)
    job = Job(
        expected,
        ids.nbytes + np.count_nonzero(hits) * cell.row_bytes + expected.nbytes,
        output_bytes=expected.nbytes,
    )
    tf_indices, tf_data = [part.tf for part in inputs], [part.tf for part in data]
    # Stock's ops leave rows open that no index names, the parallel one also those that several
    # do; so do the scatters of PyTorch and JAX.
    named, named_once = equal_at(expected, hits > 0), equal_at(expected, hits == 1)
    job.add(
        OURS,
        lambda: gather_stitch.raw_ops.ParallelDynamicStitch(indices=tf_indices, data=tf_data),
    )
    job.add(
        f"{STOCK} DynamicStitch",
        lambda: tf.raw_ops.DynamicStitch(indices=tf_indices, data=tf_data),
        named,
    )
    job.add(
        f"{STOCK} ParallelDynamicStitch",
        lambda: tf.raw_ops.ParallelDynamicStitch(indices=tf_indices, data=tf_data),
        named_once,
    )
    out = np.empty_like(expected)
    has_holes = bool((hits == 0).any())

    def assign():
        if has_holes:
            out.fill(0)
        write_in_order(inputs, data, out)
        return out

    job.add("numpy", assign)
    if torch is not None:
        ids_64 = [part.torch.long() for part in inputs]  # The only type that index_copy_ takes.

        def index_copy():
            make = torch.zeros if has_holes else torch.empty
            merged = make(expected.shape, dtype=data[0].torch.dtype)
            for part, rows in zip(ids_64, data, strict=True):
                merged.index_copy_(0, part, rows.torch)
            return merged

        job.add("pytorch", index_copy, named_once)
    if jax is not None:

        @jax.jit
        def scatter(indices, data):
            zeros = jax.numpy.zeros(expected.shape, data[0].dtype)
            return zeros.at[jax.numpy.concatenate(indices)].set(jax.numpy.concatenate(data))

        jax_inputs = [part.jax for part in inputs], [part.jax for part in data]
        job.add("jax", lambda: scatter(*jax_inputs).block_until_ready(), named_once)
    return job


def write_in_order(inputs: list[Shared], data: list[Shared], merged: np.ndarray) -> None:
    """The definition: a later row overwrites an earlier one."""
    for ids, rows in zip(inputs, data, strict=True):
        merged[ids.np] = rows.np
