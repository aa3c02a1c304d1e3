# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Loads the emulated GPU, and runs programs on it in processes of their own.

Import it before anything that starts TensorFlow's runtime: it loads the device, and makes
`gather_stitch` the test build, whose GPU kernels run on it.
"""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What tools/emulated_gpu_test.sh makes.
PLAIN_FOLDER = ROOT / "build" / "opt" / "emulated_gpu"
ASAN_FOLDER = ROOT / "build" / "emulated_gpu_asan" / "emulated_gpu"
FOLDER = pathlib.Path(os.environ.get("EMULATED_GPU_FOLDER", PLAIN_FOLDER))
IS_ASAN = FOLDER == ASAN_FOLDER

os.environ.setdefault("EMULATED_GPU_GUARD", "1")
os.environ.setdefault("EMULATED_GPU_DELAY_US", "100")
sys.path[:0] = [
    os.environ.get("EMULATED_GPU_SITE", str(FOLDER / "site")),
    str(ROOT / "tests" / "python"),
]

import tensorflow as tf  # noqa: E402
from tensorflow.python.framework import load_library  # noqa: E402

load_library.load_pluggable_device_library(str(FOLDER / "device.so"))
# An op that the device has no kernel for is an error, not run elsewhere.
tf.config.set_soft_device_placement(False)


def live_blocks() -> int:
    """How many blocks of device memory are allocated, once the streams have nothing left to do."""
    function = ctypes.CDLL(str(FOLDER / "device.so")).emulated_gpu_live_blocks
    function.restype = ctypes.c_int64
    function.argtypes = []
    return function()


def set_block_order(seed: int) -> None:
    """Draws another order in which the blocks of a grid run."""
    library = ctypes.CDLL(str(FOLDER / "site" / "gather_stitch" / "_gpu_kernels.so"))
    function = library.gather_stitch_set_block_order_seed
    function.restype = None
    function.argtypes = [ctypes.c_uint64]
    function(seed)


@functools.cache
def _asan_environment() -> dict[str, str]:
    """What runs libraries made with AddressSanitizer in an interpreter made without."""
    compiler = os.environ.get("CXX", "g++").split()
    libraries = [
        subprocess.run(
            [*compiler, f"-print-file-name={name}"], check=True, capture_output=True, text=True
        ).stdout.strip()
        for name in ("libasan.so", "libstdc++.so.6")
    ]
    return {
        "LD_PRELOAD": " ".join(libraries),
        # Python keeps memory, and TensorFlow defines some names in two libraries.
        "ASAN_OPTIONS": "detect_leaks=0:detect_odr_violation=0:handle_segv=0",
        "EMULATED_GPU_FOLDER": str(ASAN_FOLDER),
    }


def run_child(
    arguments: list[str], *, asan: bool = False, timeout_s: int = 600, **environment: str
) -> subprocess.CompletedProcess:
    """Runs Python with `arguments` on devices with these settings."""
    more = _asan_environment() if asan else {}
    return subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | more | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
