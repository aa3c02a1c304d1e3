# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""`gather`: slices of a tensor or variable at indices; its gradients and its vectorisation."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.autograph.impl import api as autograph
from tensorflow.python.framework import auto_control_deps_utils, ops
from tensorflow.python.ops import array_ops, gen_array_ops
from tensorflow.python.ops.parallel_for import pfor

from . import _arguments, _loader, _variables, stock_lowering
from ._registration import attr_text, register_gradient, register_pfor, register_tangent

_ops = _loader.load()
_gather_v2 = _ops.gather_stitch_gather_v2
_gather_v2_grad = _ops.gather_stitch_gather_v2_grad
_gather_v2_sparse_grad = _ops.gather_stitch_gather_v2_sparse_grad
_resource_gather = _ops.gather_stitch_resource_gather

_EagerTensor = ops.EagerTensor
_emission = stock_lowering.emission
_MAX_INT32 = 2**31 - 1

# Two reads of a variable need no order.
auto_control_deps_utils.register_read_only_resource_op("GatherStitch>ResourceGather")


def gather(
    params: Any,
    indices: Any,
    validate_indices: Any = None,
    axis: Any = None,
    batch_dims: int = 0,
    name: str | None = None,
    *,
    bad_indices_policy: str = "DEFAULT",
    gradient: str = "auto",
) -> Any:
    """Gathers slices of `params` along `axis` at `indices`: `tf.gather` with defined edges.

    With `P = params.shape`, `I = indices.shape`, and `axis` and `batch_dims` counted from the
    front, the result has the shape `P[:axis] + I[batch_dims:] + P[axis + 1:]` and

        result[batch, outer, i, inner] = params[batch, outer, indices[batch, i], inner]

    where `batch` runs over the first `batch_dims` dimensions, `outer` over those of `params`
    between them and `axis`, and `inner` over those after `axis`.

    >>> table = tf.constant([[1., 2.], [3., 4.], [5., 6.]])
    >>> gather_stitch.gather(table, [2, 0]).numpy()
    array([[5., 6.],
           [1., 2.]], dtype=float32)
    >>> gather_stitch.gather(table, [2, -1], bad_indices_policy="IGNORE").numpy()
    array([[5., 6.],
           [0., 0.]], dtype=float32)
    >>> gather_stitch.gather(table, [[1], [0], [1]], axis=1, batch_dims=1).numpy()
    array([[2.],
           [3.],
           [6.]], dtype=float32)

    Args:
      params: A tensor of at least one dimension and any dtype, or a variable, of which nothing
        but the slices is read, on its device. A RaggedTensor, here or as `indices`, and a
        ShardedVariable are passed on to `tf.gather`.
      indices: A tensor of integers of 8 to 64 bits, signed or unsigned, of any shape whose first
        `batch_dims` dimensions are those of `params`.
      validate_indices: Ignored, as in `tf.gather`.
      axis: An int, or a scalar tensor of int32 or int64, in `[-rank(params), rank(params))` and
        not below `batch_dims`. None means `axis=batch_dims`, literally.
      batch_dims: An int in `[-rank(indices), rank(indices)]`.
      name: The name of the node in a graph; if None, `GatherV2`, or `Gather` for a variable.
      bad_indices_policy: What an index outside `[0, P[axis])` gives. `"DEFAULT"`: an error on a
        CPU, zeros on a GPU and under XLA, as in TensorFlow. `"ERROR"`: an error. `"IGNORE"`: zeros
        (an empty string, false), and no gradient. `"CLIP"`: the nearest slice, `"WRAP"`: the
        slice at the index modulo `P[axis]`, so that -1 is the last one; both get the gradient.
      gradient: What the gradient of `params` is. `"auto"`: as in TensorFlow, `tf.IndexedSlices`
        where `axis` is 0 without `batch_dims`, else a dense tensor. `"dense"`: a dense tensor.
        `"sparse"`: `tf.IndexedSlices` with sorted, distinct indices and summed rows.

    Returns:
      A tensor with the dtype of `params`; for a variable of Keras, that of its autocast scope.

    Raises:
      ValueError: An unknown `bad_indices_policy` or `gradient`; `gradient="sparse"` with another
        `axis` or `batch_dims` than 0; shapes, axis or batch_dims that do not fit, while a graph
        is built.
      TypeError: `indices` or `axis` are no integers.
      tf.errors.InvalidArgumentError: The op refuses shapes, `axis`, `batch_dims` or an index; the
        text names the first bad one, such as `indices[2,1] = 99 is not in [0, 5)`.
      tf.errors.FailedPreconditionError: A variable is not initialized or was deleted.

    The definition is that of TensorFlow: https://www.tensorflow.org/api_docs/python/tf/gather
    """
    if axis is None:
        axis = batch_dims
    gradient_attr = "AUTO"
    if gradient != "auto" or bad_indices_policy != "DEFAULT":
        gradient_attr = _check_options(
            params, indices, axis, batch_dims, bad_indices_policy, gradient
        )
    if (
        params.__class__ is not _EagerTensor
        or indices.__class__ is not _EagerTensor
        or _emission.is_stock
    ):
        for value in (params, indices):
            if _arguments.belongs_to_stock(value):
                if gradient != "auto" or bad_indices_policy != "DEFAULT":
                    _arguments.refuse_options_for_stock(value, "tf.gather")
                return tf.gather(params, indices, axis=axis, batch_dims=batch_dims, name=name)
        variable, dtype = _variables.find(params)
        if variable is not None:
            slices = _gather_from_variable(
                variable, indices, axis, batch_dims, bad_indices_policy, gradient_attr, name
            )
            return slices if dtype is None else tf.cast(slices, dtype)
        if _emission.is_stock:
            return stock_lowering.gather(
                params, indices, axis, batch_dims, bad_indices_policy, name
            )
    try:
        return _gather_v2(
            params,
            indices,
            axis,
            batch_dims=batch_dims,
            bad_indices_policy=bad_indices_policy,
            gradient=gradient_attr,
            name="GatherV2" if name is None else name,
        )
    except (TypeError, ValueError, tf.errors.InvalidArgumentError):
        _refuse_wrong_dtypes(indices, axis)
        raise


