# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""`dynamic_stitch`: rows of several tensors merged into one; its gradients and vectorisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.autograph.impl import api as autograph
from tensorflow.python.ops.parallel_for import pfor

from . import _arguments, _loader, stock_lowering
from ._registration import attr_text, register_gradient, register_pfor
from .gather_ops import as_dense

_ops = _loader.load()
_stitch = _ops.gather_stitch_parallel_dynamic_stitch
_stitch_v2 = _ops.gather_stitch_parallel_dynamic_stitch_v2
_stitch_grad = _ops.gather_stitch_parallel_dynamic_stitch_grad

_emission = stock_lowering.emission
_MAX_INT32 = 2**31 - 1


def parallel_dynamic_stitch(
    indices: Sequence[Any],
    data: Sequence[Any],
    name: str | None = None,
    *,
    size: Any = None,
    bad_indices_policy: str = "DEFAULT",
) -> Any:
    """Merges the rows of the `data` tensors into one tensor, at `indices`, in parallel.

        result[indices[m][i, ..., j], ...] = data[m][i, ..., j, ...]

    Where an index occurs more than once, the last in the order `(m, i, ..., j)` wins, and its row
    is whole; TensorFlow leaves this open for `tf.raw_ops.ParallelDynamicStitch`. Rows that no
    index names are zeros (an empty string, false). `dynamic_stitch` is the same function.

    >>> gather_stitch.parallel_dynamic_stitch([[0, 2], [2]], [[1., 2.], [3.]]).numpy()
    array([1., 0., 3.], dtype=float32)
    >>> gather_stitch.parallel_dynamic_stitch([[0, 2], [1]], [[1., 2.], [3.]], size=5).numpy()
    array([1., 3., 2., 0., 0.], dtype=float32)

    Args:
      indices: A list of at least one tensor of int32, or of int64, of any shape.
      data: A list of as many tensors of one dtype, any dtype, with
        `data[m].shape == indices[m].shape + constant`.
      name: The name of the node in a graph; `ParallelDynamicStitch` if None.
      size: The number of rows of the result, an int or a scalar tensor of int32 or int64. If
        None, it is `max(indices) + 1`, or 0 where there is no index; then the shape of the result
        is known only where the indices are.
      bad_indices_policy: What an index outside `[0, size)` gives. `"DEFAULT"`: an error on a CPU;
        on a GPU and under XLA its row is dropped. `"ERROR"`: an error. `"IGNORE"`, only with
        `size`: its row is dropped, and gets no gradient.

    Returns:
      A tensor of shape `[size] + constant` with the dtype of `data`. Its gradient reaches the
      rows that were not overwritten; the others get zeros.

    Raises:
      ValueError: An unknown `bad_indices_policy`; `"IGNORE"` without `size`; lists of different
        lengths or empty ones; shapes that do not fit, while a graph is built.
      TypeError: `indices` or `data` is no list or tuple; indices of another dtype.
      tf.errors.InvalidArgumentError: The op refuses shapes or an index; the text names the first
        bad one, such as `indices[1][2] = -3 is not in [0, 9)`.

    The definition is that of TensorFlow:
    https://www.tensorflow.org/api_docs/python/tf/raw_ops/ParallelDynamicStitch
    """
    if name is None:
        name = "ParallelDynamicStitch"
    return _merge(indices, data, name, size, bad_indices_policy)


def dynamic_stitch(
    indices: Sequence[Any],
    data: Sequence[Any],
    name: str | None = None,
    *,
    size: Any = None,
    bad_indices_policy: str = "DEFAULT",
) -> Any:
    """Merges the rows of the `data` tensors into one tensor, at `indices`.

    The same function as `parallel_dynamic_stitch`, which describes arguments, result and errors,
    but for the name of the node in a graph, `DynamicStitch`.

    >>> indices = [6, [4, 1], [[5, 2], [0, 3]]]
    >>> data = [[61, 62], [[41, 42], [11, 12]], [[[51, 52], [21, 22]], [[1, 2], [31, 32]]]]
    >>> gather_stitch.dynamic_stitch(indices, data).numpy().tolist()
    [[1, 2], [11, 12], [21, 22], [31, 32], [41, 42], [51, 52], [61, 62]]

    Its gradient differs from that of `tf.dynamic_stitch` up to TensorFlow 2.21 where rows were
    overwritten: those get zeros here.

    >>> x = tf.constant([1., 2., 3.])
    >>> with tf.GradientTape() as tape:
    ...   tape.watch(x)
    ...   merged = gather_stitch.dynamic_stitch([[0, 1, 0]], [x])
    >>> tape.gradient(merged, x).numpy()
    array([0., 1., 1.], dtype=float32)

    The definition is that of TensorFlow:
    https://www.tensorflow.org/api_docs/python/tf/dynamic_stitch
    """
    if name is None:
        name = "DynamicStitch"
    return _merge(indices, data, name, size, bad_indices_policy)


