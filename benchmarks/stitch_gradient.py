# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""The gradient of a stitch, as each registers it, inside a tf.function.

Stock's gives a row's gradient to every index that named it, ours to the one that wrote it last.
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
from .stitch_forward import DUPLICATES, HOLES, IN_ORDER, PERMUTATION, make_inputs

FAMILY = "stitch_gradient"


def cells(full: bool) -> list[Cell]:
    def cross(**axes):
        return grid.cross(FAMILY, grid.SIDE_BYTES, **axes)

    if not full:
        return cross(
            row_bytes=(64,), indices=(10**5,), order=(PERMUTATION, DUPLICATES), inputs=(8,)
        )
    return [
        *cross(
            row_bytes=(4, 16, 64, 256, 4 << 10),
            indices=(10**4, 10**6),
            order=(PERMUTATION, DUPLICATES),
            inputs=(1, 8, 64),
        ),
        *cross(row_bytes=(4, 64), indices=(10**6,), order=(HOLES, IN_ORDER), inputs=(8,)),
    ]


def prepare(cell: Cell) -> Job:
    inputs = [share(ids) for ids in make_inputs(cell)]
    ids = np.concatenate([part.np for part in inputs])
    row = (cell.row_bytes // cell.element.itemsize,)
    upstream = share(grid.values((int(ids.max()) + 1, *row), cell.element))
    everyone = [upstream.np[part.np] for part in inputs]
    winners = np.full(len(upstream.np), -1)
    winners[ids] = np.arange(len(ids))
    has_won = np.split(winners[ids] == np.arange(len(ids)), cell.inputs)
    expected = [
        np.where(won[:, None], rows, rows.dtype.type(0))
        for won, rows in zip(has_won, everyone, strict=True)
    ]
    moved = ids.nbytes + np.count_nonzero(winners >= 0) * cell.row_bytes
    job = Job(expected, moved + sum(rows.nbytes for rows in expected))

    def gives_to_everyone(result):
        return equal(list(result), everyone)

    indices = [part.tf for part in inputs]
    axis = tf.constant(0)
    job.add(
        OURS,
        lambda: gather_stitch.raw_ops.ParallelDynamicStitchGrad(grad=upstream.tf, indices=indices),
    )
    job.add(
        STOCK,
        lambda: [
            tf.raw_ops.GatherV2(params=upstream.tf, indices=part, axis=axis) for part in indices
        ],
        gives_to_everyone,
    )
    outs = [np.empty_like(rows) for rows in expected]

    def take():
        for part, out in zip(inputs, outs, strict=True):
            np.take(upstream.np, part.np, axis=0, out=out, mode="clip")
        return outs

    job.add("numpy", take, gives_to_everyone)
    if torch is not None:
        job.add(
            "pytorch",
            lambda: [torch.index_select(upstream.torch, 0, part.torch) for part in inputs],
            gives_to_everyone,
        )
    if jax is not None:

        @jax.jit
        def take_all(upstream, indices):
            return [jax.numpy.take(upstream, part, axis=0, mode="clip") for part in indices]

        jax_indices = [part.jax for part in inputs]
        job.add(
            "jax",
            lambda: jax.block_until_ready(take_all(upstream.jax, jax_indices)),
            gives_to_everyone,
        )
    return job
