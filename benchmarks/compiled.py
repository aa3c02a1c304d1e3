# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Functions that XLA compiles: a gather, its dense gradient, a stitch at indices that change.

Compiling is part of the time where a peer compiles anew for other indices, and of no other.
"""

from __future__ import annotations

import functools
import itertools

import gather_stitch
import numpy as np
import tensorflow as tf

from .harness import cells as grid
from .harness.cells import Cell
from .harness.frameworks import share
from .harness.jobs import Job
from .harness.names import OURS, STOCK
from .harness.reference import gathered, summed

FAMILY = "compiled"
GATHER, GRADIENT, STITCH = "gather", "gradient", "stitch"


def cells(full: bool) -> list[Cell]:
    def cross(**axes):
        return grid.cross(FAMILY, table=(grid.IN_LLC,), **axes)

    if not full:
        return [
            *cross(row_bytes=(64,), indices=(10**4,), variant=(GATHER, GRADIENT)),
            *cross(row_bytes=(64,), indices=(100,), variant=(STITCH,)),
        ]
    row_bytes, counts = (4, 64, 1 << 10), (100, 10**4, 10**5)
    return [
        *cross(
            row_bytes=row_bytes,
            indices=counts,
            layout=("axis 0", "middle axis", "batch_dims 1"),
            variant=(GATHER, GRADIENT),
        ),
        # No more: stock's program has instructions for each index.
        *cross(row_bytes=(64,), indices=(10, 100), variant=(STITCH,)),
    ]


def prepare(cell: Cell) -> Job:
    return _prepare_stitch(cell) if cell.variant == STITCH else _prepare_gather(cell)


def _prepare_gather(cell: Cell) -> Job:
    shape = grid.geometry(cell)
    params = share(grid.values(shape.params_shape, cell.element))
    upstream = share(grid.values(shape.output_shape, cell.element))
    indices = share(grid.make_indices(cell.order, shape.rows, shape.indices_shape, cell.index_type))
    load = grid.load(grid.flat_rows(indices.np, shape.rows))
    if cell.variant == GATHER:
        expected = gathered(shape, params.np, indices.np)
        read = load.distinct_rows * shape.flat(params.np).shape[1] * cell.row_bytes
    else:
        expected = summed(shape, upstream.np, indices.np)
        read = upstream.np.nbytes
    job = Job(expected, indices.np.nbytes + read + expected.nbytes, load.hottest_share)

    def add(name, gather):
        gather = functools.partial(gather, axis=shape.axis, batch_dims=shape.batch_dims)

        @tf.function(jit_compile=True)
        def gradient(params, indices, upstream):
            with tf.GradientTape() as tape:
                tape.watch(params)
                output = gather(params, indices)
            return tf.convert_to_tensor(tape.gradient(output, params, output_gradients=upstream))

        if cell.variant == GATHER:
            # A function of two arguments: the others, too, cost at each call.
            function = tf.function(
                lambda params, indices: gather(params, indices), jit_compile=True
            )
            job.add(name, lambda: function(params.tf, indices.tf))
        else:
            job.add(name, lambda: gradient(params.tf, indices.tf, upstream.tf))

    # What stock's do when compiled: its gather clips, its gradient leaves bad indices out.
    options = {
        GATHER: {"bad_indices_policy": "CLIP"},
        GRADIENT: {"bad_indices_policy": "IGNORE", "gradient": "dense"},
    }[cell.variant]
    add(OURS, functools.partial(gather_stitch.gather, **options))
    add(STOCK, tf.gather)
    return job


def _prepare_stitch(cell: Cell) -> Job:
    number = cell.indices
    expected = grid.values((number, cell.row_bytes // cell.element.itemsize), cell.element, 1 << 20)
    order = np.random.default_rng(5).permutation(number).astype(cell.index_type)
    job = Job(expected, order.nbytes + 2 * expected.nbytes)
    rows = share(expected[order])
    twice = share(np.concatenate([rows.np, rows.np]))
    orders = np.concatenate([order, order])

    def add(name, stitch):
        function = tf.function(stitch, jit_compile=True)
        firsts = itertools.cycle(range(number))

        def call():
            # Another order each time, and its rows, so that the result is the same.
            first = next(firsts)
            part = slice(first, first + number)
            return function([tf.constant(orders[part])], [twice.tf[part]])

        job.add(name, call)

    add(OURS, functools.partial(gather_stitch.dynamic_stitch, size=number))
    add(STOCK, tf.dynamic_stitch)
    return job