def _merge(
    indices: Sequence[Any], data: Sequence[Any], name: str, size: Any, bad_indices_policy: str
) -> Any:
    if bad_indices_policy != "DEFAULT":
        _check_policy(bad_indices_policy, size)
    try:
        if _emission.is_stock:
            _check_lists(indices, data)
            return stock_lowering.stitch(indices, data, size, bad_indices_policy, name)
        if size is None:
            return _stitch(indices, data, name=name)
        if size.__class__ is int and size > _MAX_INT32:
            size = tf.constant(size, tf.int64)
        return _stitch_v2(indices, data, size, bad_indices_policy=bad_indices_policy, name=name)
    except (TypeError, ValueError, OverflowError, tf.errors.InvalidArgumentError):
        # Now there is time to see what the op did not take.
        for value in [*_flat(indices), *_flat(data)]:
            if _arguments.belongs_to_stock(value):
                if size is not None or bad_indices_policy != "DEFAULT":
                    _arguments.refuse_options_for_stock(value, "tf.dynamic_stitch")
                return tf.dynamic_stitch(indices, data, name=name)
        _check_lists(indices, data)
        for m, value in enumerate(indices):
            _arguments.refuse_wrong_dtype(f"indices[{m}]", value, _arguments.STITCH_INDEX_DTYPES)
        if size is not None:
            _arguments.refuse_wrong_dtype("size", size, ("int32", "int64"))
        raise


autograph.autograph_artifact(parallel_dynamic_stitch)
autograph.autograph_artifact(dynamic_stitch)


def _flat(values: Any) -> list[Any]:
    return list(values) if isinstance(values, (list, tuple)) else [values]


def _check_policy(bad_indices_policy: str, size: Any) -> None:
    if bad_indices_policy not in _arguments.STITCH_POLICIES:
        _arguments.refuse_choice(
            "bad_indices_policy", bad_indices_policy, _arguments.STITCH_POLICIES
        )
    if size is None and bad_indices_policy == "IGNORE":
        raise ValueError(
            'bad_indices_policy="IGNORE" needs size=: without it the result has room for every '
            "index"
        )


def _check_lists(indices: Any, data: Any) -> None:
    for argument, value in (("indices", indices), ("data", data)):
        if not isinstance(value, (list, tuple)):
            raise TypeError(f"{argument} must be a list of tensors, but got {value!r}")
    if len(indices) != len(data):
        raise ValueError(
            "indices and data must be lists of the same length, but have "
            f"{len(indices)} and {len(data)} tensors"
        )
    if not indices:
        raise ValueError("indices and data must hold at least one tensor each")


# ---- Gradients ---------------------------------------------------------------


@register_gradient("GatherStitch>ParallelDynamicStitch")
def _stitch_gradient(op: Any, grad: Any) -> list[Any]:
    inputs_count = len(op.inputs) // 2
    data_grads = _stitch_grad(as_dense(grad), list(op.inputs[:inputs_count]))
    return [None] * inputs_count + list(data_grads)


@register_gradient("GatherStitch>ParallelDynamicStitchV2")
def _stitch_v2_gradient(op: Any, grad: Any) -> list[Any]:
    return [*_stitch_gradient(op, grad), None]


@register_gradient("GatherStitch>ParallelDynamicStitchGrad")
def _stitch_grad_gradient(op: Any, *data_grads: Any) -> list[Any]:
    grad, *indices = op.inputs
    merged_rows = tf.shape(grad, tf.int64)[0]
    merged = _stitch_v2(
        indices, [as_dense(g) for g in data_grads], merged_rows, bad_indices_policy="IGNORE"
    )
    return [merged] + [None] * len(indices)


