# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""The ops of this package out of TensorFlow's own, for graphs that must run without it.

A graph that `use_stock_ops` was in force for has no op of this package, so it can be loaded,
served and converted (to TFLite, for one) by whoever has TensorFlow.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from . import _arguments

_MAX_INT32 = 2**31 - 1


class _Emission(threading.local):
    """What the public functions emit in this thread."""

    is_stock = False


emission = _Emission()


@contextlib.contextmanager
def use_stock_ops() -> Iterator[None]:
    """Within this context the functions of this package emit stock TensorFlow ops.

    The results are the same, for every `bad_indices_policy` that has the same result on every
    device and for `"DEFAULT"` and `"ERROR"` as far as stock ops check indices: on a CPU. They cost
    more time, and the table is copied where `"IGNORE"` meets an axis of unknown size.
    Gradients are those of the stock ops, so that `gradient=` has no effect. Dtypes are those that
    the stock ops have kernels for.

    It counts for calls in this thread, and for functions that are traced meanwhile: what such a
    `tf.function` was traced into stays, before and after.

    >>> @tf.function(input_signature=[tf.TensorSpec([2], tf.int32)])
    ... def lookup(ids):
    ...   return gather_stitch.gather([10., 20., 30.], ids, bad_indices_policy="IGNORE")
    >>> with gather_stitch.use_stock_ops():
    ...   graph = lookup.get_concrete_function().graph
    >>> any(op.type.startswith("GatherStitch>") for op in graph.get_operations())
    False
    """
    previous = emission.is_stock
    emission.is_stock = True
    try:
        yield
    finally:
        emission.is_stock = previous


def gather(
    params: Any,
    indices: Any,
    axis: Any,
    batch_dims: int,
    bad_indices_policy: str,
    name: str | None,
) -> Any:
    """`gather_stitch.gather`, as stock ops."""
    indices = tf.convert_to_tensor(indices)
    if bad_indices_policy in ("DEFAULT", "ERROR"):
        return _gather(params, _widened(indices), axis, batch_dims, name)
    params = tf.convert_to_tensor(params)
    rank = params.shape.rank
    value = _arguments.count_from_front(_arguments.static_scalar(axis), rank)
    if value is not None and (value < 0 or (rank is not None and value >= rank)):
        # There is no such axis: let the op say so.
        return _gather(params, _widened(indices), axis, batch_dims, name)
    axis = _axis_from_front(axis, params) if value is None else value

    params_shape = tf.shape(params, tf.int64)
    static_rows = params.shape[axis] if isinstance(axis, int) and rank is not None else None
    rows = params_shape[axis] if static_rows is None else static_rows
    indices, is_good = resolve_indices(indices, rows, bad_indices_policy)
    if is_good is None:
        return _gather(params, indices, axis, batch_dims, name)

    # A bad index reads row 0, which is then replaced by zeros. An axis without a row gets one.
    if not static_rows:
        params = _with_one_row_at_least(params, params_shape, axis)
    safe_indices = tf.where(is_good, indices, tf.zeros([], indices.dtype))
    slices = _gather(params, safe_indices, axis, batch_dims, None)
    mask_shape = tf.shape(is_good)
    if batch_dims < 0:
        batch_dims = batch_dims + _rank(is_good)
    ones_before = tf.ones([axis - batch_dims], tf.int32)
    ones_after = tf.ones([_rank(params) - axis - 1], tf.int32)
    mask = tf.reshape(
        is_good,
        tf.concat([mask_shape[:batch_dims], ones_before, mask_shape[batch_dims:], ones_after], 0),
    )
    return tf.where(mask, slices, tf.zeros([], slices.dtype), name=name)


def can_gather_rows(variable: Any, bad_indices_policy: str) -> bool:
    """Whether `gather_rows` serves: a policy that needs the number of rows needs to know it."""
    if bad_indices_policy in ("DEFAULT", "ERROR"):
        return True
    return bool(variable.shape.rank and variable.shape[0])


