# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a gather and its gradient are, in NumPy, for every layout."""

from __future__ import annotations

import numpy as np

from .cells import Geometry


def gathered(shape: Geometry, params: np.ndarray, indices: np.ndarray) -> np.ndarray:
    output = np.empty(shape.output_shape, params.dtype)
    flat_indices = indices.reshape(-1, shape.per_batch)
    for table, ids, rows in zip(shape.flat(params), flat_indices, shape.flat(output), strict=True):
        rows[...] = table[:, ids]
    return output


def summed(
    shape: Geometry, upstream: np.ndarray, indices: np.ndarray, out: np.ndarray | None = None
) -> np.ndarray:
    """The dense gradient; `out` has to be zero. Sorts, since add.at is slow for wide rows."""
    if out is None:
        out = np.zeros(shape.params_shape, upstream.dtype)
    flat_indices = indices.reshape(-1, shape.per_batch)
    for rows, ids, sums in zip(shape.flat(upstream), flat_indices, shape.flat(out), strict=True):
        order = np.argsort(ids, kind="stable")
        ordered = ids[order]
        starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
        for outer in range(len(rows)):
            sums[outer, ordered[starts]] = np.add.reduceat(
                rows[outer, order], starts, axis=0, dtype=rows.dtype
            )
    return out
