# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Forward and gradient in one tf.function, as a training step has them.

The output is returned beside the gradient, so that the forward op is not pruned. "dense" asks for
a dense gradient, "slices" takes what the default gives along axis 0.
"""

from __future__ import annotations

import functools

import gather_stitch
import numpy as np
import tensorflow as tf

from .harness import cells as grid
from .harness.cells import Cell
from .harness.frameworks import jax, share, torch
from .harness.jobs import Job
from .harness.names import OURS, STOCK
from .harness.reference import gathered, summed

FAMILY = "function_steps"
DENSE, SLICES = "dense", "slices"


def cells(full: bool) -> list[Cell]:
    def cross(**axes):
        return grid.cross(FAMILY, table=(grid.IN_LLC,), **axes)

    if not full:
        return [
            *cross(row_bytes=(64,), indices=(10**5,), variant=(DENSE, SLICES)),
            *cross(row_bytes=(64,), indices=(10**4,), layout=("batch_dims 1",), variant=(DENSE,)),
        ]
    row_bytes, counts = (4, 64, 256, 4 << 10), (100, 10**4, 10**5)
    return [
        *cross(row_bytes=row_bytes, indices=counts, order=("uniform", "zipf"), variant=(DENSE,)),
        *cross(row_bytes=row_bytes, indices=counts, variant=(SLICES,)),
        *cross(
            row_bytes=row_bytes,
            indices=counts,
            layout=("middle axis", "batch_dims 1"),
            variant=(DENSE,),
        ),
    ]


def prepare(cell: Cell) -> Job:
    shape = grid.geometry(cell)
    params = share(grid.values(shape.params_shape, cell.element))
    upstream = share(grid.values(shape.output_shape, cell.element))
    indices = share(grid.make_indices(cell.order, shape.rows, shape.indices_shape, cell.index_type))
    forward = gathered(shape, params.np, indices.np)
    load = grid.load(grid.flat_rows(indices.np, shape.rows))
    rows_read = load.distinct_rows * shape.flat(params.np).shape[1] * cell.row_bytes
    moved = indices.np.nbytes + rows_read + forward.nbytes + upstream.np.nbytes

    if cell.variant == SLICES:
        slices = [upstream.np.reshape(-1, *shape.row), indices.np.reshape(-1).astype(np.int64)]
        job = Job([forward, *slices], moved + slices[0].nbytes)
    else:
        backward = summed(shape, upstream.np, indices.np)
        job = Job([forward, backward], moved + backward.nbytes, load.hottest_share)

    def add(name, gather):
        @tf.function
        def step(params, indices, upstream):
            with tf.GradientTape() as tape:
                tape.watch(params)
                output = gather(params, indices, axis=shape.axis, batch_dims=shape.batch_dims)
            gradient = tape.gradient(output, params, output_gradients=upstream)
            if cell.variant == SLICES:
                return output, gradient.values, tf.cast(gradient.indices, tf.int64)
            return output, tf.convert_to_tensor(gradient)

        job.add(name, lambda: step(params.tf, indices.tf, upstream.tf))

    gradient = "dense" if cell.variant == DENSE else "auto"
    add(OURS, functools.partial(gather_stitch.gather, gradient=gradient))
    add(STOCK, tf.gather)
    if cell.variant == SLICES or shape.batch_dims:
        return job

    if torch is not None:
        leaf = params.torch.clone().requires_grad_()

        def torch_step():
            output = torch.index_select(leaf, shape.axis, indices.torch)
            (gradient,) = torch.autograd.grad(output, leaf, upstream.torch)
            return output.detach(), gradient

        job.add("pytorch", torch_step)
    if jax is not None:

        @jax.jit
        def jax_step(params, indices, upstream):
            output, pull_back = jax.vjp(
                lambda params: jax.numpy.take(params, indices, axis=shape.axis, mode="clip"), params
            )
            return output, pull_back(upstream)[0]

        job.add(
            "jax", lambda: jax.block_until_ready(jax_step(params.jax, indices.jax, upstream.jax))
        )
    return job
