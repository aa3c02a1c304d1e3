# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Registering gradients, tangents and vectorisations, in registries that keep one entry.

The package may be imported more than once in a process, anew or from another path. The first
entry stays: it serves the same ops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import forwardprop
from tensorflow.python.ops.parallel_for import pfor


def register_gradient(op_type: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers the decorated `(op, *grads) -> list` as the gradient of `op_type`."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        try:
            tf.RegisterGradient(op_type)(function)
        except KeyError:
            pass
        return function

    return register


def register_tangent(op_type: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers the decorated `(attrs, inputs, outputs, tangents) -> list` for forward mode.

    Without it TensorFlow differentiates the gradient of `op_type` with respect to its argument.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        forwardprop._SPECIAL_CASES.setdefault(op_type, function)
        return function

    return register


def register_pfor(op_type: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers the decorated `(pfor_input) -> outputs` as the vectorisation of `op_type`."""

    def register(converter: Callable[..., Any]) -> Callable[..., Any]:
        if op_type not in pfor._pfor_converter_registry:
            pfor.RegisterPFor(op_type)(converter)
        return converter

    return register


def attr_text(value: str | bytes) -> str:
    """A string attr of an op, which graphs give as bytes and a tape as it was passed."""
    return value if isinstance(value, str) else value.decode()
