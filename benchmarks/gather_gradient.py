# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""The dense gradient of a gather.

Along axis 0, raw op against raw op: stock's gradient ends in UnsortedSegmentSum. Elsewhere stock
has no one op, so both run the gradient that they register, inside a tf.function.
"""

from __future__ import annotations

import gather_stitch
import numpy as np
import tensorflow as tf

from .harness import cells as grid
from .harness.cells import Cell
from .harness.frameworks import jax, share, torch
from .harness.jobs import Job
from .harness.names import OURS, STOCK
from .harness.reference import summed

FAMILY = "gather_gradient"
LARGE_COUNTS = (10**4, 10**6)


def cells(full: bool) -> list[Cell]:
    def cross(**axes):
        return grid.cross(FAMILY, **axes)

    def beside(**axes):
        return grid.cross(FAMILY, grid.SIDE_BYTES, **axes)

    if not full:
        return [
            *cross(row_bytes=(4, 64, 1 << 10), indices=(10**4,), table=(grid.IN_LLC,)),
            *cross(row_bytes=(4,), indices=(10**5,)),
            *cross(row_bytes=(64,), indices=(10**5,), order=("uniform", "zipf", "all equal")),
            *cross(row_bytes=(4,), indices=(10**4,), table=(grid.IN_LLC,), layout=("last axis",)),
            *cross(
                row_bytes=(64,),
                indices=(10**4,),
                table=(grid.IN_LLC,),
                layout=("middle axis", "batch_dims 1", "batch_dims 2"),
            ),
        ]
    return [
        *cross(row_bytes=grid.ROW_BYTES, indices=LARGE_COUNTS),
        *beside(row_bytes=grid.ROW_BYTES, indices=LARGE_COUNTS, order=grid.ORDERS),
        *beside(row_bytes=grid.ROW_BYTES, indices=LARGE_COUNTS, table=(grid.IN_L2, grid.IN_LLC)),
        *beside(row_bytes=(4, 64, 1 << 10), indices=(1, 100), table=(grid.IN_L2,)),
        *beside(row_bytes=grid.ROW_BYTES, indices=(10**6,), index_type=("int64",)),
        *beside(
            row_bytes=(4, 16, 64, 256, 4 << 10),
            indices=(10**4, 10**5),
            table=(grid.IN_LLC, grid.BEYOND_LLC),
            layout=("middle axis", "batch_dims 1", "batch_dims 2"),
        ),
        *beside(
            row_bytes=(4,),
            indices=(10**4, 10**5),
            order=("uniform", "zipf"),
            table=(grid.IN_LLC,),
            layout=("last axis",),
        ),
        *beside(row_bytes=(64, 256), indices=(10**6,), dtype=("bfloat16", "int8")),
    ]


def prepare(cell: Cell) -> Job:
    shape = grid.geometry(cell)
    upstream = share(grid.values(shape.output_shape, cell.element))
    indices = share(grid.make_indices(cell.order, shape.rows, shape.indices_shape, cell.index_type))
    expected = summed(shape, upstream.np, indices.np)

    job = Job(
        expected,
        upstream.np.nbytes + indices.np.nbytes + expected.nbytes,
        grid.load(grid.flat_rows(indices.np, shape.rows)).hottest_share,
        output_bytes=expected.nbytes,
    )
    if shape.axis == 0:
        _add_raw_ops(job, shape, upstream, indices)
    else:
        params = tf.zeros(shape.params_shape, upstream.tf.dtype)
        for name, gather in ((OURS, gather_stitch.gather), (STOCK, tf.gather)):
            _add_function(job, name, gather, shape, params, indices, upstream)

    out = np.empty_like(expected)

    def numpy_sums():
        out.fill(0)
        if shape.axis == 0 and upstream.np.shape[1] == 1:  # The case that add.at is fast in.
            np.add.at(out[:, 0], indices.np, upstream.np[:, 0])
        else:
            summed(shape, upstream.np, indices.np, out)
        return out

    job.add("numpy", numpy_sums)
    if torch is not None:
        _add_torch(job, shape, upstream, indices)
    if jax is not None:

        def gradient(upstream, indices):
            zeros = jax.numpy.zeros(shape.params_shape[shape.batch_dims :], upstream.dtype)
            return zeros.at[(slice(None),) * len(shape.outer) + (indices,)].add(upstream)

        for _ in range(shape.batch_dims):
            gradient = jax.vmap(gradient)
        gradient = jax.jit(gradient)
        job.add("jax", lambda: gradient(upstream.jax, indices.jax).block_until_ready())
    return job


def _add_raw_ops(job: Job, shape, upstream, indices) -> None:
    axis, rows = tf.constant(0), tf.constant(shape.rows)
    params_shape = tf.constant(shape.params_shape, tf.int64)
    job.add(
        OURS,
        lambda: gather_stitch.raw_ops.GatherV2Grad(
            grad=upstream.tf, indices=indices.tf, params_shape=params_shape, axis=axis
        ),
    )
    job.add(
        STOCK,
        lambda: tf.raw_ops.UnsortedSegmentSum(
            data=upstream.tf, segment_ids=indices.tf, num_segments=rows
        ),
    )


def _add_function(job: Job, name: str, gather, shape, params, indices, upstream) -> None:
    @tf.function
    def gradient(params, indices, upstream):
        with tf.GradientTape() as tape:
            tape.watch(params)
            output = gather(params, indices, axis=shape.axis, batch_dims=shape.batch_dims)
        return tape.gradient(output, params, output_gradients=upstream)

    job.add(name, lambda: gradient(params, indices.tf, upstream.tf))


def _add_torch(job: Job, shape, upstream, indices) -> None:
    dtype = upstream.torch.dtype
    if shape.batch_dims == 0:
        job.add(
            "pytorch index_add_",
            lambda: torch.zeros(shape.params_shape, dtype=dtype).index_add_(
                shape.axis, indices.torch, upstream.torch
            ),
        )
    else:
        batches = np.arange(np.prod(shape.batch), dtype=indices.np.dtype) * shape.rows
        firsts = torch.from_numpy(batches.reshape(*shape.batch, 1))
        flat_shape = (len(batches) * shape.rows, *shape.row)

        def add_flat():
            ids = (indices.torch + firsts).reshape(-1)
            rows = upstream.torch.reshape(-1, *shape.row)
            flat = torch.zeros(flat_shape, dtype=dtype).index_add_(0, ids, rows)
            return flat.reshape(shape.params_shape)

        job.add("pytorch index_add_", add_flat)
    if shape.axis == 0 and dtype.is_floating_point:
        job.add(
            "pytorch embedding",
            lambda: torch.ops.aten.embedding_dense_backward(
                upstream.torch, indices.torch, shape.rows, -1, False
            ),
        )
