# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Finds and loads the libraries, once in a process.

A second copy of the library, under another path, would load without a word and then break every
call, because TensorFlow keeps the first definition of an op. So the op registry is asked first,
and who comes second, be it another copy of this package or the same one imported anew, gets the
wrappers that the first one generated.

The kernels for XLA and those for GPUs are libraries of their own: they need parts of TensorFlow, or
a CUDA compiler, that the ops do not, and the ops work without them.
"""

from __future__ import annotations

import ctypes
import importlib
import logging
import os
import pathlib
import re
import sys
import types

import tensorflow as tf
from tensorflow.core.framework import op_def_pb2
from tensorflow.python.framework import _pywrap_python_op_gen, kernels, op_def_registry

logger = logging.getLogger("gather_stitch")

PACKAGE_FOLDER = pathlib.Path(__file__).resolve().parent
OP_LIBRARY = PACKAGE_FOLDER / "_ops.so"
XLA_LIBRARY = PACKAGE_FOLDER / "_xla_kernels.so"
GPU_LIBRARY = PACKAGE_FOLDER / "_gpu_kernels.so"
OP_NAMES = (
    "GatherStitch>GatherV2",
    "GatherStitch>GatherV2Grad",
    "GatherStitch>GatherV2SparseGrad",
    "GatherStitch>ResourceGather",
    "GatherStitch>ParallelDynamicStitch",
    "GatherStitch>ParallelDynamicStitchV2",
    "GatherStitch>ParallelDynamicStitchGrad",
)

# Where the generated wrappers are kept for whoever imports this package next. Not a name inside
# the package, which may be there twice.
_PROCESS_KEY = "_gather_stitch_loaded_ops"


def build_info() -> dict[str, str]:
    """VERSION, TF_VERSION and COMPILER of the library; empty where none was built."""
    try:
        module = importlib.import_module("._build_info", __package__)
    except ModuleNotFoundError:
        return {}
    return {key: getattr(module, key) for key in ("VERSION", "TF_VERSION", "COMPILER")}


def load() -> types.ModuleType:
    """Returns the module of generated wrappers, one function for each op.

    Raises:
      ImportError: no library was built, or it was built for another TensorFlow. The text says
        what was found, what was expected, and the command that mends it.
    """
    loaded = sys.modules.get(_PROCESS_KEY)
    if loaded is None:
        if op_def_registry.get(OP_NAMES[0]) is not None:
            loaded = _generate_wrappers()
        else:
            loaded = _load_library()
            _warn_of_other_cpu_features(cpu_features(loaded))
        # After the ops: XLA ends the process over a kernel whose op it does not know.
        loaded.__dict__["xla_library_path"] = _load_kernels(
            XLA_LIBRARY, "XLA_CPU_JIT", "XLA can not compile the ops of gather_stitch, which work"
        )
        loaded.__dict__["gpu_library_path"] = _load_kernels(
            GPU_LIBRARY, "GPU", "the ops of gather_stitch run on the CPU alone, which they do"
        )
        sys.modules[_PROCESS_KEY] = loaded
    elif loaded.library_path != str(OP_LIBRARY):
        logger.warning(
            "the ops of gather_stitch %s were loaded from %s before; %s is not loaded",
            loaded.library_version,
            loaded.library_path,
            OP_LIBRARY,
        )
    return loaded


def cpu_features(loaded: types.ModuleType) -> str:
    """The instruction set that the kernels of the loaded library chose, such as `avx2`."""
    try:
        function = ctypes.CDLL(loaded.library_path).gather_stitch_cpu_features
    except (OSError, AttributeError):
        return "unknown"
    function.restype = ctypes.c_char_p
    function.argtypes = []
    text: bytes = function()
    return text.decode()


def _warn_of_other_cpu_features(in_use: str) -> None:
    wanted = os.environ.get("GATHER_STITCH_CPU_FEATURES", in_use)
    if wanted != in_use:
        logger.warning(
            "GATHER_STITCH_CPU_FEATURES=%s: this library on this processor has no such instruction "
            "set; it uses %s",
            wanted,
            in_use,
        )


def _load_library() -> types.ModuleType:
    info = build_info()
    if not OP_LIBRARY.is_file():
        others = sorted(path.name for path in PACKAGE_FOLDER.glob("*.so"))
        raise _import_error(
            found=f"no {OP_LIBRARY.name} in {PACKAGE_FOLDER}"
            + (f", only {', '.join(others)}" if others else ""),
            expected=f"{OP_LIBRARY}, built for TensorFlow {tf.__version__}",
            make_goals="build",
        )
    another = f"build TENSORFLOW=tensorflow=={tf.__version__}"
    built_for = info.get("TF_VERSION", "unknown")
    if info and minor(built_for) != minor(tf.__version__):
        raise _import_error(
            found=f"{OP_LIBRARY}, built for TensorFlow {built_for}",
            expected=f"a library built for TensorFlow {tf.__version__}, which is running",
            make_goals=another,
        )
    try:
        loaded: types.ModuleType = tf.load_op_library(str(OP_LIBRARY))
    except (tf.errors.OpError, RuntimeError, OSError) as error:
        raise _import_error(
            found=f"{OP_LIBRARY}, built for TensorFlow {built_for}, which does not load: {error}",
            expected=f"a library built for TensorFlow {tf.__version__}, which is running",
            make_goals="clean build" if info else another,
        ) from error
    loaded.__dict__.update(
        library_path=str(OP_LIBRARY), library_version=info.get("VERSION", "unknown")
    )
    logger.debug("loaded %s", OP_LIBRARY)
    return loaded


def has_kernels(device_type: str) -> bool:
    """Whether the ops have kernels for devices of this type."""
    registered = kernels.get_registered_kernels_for_op(OP_NAMES[0]).kernel
    return any(kernel.device_type == device_type for kernel in registered)


def has_xla_kernels() -> bool:
    """Whether XLA can compile the ops, in a `tf.function` with `jit_compile=True` for one."""
    return has_kernels("XLA_CPU_JIT")


def _load_kernels(library: pathlib.Path, device_type: str, what_is_lost: str) -> str | None:
    """Returns the path of the library, or None where it was not built or does not load."""
    if not library.is_file() or has_kernels(device_type):
        return None
    try:
        tf.load_library(str(library))
    except (tf.errors.OpError, RuntimeError, OSError) as error:
        logger.warning("%s does not load, so that %s without it: %s", library, what_is_lost, error)
        return None
    logger.debug("loaded %s", library)
    return str(library)


def cuda_architectures(loaded: types.ModuleType) -> str:
    """The compute capabilities that the GPU kernels are compiled for, or why there are none."""
    if loaded.gpu_library_path is None:
        return "none, without GPU kernels"
    function = ctypes.CDLL(loaded.gpu_library_path).gather_stitch_cuda_architectures
    function.restype = ctypes.c_char_p
    function.argtypes = []
    text: bytes = function()
    return text.decode()


def _generate_wrappers() -> types.ModuleType:
    """Wrappers for ops that something else, such as tf.load_op_library, has registered."""
    definitions = [op_def_registry.get(name) for name in OP_NAMES]
    missing = [n for n, definition in zip(OP_NAMES, definitions, strict=True) if not definition]
    if missing:
        raise ImportError(
            "gather_stitch: this process has loaded the op library of another version, which "
            f"lacks {', '.join(missing)}. Load it in a new process, or import gather_stitch first."
        )
    op_list = op_def_pb2.OpList(op=definitions)
    loaded = types.ModuleType(_PROCESS_KEY)
    source = _pywrap_python_op_gen.GetPythonWrappers(op_list.SerializeToString())
    exec(source, loaded.__dict__)
    loaded.__dict__.update(library_path="an unknown place", library_version="unknown")
    logger.warning("the ops of gather_stitch were registered before; %s is not loaded", OP_LIBRARY)
    return loaded


def minor(version: str) -> str:
    """`2.21` of `2.21.0`: what a library has to have in common with the TensorFlow it runs in."""
    match = re.match(r"\d+\.\d+", version)
    return match.group() if match else version


def mending_command(make_goals: str) -> tuple[str, str]:
    """The command that builds or installs the libraries anew, and what more there is to say."""
    checkout = PACKAGE_FOLDER.parent.parent
    if (checkout / "Makefile").is_file() and (checkout / "tf_ops").is_dir():
        return (
            f"make -C {checkout} {make_goals}",
            f"and run {checkout / '.venv' / 'bin' / 'python'}",
        )
    return (
        "pip install --force-reinstall tf-gather-stitch",
        "which installs the TensorFlow that it was built for as well",
    )


def _import_error(found: str, expected: str, make_goals: str) -> ImportError:
    command, hint = mending_command(make_goals)
    return ImportError(
        "gather_stitch can not load its ops.\n"
        f"  found:    {found}\n"
        f"  expected: {expected}\n"
        f"  to mend:  {command}\n"
        f"            {hint}"
    )