def gather_rows(variable: Any, indices: Any, bad_indices_policy: str, name: str | None) -> Any:
    """`gather_stitch.gather` of rows of a variable, as stock ops that read these rows only."""
    indices = tf.convert_to_tensor(indices)
    if bad_indices_policy in ("DEFAULT", "ERROR"):
        return variable.sparse_read(_widened(indices), name)
    indices, is_good = resolve_indices(indices, variable.shape[0], bad_indices_policy)
    if is_good is None:
        return variable.sparse_read(indices, name)
    slices = variable.sparse_read(tf.where(is_good, indices, tf.zeros([], indices.dtype)))
    ones_after = tf.ones([variable.shape.rank - 1], tf.int32)
    mask = tf.reshape(is_good, tf.concat([tf.shape(is_good), ones_after], 0))
    return tf.where(mask, slices, tf.zeros([], slices.dtype), name=name)


def stitch(
    indices: Sequence[Any], data: Sequence[Any], size: Any, bad_indices_policy: str, name: str
) -> Any:
    """`gather_stitch.dynamic_stitch`, as stock ops: the winner map and one gather.

    The winner of a row is the largest position, counted from 1, at which its index occurs, or 0.
    The gather reads that position of the data with a row of zeros in front.
    """
    indices = _converted(indices, tf.int32)
    data = _converted(data, None)
    _check_stitch_shapes(indices, data)
    constant = tf.shape(data[0])[_rank(indices[0]) :]
    flat_indices = tf.concat([tf.reshape(i, [-1]) for i in indices], 0)
    flat_data = [tf.zeros(tf.concat([[1], constant], 0), data[0].dtype)]
    for index, value in zip(indices, data, strict=True):
        flat_data.append(tf.reshape(value, tf.concat([[tf.size(index)], constant], 0)))

    dtype = flat_indices.dtype
    nowhere = tf.constant(-1, dtype)
    if size is None:
        rows = tf.maximum(tf.reduce_max(flat_indices), nowhere) + 1
    else:
        rows = tf.cast(size, dtype)
    is_good = (flat_indices >= 0) & (flat_indices < rows)
    # Stock's op drops a negative index and, on a CPU, refuses one that is too large.
    segments = tf.where(is_good, flat_indices, nowhere if bad_indices_policy == "IGNORE" else rows)
    positions = tf.range(1, tf.size(flat_indices, dtype) + 1, dtype=dtype)
    winners = tf.maximum(tf.math.unsorted_segment_max(positions, segments, rows), 0)
    return _gather(tf.concat(flat_data, 0), winners, 0, 0, name)


def resolve_indices(indices: Any, rows: Any, bad_indices_policy: str) -> tuple[Any, Any]:
    """What indices into an axis of `rows` rows mean by the policy.

    Returns:
      The indices, as int32 where that is wide enough for certain, else as int64, clipped or
      wrapped where the policy says so; and where they are in `[0, rows)`, or None if the policy
      leaves none outside, provided that there is a row.
    """
    if indices.dtype == tf.uint64:
        # Half of them have no int64 of their own.
        if bad_indices_policy == "CLIP":
            indices = tf.minimum(indices, tf.constant(2**63 - 1, tf.uint64))
        elif bad_indices_policy == "WRAP":
            indices = tf.math.floormod(indices, tf.cast(rows, tf.uint64))
    indices = _widened(indices)
    if not isinstance(rows, int) or rows > _MAX_INT32:
        indices = tf.cast(indices, tf.int64)
    rows = tf.cast(rows, indices.dtype)
    if bad_indices_policy == "CLIP":
        return tf.minimum(tf.maximum(indices, 0), rows - 1), None
    if bad_indices_policy == "WRAP":
        return tf.math.floormod(indices, rows), None
    return indices, (indices >= 0) & (indices < rows)


def _gather(params: Any, indices: Any, axis: Any, batch_dims: int, name: str | None) -> Any:
    if batch_dims < 0 and indices.shape.rank is None:
        return _gather_in_flat_batches(params, indices, axis, batch_dims, name)
    # Not tf.gather, which reads a variable in another way and then forgets batch_dims.
    return tf.raw_ops.GatherV2(
        params=params, indices=indices, axis=axis, batch_dims=batch_dims, name=name
    )


