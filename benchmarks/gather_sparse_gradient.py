# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""The gradient of an axis-0 gather as slices with unique rows.

Ours is one op. Stock's gradient leaves a slice for each index; its optimizers then make the rows
unique by two ops, Unique and UnsortedSegmentSum, which is what is timed here.
"""

from __future__ import annotations

import gather_stitch
import numpy as np
import tensorflow as tf

from .harness import cells as grid
from .harness.cells import Cell
from .harness.frameworks import jax, share, torch
from .harness.jobs import Job, equal
from .harness.names import OURS, STOCK
from .harness.reference import summed

FAMILY = "gather_sparse_gradient"


def cells(full: bool) -> list[Cell]:
    def cross(**axes):
        return grid.cross(FAMILY, grid.SIDE_BYTES, **axes)

    if not full:
        return [
            *cross(row_bytes=(4,), indices=(10**4,)),
            *cross(row_bytes=(16,), indices=(10**5,), order=("uniform", "zipf")),
        ]
    return [
        *cross(
            row_bytes=(4, 16, 64, 256, 1 << 10, 4 << 10),
            indices=(100, 10**4, 10**6),
            order=("uniform", "zipf", "all equal"),
        ),
        *cross(row_bytes=(16, 64, 256), indices=(10**4, 10**6), table=(grid.IN_L2, grid.IN_LLC)),
        *cross(row_bytes=(4, 64), indices=(10**6,), index_type=("int64",)),
    ]


def prepare(cell: Cell) -> Job:
    shape = grid.geometry(cell)
    upstream = share(grid.values(shape.output_shape, cell.element))
    indices = share(grid.make_indices(cell.order, shape.rows, shape.indices_shape, cell.index_type))
    sums = summed(shape, upstream.np, indices.np)
    rows = np.unique(indices.np)
    expected = [sums[rows], rows.astype(np.int64)]
    job = Job(
        expected,
        upstream.np.nbytes + indices.np.nbytes + expected[0].nbytes + expected[1].nbytes,
        grid.load(indices.np).hottest_share,
    )

    def is_right(result):
        """Whether the slices are the expected ones, in any order and index type."""
        values, found = result[0], result[1].reshape(-1)
        order = np.argsort(found, kind="stable")
        return equal([values[order], found[order].astype(np.int64)], expected)

    params_rows = tf.constant(shape.rows, tf.int64)

    def ours():
        return gather_stitch.raw_ops.GatherV2SparseGrad(
            grad=upstream.tf, indices=indices.tf, params_rows=params_rows
        )[:2]

    def stock():
        rows, slots = tf.raw_ops.Unique(x=indices.tf)
        values = tf.raw_ops.UnsortedSegmentSum(
            data=upstream.tf, segment_ids=slots, num_segments=rows.shape[0]
        )
        return values, rows

    job.add(OURS, ours, is_right)
    job.add(STOCK, stock, is_right)

    def numpy_slices():
        order = np.argsort(indices.np, kind="stable")
        ordered = indices.np[order]
        starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
        return np.add.reduceat(upstream.np[order], starts, axis=0), ordered[starts]

    job.add("numpy", numpy_slices, is_right)
    if torch is not None:

        def coalesce():
            slices = torch.sparse_coo_tensor(
                indices.torch[None], upstream.torch, shape.params_shape, check_invariants=False
            ).coalesce()
            return slices.values(), slices.indices()

        job.add("pytorch", coalesce, is_right)
    if jax is not None:

        @jax.jit
        def jax_slices(upstream, indices):
            rows, slots = jax.numpy.unique(
                indices, return_inverse=True, size=shape.per_batch, fill_value=shape.rows
            )
            return jax.ops.segment_sum(upstream, slots, shape.per_batch), rows

        def without_padding(result):
            return is_right([part[: len(rows)] for part in result])

        job.add(
            "jax",
            lambda: jax.block_until_ready(jax_slices(upstream.jax, indices.jax)),
            without_padding,
        )
    return job
