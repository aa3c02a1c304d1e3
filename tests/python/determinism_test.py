# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Results and gradients have the same bits at any number of threads and on any instruction set."""

from __future__ import annotations

import pytest
from conftest import THREAD_COUNTS, report_of_child

SIX_OPS = [
    "GatherStitch>GatherV2",
    "GatherStitch>GatherV2Grad",
    "GatherStitch>GatherV2SparseGrad",
    "GatherStitch>ParallelDynamicStitch",
    "GatherStitch>ParallelDynamicStitchGrad",
    "GatherStitch>ParallelDynamicStitchV2",
]


@pytest.mark.parametrize("threads", THREAD_COUNTS)
def test_a_child_runs_all_six_ops_with_its_threads(by_threads, threads):
    assert by_threads[threads]["threads"] == threads
    assert by_threads[threads]["ops"] == SIX_OPS


@pytest.mark.parametrize("threads", THREAD_COUNTS[1:])
def test_results_have_the_same_bits(by_threads, threads):
    expected = by_threads[1]["hashes"]
    # Each value is of its own random numbers: no two are alike by mistake.
    assert len(set(expected.values())) == len(expected) > 200
    assert_same_bits(by_threads[threads]["hashes"], expected)


@pytest.mark.parametrize("features", ["baseline", "avx2"])
def test_results_have_the_same_bits_on_each_instruction_set(by_threads, seed, features):
    widest = by_threads[1]["cpu_features"]
    report = report_of_child(1, seed, GATHER_STITCH_CPU_FEATURES=features)
    assert report["cpu_features"] == min(features, widest, key=["baseline", "avx2"].index)
    assert_same_bits(report["hashes"], by_threads[1]["hashes"])


def assert_same_bits(actual, expected):
    assert actual.keys() == expected.keys()
    assert {key: value for key, value in actual.items() if value != expected[key]} == {}
