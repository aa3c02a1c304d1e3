# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""The stitches and their gradient on an emulated GPU."""

import re

import cases
import gather_stitch as gs
import numpy as np
import pytest
import tensorflow as tf
from checks import assert_same, only_ours, stitch_oracle
from device_checks import DTYPES, GPU, assert_on_device, on_device, run_on_device, soft_placement
from emulated import live_blocks
from gradients_common import merged_oracle, random_values, seeded, stitch_grad_oracle
from stitch_grad_test import ALL_DTYPES, STITCH_CASES, make_case, merged_and_gradients
from stitch_ops_test import data_of, stitch, stock_stitch


@pytest.mark.parametrize("index_dtype", cases.STITCH_INDEX_DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("case", cases.STITCH_CASES, ids=str)
def test_cases_equal_stock_in_every_mode(case, index_dtype, rng):
    indices = cases.indices_tensors(case.indices, index_dtype)
    data = data_of(case, tf.float32, rng)
    expected = stock_stitch(indices, data)
    for function in (gs.dynamic_stitch, gs.parallel_dynamic_stitch):
        for mode, result in run_on_device(
            "ParallelDynamicStitch", stitch(len(data), function), *indices, *data
        ):
            assert_same(result, expected, mode)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_every_dtype_equals_stock(dtype, rng):
    for case in cases.STITCH_CASES:
        data = data_of(case, dtype, rng)
        for index_dtype in cases.STITCH_INDEX_DTYPES:
            indices = cases.indices_tensors(case.indices, index_dtype)
            for mode, result in run_on_device(
                "ParallelDynamicStitch", stitch(len(data)), *indices, *data, modes=("eager",)
            ):
                assert_same(result, stock_stitch(indices, data), (case, mode))


@pytest.mark.parametrize("policy", ["DEFAULT", "IGNORE"])
@pytest.mark.parametrize("case", cases.STITCH_CASES, ids=str)
def test_a_size_drops_what_is_outside(case, policy, rng):
    values = [np.array(i, np.int64) for i in case.indices]
    for i in values:
        if i.size:
            i.reshape(-1)[0] = rng.choice([-1, 2**40, -(2**63), 2**63 - 1])
    data = data_of(case, tf.uint16, rng)
    arrays = [d.numpy() for d in data]
    for merged_rows in (0, 1, 3, 9):
        expected = stitch_oracle(values, arrays, merged_rows, "IGNORE")
        for size in (merged_rows, tf.constant(merged_rows, tf.int64)):
            function = stitch(len(data), size=size, bad_indices_policy=policy)
            for mode, result in run_on_device(
                "ParallelDynamicStitchV2", function, *map(tf.constant, values), *data
            ):
                assert_same(result, expected, (merged_rows, mode))


def test_errors_name_input_and_position_and_the_device_works_on():
    data = [on_device(tf.ones([2])), on_device(tf.fill([2, 2], 2.0))]
    good = [[0, 3], [[1, 2], [0, 1]]]
    right = [2.0, 2.0, 2.0, 1.0]
    for bad, size, words in (
        ([[0, 1], [[2, -3], [1, -4]]], None, "indices[1][0,1] = -3 is not in [0, "),
        ([[0, 1], [[2, -3], [1, -4]]], 4, "indices[1][0,1] = -3 is not in [0, 4)"),
        ([[5, 1], [[2, 3], [4, 9]]], 4, "indices[0][0] = 5 is not in [0, 4)"),
    ):
        function = stitch(2, size=size, bad_indices_policy="DEFAULT" if size is None else "ERROR")
        for run in (function, tf.function(function)):
            with tf.device(GPU):
                with pytest.raises(tf.errors.InvalidArgumentError, match=re.escape(words)):
                    run(*[on_device(tf.constant(i)) for i in bad], *data)
                result = run(*[on_device(tf.constant(i)) for i in good], *data)
            assert_on_device(result)
            assert_same(result, tf.constant(right))


def test_an_output_that_can_not_exist_is_an_error():
    indices, data = on_device(tf.constant([0, 2**62], tf.int64)), on_device(tf.ones([2, 4]))
    with tf.device(GPU), pytest.raises((tf.errors.InvalidArgumentError,
                                        tf.errors.ResourceExhaustedError)):  # fmt: skip
        gs.parallel_dynamic_stitch([indices], [data])
    with tf.device(GPU), pytest.raises(tf.errors.InvalidArgumentError, match="merged_rows"):
        gs.dynamic_stitch([indices], [data], size=tf.constant(-1))


def test_the_last_of_many_duplicates_wins_whole(rng):
    # Many inputs with few rows for each, and one row that all inputs name.
    for inputs, rows, inner in ((100, 7, 3), (40, 1, 500), (3, 2000, 2)):
        indices = [rng.integers(0, rows, 50) for _ in range(inputs)]
        data = [rng.integers(0, 2**31, (50, inner), np.int32) for _ in range(inputs)]
        with tf.device(GPU), only_ours("ParallelDynamicStitch"):
            result = gs.parallel_dynamic_stitch(
                [on_device(i) for i in indices], [on_device(d) for d in data]
            )
        assert_same(result, merged_oracle(indices, data))


def test_rows_of_every_size(rng):
    for row_bytes in (*range(1, 34), 48, 63, 64, 65, 100, 255, 256, 1000, 4096, 5000):
        indices = [rng.permutation(60)[:20], rng.permutation(60)[:30]]
        data = [rng.integers(0, 256, (i.size, row_bytes), np.uint8) for i in indices]
        with tf.device(GPU), only_ours("ParallelDynamicStitch"):
            result = gs.dynamic_stitch(
                [on_device(i) for i in indices], [on_device(d) for d in data]
            )
        assert_same(result, merged_oracle(indices, data), row_bytes)


def test_strings_are_placed_on_the_cpu():
    indices, words = [[2, 0], [1]], [["c", "a"], ["a string that is kept behind a pointer"]]
    with soft_placement(), tf.device(GPU):
        for function in (gs.dynamic_stitch, tf.function(gs.dynamic_stitch)):
            with only_ours("ParallelDynamicStitch"):
                result = function(
                    [tf.constant(i) for i in indices], [tf.constant(w) for w in words]
                )
            assert result.numpy().tolist() == [b"a", words[1][0].encode(), b"c"]


def test_nothing_stays_allocated():
    def run():
        indices = [on_device(tf.constant([0, 3])), on_device(tf.constant([-1]))]
        data = [on_device(tf.ones([2, 4])), on_device(tf.ones([1, 4]))]
        with tf.device(GPU):
            for policy in ("DEFAULT", "IGNORE", "ERROR"):
                try:
                    gs.dynamic_stitch(indices, data, size=5, bad_indices_policy=policy)
                except tf.errors.InvalidArgumentError:
                    assert policy == "ERROR"
            gs.dynamic_stitch(indices[:1], data[:1])

    run()
    before = live_blocks()
    for _ in range(3):
        run()
    assert live_blocks() == before


# ---- Gradients ---------------------------------------------------------------


@pytest.mark.parametrize("in_graph", [False, True], ids=["eager", "function"])
@pytest.mark.parametrize("case", STITCH_CASES, ids=str)
def test_gradients_of_both_ops(case, in_graph):
    for dtype in ("float32", "half", "complex128"):
        for low, size, options in (
            (0, None, {}),
            (0, case[2] + 3, {"size": case[2] + 3}),
            (
                -2,
                max(case[2] - 1, 0),
                {"size": max(case[2] - 1, 0), "bad_indices_policy": "IGNORE"},
            ),
            (-2, case[2] + 1, {"size": case[2] + 1}),
        ):
            rng, indices, data = make_case(case, dtype, "int32", low)
            merged = merged_oracle(indices, data, size)
            upstream = random_values(rng, merged.shape, dtype)
            run = merged_and_gradients([on_device(i) for i in indices], options)
            if in_graph:
                run = tf.function(run)
            with soft_placement(), tf.device(GPU):
                actual, grads = run([on_device(d) for d in data], on_device(upstream))
            assert_on_device([actual, grads])
            assert_same(actual, merged)
            for grad, right in zip(grads, stitch_grad_oracle(upstream, indices), strict=True):
                assert_same(grad, right)


@pytest.mark.parametrize("dtype", ALL_DTYPES)
def test_the_gradient_op_of_every_dtype(dtype):
    for case in STITCH_CASES:
        rng, indices, _ = make_case(case, index_dtype="int64", low=-2)
        for rows in (0, 1, case[2], case[2] + 4):
            grad = random_values(rng, (rows, *case[1]), dtype)
            expected = stitch_grad_oracle(grad, indices)
            for mode, actual in run_on_device(
                "ParallelDynamicStitchGrad",
                lambda g, *i: gs.raw_ops.ParallelDynamicStitchGrad(grad=g, indices=list(i)),
                tf.constant(grad),
                *map(tf.constant, indices),
                modes=("eager",),
            ):
                for a, right in zip(actual, expected, strict=True):
                    assert_same(a, right, (case, mode))


def test_the_gradient_of_the_gradient_is_a_stitch():
    rng = seeded("second order")
    indices = [rng.integers(0, 9, 6), rng.integers(0, 9, (2, 3))]
    grad = rng.standard_normal((8, 2)).astype(np.float32)
    again = [rng.standard_normal((*i.shape, 2)).astype(np.float32) for i in indices]
    with soft_placement(), tf.device(GPU), tf.GradientTape() as tape:
        x = on_device(grad)
        tape.watch(x)
        parts = gs.raw_ops.ParallelDynamicStitchGrad(
            grad=x, indices=[on_device(i) for i in indices]
        )
        actual = tape.gradient(parts, x, output_gradients=[on_device(a) for a in again])
    assert_on_device(actual)
    assert_same(actual, merged_oracle(indices, again, 8))