def batch_gather(params: Any, indices: Any, name: str | None = None) -> Any:
    """Gathers along the last dimension of `indices`, within batches given by its other ones.

    This is `gather` with `axis` and `batch_dims` of `rank(indices) - 1`, the function
    `tf.compat.v1.batch_gather`:

        result[batch, i, inner] = params[batch, indices[batch, i], inner]

    >>> gather_stitch.batch_gather([[1, 2, 3], [4, 5, 6]], [[2, 0], [1, 1]]).numpy()
    array([[3, 1],
           [5, 5]], dtype=int32)

    Args:
      params: A tensor or variable of any dtype, of at least the rank of `indices`.
      indices: A tensor of integers of at least one dimension, whose dimensions but the last are
        the first ones of `params`. Its rank need not be known while a graph is built.
      name: The name of the node in a graph; `BatchGather` if None.

    Returns:
      A tensor of shape `indices.shape + params.shape[rank(indices):]`.

    Raises:
      ValueError: `indices` is a scalar.
      TypeError: `indices` are no integers.
      tf.errors.InvalidArgumentError: As `gather`.

    The definition is that of TensorFlow:
    https://www.tensorflow.org/api_docs/python/tf/compat/v1/batch_gather
    """
    rank = _arguments.static_rank(indices)
    if rank == 0:
        raise ValueError("indices must be at least 1 dimensional, but got a scalar")
    if name is None:
        name = "BatchGather"
    if rank is None:
        # batch_dims is an attr, axis an input: both count from the end of indices.
        indices = tf.convert_to_tensor(indices)
        return gather(params, indices, axis=tf.rank(indices) - 1, batch_dims=-1, name=name)
    return gather(params, indices, axis=rank - 1, batch_dims=rank - 1, name=name)


# autograph runs these as they are: there is nothing in them to convert.
autograph.autograph_artifact(gather)
autograph.autograph_artifact(batch_gather)


def _gather_from_variable(
    variable: Any,
    indices: Any,
    axis: Any,
    batch_dims: int,
    bad_indices_policy: str,
    gradient_attr: str,
    name: str | None,
) -> Any:
    if _emission.is_stock:
        is_of_rows = batch_dims == 0 and _arguments.static_scalar(axis) == 0
        if is_of_rows and stock_lowering.can_gather_rows(variable, bad_indices_policy):
            return stock_lowering.gather_rows(variable, indices, bad_indices_policy, name)
        return stock_lowering.gather(variable, indices, axis, batch_dims, bad_indices_policy, name)
    _variables.variable_accessed(variable)
    attrs = {
        "dtype": variable.dtype,
        "batch_dims": batch_dims,
        "bad_indices_policy": bad_indices_policy,
        "gradient": gradient_attr,
        "name": "Gather" if name is None else name,
    }
    try:
        if tf.executing_eagerly():
            # The op runs where its handle is.
            slices = _resource_gather(variable.handle, indices, axis, **attrs)
        else:
            indices, axis = tf.convert_to_tensor(indices), tf.convert_to_tensor(axis)
            with _variables.placed_with(variable):
                slices = _resource_gather(variable.handle, indices, axis, **attrs)
    except (TypeError, ValueError, tf.errors.InvalidArgumentError):
        _refuse_wrong_dtypes(indices, axis)
        raise
    if variable.dtype == tf.variant:
        _variables.keep_handle_data(variable, slices)
    return slices


