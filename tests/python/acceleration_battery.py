# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Random calls of stock ops, each with its record: the value, or the class and text of the error.

`acceleration_battery.py (stock|accelerated) SEED CALLS FILE` writes the records of one process;
the same seed makes the same calls, whatever kernels they run on. What kills a process on stock
kernels, or has no defined value there, is not among them.
"""

from __future__ import annotations

import math
import pathlib
import pickle
import re
import sys

import gather_stitch as gs
import numpy as np
import tensorflow as tf
from cases import (
    DTYPES,
    STOCK_GATHER_LACKS,
    STOCK_STITCH_LACKS,
    random_values,
)
from gather_stitch import _acceleration

raw = tf.raw_ops

SUM_DTYPES = (
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
)
QUANTISED = (tf.qint8, tf.quint8, tf.qint16, tf.quint16, tf.qint32)
# Why a record may differ between the two: the documented exceptions.
WIDER_SUMS = "sums of half and bfloat16 are made in float32"
NO_STOCK_KERNEL = "stock has no kernel for the dtype"


class Battery:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.records = []
        self.functions = {}

    # ---- Choosing -----------------------------------------------------------

    def one_of(self, *choices):
        return choices[self.rng.integers(len(choices))]

    def chance(self, probability):
        return self.rng.random() < probability

    def shape(self, max_rank, dims=(0, 1, 1, 2, 3, 4, 5)):
        return tuple(int(self.one_of(*dims)) for _ in range(self.rng.integers(0, max_rank + 1)))

    def indices(self, shape, rows, dtype, bad=0.1):
        """Mostly in [0, rows); with probability `bad` some are not."""
        values = self.rng.integers(0, max(rows, 1), shape)
        if values.size and self.chance(bad):
            limits = np.iinfo(dtype.as_numpy_dtype)
            for _ in range(self.rng.integers(1, 4)):
                place = tuple(self.rng.integers(0, n) for n in shape)
                values[place] = self.one_of(-1, -rows, rows, rows + 7, limits.min, limits.max)
        return tf.constant(values, dtype, shape)

    def numbers(self, dtype, shape):
        """Values whose sums depend on their order, where the dtype has such."""
        if dtype.is_integer:
            return random_values(self.rng, dtype, shape)
        values = self.rng.standard_normal(shape) * 10.0 ** self.rng.integers(-3, 4, shape)
        if dtype.is_complex:
            values = values + 1j * self.rng.standard_normal(shape)
        if self.chance(0.1):
            values = np.where(self.rng.random(shape) < 0.3, -0.0, values)
        if self.chance(0.05):
            values = np.where(self.rng.random(shape) < 0.1, np.inf, values)
        return tf.cast(tf.constant(values, shape=shape), dtype)

    # ---- Recording ----------------------------------------------------------

    def record(self, what, call, *tensors, exception=None, expected=None, after=None, rows=None):
        """Calls eagerly, or in a tf.function that knows no shape.

        `after` is read when the call has returned or failed; `rows` are those of a result that
        its definition sets.
        """
        # Tracing costs twenty eager calls, the list of all kernels in stock's error two hundred.
        mode = "function" if self.chance(0.01 if exception == NO_STOCK_KERNEL else 0.1) else "eager"
        function = call
        if mode == "function":
            signature = [tf.TensorSpec(None, t.dtype) for t in tensors]
            function = tf.function(call, input_signature=signature, autograph=False)
        try:
            result = function(*tensors)
            if rows is not None:
                result = [result.shape, _taken(result, rows)]
            outcome = ("value", [_frozen(r) for r in tf.nest.flatten(result)])
        except Exception as error:
            outcome = ("error", type(error).__name__, _plain(str(error)))
        state = None if after is None else _frozen(after())
        self.records.append(
            {
                "what": f"{what} {mode} {[(t.dtype.name, t.shape) for t in tensors]}",
                "exception": exception,
                "expected": expected,
                "outcome": outcome,
                "state": state,
            }
        )

    # ---- The ops ------------------------------------------------------------

    def gather(self):
        dtype = self.one_of(*DTYPES)
        params_shape = self.shape(4)
        params = random_values(self.rng, dtype, params_shape)
        rank = len(params_shape)
        index_dtype = self.one_of(tf.int16, tf.int32, tf.int64)
        exception = NO_STOCK_KERNEL if dtype in STOCK_GATHER_LACKS else None
        if self.chance(0.2):
            rows = params_shape[0] if rank else 1
            indices = self.indices(self.shape(3), rows, index_dtype)
            validate = self.chance(0.5)
            self.record(
                f"Gather validate_indices={validate}",
                lambda p, i: raw.Gather(params=p, indices=i, validate_indices=validate),
                params,
                indices,
                exception=exception,
            )
            return
        axis = int(
            self.rng.integers(-rank - 1, rank + 1)
            if self.chance(0.2)
            else self.rng.integers(-rank, max(rank, 1))
        )
        if self.chance(0.02):
            axis = self.one_of(-1000, 1000, 300)
        a = axis % rank if rank and -rank <= axis < rank else 0
        batch_dims = int(self.rng.integers(0, a + 1)) if self.chance(0.5) else 0
        shape = params_shape[:batch_dims] + self.shape(2)
        if self.chance(0.1) and shape:
            k = self.rng.integers(len(shape))
            shape = (*shape[:k], shape[k] + 1, *shape[k + 1 :])
        if self.chance(0.3):
            batch_dims -= len(shape)
        if self.chance(0.05):
            batch_dims = int(self.rng.integers(-4, 5))
        indices = self.indices(shape, params_shape[a] if rank else 1, index_dtype)
        axis_tensor = tf.constant(
            [axis] if self.chance(0.01) else axis, self.one_of(tf.int32, tf.int64)
        )
        self.record(
            f"GatherV2 axis={axis} batch_dims={batch_dims}",
            lambda p, i, a: raw.GatherV2(params=p, indices=i, axis=a, batch_dims=batch_dims),
            params,
            indices,
            axis_tensor,
            exception=exception,
        )

    def gather_large(self):
        """Enough for several threads, along a random axis."""
        dtype = self.one_of(tf.float32, tf.int8, tf.complex128, tf.string, tf.bfloat16)
        inner = int(self.one_of(1, 3, 10, 16, 20, 33)) if dtype != tf.string else 2
        rows = int(self.one_of(7, 1000))
        params = random_values(self.rng, dtype, (3, rows, inner))
        indices = self.indices(
            (3, 1500 if dtype != tf.string else 300), rows, self.one_of(tf.int32, tf.int64), bad=0
        )
        batch_dims = self.one_of(0, 1)
        self.record(
            f"GatherV2 batch_dims={batch_dims}",
            lambda p, i: raw.GatherV2(params=p, indices=i, axis=1, batch_dims=batch_dims),
            params,
            indices,
        )

    def gather_objects(self):
        """Variant tensors that hold lists of tensors, and handles."""
        lists = [
            tf.raw_ops.TensorListFromTensor(
                tensor=tf.constant(self.rng.integers(0, 9, (k, 2)), tf.int32),
                element_shape=tf.constant([2]),
            )
            for k in range(1, 4)
        ]
        params = tf.stack(lists)
        indices = self.indices((4,), 3, tf.int32)

        def lengths(gathered):
            return tf.stack(
                [tf.raw_ops.TensorListLength(input_handle=h) for h in tf.unstack(gathered, 4)]
            )

        op = self.one_of(
            lambda p, i: raw.GatherV2(params=p, indices=i, axis=0),
            lambda p, i: raw.Gather(params=p, indices=i),
            lambda p, i: raw.DynamicStitch(indices=[[2, 0, 3, 1]], data=[tf.gather(p, i)]),
            lambda p, i: raw.ParallelDynamicStitch(indices=[[2, 0, 3, 1]], data=[tf.gather(p, i)]),
        )
        self.record("lists", lambda p, i: lengths(op(p, i)), params, indices)
        variables = [tf.Variable(float(k)) for k in range(3)]
        self.record(
            "handles",
            lambda p, i: raw.ReadVariableOp(
                resource=raw.GatherV2(params=p, indices=i, axis=0), dtype=tf.float32
            ),
            tf.stack([v.handle for v in variables]),
            self.indices((), 3, tf.int32),
        )

    def resource_gather(self):
        dtype = self.one_of(*DTYPES)
        shape = self.shape(4)
        values = random_values(self.rng, dtype, shape)
        try:
            variable = tf.Variable(values)
        except tf.errors.OpError:  # There is no kernel that would set it.
            return
        batch_dims = int(self.rng.integers(0, max(len(shape), 1))) if self.chance(0.3) else 0
        if self.chance(0.02):
            batch_dims = len(shape) + 1
        index_shape = shape[:batch_dims] + self.shape(2)
        if 0 < batch_dims < len(shape) and 0 in index_shape:
            # Without indices stock's output is unset, without batches it divides by 0.
            return
        rows = shape[batch_dims] if batch_dims < len(shape) else 1
        indices = self.indices(index_shape, rows, self.one_of(tf.int32, tf.int64), bad=0.2)
        handle = variable.handle
        if self.chance(0.05):
            handle = tf.stack([handle] * 2)
        lacks = dtype in STOCK_GATHER_LACKS or "float8" in dtype.name
        self.record(
            f"ResourceGather of {shape} batch_dims={batch_dims}",
            lambda i: raw.ResourceGather(
                resource=handle, indices=i, dtype=dtype, batch_dims=batch_dims
            ),
            indices,
            exception=NO_STOCK_KERNEL if lacks else None,
        )

    def dynamic_stitch(self):
        name = self.one_of("DynamicStitch", "ParallelDynamicStitch")
        dtype = self.one_of(*DTYPES)
        inputs = int(self.rng.integers(1, 5))
        constant = self.shape(2, dims=(0, 1, 2, 3, 7))
        shapes = [self.shape(2) for _ in range(inputs)]
        counts = [math.prod(s) for s in shapes]
        count = sum(counts)
        rows = count + int(self.rng.integers(0, 4))
        if name == "DynamicStitch" and self.chance(0.6):
            flat = self.rng.integers(0, max(rows, 1), count)
        else:
            flat = self.rng.permutation(rows)[:count]
        if count and self.chance(0.1):
            flat[self.rng.integers(count)] = self.one_of(-1, -9, -(2**31))
        elif count and math.prod(constant) == 0 and self.chance(0.05):
            flat[self.rng.integers(count)] = 2**31 - 1
        pieces = np.split(flat, np.cumsum(counts)[:-1])
        indices = [tf.constant(p, tf.int32, s) for p, s in zip(pieces, shapes, strict=True)]
        data_shapes = [s + constant for s in shapes]
        if self.chance(0.1):
            m = self.rng.integers(inputs)
            data_shapes[m] = self.one_of((), (*data_shapes[m], 2), data_shapes[m][1:], (9, 9))
        data = [random_values(self.rng, dtype, s) for s in data_shapes]
        op = getattr(raw, name)
        self.record(
            name,
            lambda *t: op(indices=t[:inputs], data=t[inputs:]),
            *indices,
            *data,
            exception=NO_STOCK_KERNEL if dtype in STOCK_STITCH_LACKS else None,
            rows=np.unique(flat[flat >= 0]),
        )

    def stitch_large(self):
        dtype = self.one_of(tf.float32, tf.uint8, tf.string)
        inner = int(self.one_of(1, 5, 40))
        inputs = int(self.one_of(2, 9))
        name = self.one_of("DynamicStitch", "ParallelDynamicStitch")
        count = 3000 if dtype != tf.string else 100
        if name == "DynamicStitch":
            flat = self.rng.integers(0, count, inputs * count)
        else:
            flat = self.rng.permutation(inputs * count)
        indices = [tf.constant(p, tf.int32) for p in np.split(flat, inputs)]
        data = [random_values(self.rng, dtype, (count, inner)) for _ in range(inputs)]
        op = getattr(raw, name)
        self.record(
            name,
            lambda *t: op(indices=t[:inputs], data=t[inputs:]),
            *indices,
            *data,
            rows=np.unique(flat),
        )

    def segment_sum(self):
        dtype = self.one_of(*SUM_DTYPES)
        is_large = self.chance(0.1)
        ids_shape = (6000,) if is_large else self.shape(3)
        inner = (int(self.one_of(1, 2, 16, 37)),) if is_large else self.shape(2)
        segments = int(self.one_of(1, 40, 5000) if is_large else self.rng.integers(0, 8))
        ids = self.rng.integers(-1 if self.chance(0.5) else 0, max(segments, 1), ids_shape)
        ids = np.asarray(ids)
        if ids.size and self.chance(0.1):
            ids.flat[self.rng.integers(ids.size)] = segments + int(self.rng.integers(0, 3))
        index_dtype = self.one_of(tf.int16, tf.int32, tf.int64)
        asked = segments
        if self.chance(0.05):
            asked = self.one_of(-3, -1, segments + 2**16)
            if asked > 0 and index_dtype != tf.int16:
                asked = segments
        data_shape = tuple(ids_shape) + tuple(inner)
        if self.chance(0.05):
            data_shape = self.shape(3)
        data = self.numbers(dtype, data_shape)
        num_segments = tf.constant(
            [asked] if self.chance(0.02) else asked, self.one_of(tf.int32, tf.int64)
        )
        exception = expected = None
        if dtype in (tf.float16, tf.bfloat16):
            exception = WIDER_SUMS
            expected = _wide_sum(data, ids, num_segments, index_dtype)
        self.record(
            f"UnsortedSegmentSum {asked}",
            lambda d, i, n: raw.UnsortedSegmentSum(data=d, segment_ids=i, num_segments=n),
            data,
            tf.constant(ids, index_dtype, ids_shape),
            num_segments,
            exception=exception,
            expected=expected,
        )

    def quantised_sum(self):
        dtype = self.one_of(*QUANTISED)
        data = random_values(self.rng, dtype, (4, 2))
        ids = self.indices((4,), 3, tf.int32)
        self.record(
            "UnsortedSegmentSum",
            lambda d, i: raw.UnsortedSegmentSum(data=d, segment_ids=i, num_segments=3),
            data,
            ids,
        )

    def scatter(self):
        name = self.one_of("ResourceScatterAdd", "ResourceScatterSub")
        dtype = self.one_of(*SUM_DTYPES)
        is_large = self.chance(0.1)
        inner = (int(self.one_of(1, 3, 16, 40, 64)),) if is_large else self.shape(2)
        rows = int(self.one_of(1, 500, 9000) if is_large else self.rng.integers(0, 7))
        shape = (rows, *inner)
        if is_large:
            # Stock adds in any order from 1024 indices on, unless determinism is asked for.
            flat = (
                self.rng.permutation(9000)[:5000]
                if rows == 9000
                else self.rng.integers(0, rows, 1000)
            )
            indices = tf.constant(flat, self.one_of(tf.int32, tf.int64))
        else:
            indices = self.indices(self.shape(3), rows, self.one_of(tf.int32, tf.int64), bad=0.2)
        update_shape = tuple(indices.shape) + tuple(inner)
        kind = self.rng.random()
        if kind < 0.15:
            update_shape = ()
        elif kind < 0.2:
            update_shape = self.one_of(
                update_shape[1:], (*update_shape, 2), tuple(reversed(update_shape))
            )
        elif kind < 0.25 and inner:
            # Longer rows than the table has.
            update_shape = (*update_shape[:-1], update_shape[-1] + 2)
        count = math.prod(indices.shape)
        fits = math.prod(update_shape) >= count * math.prod(inner) or not count
        if update_shape and not fits and update_shape[: indices.shape.rank] == indices.shape:
            # Stock reads beyond the updates.
            return
        variable = tf.Variable(self.numbers(dtype, shape))
        shared = variable.read_value() if self.chance(0.3) else None
        before = None if shared is None else shared.numpy().tobytes()
        self.record(
            f"{name} to {shape}",
            _scatter(name, variable.handle),
            indices,
            self.numbers(dtype, update_shape),
            after=variable.read_value,
        )
        # Who has read the variable before does not see the update.
        assert shared is None or shared.numpy().tobytes() == before

    def missing_variable(self):
        handle = raw.VarHandleOp(dtype=tf.float32, shape=[3], shared_name="nowhere")
        table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, 0).resource_handle
        resource = self.one_of(handle, table)
        if self.chance(0.5):
            self.record(
                "ResourceGather of none",
                lambda i: raw.ResourceGather(resource=resource, indices=i, dtype=tf.float32),
                tf.constant([0]),
            )
        else:
            self.record(
                "ResourceScatterAdd to none",
                _scatter("ResourceScatterAdd", resource),
                tf.constant([0]),
                tf.constant([1.0]),
            )

    def narrow_indices(self):
        """More rows than the indices can count, and shapes that can not be."""
        rows, dtype = self.one_of((32768, tf.int16), (2**31, tf.int32), (2**31 - 1, tf.int32))
        params = tf.zeros([rows, 0] if rows > 40000 else [rows])
        self.record(
            "GatherV2 of many rows",
            lambda p, i: raw.GatherV2(params=p, indices=i, axis=0),
            params,
            tf.constant([0, 1], dtype),
        )
        self.record(
            "GatherV2 of too many",
            lambda p, i: raw.GatherV2(params=p, indices=i, axis=1),
            tf.zeros([2**40, 0, 2**40]),
            tf.constant([0], tf.int64),
        )
        self.record(
            "GatherV2 of too many dimensions",
            lambda p, i: raw.GatherV2(params=p, indices=i, axis=0),
            tf.zeros([1] * 200),
            tf.zeros([1] * 60, tf.int32),
        )
        self.record(
            "DynamicStitch of too many dimensions",
            lambda i, d: raw.DynamicStitch(indices=[i], data=[d]),
            tf.constant(0),
            tf.zeros([1] * 254),
        )
        self.record(
            "UnsortedSegmentSum into too many",
            lambda d, i: raw.UnsortedSegmentSum(
                data=d, segment_ids=i, num_segments=tf.constant(2**62, tf.int64)
            ),
            tf.zeros([1, 4]),
            tf.constant([0], tf.int64),
        )

    def gradient(self):
        """Of a lookup in a variable, by a sparse optimizer's ops and densely."""
        table = tf.Variable(self.numbers(tf.float32, (30, 5)))
        ids = self.indices((self.rng.integers(1, 50),), 30, tf.int32, bad=0)
        upstream = self.numbers(tf.float32, (len(ids), 5))

        def step(ids, upstream):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.nn.embedding_lookup(table, ids) * upstream)
            gradient = tape.gradient(loss, table)
            table.scatter_sub(tf.IndexedSlices(0.1 * gradient.values, gradient.indices))
            return [loss, tf.convert_to_tensor(gradient)]

        self.record("a training step", step, ids, upstream, after=table.read_value)

    OPS = (
        (gather, 8),
        (gather_large, 1),
        (gather_objects, 0.5),
        (resource_gather, 3),
        (dynamic_stitch, 5),
        (stitch_large, 0.5),
        (segment_sum, 5),
        (quantised_sum, 0.2),
        (scatter, 6),
        (missing_variable, 0.2),
        (narrow_indices, 0.1),
        (gradient, 0.5),
    )

    def run(self, calls):
        weights = np.array([weight for _, weight in self.OPS])
        for number in self.rng.choice(len(self.OPS), calls, p=weights / weights.sum()):
            self.OPS[number][0](self)


