# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""`python -m gather_stitch`: what a bug report needs to say about an installation."""

from __future__ import annotations

import collections
import platform
import sys
import types
from collections.abc import Iterable

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import kernel_def_pb2
from tensorflow.python.framework import kernels

from . import __version__, _acceleration, _loader


def diagnosis() -> str:
    """Versions, libraries, ops, kernels per device and CPU features, a line each."""
    loaded = _loader.load()
    info = _loader.build_info()
    lines = [
        ("gather_stitch", f"{__version__} in {_loader.PACKAGE_FOLDER}"),
        ("built for", f"tensorflow {info.get('TF_VERSION', 'unknown')}"),
        ("built with", info.get("COMPILER", "unknown")),
        ("tensorflow", f"{tf.__version__} ({tf.version.GIT_VERSION})"),
        ("numpy", np.__version__),
        ("python", f"{platform.python_version()} ({sys.executable})"),
        ("platform", platform.platform()),
        ("devices", ", ".join(d.name for d in tf.config.list_physical_devices())),
        ("cpu features in use", _loader.cpu_features(loaded)),
        ("cuda architectures", _loader.cuda_architectures(loaded)),
        ("stock models accelerated", "yes" if _acceleration.is_accelerated() else "no"),
    ]
    width = max(len(name) for name, _ in lines) + 2
    text = [f"{name + ':':{width}}{value}" for name, value in lines]

    text += ["", "libraries:"]
    text += [f"  {line}" for line in _libraries(loaded)]
    text += ["", f"ops ({len(_loader.OP_NAMES)}) and their kernels:"]
    width = max(map(len, _loader.OP_NAMES)) + 2
    for name in _loader.OP_NAMES:
        registered = kernels.get_registered_kernels_for_op(name).kernel
        text.append(f"  {name:{width}}{_kernels_per_device(registered)}")
    text += ["", "stock ops and whose kernels they run on, on the CPU:"]
    width = max(map(len, _acceleration.STOCK_OP_NAMES)) + 2
    for name, calls in _acceleration.kernel_calls().items():
        text.append(f"  {name:{width}}{_whose_kernels(name, calls)}")
    return "\n".join(text)


def _libraries(loaded: types.ModuleType) -> Iterable[str]:
    others = [loaded.xla_library_path, loaded.gpu_library_path, *_acceleration.loaded_library()]
    loaded_paths = {loaded.library_path, *filter(None, others)}
    paths = {str(path) for path in _loader.PACKAGE_FOLDER.glob("*.so")} | loaded_paths
    for path in sorted(paths):
        yield f"{path}: {'loaded' if path in loaded_paths else 'found, not loaded'}"


def _whose_kernels(stock_op_name: str, calls: int) -> str:
    if _acceleration.is_accelerated():
        return f"gather_stitch ({calls} calls)"
    if _acceleration.replacing_kernels(stock_op_name):
        return "another package"
    return "tensorflow"


def _kernels_per_device(registered: Iterable[kernel_def_pb2.KernelDef]) -> str:
    count = collections.Counter(kernel.device_type for kernel in registered)
    return ", ".join(f"{device}: {count[device]}" for device in sorted(count)) or "none"


if __name__ == "__main__":
    sys.stdout.write(diagnosis() + "\n")