def _refuse_wrong_dtypes(indices: Any, axis: Any) -> None:
    _arguments.refuse_wrong_dtype("indices", indices, _arguments.GATHER_INDEX_DTYPES)
    _arguments.refuse_wrong_dtype("axis", axis, ("int32", "int64"))


def _check_options(
    params: Any, indices: Any, axis: Any, batch_dims: int, bad_indices_policy: str, gradient: str
) -> str:
    """Refuses what is wrong with the keyword options; returns the attr `gradient`."""
    if bad_indices_policy not in _arguments.GATHER_POLICIES:
        _arguments.refuse_choice(
            "bad_indices_policy", bad_indices_policy, _arguments.GATHER_POLICIES
        )
    if gradient not in tuple(_arguments.GRADIENT_ATTRS):
        _arguments.refuse_choice("gradient", gradient, _arguments.GRADIENT_ATTRS)
    if gradient == "sparse" and _is_row_gather(params, indices, axis, batch_dims) is False:
        _refuse_sparse(axis, batch_dims)
    return _arguments.GRADIENT_ATTRS[gradient]


def _is_row_gather(params: Any, indices: Any, axis: Any, batch_dims: int) -> bool | None:
    """Whether axis and batch_dims are 0, in either spelling; None where that is not known."""
    positions = [
        _arguments.count_from_front(_arguments.static_scalar(axis), _arguments.static_rank(params)),
        _arguments.count_from_front(batch_dims, _arguments.static_rank(indices)),
    ]
    if any(position not in (0, None) for position in positions):
        return False
    return None if None in positions else True


def _refuse_sparse(axis: Any, batch_dims: int) -> None:
    value = _arguments.static_scalar(axis)
    raise ValueError(
        'gradient="sparse" needs a gather along axis 0 without batch_dims, but axis is '
        f"{'only known at run time' if value is None else value} and batch_dims is {batch_dims}: "
        'use "auto" or "dense"'
    )


# ---- Gradients ---------------------------------------------------------------

# A gradient of these has no sum.
_UNSUMMED_DTYPES = frozenset((tf.variant, tf.resource, tf.string, tf.bool))


@register_gradient("GatherStitch>GatherV2")
def _gather_v2_gradient(op: Any, grad: Any) -> list[Any]:
    params = op.inputs[0]
    return _params_gradient(op, grad, params, _shape_of(params))


@register_gradient("GatherStitch>ResourceGather")
def _resource_gather_gradient(op: Any, grad: Any) -> list[Any]:
    handle = op.inputs[0]
    return _params_gradient(op, grad, _variables.spec(handle), _variables.shape(handle))


def _params_gradient(op: Any, grad: Any, params: Any, params_shape: Any) -> list[Any]:
    """The gradients of the inputs of a gather from `params`, of which the static shape counts."""
    _, indices, axis = op.inputs
    batch_dims = op.get_attr("batch_dims")
    choice = attr_text(op.get_attr("gradient"))
    policy = attr_text(op.get_attr("bad_indices_policy"))
    is_row_gather = _is_row_gather(params, indices, axis, batch_dims)
    if choice == "SPARSE" and not is_row_gather:
        _refuse_sparse(axis, batch_dims)
    grad = as_dense(grad)
    if grad.dtype in _UNSUMMED_DTYPES:
        if not is_row_gather or choice == "DENSE":
            raise TypeError(
                f"there is no dense gradient of a gather of {grad.dtype.name}, which has no sum: "
                "gather it along axis 0 without batch_dims"
            )
        values, rows = _unsummed_slices(grad, indices, params_shape, policy)
    elif choice == "DENSE" or not is_row_gather:
        params_grad = _gather_v2_grad(
            grad, indices, params_shape, axis, batch_dims=batch_dims, bad_indices_policy=policy
        )
        return [params_grad, None, None]
    else:
        params_rows = params.shape.as_list()[0] if params.shape.rank is not None else None
        values, rows, _ = _gather_v2_sparse_grad(
            grad,
            indices,
            params_shape[0] if params_rows is None else params_rows,
            bad_indices_policy=policy,
            unique=choice == "SPARSE",
        )
    return [tf.IndexedSlices(values, rows, _dense_shape(params, params_shape)), None, None]


