# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""The library that is shipped, on a device of type GPU that is not CUDA's."""

import pathlib

import pytest
from emulated import ROOT, run_child

PACKAGE = ROOT / "python" / "gather_stitch"


def test_it_refuses_the_device_and_the_process_lives():
    if not (PACKAGE / "_gpu_kernels.so").is_file():
        pytest.skip("no GPU kernels were built: there was no nvcc")
    child = pathlib.Path(__file__).with_name("shipped_library_child.py")
    done = run_child([str(child)], EMULATED_GPU_SITE=str(PACKAGE.parent))
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{PACKAGE / '_gpu_kernels.so'}\nrefused 14 calls\n"
