# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""How the tests call our ops on an emulated GPU, and what they give it."""

from __future__ import annotations

import contextlib

import cases
import numpy as np
import tensorflow as tf
from checks import MODES, run_modes
from tensorflow.python.framework import dtypes

GPU = "/GPU:0"
# Those that the device has kernels for; strings, variants and resources stay on the CPU.
DTYPES = [dtype for dtype in cases.DTYPES if dtype not in cases.OBJECT_DTYPES]
# What a policy does on a device, in the terms of the oracles.
POLICIES = {"DEFAULT": "IGNORE", "IGNORE": "IGNORE", "CLIP": "CLIP", "WRAP": "WRAP"}


def on_device(value, device=GPU):
    # Some dtypes have no kernel there for a constant, nor for tf.identity.
    with tf.device("/CPU:0"):
        return tf.convert_to_tensor(value)._copy(device_name=device.removeprefix("/"))


def assert_on_device(value, device=GPU):
    for tensor in tf.nest.flatten(value, expand_composites=True):
        assert tensor.device.endswith(device.removeprefix("/")), tensor.device


# TensorFlow lets no argument of these enter a device of type GPU, or leave it.
CROSSING_DTYPES = frozenset(
    (
        tf.qint16,
        tf.quint16,
        dtypes.float8_e5m2fnuz,
        dtypes.float8_e4m3fnuz,
        dtypes.float8_e4m3b11fnuz,
        dtypes.float4_e2m1fn,
        dtypes.int2,
        dtypes.uint2,
    )
)


def crossing(function):
    """The function on the device, with arguments and results on the CPU."""

    def run(*tensors):
        with tf.device(GPU):
            results = function(*tensors)
        with tf.device("/CPU:0"):
            return tf.nest.map_structure(tf.identity, results)

    return run


def run_on_device(op_type, function, *tensors, times=1, modes=MODES):
    """[(mode, result)] as run_modes gives them, of tensors and results on the device."""
    if any(t.dtype in CROSSING_DTYPES for t in tensors):
        with tf.device("/CPU:0"):
            return list(
                run_modes(op_type, crossing(function), *tensors, times=times, modes=("function",))
            )
    inputs = [on_device(t) for t in tensors]
    with tf.device(GPU):
        results = list(run_modes(op_type, function, *inputs, times=times, modes=modes))
    for _, result in results:
        assert_on_device(result)
    return results


@contextlib.contextmanager
def soft_placement():
    """What the device has no kernel for runs on the CPU meanwhile."""
    tf.config.set_soft_device_placement(True)
    try:
        yield
    finally:
        tf.config.set_soft_device_placement(False)


def gradient_on_device(function, x, upstream):
    """The gradient of `function` at x, for what comes in from above, all on the device."""
    with soft_placement(), tf.device(GPU), tf.GradientTape() as tape:
        x = on_device(x)
        tape.watch(x)
        result = function(x)
        return tape.gradient(result, x, output_gradients=on_device(upstream))


def whole_numbers(rng, shape, dtype) -> np.ndarray:
    """Small ones, whose sums are the same in whatever order they are made."""
    dtype = tf.as_dtype(dtype)
    low = 0 if dtype.is_unsigned or dtype == tf.bool else -2
    values = rng.integers(low, 2 if dtype == tf.bool else 3, shape)
    if dtype.is_complex:
        values = values + 1j * rng.integers(-2, 3, shape)
    return np.asarray(values).astype(dtype.as_numpy_dtype)
