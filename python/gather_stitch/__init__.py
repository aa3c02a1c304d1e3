# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Gather and dynamic-stitch ops for TensorFlow.

Importing this package loads its op library and registers the gradients. The functions take the
arguments of `tf.gather` and `tf.dynamic_stitch`, so replacing the module name is enough:

    >>> import gather_stitch
    >>> gather_stitch.gather([10, 20, 30], [2, -1], bad_indices_policy="WRAP").numpy().tolist()
    [30, 30]

Models that call stock ops can stay as they are: `accelerate()` puts the same kernels behind them.
`python -m gather_stitch` prints what a bug report needs.
"""

import importlib
from typing import Any

from . import _loader

__version__ = _loader.build_info().get("VERSION", "unknown")

# The library is loaded first: a failure says how to mend it.
_loader.load()

from . import _acceleration, raw_ops, sysconfig  # noqa: E402
from ._acceleration import accelerate, is_accelerated  # noqa: E402
from .gather_ops import batch_gather, gather  # noqa: E402
from .stitch_ops import dynamic_stitch, parallel_dynamic_stitch  # noqa: E402
from .stock_lowering import use_stock_ops  # noqa: E402

__all__ = [
    "__version__",
    "accelerate",
    "batch_gather",
    "dynamic_stitch",
    "gather",
    "is_accelerated",
    "parallel_dynamic_stitch",
    "raw_ops",
    "sysconfig",
    "use_stock_ops",
]

_acceleration.accelerate_if_asked()


def __getattr__(name: str) -> Any:
    # Only who uses gather_stitch.keras needs Keras.
    if name == "keras":
        return importlib.import_module(".keras", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
