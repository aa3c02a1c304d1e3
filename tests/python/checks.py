# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""What the tests compare with, and how they compare."""

from __future__ import annotations

import collections
import contextlib
import math

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_callbacks

MODES = ("eager", "function", "unknown shapes")

# What a wrapper that went to stock would have used.
STOCK_TYPES = (
    "Gather",
    "GatherNd",
    "GatherV2",
    "ResourceGather",
    "DynamicStitch",
    "ParallelDynamicStitch",
    "UnsortedSegmentSum",
)


@contextlib.contextmanager
def types_of_ops():
    """Counts the types of the ops that run eagerly, or are put into a graph, meanwhile."""
    types = collections.Counter()

    def count(op_type, inputs, attrs, outputs, op_name=None, graph=None):
        types[op_type.decode() if isinstance(op_type, bytes) else op_type] += 1

    op_callbacks.add_op_callback(count)
    try:
        yield types
    finally:
        op_callbacks.remove_op_callback(count)


@contextlib.contextmanager
def only_ours(op_type, times=1):
    """Asserts that what ran is `times` of GatherStitch>`op_type`, and none of the stock ops."""
    with types_of_ops() as types:
        yield
    assert types[f"GatherStitch>{op_type}"] == times, dict(types)
    stock = {name: types[name] for name in STOCK_TYPES if types[name]}
    assert not stock, dict(types)


@contextlib.contextmanager
def only_stock(op_type):
    """Asserts that stock's `op_type` ran, and nothing of ours."""
    with types_of_ops() as types:
        yield
    assert types[op_type] >= 1, dict(types)
    ours = {name: count for name, count in types.items() if name.startswith("GatherStitch>")}
    assert not ours, dict(types)


def call_in_mode(mode, function, *tensors):
    """Calls `function` on tensors: eagerly, in a tf.function, or in one of unknown ranks."""
    if mode == "eager":
        return function(*tensors)
    shapes = [None if mode == "unknown shapes" else t.shape for t in tensors]
    signature = [tf.TensorSpec(s, t.dtype) for s, t in zip(shapes, tensors, strict=True)]
    return tf.function(function, input_signature=signature, autograph=False)(*tensors)


def run_modes(op_type, function, *tensors, times=1, modes=MODES):
    """Yields (mode, result) for each mode, having asserted that `times` of our op made it."""
    for mode in modes:
        with only_ours(op_type, times):
            result = call_in_mode(mode, function, *tensors)
        yield mode, result


def to_numpy(value):
    if not hasattr(value, "numpy"):
        return np.asarray(value)
    # A scalar string comes as bytes, which NumPy would take for an array of its own kind.
    return np.array(value.numpy(), object) if value.dtype == tf.string else value.numpy()


def assert_same(actual, expected, context=None):
    """Asserts that dtype, shape and every byte are equal."""
    actual, expected = np.asarray(to_numpy(actual)), np.asarray(to_numpy(expected))
    assert actual.dtype == expected.dtype, context
    assert actual.shape == expected.shape, context
    if actual.dtype.hasobject:
        assert actual.tolist() == expected.tolist(), context
    else:
        assert actual.tobytes() == expected.tobytes(), (context, actual, expected)


def assert_all_same(actual, expected, contexts):
    assert len(actual) == len(expected) == len(contexts)
    for a, e, context in zip(actual, expected, contexts, strict=True):
        assert_same(a, e, context)


# An integer or complex type of each width, which all stock kernels serve.
_TYPES_BY_BYTES = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64, 16: np.complex128}


def bytes_of(array):
    """The same bytes as a dtype that stock moves; objects as they are."""
    if array.dtype.hasobject:
        return array
    return array.view(_TYPES_BY_BYTES[array.dtype.itemsize])


class BadIndex(Exception):
    """An index that the oracle refuses; its text is that of the error."""


def _position(shape, flat):
    if not shape:
        return ""
    return "[" + ",".join(str(int(p)) for p in np.unravel_index(flat, shape)) + "]"


def resolve(index, rows, policy):
    """The row that a Python integer means, or None for zeros."""
    if 0 <= index < rows:
        return index
    if policy == "IGNORE":
        return None
    if policy == "CLIP" and rows > 0:
        return 0 if index < 0 else rows - 1
    if policy == "WRAP" and rows > 0:
        return index % rows
    raise BadIndex