def _gather_in_flat_batches(
    params: Any, indices: Any, axis: Any, batch_dims: int, name: str | None
) -> Any:
    """Gathers with one batch dimension in place of a number only known at run time.

    The stock op takes a negative batch_dims, but its gradient does not then.
    """
    params = tf.convert_to_tensor(params)
    axis = _axis_from_front(axis, params)
    batch_dims = batch_dims + tf.rank(indices)
    params_shape = tf.shape(params, tf.int64)
    indices_shape = tf.shape(indices, tf.int64)
    size = tf.reduce_prod
    flat_params_shape = [
        size(params_shape[:batch_dims]),
        size(params_shape[batch_dims:axis]),
        params_shape[axis],
        size(params_shape[axis + 1 :]),
    ]
    flat_indices_shape = [size(indices_shape[:batch_dims]), size(indices_shape[batch_dims:])]
    flat_slices = _gather(
        tf.reshape(params, flat_params_shape), tf.reshape(indices, flat_indices_shape), 2, 1, None
    )
    slices_shape = tf.concat(
        [params_shape[:axis], indices_shape[batch_dims:], params_shape[axis + 1 :]], 0
    )
    return tf.reshape(flat_slices, slices_shape, name=name)


def _widened(indices: Any) -> Any:
    """Indices as one of the two dtypes that every stock op and converter takes."""
    if indices.dtype in (tf.int32, tf.int64):
        return indices
    if indices.dtype in (tf.uint32, tf.uint64):
        return tf.cast(indices, tf.int64)
    if indices.dtype.is_integer and not indices.dtype.is_quantized:
        return tf.cast(indices, tf.int32)
    _arguments.refuse_wrong_dtype("indices", indices, _arguments.GATHER_INDEX_DTYPES)
    return indices


def _axis_from_front(axis: Any, params: Any) -> Any:
    axis = tf.cast(axis, tf.int32)
    return tf.where(axis < 0, axis + tf.rank(params), axis)


def _with_one_row_at_least(params: Any, params_shape: Any, axis: Any) -> Any:
    missing = tf.maximum(1 - params_shape[axis], 0)
    rows_shape = tf.concat([params_shape[:axis], [missing], params_shape[axis + 1 :]], 0)
    return tf.concat([params, tf.zeros(rows_shape, params.dtype)], axis)


def _converted(values: Sequence[Any], default_dtype: tf.DType | None) -> list[Any]:
    """Tensors of one dtype: that of the first value which has one of its own."""
    dtype = next((tf.as_dtype(v.dtype) for v in values if hasattr(v, "dtype")), None)
    if dtype is not None:
        return [tf.convert_to_tensor(value, dtype) for value in values]
    return [tf.convert_to_tensor(value, dtype_hint=default_dtype) for value in values]


def _check_stitch_shapes(indices: Sequence[Any], data: Sequence[Any]) -> None:
    """Refuses statically wrong shapes, which the reshapes below could let pass."""
    constant = tf.TensorShape(None)
    for m, (index, value) in enumerate(zip(indices, data, strict=True)):
        _arguments.refuse_wrong_dtype(f"indices[{m}]", index, _arguments.STITCH_INDEX_DTYPES)
        rank = index.shape.rank
        if rank is None or value.shape.rank is None:
            continue
        if not value.shape[:rank].is_compatible_with(index.shape):
            raise ValueError(
                f"data[{m}].shape = {value.shape} does not start with "
                f"indices[{m}].shape = {index.shape}"
            )
        if not value.shape[rank:].is_compatible_with(constant):
            raise ValueError(
                f"Need data[0].shape[{indices[0].shape.rank}:] = data[{m}].shape[{rank}:], got "
                f"data[0].shape = {data[0].shape}, data[{m}].shape = {value.shape}"
            )
        constant = constant.merge_with(value.shape[rank:])


def _rank(tensor: Any) -> Any:
    return tf.rank(tensor) if tensor.shape.rank is None else tensor.shape.rank
