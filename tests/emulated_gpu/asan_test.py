# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""A part of the other tests once more, in a process where the GPU kernels, the device and what
lies between them have AddressSanitizer."""

import os
import re

import pytest
from emulated import IS_ASAN, run_child

# All but what repeats the same kernels for each dtype of many, or needs a process of its own.
FILES = ("gather_gpu_test.py", "gather_grad_gpu_test.py", "stitch_gpu_test.py", "models_test.py")
LEFT_OUT = (
    "every_axis or every_dtype or every_policy or under_every_policy or beyond_4_gib or "
    "a_size_drops or in_every_mode"
)
# One of each kind of those.
AND_ONE_EACH = (
    "gather_gpu_test.py::test_every_axis_and_batch_dims_equal_stock[3]",
    "gather_gpu_test.py::test_every_dtype_equals_stock[uint8]",
    "gather_gpu_test.py::test_every_policy_with_every_index_dtype_equals_the_oracle[int64-WRAP]",
    "gather_grad_gpu_test.py::test_dense_op_of_every_dtype[half]",
    "gather_grad_gpu_test.py::test_dense_op_of_every_dtype[float8_e5m2]",
    "stitch_gpu_test.py::test_every_dtype_equals_stock[uint8]",
    "stitch_gpu_test.py::test_the_gradient_op_of_every_dtype[int16]",
)


@pytest.mark.skipif(IS_ASAN, reason="this is the process that it starts")
@pytest.mark.parametrize("part", ["most", "one of each kind"])
def test_nothing_is_found_by_address_sanitizer(part):
    if part == "most":
        tests = [f"tests/emulated_gpu/{name}" for name in FILES]
        tests += ["-k", f"not ({LEFT_OUT})"]
    else:
        tests = [f"tests/emulated_gpu/{name}" for name in AND_ONE_EACH]
    seed = f"--seed={os.environ['GATHER_STITCH_SEED']}"
    arguments = ["-m", "pytest", "--quiet", "-p", "no:faulthandler", seed, *tests]
    done = run_child(arguments, asan=True, timeout_s=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.search(r"(\d+) passed", done.stdout).group(1)) >= 7