def empty_array(shape, dtype):
    """Zeros, or empty strings."""
    if np.dtype(dtype).hasobject:
        return np.full(shape, b"", object)
    return np.zeros(shape, dtype)


def gather_oracle(params, indices, axis=0, batch_dims=0, policy="DEFAULT"):
    """Nested loops straight from the equation, in Python integers."""
    axis = axis + params.ndim if axis < 0 else axis
    batch_dims = batch_dims + indices.ndim if batch_dims < 0 else batch_dims
    batch, outer = params.shape[:batch_dims], params.shape[batch_dims:axis]
    rows, inner = params.shape[axis], params.shape[axis + 1 :]
    assert indices.shape[:batch_dims] == batch
    table = params.reshape(math.prod(batch), math.prod(outer), rows, math.prod(inner))
    per_batch = math.prod(indices.shape[batch_dims:])
    flat = [int(i) for i in indices.reshape(-1)]
    result = empty_array((table.shape[0], table.shape[1], per_batch, table.shape[3]), params.dtype)
    for position, index in enumerate(flat):
        try:
            row = resolve(index, rows, policy)
        except BadIndex:
            where = f"indices{_position(indices.shape, position)}"
            raise BadIndex(f"{where} = {index} is not in [0, {rows})") from None
        if row is not None:
            b, i = divmod(position, per_batch)
            result[b, :, i] = table[b, :, row]
    return result.reshape(batch + outer + indices.shape[batch_dims:] + inner)


def stitch_oracle(indices, data, merged_rows=None, policy="DEFAULT"):
    """The last writer in the order (m, i, ..., j) wins; rows without one are zeros."""
    flat = [[int(i) for i in index.reshape(-1)] for index in indices]
    constant = data[0].shape[indices[0].ndim :]
    limit = 2**63 - 1 if merged_rows is None else merged_rows
    if merged_rows is None:
        merged_rows = max((i + 1 for values in flat for i in values), default=0)
    winners = {}
    for m, values in enumerate(flat):
        for position, index in enumerate(values):
            if 0 <= index < limit:
                winners[index] = (m, position)
            elif policy != "IGNORE":
                where = f"indices[{m}]{_position(indices[m].shape, position)}"
                raise BadIndex(f"{where} = {index} is not in [0, {limit})")
    merged = empty_array((max(merged_rows, 0), *constant), data[0].dtype)
    for row, (m, position) in winners.items():
        merged[row] = data[m].reshape((len(flat[m]), *constant))[position]
    return merged


def outcome(oracle, *args):
    """(result, None) of an oracle, or (None, text of its error)."""
    try:
        return oracle(*args), None
    except BadIndex as bad:
        return None, str(bad)


def gather_rules(params_shape, indices_shape, axis, batch_dims):
    """The words of every rule that a gather breaks, in the order of the rules.

    A kernel names the first. A shape function may name another, because the value of a constant
    comes to it only once the rest is right.
    """
    params_rank, indices_rank = len(params_shape), len(indices_shape)
    if params_rank < 1:
        return ["params must be at least 1 dimensional"]
    broken = []
    has_axis = -params_rank <= axis < params_rank
    if not has_axis:
        needed = axis + 1 if axis >= 0 else -axis
        broken.append(
            f"Shape must be at least rank {needed} but is rank {params_rank}: "
            f"axis = {axis} is not in [-{params_rank}, {params_rank})"
        )
    if not -indices_rank <= batch_dims <= indices_rank:
        broken.append(
            f"Expected batch_dims in the range [-{indices_rank}, {indices_rank}], "
            f"but got {batch_dims}"
        )
        return broken
    axis = axis + params_rank if axis < 0 else axis
    batch_dims = batch_dims + indices_rank if batch_dims < 0 else batch_dims
    if batch_dims >= params_rank:
        broken.append(f"batch_dims ({batch_dims}) must be less than rank(params) ({params_rank}).")
    if has_axis and batch_dims > axis:
        broken.append(f"batch_dims ({batch_dims}) must be less than or equal to axis ({axis}).")
    for i, (p, k) in enumerate(zip(params_shape, indices_shape[:batch_dims], strict=False)):
        if p != k:
            broken.append(f"params.shape[{i}]: {p} should be equal to indices.shape[{i}]: {k}")
    return broken
