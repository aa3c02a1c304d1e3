# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables of cases, as data."""

from __future__ import annotations

import collections
import math

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import dtypes

INDEX_DTYPES = (
    tf.int8,
    tf.uint8,
    tf.int16,
    tf.uint16,
    tf.int32,
    tf.uint32,
    tf.int64,
    tf.uint64,
)
STITCH_INDEX_DTYPES = (tf.int32, tf.int64)
POLICIES = ("DEFAULT", "ERROR", "IGNORE", "CLIP", "WRAP")

# Every dtype with a NumPy counterpart, string included.
DTYPES = (
    tf.bool,
    tf.int8,
    tf.uint8,
    tf.int16,
    tf.uint16,
    tf.int32,
    tf.uint32,
    tf.int64,
    tf.uint64,
    tf.float16,
    tf.bfloat16,
    tf.float32,
    tf.float64,
    tf.complex64,
    tf.complex128,
    tf.qint8,
    tf.quint8,
    tf.qint16,
    tf.quint16,
    tf.qint32,
    tf.string,
    dtypes.float8_e5m2,
    dtypes.float8_e4m3fn,
    dtypes.float8_e5m2fnuz,
    dtypes.float8_e4m3fnuz,
    dtypes.float8_e4m3b11fnuz,
    dtypes.float4_e2m1fn,
    dtypes.int4,
    dtypes.uint4,
    dtypes.int2,
    dtypes.uint2,
)
OBJECT_DTYPES = (tf.string, tf.variant, tf.resource)

# Those for which stock has no CPU kernel, so that its answer is read off the same bytes.
STOCK_GATHER_LACKS = frozenset(
    (
        dtypes.float8_e5m2fnuz,
        dtypes.float8_e4m3fnuz,
        dtypes.float8_e4m3b11fnuz,
        dtypes.float4_e2m1fn,
        dtypes.int4,
        dtypes.uint4,
        dtypes.int2,
        dtypes.uint2,
    )
)
STOCK_STITCH_LACKS = STOCK_GATHER_LACKS | {
    dtypes.float8_e5m2,
    dtypes.float8_e4m3fn,
    tf.qint16,
    tf.quint16,
}

# Those whose bytes hold less than eight bits, with the range of their integers.
_NARROW_RANGES = {
    dtypes.int4: (-8, 8),
    dtypes.uint4: (0, 16),
    dtypes.int2: (-2, 2),
    dtypes.uint2: (0, 4),
}

GatherCase = collections.namedtuple("GatherCase", "params indices axis batch_dims")

_PARAMS_SHAPES = {1: (5,), 2: (2, 5), 3: (2, 3, 4), 4: (2, 1, 3, 4), 5: (2, 3, 1, 2, 2)}
_INDICES_SUFFIXES = ((), (3,), (2, 3), (1, 2, 1))


def spellings(position, rank):
    """A position from the front, and the same from the back where there is one."""
    return (position, position - rank) if position < rank else (position,)


def gather_cases(params_rank):
    """Each axis with each batch_dims, in both spellings, with indices of several ranks."""
    params = _PARAMS_SHAPES[params_rank]
    for axis in range(params_rank):
        for batch_dims in range(axis + 1):
            for suffix in _INDICES_SUFFIXES:
                indices = params[:batch_dims] + suffix
                for a in spellings(axis, params_rank):
                    for b in spellings(batch_dims, len(indices)):
                        yield GatherCase(params, indices, a, b)


# A handful for tests with another dimension to go through.
FEW_GATHER_CASES = (
    GatherCase((4,), (), 0, 0),
    GatherCase((4, 3), (5,), 0, 0),
    GatherCase((2, 4, 3), (2, 2), 1, 0),
    GatherCase((2, 4), (3,), -1, 0),
    GatherCase((2, 4, 1, 2), (2, 3), 1, 1),
    GatherCase((2, 3, 4), (2, 3, 2), -1, -1),
)

