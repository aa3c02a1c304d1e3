# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""gather on an emulated GPU: what stock gives on the CPU, and the policies of a device."""

import re

import cases
import gather_stitch as gs
import numpy as np
import pytest
import tensorflow as tf
from checks import assert_all_same, assert_same, gather_oracle, only_ours, outcome
from device_checks import (
    DTYPES,
    GPU,
    POLICIES,
    assert_on_device,
    on_device,
    run_on_device,
    soft_placement,
)
from emulated import FOLDER, live_blocks
from gather_ops_test import gather_all, inputs_of, stock_gather
from gradients_common import seeded


def check_table(table, params, indices, expected, **options):
    """That every case gives what is expected, in one function of all and op by op."""
    function = gather_all(table, **options)
    for mode, results in run_on_device("GatherV2", function, *params, *indices, times=len(table)):
        assert_all_same(results, expected, [(mode, case) for case in table])


def stock_of(table, params, indices):
    return [
        stock_gather(p, i, case.axis, case.batch_dims)
        for p, i, case in zip(params, indices, table, strict=True)
    ]


@pytest.mark.parametrize("params_rank", [1, 2, 3, 4, 5])
def test_every_axis_and_batch_dims_equal_stock(params_rank, rng):
    every_case = list(cases.gather_cases(params_rank))
    # Few at a time: the guard has work with each block of memory.
    for first in range(0, len(every_case), 40):
        table = every_case[first : first + 40]
        params, indices = inputs_of(table, tf.float32, rng)
        check_table(table, params, indices, stock_of(table, params, indices))


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_every_dtype_equals_stock(dtype, rng):
    table = list(cases.FEW_GATHER_CASES)
    params, indices = inputs_of(table, dtype, rng)
    check_table(table, params, indices, stock_of(table, params, indices))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("index_dtype", cases.INDEX_DTYPES, ids=lambda dtype: dtype.name)
def test_every_policy_with_every_index_dtype_equals_the_oracle(policy, index_dtype, rng):
    table, params, indices = [], [], []
    for case in cases.FEW_GATHER_CASES:
        rows = case.params[case.axis]
        pool = cases.out_of_range_values(index_dtype, rows) * 2 + list(range(rows))
        for dtype in (tf.int8, tf.float32, tf.complex128):
            drawn = rng.choice(np.array(pool, object), size=case.indices)
            array = np.array(drawn, index_dtype.as_numpy_dtype).reshape(case.indices)
            table.append(case)
            params.append(cases.random_values(rng, dtype, case.params))
            indices.append(tf.constant(array, index_dtype))
    expected = [
        gather_oracle(p.numpy(), i.numpy(), case.axis, case.batch_dims, POLICIES[policy])
        for p, i, case in zip(params, indices, table, strict=True)
    ]
    check_table(table, params, indices, expected, bad_indices_policy=policy)


@pytest.mark.parametrize("index_dtype", cases.INDEX_DTYPES, ids=lambda dtype: dtype.name)
def test_error_names_the_first_bad_index_and_the_device_works_on(index_dtype, rng):
    for case in cases.FEW_GATHER_CASES:
        rows = case.params[case.axis]
        params = on_device(cases.random_values(rng, tf.float32, case.params))
        pool = cases.out_of_range_values(index_dtype, rows) + list(range(rows)) * 2
        for _ in range(3):
            drawn = rng.choice(np.array(pool, object), size=case.indices)
            array = np.array(drawn, index_dtype.as_numpy_dtype).reshape(case.indices)
            indices = on_device(tf.constant(array, index_dtype))
            expected, error = outcome(
                gather_oracle, params.numpy(), array, case.axis, case.batch_dims
            )

            def run(p, i, case=case):
                return gs.gather(
                    p, i, axis=case.axis, batch_dims=case.batch_dims, bad_indices_policy="ERROR"
                )

            for function in (run, tf.function(run)):
                with tf.device(GPU):
                    if error is None:
                        result = function(params, indices)
                        assert_on_device(result)
                        assert_same(result, expected, case)
                        continue
                    with pytest.raises(tf.errors.InvalidArgumentError, match=re.escape(error)):
                        function(params, indices)


@pytest.mark.parametrize("policy", cases.POLICIES)
def test_empty_tensors(policy, rng):
    for case, shape in cases.EMPTY_GATHER_CASES:
        if policy in ("CLIP", "WRAP") and case.params[case.axis] == 0 and 0 not in case.indices:
            continue
        for dtype in (tf.float32, tf.bool):
            params = on_device(cases.random_values(rng, dtype, case.params))
            indices = on_device(cases.random_indices(rng, case.indices, case.params[case.axis]))
            with tf.device(GPU), only_ours("GatherV2"):
                result = gs.gather(
                    params,
                    indices,
                    axis=case.axis,
                    batch_dims=case.batch_dims,
                    bad_indices_policy=policy,
                )
            assert_same(result, tf.zeros(shape, dtype), case)


@pytest.mark.parametrize("policy", ["CLIP", "WRAP"])
def test_no_row_is_near_where_there_are_none(policy):
    params, indices = on_device(tf.zeros([0, 3])), on_device(tf.constant([0, 1]))
    with tf.device(GPU), pytest.raises(tf.errors.InvalidArgumentError, match="indices"):
        gs.gather(params, indices, bad_indices_policy=policy)


def test_a_bad_index_is_an_error_also_where_rows_are_empty():
    params, indices = on_device(tf.zeros([3, 0])), on_device(tf.constant([2, 0, 3]))
    expected = re.escape("indices[2] = 3 is not in [0, 3)")
    with tf.device(GPU), pytest.raises(tf.errors.InvalidArgumentError, match=expected):
        gs.gather(params, indices, bad_indices_policy="ERROR")