def _dense_shape(params: Any, params_shape: Any) -> Any:
    """`params_shape` as int32, as in the slices that stock makes, which tf.cond pairs ours with."""
    if params.shape.rank is not None and any(d and d > _MAX_INT32 for d in params.shape.as_list()):
        return params_shape
    return tf.cast(params_shape, tf.int32)


@register_tangent("GatherStitch>GatherV2")
def _gather_v2_tangent(
    attrs: tuple[Any, ...], inputs: list[Any], _: list[Any], tangents: list[Any]
) -> list[Any]:
    # The gradient would not do: forward mode hides the value of axis from it, without which it
    # cannot be slices.
    named = dict(zip(attrs[::2], attrs[1::2], strict=True))
    tangent = _gather_v2(
        tangents[0],
        inputs[1],
        inputs[2],
        batch_dims=named["batch_dims"],
        bad_indices_policy=attr_text(named["bad_indices_policy"]),
        gradient="DENSE",
    )
    return [tangent]


# The tangent of a handle is that of the variable.
register_tangent("GatherStitch>ResourceGather")(_gather_v2_tangent)


@register_gradient("GatherStitch>GatherV2Grad")
def _gather_v2_grad_gradient(op: Any, grad: Any) -> list[Any]:
    _, indices, _, axis = op.inputs
    # What is differentiated is no table but a gradient, so its own gradient is dense.
    grad_grad = _gather_v2(
        as_dense(grad),
        indices,
        axis,
        batch_dims=op.get_attr("batch_dims"),
        bad_indices_policy=attr_text(op.get_attr("bad_indices_policy")),
        gradient="DENSE",
    )
    return [grad_grad, None, None, None]


@register_gradient("GatherStitch>GatherV2SparseGrad")
def _gather_v2_sparse_grad_gradient(op: Any, values_grad: Any, *_: Any) -> list[Any]:
    slots = op.outputs[2]
    grad_grad = _gather_v2(
        as_dense(values_grad), slots, 0, bad_indices_policy="IGNORE", gradient="DENSE"
    )
    return [grad_grad, None, None]


def as_dense(grad: Any) -> Any:
    """A gradient as a tensor: IndexedSlices are summed by one op."""
    if not isinstance(grad, tf.IndexedSlices):
        return grad
    if grad.dense_shape is None or grad.dtype in _UNSUMMED_DTYPES:
        return tf.convert_to_tensor(grad)
    shape = tf.cast(grad.dense_shape, tf.int64)
    return _gather_v2_grad(grad.values, grad.indices, shape, 0, bad_indices_policy="IGNORE")


def _unsummed_slices(grad: Any, indices: Any, params_shape: Any, policy: str) -> tuple[Any, Any]:
    """The slices of a gradient whose dtype has no sum (variant), in the order of the indices."""
    rows, is_good = stock_lowering.resolve_indices(indices, params_shape[0], policy)
    rows = tf.reshape(tf.cast(rows, tf.int64), [-1])
    values = tf.reshape(grad, tf.concat([tf.shape(rows, tf.int64), params_shape[1:]], 0))
    if is_good is not None:
        kept = tf.where(tf.reshape(is_good, [-1]))[:, 0]
        rows = _gather_v2(rows, kept, 0)
        values = _gather_v2(values, kept, 0)
    return values, rows


def _shape_of(tensor: Any) -> Any:
    if tensor.__class__ is _EagerTensor:
        return gen_array_ops.shape(tensor, tf.int64)
    # params may be large and far away: its shape is taken where it is.
    with ops.colocate_with(tensor):
        return array_ops.shape(tensor, out_type=tf.int64)


# ---- Vectorisation -----------------------------------------------------------
#
# A stacked tensor has the iterations of the loop as its first dimension. One op over all of them
# takes the place of the loop: what is stacked becomes one more batch dimension, or one more
# dimension before or among those that the op does not look at.


