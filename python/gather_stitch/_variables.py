# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Finds the variable behind what a caller passes as `params`.

A variable is whatever has a resource handle: a `tf.Variable`, the replica's part of a distributed
variable, and what wraps one of these, such as a variable of Keras.
"""

from __future__ import annotations

import contextlib
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import distribute_lib, values_util
from tensorflow.python.distribute import values as distribute_values
from tensorflow.python.framework import ops
from tensorflow.python.ops import resource_variable_ops

_ResourceVariable = resource_variable_ops.ResourceVariable
variable_accessed = resource_variable_ops.variable_accessed


def find(params: Any) -> tuple[Any, tf.DType | None]:
    """Returns the variable whose handle can be read, and the dtype that its rows are cast to.

    The variable is None where `params` is to be read as a tensor: it is none, or one that has no
    handle here (a reference variable of v1, a variable that is summed over replicas when it is
    read outside of them, a variable of Keras for which a stateless scope holds a value). The dtype
    is None where nothing is cast.
    """
    if params.__class__ is _ResourceVariable:
        return params, None
    if isinstance(params, tf.Tensor) or not resource_variable_ops.is_resource_variable(params):
        return None, None
    variable, dtype = params, None
    if hasattr(params, "_maybe_autocast"):
        # A variable of Keras 3: its `value` would cast the whole table.
        variable = _value_of_keras_variable(params)
        dtype = tf.as_dtype(params.dtype)
    elif hasattr(type(params), "_should_cast"):
        # The AutoCastVariable of Keras 2.
        variable = params._variable
        dtype = params._cast_dtype
    if isinstance(variable, distribute_values.DistributedVariable):
        variable = _part_of_distributed_variable(variable)
    if not isinstance(getattr(variable, "handle", None), tf.Tensor):
        return None, None
    return variable, None if dtype == variable.dtype else dtype


def spec(handle: Any) -> tf.TensorSpec:
    """Static shape and dtype of the variable that `handle`, a tensor, points to."""
    data = resource_variable_ops.get_eager_safe_handle_data(handle)
    if data is None or not data.is_set or not data.shape_and_type:
        return tf.TensorSpec(None, None)
    first = data.shape_and_type[0]
    return tf.TensorSpec(first.shape, first.dtype)


def shape(handle: Any) -> Any:
    """The shape of the variable that `handle` points to, as int64, without reading it."""
    return resource_variable_ops.variable_shape(handle, tf.int64)


def placed_with(variable: Any) -> contextlib.AbstractContextManager[Any]:
    """Where a node that reads `variable` belongs: on its device, after what is to be read.

    TensorFlow places it with the handle, if nothing else tells it where to.
    """
    stack = contextlib.ExitStack()
    stack.enter_context(ops.colocate_with(None, ignore_existing=True))
    if isinstance(variable, resource_variable_ops._UnreadVariable):
        stack.enter_context(ops.control_dependencies([variable._parent_op]))
    return stack


def keep_handle_data(variable: Any, rows: Any) -> None:
    """Tells what a variable of variants knows about them to the rows read from it."""
    resource_variable_ops._maybe_set_handle_data(variable.dtype, variable.handle, rows)


def _value_of_keras_variable(variable: Any) -> Any:
    from keras.src.backend.common import stateless_scope

    if stateless_scope.in_stateless_scope():
        scope = stateless_scope.get_stateless_scope()
        if scope.get_current_value(variable) is not None:
            return None
    return variable._value


def _part_of_distributed_variable(variable: Any) -> Any:
    if variable._is_mirrored() or values_util.is_saving_non_distributed():
        return variable._get_on_device_or_primary()
    # Its value outside of a replica is computed from all parts.
    with distribute_lib.enter_or_assert_strategy(variable.distribute_strategy):
        if values_util.get_current_replica_id_as_int() is None:
            return None
        return variable._get_on_device_or_primary()
