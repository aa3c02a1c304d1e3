# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""What the tests of gradients and transformations share: oracles, inputs, comparisons.

The oracles are loops straight from the equations of the gradient ops, in NumPy. Sums are made one
addition after the other in index order, in float32 for types narrower than that, so results are
compared bit by bit. Those of the forward ops are in checks.py.
"""

from __future__ import annotations

import os
import zlib

import ml_dtypes
import numpy as np
import tensorflow as tf
from checks import assert_same, resolve, stitch_oracle

FLOAT8_DTYPES = (
    "float8_e5m2",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e4m3b11fnuz",
    "float8_e5m2fnuz",
)
INTEGER_DTYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")

# Summed in float32 and rounded once.
_NARROW = {
    np.dtype(t)
    for t in (np.float16, ml_dtypes.bfloat16, *(getattr(ml_dtypes, d) for d in FLOAT8_DTYPES))
}

# params shape, indices shape, axis, batch_dims: every kind of geometry that an op can meet.
GATHER_CASES = (
    ((7,), (5,), 0, 0),
    ((7,), (), 0, 0),
    ((5, 3), (6,), 0, 0),
    ((5, 3), (2, 3), -2, 0),
    ((5, 3), (4,), 1, 0),
    ((5, 3), (), -1, 0),
    ((4, 5, 3), (2, 4), 1, 0),
    ((3, 2, 2, 4), (2, 3), 2, 0),
    ((2, 5, 3), (2, 4), 1, 1),
    ((2, 5, 3), (2,), 1, 1),
    ((5, 3), (2, 3), -2, -2),
    ((2, 4, 5), (2, 6), 2, 1),
    ((2, 3, 5, 2), (2, 3, 4), 2, 2),
    ((2, 3, 5, 2), (2, 3, 4), -2, -1),
    ((2, 3, 4), (2, 3), -1, 2),
    ((2, 3, 2, 5), (2, 4, 2), -1, 1),
    ((0, 3), (0,), 0, 0),
    ((5, 0), (4,), 0, 0),
    ((5, 3), (0, 2), 0, 0),
    ((0, 5), (0, 4), 1, 1),
    ((2, 0, 3), (2, 0), 1, 1),
)


def case_id(case) -> str:
    return "_".join(str(part).replace(" ", "") for part in case)


def seeded(*key) -> np.random.Generator:
    """Random numbers of `key` and of the seed of this run (--seed)."""
    seed = int(os.environ["GATHER_STITCH_SEED"])
    return np.random.default_rng([seed, zlib.crc32(repr(key).encode())])


def normalized(shape, indices_shape, axis, batch_dims) -> tuple[int, int]:
    """axis and batch_dims counted from the front."""
    if axis < 0:
        axis += len(shape)
    if batch_dims < 0:
        batch_dims += len(indices_shape)
    return axis, batch_dims


def output_shape(params_shape, indices_shape, axis, batch_dims) -> tuple[int, ...]:
    axis, batch_dims = normalized(params_shape, indices_shape, axis, batch_dims)
    return (*params_shape[:axis], *indices_shape[batch_dims:], *params_shape[axis + 1 :])


def is_row_gather(params_shape, indices_shape, axis, batch_dims) -> bool:
    return normalized(params_shape, indices_shape, axis, batch_dims) == (0, 0)


def random_indices(rng, shape, rows, policy="DEFAULT", dtype="int32") -> np.ndarray:
    """Indices with many repetitions; also bad ones where the policy gives them a meaning."""
    low, high = (0, rows) if policy in ("DEFAULT", "ERROR") else (-2 * rows - 2, 3 * rows + 3)
    limits = np.iinfo(dtype)
    low, high = max(low, limits.min), min(high, limits.max)
    if rows == 0 and policy != "IGNORE":
        assert 0 in shape, "no index is good where there are no rows"
        return np.zeros(shape, dtype)
    return rng.integers(low, high, shape).astype(dtype)


def random_values(rng, shape, dtype) -> np.ndarray:
    """Values of any sign whose sums round, with zeros of both signs among floats."""
    dtype = tf.as_dtype(dtype)
    if dtype.is_integer or dtype == tf.bool:
        limits = (0, 2) if dtype == tf.bool else (dtype.min, dtype.max)
        # int64's largest value is no float: draw bits instead.
        bits = rng.integers(0, 256, (*shape, dtype.size), dtype=np.uint8)
        if dtype == tf.bool:
            return rng.integers(*limits, shape).astype(bool)
        return bits.view(dtype.as_numpy_dtype).reshape(shape)
    values = rng.standard_normal(shape)
    if dtype.is_complex:
        values = values + 1j * rng.standard_normal(shape)
    values = np.where(rng.random(shape) < 0.1, -0.0, values)
    return values.astype(dtype.as_numpy_dtype)


def _as_blocks(params_shape, indices_shape, axis, batch_dims):
    """(batches, outer, rows, inner, indices per batch)."""
    axis, batch_dims = normalized(params_shape, indices_shape, axis, batch_dims)
    product = lambda dims: int(np.prod(dims, dtype=np.int64))  # noqa: E731
    return (
        product(params_shape[:batch_dims]),
        product(params_shape[batch_dims:axis]),
        params_shape[axis],
        product(params_shape[axis + 1 :]),
        product(indices_shape[batch_dims:]),
    )


def gather_grad_oracle(
    grad, indices, params_shape, axis=0, batch_dims=0, policy="DEFAULT"
) -> np.ndarray:
    grad, indices = np.asarray(grad), np.asarray(indices)
    batches, outer, rows, inner, count = _as_blocks(params_shape, indices.shape, axis, batch_dims)
    assert grad.shape == output_shape(params_shape, indices.shape, axis, batch_dims)
    flat = indices.reshape(batches, count)
    source = grad.reshape(batches, outer, count, inner)
    sums = np.zeros((batches, outer, rows, inner), sum_dtype(grad.dtype))
    with np.errstate(over="ignore"):
        for b in range(batches):
            for k in range(count):
                row = resolve(int(flat[b, k]), rows, policy)
                if row is not None:
                    sums[b, :, row] += source[b, :, k].astype(sums.dtype)
    return sums.astype(grad.dtype).reshape(params_shape)


def sum_dtype(dtype) -> np.dtype:
    dtype = np.dtype(dtype)
    return np.dtype(np.float32) if dtype in _NARROW else dtype


def sparse_grad_oracle(grad, indices, params_rows, policy, unique):
    """(values, rows, slots) of GatherV2SparseGrad."""
    grad, indices = np.asarray(grad), np.asarray(indices)
    inner = grad.shape[indices.ndim :]
    flat_grad = grad.reshape(indices.size, int(np.prod(inner, dtype=np.int64)))
    resolved = [resolve(int(i), params_rows, policy) for i in indices.reshape(-1)]
    resolved = np.array([-1 if row is None else row for row in resolved], np.int64)
    kept = resolved[resolved >= 0]
    slots = np.full(indices.size, -1, np.int64)
    if unique:
        rows = np.unique(kept)
        slots[resolved >= 0] = np.searchsorted(rows, kept)
    else:
        rows = kept
        slots[resolved >= 0] = np.arange(kept.size)
        return (
            flat_grad[resolved >= 0].reshape(kept.size, *inner),
            rows,
            slots.reshape(indices.shape),
        )
    # A slice is its first term plus the others: what starts it must not turn -0 into 0.
    sums = -np.zeros((rows.size, flat_grad.shape[1]), sum_dtype(grad.dtype))
    with np.errstate(over="ignore"):
        for i, slot in enumerate(slots):
            if slot >= 0:
                sums[slot] += flat_grad[i].astype(sums.dtype)
    values = sums.astype(grad.dtype).reshape((rows.size, *inner))
    return values, rows, slots.reshape(indices.shape)


def winners_oracle(indices, merged_rows: int) -> list:
    """For each merged row (m, position in input m) of the last index that names it, or None."""
    winners = [None] * merged_rows
    for m, rows in enumerate(indices):
        for position, row in enumerate(np.asarray(rows).reshape(-1)):
            if 0 <= row < merged_rows:
                winners[row] = (m, position)
    return winners


def merged_oracle(indices, data, merged_rows: int | None = None) -> np.ndarray:
    """The stitch; with `merged_rows` an index outside is dropped."""
    arrays = [[np.asarray(value) for value in values] for values in (indices, data)]
    return stitch_oracle(*arrays, merged_rows, "IGNORE")


def stitch_grad_oracle(grad, indices) -> list[np.ndarray]:
    grad = np.asarray(grad)
    indices = [np.asarray(i) for i in indices]
    grads = [np.zeros((i.size, *grad.shape[1:]), grad.dtype) for i in indices]
    for row, winner in enumerate(winners_oracle(indices, grad.shape[0])):
        if winner is not None:
            grads[winner[0]][winner[1]] = grad[row]
    return [g.reshape(i.shape + grad.shape[1:]) for g, i in zip(grads, indices, strict=True)]


def as_numpy(value) -> np.ndarray:
    """A tensor, IndexedSlices (summed in index order) or array as an array."""
    if isinstance(value, tf.IndexedSlices):
        shape = tuple(np.asarray(value.dense_shape))
        return gather_grad_oracle(np.asarray(value.values), np.asarray(value.indices), shape)
    return value.numpy() if isinstance(value, tf.Tensor) else np.asarray(value)


def assert_same_gradient(actual, expected) -> None:
    """The same kind of gradient with the same bits; the dtype of row numbers may differ."""
    assert isinstance(actual, tf.IndexedSlices) == isinstance(expected, tf.IndexedSlices)
    if not isinstance(actual, tf.IndexedSlices):
        assert_same(actual, expected)
        return
    assert_same(actual.values, expected.values)
    np.testing.assert_array_equal(actual.indices, expected.indices)
    np.testing.assert_array_equal(actual.dense_shape, expected.dense_shape)


def op_types(graph) -> list[str]:
    """The types of all ops of a graph or concrete function and of the functions that it calls."""
    graph = getattr(graph, "graph", graph)
    graph_def = graph.as_graph_def()
    nodes = list(graph_def.node)
    for function in graph_def.library.function:
        nodes.extend(function.node_def)
    return [node.op for node in nodes]


def gather_stitch_types(graph) -> list[str]:
    return [t for t in op_types(graph) if t.startswith("GatherStitch>")]