def _scatter(name, handle):
    op = getattr(raw, name)

    def call(indices, updates):
        op(resource=handle, indices=indices, updates=updates)
        return tf.constant(0)

    return call


def _taken(result, rows):
    array = result.numpy()
    return array[rows] if array.ndim else array


def _frozen(value):
    if isinstance(value, tf.TensorShape):
        return tuple(value)
    if isinstance(value, np.ndarray):
        array = value
    else:
        if value.shape.rank > 30:
            return (value.dtype.name, tuple(value.shape))
        array = np.asarray(value.numpy())
    if array.dtype.hasobject or array.dtype.kind == "S":
        return ("object", array.shape, array.tolist())
    return (array.dtype.name, array.shape, array.tobytes())


def _plain(text):
    """Without what differs between processes: counters, addresses, lists of all kernels."""
    text = re.sub(r"__inference_[^\s\]}]+", "__inference", text)
    text = re.sub(r"table_\d+", "table", text)
    return re.split("with these attrs|All kernels registered", text)[0]


def _wide_sum(data, ids, num_segments, index_dtype):
    """The sums in float32, rounded once; None where the call is an error."""
    if num_segments.shape.rank != 0:
        return None
    # Segments are counted in the type of the ids.
    segments = int(num_segments.numpy().astype(index_dtype.as_numpy_dtype))
    shape = data.shape.as_list()
    if segments < 0 or shape[: ids.ndim] != list(ids.shape):
        return None
    inner = shape[ids.ndim :]
    if 0 in inner:  # Ids of empty rows are not looked at.
        return _frozen(tf.zeros([segments, *inner], data.dtype))
    if (ids >= segments).any():
        return None
    sums = np.zeros((segments, math.prod(inner)), np.float32)
    rows = tf.cast(data, tf.float32).numpy().reshape(ids.size, math.prod(inner))
    for row, segment in zip(rows, ids.reshape(-1), strict=True):
        if segment >= 0:
            with np.errstate(all="ignore"):
                sums[segment] += row
    return _frozen(tf.cast(tf.constant(sums.reshape([segments, *inner])), data.dtype))


def main():
    which, seed, calls, path = sys.argv[1:]
    if which == "accelerated":
        gs.accelerate()
    assert gs.is_accelerated() == (which == "accelerated")
    battery = Battery(int(seed))
    battery.run(int(calls))
    counts = _acceleration.kernel_calls()
    pathlib.Path(path).write_bytes(pickle.dumps((battery.records, counts)))


if __name__ == "__main__":
    main()
