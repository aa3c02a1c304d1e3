# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Gather, forward: raw op against raw op, and what the other frameworks call it."""

from __future__ import annotations

import gather_stitch
import numpy as np
import tensorflow as tf

from .harness import cells as grid
from .harness.cells import Cell
from .harness.frameworks import jax, share, torch
from .harness.jobs import Job
from .harness.names import OURS, STOCK
from .harness.reference import gathered

FAMILY = "gather_forward"
SOME_ROWS = (4, 16, 64, 256, 4 << 10)
LARGE_COUNTS = (10**4, 10**6)


def cells(full: bool) -> list[Cell]:
    def cross(**axes):
        return grid.cross(FAMILY, **axes)

    def beside(**axes):
        return grid.cross(FAMILY, grid.SIDE_BYTES, **axes)

    if not full:
        return [
            *cross(row_bytes=(4, 16, 64, 256, 4 << 10), indices=(10**4,)),
            *cross(row_bytes=(4, 16), indices=(10**6,)),
            *cross(row_bytes=(16,), indices=(1, 100)),
            *cross(row_bytes=(64,), indices=(10**5,), order=("sequential", "zipf", "all equal")),
            *cross(row_bytes=(4,), indices=(10**5,), layout=("last axis", "batch_dims 1")),
        ]
    return [
        *cross(row_bytes=grid.ROW_BYTES, indices=(1, 100, *LARGE_COUNTS)),
        *beside(row_bytes=grid.ROW_BYTES, indices=(100, *LARGE_COUNTS), order=grid.ORDERS),
        *beside(row_bytes=grid.ROW_BYTES, indices=LARGE_COUNTS, table=(grid.IN_L2, grid.IN_LLC)),
        *beside(row_bytes=grid.ROW_BYTES, indices=(10**6,), index_type=("int64",)),
        *beside(
            row_bytes=SOME_ROWS,
            indices=LARGE_COUNTS,
            layout=("middle axis", "batch_dims 1", "batch_dims 2"),
        ),
        *beside(
            row_bytes=(1, 4),
            indices=LARGE_COUNTS,
            order=("sequential", "uniform"),
            layout=("last axis",),
        ),
        *beside(row_bytes=(64, 256), indices=(10**6,), dtype=("bfloat16", "int8")),
    ]


def prepare(cell: Cell) -> Job:
    shape = grid.geometry(cell)
    params = share(grid.values(shape.params_shape, cell.element, limit=1 << 20))
    indices = share(grid.make_indices(cell.order, shape.rows, shape.indices_shape, cell.index_type))
    expected = gathered(shape, params.np, indices.np)

    load = grid.load(grid.flat_rows(indices.np, shape.rows))
    outer = shape.flat(params.np).shape[1]
    job = Job(
        expected,
        indices.np.nbytes + load.distinct_rows * outer * cell.row_bytes + expected.nbytes,
        load.hottest_share,
    )
    axis, batch_dims = tf.constant(shape.axis), shape.batch_dims
    job.add(
        OURS,
        lambda: gather_stitch.raw_ops.GatherV2(
            params=params.tf, indices=indices.tf, axis=axis, batch_dims=batch_dims
        ),
    )
    job.add(
        STOCK,
        lambda: tf.raw_ops.GatherV2(
            params=params.tf, indices=indices.tf, axis=axis, batch_dims=batch_dims
        ),
    )

    out = np.empty_like(expected)
    if batch_dims == 0:
        # mode="clip" is NumPy's fast one: "raise" gathers into a buffer and copies.
        job.add(
            "numpy",
            lambda: np.take(params.np, indices.np, axis=shape.axis, out=out, mode="clip"),
        )
    else:
        table, firsts = _flat_table(params.np, shape)
        flat_out = out.reshape(-1, *shape.row)

        def take_flat():
            np.take(table, (indices.np + firsts).reshape(-1), axis=0, out=flat_out, mode="clip")
            return out

        job.add("numpy", take_flat)

    if torch is not None:
        if batch_dims == 0:
            job.add("pytorch", lambda: torch.index_select(params.torch, shape.axis, indices.torch))
        else:
            torch_table = params.torch.reshape(-1, *shape.row)
            torch_firsts = torch.from_numpy(_flat_table(params.np, shape)[1])

            def select_flat():
                ids = (indices.torch + torch_firsts).reshape(-1)
                return torch.index_select(torch_table, 0, ids).reshape(shape.output_shape)

            job.add("pytorch", select_flat)

    if jax is not None:

        def take(params, indices):
            # "clip" is what XLA's gather does anyway: the other modes cost more.
            return jax.numpy.take(params, indices, axis=shape.axis - batch_dims, mode="clip")

        for _ in range(batch_dims):
            take = jax.vmap(take)
        take = jax.jit(take)
        job.add("jax", lambda: take(params.jax, indices.jax).block_until_ready())
    return job


def _flat_table(params: np.ndarray, shape: grid.Geometry) -> tuple[np.ndarray, np.ndarray]:
    """The tables of all batches as one, and the first row of each batch."""
    batches = np.arange(np.prod(shape.batch), dtype=np.int32)
    return params.reshape(-1, *shape.row), (batches * shape.rows).reshape(*shape.batch, 1)