# The second field of a case is the shape of the result.
EMPTY_GATHER_CASES = (
    (GatherCase((4,), (0,), 0, 0), (0,)),
    (GatherCase((0,), (0,), 0, 0), (0,)),
    (GatherCase((0, 3), (0,), 0, 0), (0, 3)),
    (GatherCase((0, 3), (2, 0), 0, 0), (2, 0, 3)),
    (GatherCase((4, 0), (3,), 0, 0), (3, 0)),
    (GatherCase((4, 0), (), 0, 0), (0,)),
    (GatherCase((0, 4), (2,), 1, 0), (0, 2)),
    (GatherCase((0, 4), (2, 3), -1, 0), (0, 2, 3)),
    (GatherCase((0, 0), (0, 0), 0, 0), (0, 0, 0)),
    (GatherCase((2, 0, 4), (3,), 2, 0), (2, 0, 3)),
    (GatherCase((0, 4), (0, 3), 1, 1), (0, 3)),
    (GatherCase((0, 4), (0,), 1, 1), (0,)),
    (GatherCase((2, 4), (2, 0), 1, 1), (2, 0)),
    (GatherCase((2, 0), (2, 0), 1, 1), (2, 0)),
    (GatherCase((2, 0, 4), (2, 3), 2, 1), (2, 0, 3)),
    (GatherCase((2, 3, 0), (2, 3, 0), 2, 2), (2, 3, 0)),
    (GatherCase((2, 4, 0), (2, 3), 1, 1), (2, 3, 0)),
    (GatherCase((0, 0, 5), (0, 0, 2), 2, 2), (0, 0, 2)),
    (GatherCase((3, 0, 5), (3, 0, 2), 2, 2), (3, 0, 2)),
)

# For each: the shapes of indices, the constant part of the shapes of data, and the indices.
StitchCase = collections.namedtuple("StitchCase", "indices constant")

STITCH_CASES = (
    StitchCase(([0, 1, 2],), ()),
    StitchCase((2, [0, 1]), (3,)),
    StitchCase((6, [4, 1], [[5, 2], [0, 3]]), (2,)),
    StitchCase((0,), (2, 2)),
    StitchCase(([3, 1], [0, 2]), (2, 1, 3)),
    # Duplicates: within an input, across inputs, of a scalar.
    StitchCase(([0, 1, 0, 0],), (2,)),
    StitchCase(([0, 1, 2], [1], [2, 1]), ()),
    StitchCase((1, [0, 1], 1, 0), (3,)),
    StitchCase(([[1, 1], [1, 1]], [[0], [1]]), (5,)),
    # Holes, before the first and between.
    StitchCase(([4],), ()),
    StitchCase(([7, 2], 4), (3,)),
    # Nothing to write, or nothing in a row.
    StitchCase(([],), ()),
    StitchCase(([], [[], []]), (3,)),
    StitchCase(([], [1, 0], []), (2,)),
    StitchCase(([2, 0], 1), (0,)),
    StitchCase(([2, 0], [1, 5]), (3, 0, 2)),
)


def indices_tensors(indices, dtype):
    return [tf.constant(np.array(i, dtype.as_numpy_dtype), dtype) for i in indices]


def random_values(rng, dtype, shape):
    """A tensor of random bytes, as far as each is a value of the dtype."""
    count = math.prod(shape)
    if dtype == tf.string:
        lengths = rng.integers(0, 40, count)
        # Short strings are stored inside, long ones behind a pointer.
        values = np.empty(count, object)
        values[:] = [rng.bytes(int(n)) for n in lengths]
        return tf.constant(values.reshape(shape), tf.string)
    array_dtype = dtype.as_numpy_dtype
    if dtype == tf.bool:
        array = rng.integers(0, 2, shape).astype(bool)
    elif dtype in _NARROW_RANGES:
        low, high = _NARROW_RANGES[dtype]
        array = rng.integers(low, high, shape, np.int8).astype(array_dtype)
    else:
        bits = rng.integers(0, 256, count * dtype.size, np.uint8)
        if dtype == dtypes.float4_e2m1fn:
            bits &= 15
        array = bits.view(array_dtype).reshape(shape)
    return tf.constant(array, dtype, shape)


def random_indices(rng, shape, rows, dtype=tf.int32):
    return tf.constant(rng.integers(0, max(rows, 1), shape), dtype, shape)


def out_of_range_values(dtype, rows):
    """Values beside the range [0, rows), near and far, that the index dtype has."""
    limits = np.iinfo(dtype.as_numpy_dtype)
    candidates = (-1, -2, -rows, -rows - 1, rows, rows + 1, 3 * rows + 1, limits.min, limits.max)
    values = {v for v in candidates if limits.min <= v <= limits.max and not 0 <= v < rows}
    return sorted(values)


def empty_tensor(shape, dtype):
    """Zeros, or empty strings."""
    return tf.fill(shape, "") if dtype == tf.string else tf.zeros(shape, dtype)