# ---- Vectorisation -----------------------------------------------------------
#
# The merged tensors of all iterations are merged as one, in which each iteration has rows of its
# own. That takes as many rows in every iteration.


@register_pfor("GatherStitch>ParallelDynamicStitch")
def _convert_stitch(pfor_input: Any) -> Any:
    inputs_count = pfor_input.num_inputs // 2
    indices = [pfor_input.input(m) for m in range(inputs_count)]
    if any(value.is_stacked for value in indices):
        raise ValueError(
            "the indices of a stitch differ from one iteration of a vectorized loop to the next, "
            "so that its results may have different numbers of rows: pass size= to "
            "parallel_dynamic_stitch or dynamic_stitch"
        )
    largest = tf.constant(-1, tf.int64)
    for value in indices:
        # The smallest integer where a tensor is empty.
        largest = tf.maximum(largest, tf.cast(tf.reduce_max(value.t), tf.int64))
    return _stitch_iterations(pfor_input, inputs_count, largest + 1, "DEFAULT")


@register_pfor("GatherStitch>ParallelDynamicStitchV2")
def _convert_stitch_v2(pfor_input: Any) -> Any:
    inputs_count = pfor_input.num_inputs // 2
    merged_rows, is_stacked, _ = pfor_input.input(2 * inputs_count)
    if is_stacked:
        raise ValueError(
            "the size of a stitch differs from one iteration of a vectorized loop to the next: "
            "its results can not be stacked"
        )
    policy = attr_text(pfor_input.get_attr("bad_indices_policy"))
    return _stitch_iterations(pfor_input, inputs_count, tf.cast(merged_rows, tf.int64), policy)


def _stitch_iterations(
    pfor_input: Any, inputs_count: int, rows_per_iteration: Any, policy: str
) -> Any:
    pfor_input.stack_inputs(range(inputs_count, 2 * inputs_count))
    iterations = tf.cast(pfor_input.pfor.loop_len_vector[0], tf.int64)
    merged = _stitch_v2(
        [
            _rows_of_iterations(pfor_input.input(m), iterations, rows_per_iteration)
            for m in range(inputs_count)
        ],
        [pfor_input.stacked_input(m) for m in range(inputs_count, 2 * inputs_count)],
        iterations * rows_per_iteration,
        bad_indices_policy=policy,
    )
    shape = tf.concat([[iterations, rows_per_iteration], tf.shape(merged, tf.int64)[1:]], 0)
    return pfor.wrap(tf.reshape(merged, shape))


@register_pfor("GatherStitch>ParallelDynamicStitchGrad")
def _convert_stitch_grad(pfor_input: Any) -> list[Any]:
    pfor_input.stack_inputs([0])
    grad = pfor_input.stacked_input(0)
    grad_shape = tf.shape(grad, tf.int64)
    flat_shape = tf.concat([[grad_shape[0] * grad_shape[1]], grad_shape[2:]], 0)
    indices = [
        _rows_of_iterations(pfor_input.input(m), grad_shape[0], grad_shape[1])
        for m in range(1, pfor_input.num_inputs)
    ]
    return [pfor.wrap(g) for g in _stitch_grad(tf.reshape(grad, flat_shape), indices)]


def _rows_of_iterations(indices: Any, iterations: Any, rows_per_iteration: Any) -> Any:
    """Indices into the rows of all iterations, int64, with the iterations as first dimension.

    A bad index stays bad, and negative where it was: it must not name a row of another iteration.
    """
    values = tf.cast(indices.t, tf.int64)
    if not indices.is_stacked:
        values = values[tf.newaxis]
    first_rows = tf.range(iterations) * rows_per_iteration
    ones = tf.ones_like(tf.shape(values, tf.int64))[1:]
    first_rows = tf.reshape(first_rows, tf.concat([[iterations], ones], 0))
    past_the_end = (iterations - 1) * rows_per_iteration
    return tf.where(
        values < 0, values, values + tf.where(values < rows_per_iteration, first_rows, past_the_end)
    )
