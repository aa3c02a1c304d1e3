# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""dynamic_stitch and parallel_dynamic_stitch: equality with tf.dynamic_stitch and nested loops."""

from __future__ import annotations

import re

import cases
import gather_stitch as gs
import numpy as np
import pytest
import tensorflow as tf
from checks import (
    MODES,
    assert_same,
    bytes_of,
    call_in_mode,
    only_ours,
    outcome,
    run_modes,
    stitch_oracle,
)

FUNCTIONS = (gs.dynamic_stitch, gs.parallel_dynamic_stitch)


def data_of(case, dtype, rng):
    return [cases.random_values(rng, dtype, np.shape(i) + case.constant) for i in case.indices]


def stock_stitch(indices, data):
    """What tf.dynamic_stitch gives, also for dtypes that it lacks."""
    indices = [tf.cast(i, tf.int32) for i in indices]
    if data[0].dtype not in cases.STOCK_STITCH_LACKS:
        return tf.dynamic_stitch(indices, data).numpy()
    arrays = [d.numpy() for d in data]
    moved = tf.dynamic_stitch(indices, [tf.constant(bytes_of(array)) for array in arrays])
    return moved.numpy().view(arrays[0].dtype)


def stitch(inputs_count, function=gs.dynamic_stitch, **options):
    """The function of all indices and then all data."""
    return lambda *tensors: function(
        list(tensors[:inputs_count]), list(tensors[inputs_count : 2 * inputs_count]), **options
    )


