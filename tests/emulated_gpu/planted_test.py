# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Faults of GPU code that the emulated device is there to find, planted and found."""

import pathlib
import signal

import pytest
from emulated import run_child

CHILD = str(pathlib.Path(__file__).with_name("planted_child.py"))
DELAY = {"EMULATED_GPU_DELAY_US": "20000"}
BY_HOST = "device memory was accessed while no task of a stream ran"
OUTSIDE = "device memory was accessed past the end of a block or after its release"
ROWS_OF_5_GIB = 5 * 2**30 // 64


def run_planted(*arguments, **settings):
    """(exit status, errors) of a child whose gather was right as long as it had no fault."""
    done = run_child([CHILD, *map(str, arguments)], **settings)
    assert done.stdout.startswith("right without a fault\n"), done.stderr
    assert (done.returncode == 0) == ("not found" in done.stdout), done.stderr
    return done.returncode, done.stderr


def test_host_read_is_caught_by_the_guard():
    status, errors = run_planted("host read", 12, EMULATED_GPU_GUARD="1")
    assert status == -signal.SIGSEGV
    assert BY_HOST in errors


def test_without_the_guard_a_host_read_goes_unnoticed():
    assert run_planted("host read", 12, EMULATED_GPU_GUARD="0")[0] == 0


def test_early_free_of_a_staging_buffer_is_caught_by_delay_and_asan():
    status, errors = run_planted("early free", 12, asan=True, **DELAY)
    assert status != 0
    assert "AddressSanitizer: heap-use-after-free" in errors


def test_early_release_of_device_memory_is_caught_by_delay():
    status, errors = run_planted("early release", 12, **DELAY)
    assert status == -signal.SIGSEGV
    assert OUTSIDE in errors


# The five rows of the output end at a page, or short of it, where the bytes are poisoned.
@pytest.mark.parametrize(("row_bytes", "asan"), [(64, False), (12, True)])
def test_write_past_the_end_is_caught(row_bytes, asan):
    status, errors = run_planted("past the end", row_bytes, asan=asan)
    if asan:
        assert status != 0
        assert "ERROR: AddressSanitizer" in errors
        assert "WRITE of size 1" in errors
    else:
        assert status == -signal.SIGSEGV
        assert OUTSIDE in errors


def test_32_bit_offset_is_caught_by_a_table_of_5_gib():
    status, errors = run_planted("32-bit offset", 64, ROWS_OF_5_GIB)
    assert status == 1
    assert "AssertionError" in errors


def test_a_small_table_does_not_show_a_32_bit_offset():
    assert run_planted("32-bit offset", 64)[0] == 0
