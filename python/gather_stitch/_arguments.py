# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""What Python can see of the arguments of the public functions before an op runs."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import composite_tensor

GATHER_POLICIES = ("DEFAULT", "ERROR", "IGNORE", "CLIP", "WRAP")
STITCH_POLICIES = ("DEFAULT", "ERROR", "IGNORE")

# The public spelling of `gradient` and the attr of the op.
GRADIENT_ATTRS = {"auto": "AUTO", "dense": "DENSE", "sparse": "SPARSE"}

GATHER_INDEX_DTYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
STITCH_INDEX_DTYPES = ("int32", "int64")


def belongs_to_stock(value: Any) -> bool:
    """Whether only the stock functions know how to take `value` apart.

    That is every composite tensor (RaggedTensor, extension types) that is not converted to a
    tensor as a matter of course, and a table with a `sparse_read` of its own (ShardedVariable).
    """
    if isinstance(value, (tf.Tensor, tf.Variable, tf.IndexedSlices)):
        return False
    return isinstance(
        value, (composite_tensor.CompositeTensor, tf.compat.v1.ragged.RaggedTensorValue)
    ) or hasattr(value, "sparse_read")


def refuse_choice(argument: str, value: Any, allowed: Any) -> NoReturn:
    names = ", ".join(repr(name) for name in allowed)
    raise ValueError(f"{argument} must be one of {names}, but got {value!r}")


def refuse_options_for_stock(value: Any, function: str) -> NoReturn:
    raise ValueError(
        f"a {type(value).__name__} is passed on to {function}, which has neither "
        "bad_indices_policy nor gradient nor size: leave them at their defaults"
    )


def refuse_wrong_dtype(argument: str, value: Any, allowed: tuple[str, ...]) -> None:
    """Raises a TypeError in plain words where the dtype of `value` is not among `allowed`."""
    try:
        dtype = tf.as_dtype(value.dtype if hasattr(value, "dtype") else tf.constant(value).dtype)
    except (TypeError, ValueError, tf.errors.OpError):
        return
    if dtype.base_dtype.name in allowed:
        return
    hint = ""
    if isinstance(value, (list, tuple)) and np.size(np.asarray(value, dtype=object)) == 0:
        hint = "; an empty list has no dtype of its own: write tf.constant([], tf.int32)"
    raise TypeError(f"{argument} must be {_listed(allowed)}, but got {dtype.name}{hint}") from None


def static_rank(value: Any) -> int | None:
    """The rank of a tensor, variable, array or nested list; None where it is not known."""
    shape = getattr(value, "shape", None)
    if shape is None:
        try:
            return np.ndim(value)
        except (TypeError, ValueError):
            return None
    rank: int | None = tf.TensorShape(shape).rank
    return rank


def static_scalar(value: Any) -> int | None:
    """The value of a scalar; None where it is only known at run time."""
    if isinstance(value, (int, np.integer)):
        return int(value)
    constant = tf.get_static_value(value) if isinstance(value, tf.Tensor) else None
    return None if constant is None or np.ndim(constant) else int(constant)


def count_from_front(position: int | None, rank: int | None) -> int | None:
    """`position` with `rank` added where it is negative; None where that is not known."""
    if position is None or position >= 0:
        return position
    return None if rank is None else position + rank


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names[:-1]) + " or " + names[-1]