@register_pfor("GatherStitch>GatherV2")
def _convert_gather_v2(pfor_input: Any) -> Any:
    params, params_stacked, _ = pfor_input.input(0)
    indices, indices_stacked, _ = pfor_input.input(1)
    axis = pfor_input.unstacked_input(2)
    batch_dims = pfor_input.get_attr("batch_dims")
    attrs = {
        "bad_indices_policy": attr_text(pfor_input.get_attr("bad_indices_policy")),
        "gradient": attr_text(pfor_input.get_attr("gradient")),
    }
    if not params_stacked:
        axis = _front_axis(axis, _rank(params))
        if isinstance(axis, int) and axis == 0 and indices is pfor_input.pfor.all_indices:
            # Every row in order is the table itself.
            rows = params.shape[:1]
            if rows.is_fully_defined() and rows == indices.shape[:1]:
                return pfor.wrap(params)
        gather_op = functools.partial(_gather_v2, params, **attrs)
        return pfor.wrap(_gather_at_stacked(gather_op, indices, axis, batch_dims))
    if attrs["gradient"] == "SPARSE":
        attrs["gradient"] = "DENSE"  # The axis is not 0 any more.
    stacked_axis = _next_axis(axis)
    indices_rank = _arguments.static_rank(indices)
    if not indices_stacked:
        if _arguments.count_from_front(batch_dims, indices_rank) == 0:
            return pfor.wrap(_gather_v2(params, indices, stacked_axis, **attrs))
        pfor_input.stack_inputs([1])
        indices = pfor_input.stacked_input(1)
    return pfor.wrap(
        _gather_v2(params, indices, stacked_axis, batch_dims=_next_batch_dims(batch_dims), **attrs)
    )


@register_pfor("GatherStitch>ResourceGather")
def _convert_resource_gather(pfor_input: Any) -> Any:
    handle = pfor_input.unstacked_input(0)
    indices, indices_stacked, _ = pfor_input.input(1)
    axis = pfor_input.unstacked_input(2)
    batch_dims = pfor_input.get_attr("batch_dims")
    gather_op = functools.partial(
        _resource_gather,
        handle,
        dtype=pfor_input.get_attr("dtype"),
        bad_indices_policy=attr_text(pfor_input.get_attr("bad_indices_policy")),
        gradient=attr_text(pfor_input.get_attr("gradient")),
    )
    if not indices_stacked:
        return pfor.wrap(gather_op(indices, axis, batch_dims=batch_dims), False)
    rank = _variables.spec(handle).shape.rank
    axis = _front_axis(axis, tf.size(_variables.shape(handle)) if rank is None else rank)
    return pfor.wrap(_gather_at_stacked(gather_op, indices, axis, batch_dims))


def _gather_at_stacked(
    gather_op: Callable[..., Any], indices: Any, axis: Any, batch_dims: int
) -> Any:
    """Gathers from loop-invariant params: the iterations are one more dimension of indices.

    `axis` counts from the front.
    """
    if batch_dims != 0:
        # The new dimension comes after the batch dimensions, which stay those of params.
        position = batch_dims if batch_dims > 0 else batch_dims + _rank(indices) - 1
        order = _concat_ranges((1, position + 1), (0, 1), (position + 1, _rank(indices)))
        indices = tf.transpose(indices, order)
        batch_dims = batch_dims if batch_dims > 0 else batch_dims - 1
    output = gather_op(indices, axis, batch_dims=batch_dims)
    if isinstance(axis, int) and axis == 0:
        return output
    order = _concat_ranges((axis, axis + 1), (0, axis), (axis + 1, _rank(output)))
    return tf.transpose(output, order)


@register_pfor("GatherStitch>GatherV2Grad")
def _convert_gather_v2_grad(pfor_input: Any) -> Any:
    indices_stacked = pfor_input.input(1).is_stacked
    batch_dims = pfor_input.get_attr("batch_dims")
    indices_rank = _arguments.static_rank(pfor_input.input(1).t)
    pfor_input.stack_inputs([0])
    if not indices_stacked and _arguments.count_from_front(batch_dims, indices_rank) == 0:
        batch_dims = 0
    else:
        pfor_input.stack_inputs([1])
        batch_dims = _next_batch_dims(batch_dims)
    params_shape = _common_value(pfor_input.input(2))
    return pfor.wrap(
        _gather_v2_grad(
            pfor_input.stacked_input(0),
            pfor_input.input(1).t,
            tf.concat([_iterations(pfor_input), params_shape], 0),
            _next_axis(pfor_input.unstacked_input(3)),
            batch_dims=batch_dims,
            bad_indices_policy=attr_text(pfor_input.get_attr("bad_indices_policy")),
        )
    )


