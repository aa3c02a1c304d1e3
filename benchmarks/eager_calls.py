# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Eager calls of tiny tensors: what a call costs besides its work."""

from __future__ import annotations

import gather_stitch
import numpy as np
import tensorflow as tf

from .harness import cells as grid
from .harness.cells import Cell
from .harness.frameworks import jax, share, torch
from .harness.jobs import Job
from .harness.names import OURS, STOCK
from .harness.reference import gathered, summed

FAMILY = "eager_calls"
CALL, RAW_OP, STITCH, GRADIENT = "call", "raw op", "stitch call", "call and gradient"
# The tables of these cells are of this many rows.
ROWS = 16


def cells(full: bool) -> list[Cell]:
    row_bytes, counts = ((4, 64), (1, 16)) if full else ((16,), (16,))
    layouts = ("axis 0", "middle axis", "batch_dims 1") if full else ("axis 0", "batch_dims 1")
    return [
        *grid.cross(
            FAMILY, row_bytes=row_bytes, indices=counts, layout=layouts, variant=(CALL, GRADIENT)
        ),
        *grid.cross(FAMILY, row_bytes=row_bytes, indices=counts, variant=(RAW_OP, STITCH)),
    ]


def prepare(cell: Cell) -> Job:
    return _prepare_stitch(cell) if cell.variant == STITCH else _prepare_gather(cell)


def _prepare_gather(cell: Cell) -> Job:
    batch, outer = grid.LAYOUTS[cell.layout]
    row = (cell.row_bytes // cell.element.itemsize,)
    shape = grid.Geometry(batch, outer, ROWS, row, cell.indices)
    params = share(grid.values(shape.params_shape, cell.element))
    indices = share(grid.make_indices(cell.order, ROWS, shape.indices_shape, cell.index_type))
    upstream = share(grid.values(shape.output_shape, cell.element))
    forward = gathered(shape, params.np, indices.np)
    moved = forward.nbytes + indices.np.nbytes
    attributes = {"axis": shape.axis, "batch_dims": shape.batch_dims}

    if cell.variant == GRADIENT:
        backward = summed(shape, upstream.np, indices.np)
        job = Job([forward, backward], 2 * moved)

        def add(name, gather):
            def call():
                with tf.GradientTape() as tape:
                    tape.watch(params.tf)
                    output = gather(params.tf, indices.tf, **attributes)
                gradient = tape.gradient(output, params.tf, output_gradients=upstream.tf)
                return output, tf.convert_to_tensor(gradient)

            job.add(name, call)

        add(OURS, gather_stitch.gather)
        add(STOCK, tf.gather)
        return job

    job = Job(forward, moved)
    if cell.variant == RAW_OP:
        raw = {"params": params.tf, "indices": indices.tf, "axis": tf.constant(shape.axis)}
        job.add(OURS, lambda: gather_stitch.raw_ops.GatherV2(**raw))
        job.add(STOCK, lambda: tf.raw_ops.GatherV2(**raw))
    else:
        job.add(OURS, lambda: gather_stitch.gather(params.tf, indices.tf, **attributes))
        job.add(STOCK, lambda: tf.gather(params.tf, indices.tf, **attributes))
    if shape.batch_dims == 0:
        axis, out = shape.axis, np.empty_like(forward)
        job.add("numpy", lambda: np.take(params.np, indices.np, axis=axis, out=out, mode="clip"))
        if torch is not None:
            job.add("pytorch", lambda: torch.index_select(params.torch, axis, indices.torch))
        if jax is not None:
            take = jax.jit(lambda p, i: jax.numpy.take(p, i, axis=axis, mode="clip"))
            job.add("jax", lambda: take(params.jax, indices.jax).block_until_ready())
    return job


def _prepare_stitch(cell: Cell) -> Job:
    row = (cell.row_bytes // cell.element.itemsize,)
    ids = np.random.default_rng(4).permutation(2 * cell.indices).astype(cell.index_type)
    halves = [share(half) for half in np.split(ids, 2)]
    data = [share(grid.values((cell.indices, *row), cell.element, 1 << 20)) for _ in halves]
    merged = np.empty((2 * cell.indices, *row), cell.element)
    for half, rows in zip(halves, data, strict=True):
        merged[half.np] = rows.np
    job = Job(merged, ids.nbytes + 2 * merged.nbytes)
    tf_halves, tf_data = [half.tf for half in halves], [rows.tf for rows in data]
    job.add(OURS, lambda: gather_stitch.dynamic_stitch(tf_halves, tf_data))
    job.add(STOCK, lambda: tf.dynamic_stitch(tf_halves, tf_data))
    return job