@pytest.mark.parametrize("index_dtype", cases.STITCH_INDEX_DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("case", cases.STITCH_CASES, ids=str)
def test_cases_equal_stock_in_every_mode(case, index_dtype, rng):
    indices = cases.indices_tensors(case.indices, index_dtype)
    data = data_of(case, tf.float32, rng)
    expected = stock_stitch(indices, data)
    assert_same(stitch_oracle([i.numpy() for i in indices], [d.numpy() for d in data]), expected)
    for function in FUNCTIONS:
        for mode, result in run_modes(
            "ParallelDynamicStitch", stitch(len(data), function), *indices, *data
        ):
            assert_same(result, expected, mode)


@pytest.mark.parametrize("dtype", cases.DTYPES, ids=lambda dtype: dtype.name)
def test_every_dtype_equals_stock(dtype, rng):
    for case in cases.STITCH_CASES:
        data = data_of(case, dtype, rng)
        for index_dtype in cases.STITCH_INDEX_DTYPES:
            indices = cases.indices_tensors(case.indices, index_dtype)
            with only_ours("ParallelDynamicStitch"):
                result = gs.parallel_dynamic_stitch(indices, data)
            assert_same(result, stock_stitch(indices, data), case)
    for mode, result in run_modes("ParallelDynamicStitch", stitch(len(data)), *indices, *data):
        assert_same(result, stock_stitch(indices, data), mode)


def test_variants_are_stitched_as_objects():
    lists = [
        tf.raw_ops.TensorListFromTensor(tensor=tf.range(n), element_shape=tf.constant([], tf.int32))
        for n in range(1, 5)
    ]
    data = [tf.stack(lists[:3]), lists[3]]
    for index_dtype in cases.STITCH_INDEX_DTYPES:
        indices = [tf.constant([3, 0, 1], index_dtype), tf.constant(1, index_dtype)]
        with only_ours("ParallelDynamicStitch"):
            merged = gs.dynamic_stitch(indices, data)
        assert merged.shape == [4]
        lengths = {k: int(tf.raw_ops.TensorListLength(input_handle=merged[k])) for k in (0, 1, 3)}
        assert lengths == {0: 2, 1: 4, 3: 1}
        with pytest.raises(tf.errors.InvalidArgumentError):
            tf.raw_ops.TensorListLength(input_handle=merged[2])  # A hole: no list.


def test_resource_handles_are_stitched_as_objects():
    variables = [tf.Variable([float(n)]) for n in range(3)]
    handles = tf.stack([v.handle for v in variables])
    with only_ours("ParallelDynamicStitch"):
        merged = gs.dynamic_stitch([[2, 0, 1]], [handles])
    values = [
        tf.raw_ops.ReadVariableOp(resource=merged[k], dtype=tf.float32).numpy()[0] for k in range(3)
    ]
    assert values == [1.0, 2.0, 0.0]


@pytest.mark.parametrize("inputs_count", [1, 2, 3, 7, 64, 300])
def test_any_number_of_inputs_equals_stock(inputs_count, rng):
    for index_dtype in cases.STITCH_INDEX_DTYPES:
        shapes = [((), (3,), (0,), (2, 2))[k] for k in rng.integers(0, 4, inputs_count)]
        indices = [cases.random_indices(rng, shape, 50, index_dtype) for shape in shapes]
        data = [cases.random_values(rng, tf.int16, (*shape, 3)) for shape in shapes]
        with only_ours("ParallelDynamicStitch"):
            result = gs.dynamic_stitch(indices, data)
        assert_same(result, stock_stitch(indices, data))


def test_the_documented_example():
    indices = [6, [4, 1], [[5, 2], [0, 3]]]
    data = [[61, 62], [[41, 42], [11, 12]], [[[51, 52], [21, 22]], [[1, 2], [31, 32]]]]
    expected = [[1, 2], [11, 12], [21, 22], [31, 32], [41, 42], [51, 52], [61, 62]]
    for function in FUNCTIONS:
        with only_ours("ParallelDynamicStitch"):
            result = function(indices, data)
        assert result.numpy().tolist() == expected


def test_partition_and_stitch_round_trip():
    x = tf.constant([0.1, -1.0, 5.2, 4.3, -1.0, 7.4])
    is_real = tf.not_equal(x, tf.constant(-1.0))
    parts = tf.dynamic_partition(x, tf.cast(is_real, tf.int32), 2)
    places = tf.dynamic_partition(tf.range(6), tf.cast(is_real, tf.int32), 2)
    with only_ours("ParallelDynamicStitch"):
        result = gs.parallel_dynamic_stitch(places, [parts[0], parts[1] + 1.0])
    assert_same(result, np.array([1.1, -1.0, 6.2, 5.3, -1.0, 8.4], np.float32))


def test_last_of_64_inputs_wins_a_row_whole():
    inputs_count, floats = 64, 200_000
    data = [tf.fill([floats], float(m)) for m in range(inputs_count)]
    expected = np.full((1, floats), inputs_count - 1, np.float32)
    for _ in range(5):
        with only_ours("ParallelDynamicStitch"):
            result = gs.parallel_dynamic_stitch([0] * inputs_count, data)
        assert_same(result, expected)


def test_last_of_many_duplicates_wins_at_work_for_several_threads(rng):
    for rows, row in ((1, 1), (10, 3), (3000, 1), (3000, 16), (200_000, 2)):
        for index_dtype in cases.STITCH_INDEX_DTYPES:
            indices = [cases.random_indices(rng, (n,), rows, index_dtype) for n in (60_000, 40_000)]
            data = [cases.random_values(rng, tf.int32, (n, row)) for n in (60_000, 40_000)]
            with only_ours("ParallelDynamicStitch"):
                result = gs.parallel_dynamic_stitch(indices, data)
            assert_same(result, stock_stitch(indices, data), (rows, row))


def test_strings_at_work_for_several_threads_equal_stock(rng):
    indices = [cases.random_indices(rng, (10_000,), 8_000), cases.random_indices(rng, (), 8_000)]
    data = [cases.random_values(rng, tf.string, (10_000, 2)), tf.constant(["x", ""])]
    with only_ours("ParallelDynamicStitch"):
        result = gs.dynamic_stitch(indices, data)
    assert_same(result, stock_stitch(indices, data))


# ---- V2: with size -----------------------------------------------------------


@pytest.mark.parametrize("dtype", cases.DTYPES, ids=lambda dtype: dtype.name)
def test_size_cuts_and_pads_every_dtype(dtype, rng):
    for case in cases.STITCH_CASES:
        data = data_of(case, dtype, rng)
        arrays = [np.array(i, int) for i in case.indices]
        for size in (0, 1, 3, 10):
            expected = stitch_oracle(arrays, [d.numpy() for d in data], size, "IGNORE")
            index_dtype = cases.STITCH_INDEX_DTYPES[size % 2]
            with only_ours("ParallelDynamicStitchV2"):
                result = gs.parallel_dynamic_stitch(
                    cases.indices_tensors(case.indices, index_dtype),
                    data,
                    size=size,
                    bad_indices_policy="IGNORE",
                )
            assert_same(result, expected, (case, size))


@pytest.mark.parametrize("policy", ["DEFAULT", "ERROR", "IGNORE"])
@pytest.mark.parametrize("index_dtype", cases.STITCH_INDEX_DTYPES, ids=lambda dtype: dtype.name)
def test_size_and_policies_equal_the_oracle_in_every_mode(policy, index_dtype, rng):
    limits = np.iinfo(index_dtype.as_numpy_dtype)
    refused = 0
    for size in (0, 1, 4, 9):
        for size_dtype in (tf.int32, tf.int64):
            shapes = ((), (3,), (2, 2))
            pool = list(range(size)) * 4 + [-1, size, limits.min, limits.max]
            arrays = [
                rng.choice(np.array(pool, index_dtype.as_numpy_dtype), shape) for shape in shapes
            ]
            indices = cases.indices_tensors(arrays, index_dtype)
            data = [cases.random_values(rng, tf.uint16, (*shape, 2)) for shape in shapes]

            def function(*tensors, policy=policy):
                *tensors, rows = tensors
                return stitch(3, size=rows, bad_indices_policy=policy)(*tensors)

            inputs = (*indices, *data, tf.constant(size, size_dtype))
            expected, error = outcome(
                stitch_oracle, arrays, [d.numpy() for d in data], size, policy
            )
            if error is None:
                for mode, result in run_modes("ParallelDynamicStitchV2", function, *inputs):
                    assert_same(result, expected, (mode, arrays, size))
                continue
            refused += 1
            for mode in MODES:
                with pytest.raises(tf.errors.InvalidArgumentError, match=re.escape(error)):
                    call_in_mode(mode, function, *inputs)
    # Without room every index is bad; with IGNORE none is.
    assert refused == 0 if policy == "IGNORE" else refused >= 2


@pytest.mark.parametrize("policy", ["DEFAULT", "ERROR", "IGNORE"])
def test_size_without_bad_indices_equals_stock(policy, rng):
    for case in cases.STITCH_CASES:
        indices = cases.indices_tensors(case.indices, tf.int32)
        data = data_of(case, tf.float64, rng)
        expected = stock_stitch(indices, data)
        for function in FUNCTIONS:
            with only_ours("ParallelDynamicStitchV2"):
                result = function(indices, data, size=expected.shape[0], bad_indices_policy=policy)
            assert_same(result, expected, case)


def test_size_gives_the_rows_that_a_boolean_mask_left_out():
    places = tf.boolean_mask(tf.range(6), [True, False, True, True, False, False])
    data = tf.cast(places, tf.float32) + 1.0
    assert_same(gs.dynamic_stitch([places], [data]), np.array([1, 0, 3, 4], np.float32))
    with only_ours("ParallelDynamicStitchV2"):
        result = gs.dynamic_stitch([places], [data], size=6)
    assert_same(result, np.array([1, 0, 3, 4, 0, 0], np.float32))


@pytest.mark.parametrize(
    "size",
    [3, np.int32(3), np.int64(3), np.array(3), tf.constant(3), tf.constant(3, tf.int64)],
    ids=lambda size: type(size).__name__,
)
def test_size_is_an_int_an_array_or_a_tensor(size):
    with only_ours("ParallelDynamicStitchV2"):
        result = gs.dynamic_stitch([[1]], [[5]], size=size)
    assert_same(result, np.array([0, 5, 0], np.int32))


# ---- The public functions ----------------------------------------------------


def test_lists_arrays_and_variables_equal_stock():
    for indices, data in (
        ([[0, 1], 2], [[1.0, 2.0], 3.0]),
        ([np.array([1, 0], np.int32)], [np.array([[1], [2]], np.uint8)]),
        ([tf.Variable([1, 0])], [tf.Variable([3.0, 4.0])]),
        (([0], [1]), (["a"], ["b"])),
        ((tf.constant([0]), 1), ([True], tf.constant(True))),
    ):
        for function in FUNCTIONS:
            with only_ours("ParallelDynamicStitch"):
                result = function(indices, data)
            assert_same(result, tf.dynamic_stitch(indices, data))


def test_autograph_leaves_the_functions_alone():
    @tf.function
    def function(indices, data):
        return [f([indices], [data]) for f in FUNCTIONS]

    with only_ours("ParallelDynamicStitch", times=2):
        results = function(tf.constant([1, 0]), tf.constant([3, 4]))
    for result in results:
        assert_same(result, np.array([4, 3], np.int32))


def test_ragged_tensors_go_to_stock_which_refuses_them():
    data = [tf.ragged.constant([[1, 2], [3]]), tf.ragged.constant([[4]])]
    indices = [tf.constant([2, 0]), tf.constant([1])]
    texts = []
    for function in (tf.dynamic_stitch, *FUNCTIONS):
        with pytest.raises(ValueError, match="RaggedTensor") as raised:
            function(indices, data)
        texts.append(str(raised.value))
    assert len(set(texts)) == 1
    for function in FUNCTIONS:
        with pytest.raises(ValueError, match=r"a RaggedTensor is passed on to tf\.dynamic_stitch"):
            function(indices, data, size=4)


@pytest.mark.parametrize("name", [None, "rows"])
def test_nodes_are_named_as_those_of_stock(name):
    def trace(stitch_function):
        @tf.function(autograph=False)
        def function():
            for _ in range(2):
                stitch_function([tf.constant([0])], [tf.zeros([1])], name=name)
            with tf.name_scope("outer"):
                stitch_function([tf.constant([0])], [tf.zeros([1])], name=name)

        operations = function.get_concrete_function().graph.get_operations()
        return [op.name for op in operations if op.type.endswith("DynamicStitch")]

    def stock_parallel(indices, data, name):
        return tf.raw_ops.ParallelDynamicStitch(indices=indices, data=data, name=name)

    for function, stock in (
        (gs.dynamic_stitch, tf.dynamic_stitch),
        (gs.parallel_dynamic_stitch, stock_parallel),
    ):
        expected = trace(stock)
        assert len(expected) == 3
        assert trace(function) == expected


def test_raw_ops_equal_the_functions():
    indices = [tf.constant([2, 0], tf.int64), tf.constant(4, tf.int64)]
    data = [tf.constant([[1.0], [2.0]]), tf.constant([3.0])]

    def v1(indices, data):
        return gs.raw_ops.ParallelDynamicStitch(indices=indices, data=data)

    def v2(indices, data):
        return gs.raw_ops.ParallelDynamicStitchV2(
            indices=indices, data=data, merged_rows=3, bad_indices_policy="IGNORE"
        )

    for op_type, function, expected in (
        ("ParallelDynamicStitch", v1, [2, 0, 1, 0, 3]),
        ("ParallelDynamicStitchV2", v2, [2, 0, 1]),
    ):
        for mode, result in run_modes(op_type, stitch(2, function), *indices, *data):
            assert_same(result, np.array(expected, np.float32)[:, None], mode)


@pytest.mark.parametrize("dtype", cases.DTYPES, ids=lambda dtype: dtype.name)
def test_the_gradient_op_moves_the_rows_that_won(dtype, rng):
    grad = cases.random_values(rng, dtype, (5, 3))
    arrays = [np.array([4, 0, 1], int), np.array([[0, -1], [5, 2]], int), np.array(1)]
    # A row that a later one overwrote, or that is no row of grad, gets zeros.
    sources = [[4, None, None], [[0, None], [None, 2]], 1]
    rows = grad.numpy()
    zeros = np.zeros_like(rows[0])
    if dtype == tf.string:
        zeros[...] = b""
    for index_dtype in cases.STITCH_INDEX_DTYPES:
        with only_ours("ParallelDynamicStitchGrad"):
            results = gs.raw_ops.ParallelDynamicStitchGrad(
                grad=grad, indices=cases.indices_tensors(arrays, index_dtype)
            )
        for result, source, array in zip(results, sources, arrays, strict=True):
            flat = [zeros if s is None else rows[s] for s in np.array(source, object).reshape(-1)]
            assert_same(result, np.stack(flat).reshape((*array.shape, 3)))