@register_pfor("GatherStitch>GatherV2SparseGrad")
def _convert_gather_v2_sparse_grad(pfor_input: Any) -> list[Any]:
    pfor_input.stack_inputs([0])
    grad = pfor_input.stacked_input(0)
    indices, indices_stacked, _ = pfor_input.input(1)
    params_rows = _common_value(pfor_input.input(2))
    policy = attr_text(pfor_input.get_attr("bad_indices_policy"))
    iterations = _iterations(pfor_input)
    grad_shape = tf.shape(grad, tf.int64)

    if not indices_stacked:
        # Rows and slots are the same in every iteration. They come from a gradient without
        # inner dimensions, the values from sums into the slots.
        _, rows, slots = _gather_v2_sparse_grad(
            tf.zeros(tf.shape(indices), grad.dtype),
            indices,
            params_rows,
            bad_indices_policy=policy,
            unique=pfor_input.get_attr("unique"),
        )
        inner = grad_shape[1 + _rank(indices) :]
        values_shape = tf.concat([iterations, tf.shape(rows, tf.int64), inner], 0)
        values = _gather_v2_grad(grad, slots, values_shape, 1, bad_indices_policy="IGNORE")
        return [pfor.wrap(values), pfor.wrap(rows, False), pfor.wrap(slots, False)]

    # Iterations may keep different numbers of rows, but stacked tensors have one shape: there
    # is a slot for every index, and a dropped one has the row -1 and zeros.
    rows, is_good = stock_lowering.resolve_indices(indices, params_rows, policy)
    rows = tf.cast(rows, tf.int64)
    indices_shape = tf.shape(indices, tf.int64)
    slots_count = tf.reduce_prod(indices_shape[1:])
    slots = tf.reshape(tf.range(slots_count), indices_shape[1:])
    inner = grad_shape[_rank(indices) :]
    values = tf.reshape(grad, tf.concat([iterations, [slots_count], inner], 0))
    flat_shape = tf.concat([iterations, [slots_count]], 0)
    if is_good is None:
        return [
            pfor.wrap(values),
            pfor.wrap(tf.reshape(rows, flat_shape)),
            pfor.wrap(slots, False),
        ]
    slots = tf.where(is_good, slots, tf.constant(-1, tf.int64))
    rows = tf.reshape(tf.where(is_good, rows, tf.constant(-1, tf.int64)), flat_shape)
    values = _gather_v2(
        values,
        tf.reshape(slots, flat_shape),
        1,
        batch_dims=1,
        bad_indices_policy="IGNORE",
        gradient="DENSE",
    )
    return [pfor.wrap(values), pfor.wrap(rows), pfor.wrap(slots)]


def _common_value(converted_input: Any) -> Any:
    """The value that an input has in every iteration, where another would make no sense.

    A shape may come out of the loop stacked although it cannot differ.
    """
    return converted_input.t[0] if converted_input.is_stacked else converted_input.t


def _iterations(pfor_input: Any) -> Any:
    return tf.cast(pfor_input.pfor.loop_len_vector, tf.int64)


def _next_axis(axis: Any) -> Any:
    """The same axis of params with one more dimension in front."""
    value = _arguments.static_scalar(axis)
    if value is not None:
        return value + 1 if value >= 0 else value
    return tf.where(axis >= 0, axis + 1, axis)


def _next_batch_dims(batch_dims: int) -> int:
    return batch_dims + 1 if batch_dims >= 0 else batch_dims


def _front_axis(axis: Any, rank: Any) -> Any:
    """`axis` counted from the front: an int where that is known, else a scalar int32 tensor."""
    value = _arguments.static_scalar(axis)
    if value is not None:
        return value if value >= 0 else value + rank
    axis = tf.cast(axis, tf.int32)
    return tf.where(axis >= 0, axis, axis + rank)


def _rank(tensor: Any) -> Any:
    return tf.rank(tensor) if tensor.shape.rank is None else tensor.shape.rank


def _concat_ranges(*ranges: tuple[Any, Any]) -> Any:
    """One vector of half-open ranges: a list where all limits are ints, else a tensor."""
    if all(isinstance(limit, int) for limits in ranges for limit in limits):
        return [value for limits in ranges for value in range(*limits)]
    return tf.concat([tf.range(*limits) for limits in ranges], 0)
