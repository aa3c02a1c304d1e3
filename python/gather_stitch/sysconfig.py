# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""How to compile and link a C++ program against the C++ client, in the manner of `tf.sysconfig`.

    >>> gather_stitch.sysconfig.get_link_flags()[1]
    '-l:_cc_ops.so'

For CMake, `get_cmake_dir()` is the folder of the package GatherStitch; for pkg-config,
`get_pkgconfig_dir()` has the file `gather_stitch.pc`.
"""

from __future__ import annotations

import tensorflow as tf

from ._loader import PACKAGE_FOLDER

__all__ = [
    "get_cmake_dir",
    "get_compile_flags",
    "get_include",
    "get_lib",
    "get_link_flags",
    "get_pkgconfig_dir",
]


def get_include() -> str:
    """The folder of the headers, which are included as `"tf_ops/cc/gather_ops.h"`."""
    return str(PACKAGE_FOLDER / "include")


def get_lib() -> str:
    """The folder of the library `_cc_ops.so`, with the libraries of the ops beside it."""
    return str(PACKAGE_FOLDER)


def get_cmake_dir() -> str:
    """The folder to give to CMake as `-DGatherStitch_DIR=`."""
    return str(PACKAGE_FOLDER / "cmake")


def get_pkgconfig_dir() -> str:
    """The folder to give to pkg-config in `PKG_CONFIG_PATH`."""
    return str(PACKAGE_FOLDER / "pkgconfig")


def get_compile_flags() -> list[str]:
    """The compiler's options, those of TensorFlow among them."""
    return [f"-I{get_include()}", *tf.sysconfig.get_compile_flags()]


def get_link_flags() -> list[str]:
    """The linker's options, to be given after the objects.

    The program finds the libraries where they are now: their folders become its run path.
    """
    tensorflow = tf.sysconfig.get_lib()
    return [
        f"-L{get_lib()}",
        "-l:_cc_ops.so",
        f"-L{tensorflow}",
        "-l:libtensorflow_cc.so.2",
        "-l:libtensorflow_framework.so.2",
        f"-Wl,-rpath,{get_lib()}",
        f"-Wl,-rpath,{tensorflow}",
    ]