@pytest.mark.parametrize("policy", cases.POLICIES)
def test_rows_of_every_size(policy, rng):
    for row_bytes in (*range(1, 34), 48, 63, 64, 65, 100, 255, 256, 1000, 1024, 4096, 5000):
        params = rng.integers(0, 256, (37, row_bytes), np.uint8)
        indices = rng.integers(0, 37, 300)
        with tf.device(GPU), only_ours("GatherV2"):
            result = gs.gather(on_device(params), on_device(indices), bad_indices_policy=policy)
        assert_same(result, params[indices], row_bytes)


def test_many_rows(rng):
    # More than a grid of a few blocks, along each axis.
    params = rng.integers(0, 2**31, (40, 60, 8), np.int32)
    for axis, count in ((0, 3000), (1, 1000), (2, 700)):
        indices = rng.integers(-3, params.shape[axis] + 3, count)
        with tf.device(GPU):
            result = gs.gather(
                on_device(params), on_device(indices), axis=axis, bad_indices_policy="IGNORE"
            )
        assert_same(result, gather_oracle(params, indices, axis, 0, "IGNORE"), axis)


@pytest.mark.parametrize("row_bytes", [1, 48, 64])
def test_tables_beyond_4_gib(row_bytes, rng):
    # Its rows take memory where they are written only.
    table_rows = 5 * 2**30 // row_bytes
    at = np.array([2**31 // row_bytes, 2**32 // row_bytes])
    rows = np.unique([0, *(at - 1), *at, *(at + 1), table_rows - 1])
    values = rng.integers(1, 256, (rows.size, row_bytes), np.uint8)
    planted = tf.load_op_library(str(FOLDER / "planted_gather.so"))
    with tf.device(GPU):
        table = planted.emulated_gpu_sparse_table(
            shape=[table_rows, row_bytes], rows=rows, values=values
        )
        for index_dtype in (tf.int64, tf.uint64) + (tf.uint32, tf.int32) * (table_rows < 2**31):
            result = gs.gather(table, on_device(tf.constant(rows, index_dtype)))
            assert_same(result, values, index_dtype)
        del table
        assert_on_device(result)


def test_strings_are_placed_on_the_cpu():
    words = tf.constant(["a", "b", "a string that is kept behind a pointer"])
    with soft_placement(), tf.device(GPU):
        for function in (gs.gather, tf.function(gs.gather)):
            with only_ours("GatherV2"):
                result = function(words, on_device(tf.constant([2, 0, 2])))
            assert_same(result, tf.gather(words, [2, 0, 2]))


def test_calls_in_flight_do_not_mix(rng):
    # Each op of the function runs while the streams still work on those before.
    table = rng.integers(0, 2**31, (50, 5), np.int32)
    ids = rng.integers(0, 50, (20, 50))

    @tf.function
    def run(rows, ids):
        with tf.device(GPU):
            results = []
            for k in range(20):
                policy = cases.POLICIES[k % len(cases.POLICIES)]
                rows = gs.gather(rows, ids[k], bad_indices_policy=policy)
                results.append(rows)
            return results

    expected = table
    results = run(on_device(table), [on_device(i) for i in ids])
    for k, result in enumerate(results):
        expected = expected[ids[k]]
        assert_same(result, expected, k)


def test_nothing_stays_allocated(rng):
    table = on_device(rng.random((5, 2)))

    def run(indices):
        for policy in cases.POLICIES:
            try:
                with tf.device(GPU):
                    gs.gather(table, indices, bad_indices_policy=policy)
            except tf.errors.InvalidArgumentError:
                assert policy == "ERROR"

    indices = on_device(tf.constant([0, 7, 2]))
    run(indices)
    before = live_blocks()
    for _ in range(3):
        run(indices)
    assert live_blocks() == before


# ---- Variables ---------------------------------------------------------------


@pytest.mark.parametrize("policy", cases.POLICIES)
def test_a_variable_is_gathered_as_a_tensor_is(policy):
    rng = seeded("variable", policy)
    for shape, ids_shape, axis, batch_dims in (
        ((5, 3), (4,), 0, 0),
        ((2, 5), (3,), 1, 0),
        ((2, 5, 2), (2, 3), 1, 1),
    ):
        values = rng.standard_normal(shape).astype(np.float32)
        low, high = (0, shape[axis]) if policy == "ERROR" else (-3, shape[axis] + 3)
        indices = rng.integers(low, high, ids_shape)
        expected = gather_oracle(values, indices, axis, batch_dims, POLICIES.get(policy, "DEFAULT"))
        with tf.device(GPU):
            variable = tf.Variable(values)
            ids = on_device(indices)

            def run(ids, variable=variable, axis=axis, batch_dims=batch_dims):
                return gs.gather(
                    variable, ids, axis=axis, batch_dims=batch_dims, bad_indices_policy=policy
                )

            for function in (run, tf.function(run)):
                with only_ours("ResourceGather"):
                    result = function(ids)
                assert_on_device(result)
                assert_same(result, expected)


def test_a_bad_index_into_a_variable_is_an_error():
    with tf.device(GPU):
        variable = tf.Variable(np.ones([5, 3]))
        ids = on_device(tf.constant([[0, 1], [5, -1]]))
        expected = re.escape("indices[1,0] = 5 is not in [0, 5)")
        with pytest.raises(tf.errors.InvalidArgumentError, match=expected):
            gs.gather(variable, ids, bad_indices_policy="ERROR")
        good = on_device([0, 1])
        assert_same(gs.gather(variable, good, bad_indices_policy="ERROR"), np.ones([2, 3]))
