# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Puts the kernels of this package behind stock op names, for models that name nobody else.

The library registers kernels of a higher priority than TensorFlow's. They can not be taken back,
so everything that speaks against it is looked at before it is loaded.
"""

from __future__ import annotations

import ctypes
import logging
import os

import tensorflow as tf
from tensorflow.core.framework import kernel_def_pb2
from tensorflow.python.eager import context
from tensorflow.python.framework import kernels

from . import _loader

logger = logging.getLogger("gather_stitch")

STOCK_LIBRARY = _loader.PACKAGE_FOLDER / "_stock_kernels.so"
STOCK_OP_NAMES = (
    "Gather",
    "GatherV2",
    "ResourceGather",
    "DynamicStitch",
    "ParallelDynamicStitch",
    "UnsortedSegmentSum",
    "ResourceScatterAdd",
    "ResourceScatterSub",
)
ENVIRONMENT_VARIABLE = "GATHER_STITCH_ACCELERATE"

# What is one for the process, however often the package is imported: the generated wrappers keep
# the path of the library.
_process = _loader.load()
_PATH_KEY = "stock_library_path"


def accelerate() -> None:
    """Makes stock TensorFlow ops on the CPU run on the kernels of this package.

    From then on tf.gather, tf.nn.embedding_lookup, tf.dynamic_stitch, sparse optimizers, gradients
    of gathers, Keras layers and loaded SavedModels use them, with no change to the model: the ops
    Gather, GatherV2, ResourceGather, DynamicStitch, ParallelDynamicStitch, UnsortedSegmentSum,
    ResourceScatterAdd and ResourceScatterSub. Values and errors stay TensorFlow's, with two
    exceptions: sums of half and bfloat16 in UnsortedSegmentSum are made in float32 and rounded
    once, and dtypes that TensorFlow has no kernel for are gathered and stitched instead of refused.
    A `tf.compat.v1.Session` and an iterator of tf.data keep the kernels that they have run before.
    It can not be undone: a new process starts on TensorFlow's own kernels. A second call does
    nothing.

        >>> import tensorflow as tf
        >>> import gather_stitch
        >>> gather_stitch.accelerate()
        >>> tf.gather([1., 2., 3.], [2, 0]).numpy().tolist()
        [3.0, 1.0]

    The environment variable GATHER_STITCH_ACCELERATE=1 does it when gather_stitch is imported;
    there a refusal is a warning.

    Raises:
      ImportError: refused. The library is missing or was built for another TensorFlow; something
        else has replaced the kernels; or TensorFlow sees another device than CPUs, such as a GPU,
        from which kernels of a higher priority would draw ops to the CPU. TensorFlow is then as it
        was.
    """
    if is_accelerated():
        return
    reason = _why_not()
    if reason:
        raise ImportError(f"gather_stitch does not accelerate stock ops: {reason}")
    try:
        tf.load_library(str(STOCK_LIBRARY))
    except (tf.errors.OpError, RuntimeError, OSError) as error:
        raise ImportError(
            f"gather_stitch does not accelerate stock ops: {STOCK_LIBRARY} does not load: {error}"
        ) from error
    # Kernels that eager execution and functions have instantiated are not looked up again.
    context.context().clear_kernel_cache()
    setattr(_process, _PATH_KEY, str(STOCK_LIBRARY))
    logger.info("stock TensorFlow ops run on the kernels of gather_stitch: %s", STOCK_LIBRARY)


def is_accelerated() -> bool:
    """Whether stock ops on the CPU run on the kernels of this package, in this process."""
    return hasattr(_process, _PATH_KEY)


def accelerate_if_asked() -> None:
    """Does what the environment says; where that is refused the program runs on stock kernels."""
    value = os.environ.get(ENVIRONMENT_VARIABLE, "")
    if value in ("", "0"):
        return
    if value != "1":
        logger.warning("%s=%s is neither 0 nor 1: ignored", ENVIRONMENT_VARIABLE, value)
        return
    try:
        accelerate()
    except ImportError as error:
        logger.warning("%s=1: %s", ENVIRONMENT_VARIABLE, error)


def kernel_calls() -> dict[str, int]:
    """How often each of our kernels under a stock name has run in this process."""
    paths = loaded_library()
    if not paths:
        return dict.fromkeys(STOCK_OP_NAMES, 0)
    function = ctypes.CDLL(paths[0]).gather_stitch_stock_calls
    function.restype = ctypes.c_int64
    function.argtypes = [ctypes.c_char_p]
    return {name: function(name.encode()) for name in STOCK_OP_NAMES}


def loaded_library() -> list[str]:
    """The path of the library that accelerates, if one does."""
    path = getattr(_process, _PATH_KEY, None)
    return [] if path is None else [path]


def replacing_kernels(op_name: str) -> list[kernel_def_pb2.KernelDef]:
    """The CPU kernels of a stock op that come before TensorFlow's."""
    registered = kernels.get_registered_kernels_for_op(op_name).kernel
    return [k for k in registered if k.device_type == "CPU" and k.priority > 0]


def _why_not() -> str | None:
    if not STOCK_LIBRARY.is_file():
        return f"there is no {STOCK_LIBRARY}; {_how_to_mend('build')}"
    built_for = _loader.build_info().get("TF_VERSION", "unknown")
    if _loader.minor(built_for) != _loader.minor(tf.__version__):
        return (
            f"{STOCK_LIBRARY} was built for TensorFlow {built_for}, and {tf.__version__} is "
            f"running; {_how_to_mend(f'build TENSORFLOW=tensorflow=={tf.__version__}')}"
        )
    replaced = [name for name in STOCK_OP_NAMES if replacing_kernels(name)]
    if replaced:
        return f"something else in this process has replaced the CPU kernels of {replaced[0]}"
    others = [d.name for d in tf.config.get_visible_devices() if d.device_type != "CPU"]
    if others:
        return (
            f"TensorFlow sees {', '.join(others)}, and would run ops there on the CPU instead, "
            "where their kernels have the higher priority; tf.config.set_visible_devices([], "
            "'GPU') or CUDA_VISIBLE_DEVICES=-1 hides it"
        )
    return None


def _how_to_mend(make_goals: str) -> str:
    command, _ = _loader.mending_command(make_goals)
    return f"to mend: {command}"
