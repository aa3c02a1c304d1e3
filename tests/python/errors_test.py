# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Errors: their words, which are stock's where stock has the same error, and their boundaries."""

from __future__ import annotations

import re

import cases
import gather_stitch as gs
import numpy as np
import pytest
import tensorflow as tf
from checks import MODES, assert_same, call_in_mode
from conftest import THREAD_COUNTS

SQUARE = [[1.0, 2.0], [3.0, 4.0]]
INVALID = tf.errors.InvalidArgumentError


def assert_refused(words, function, *tensors, modes=MODES):
    """In each mode: an InvalidArgumentError, a ValueError where tracing sees it, of these words."""
    for mode in modes:
        error_types = INVALID if mode == "eager" else (INVALID, ValueError)
        with pytest.raises(error_types, match=words):
            call_in_mode(mode, function, *tensors)


# ---- The same errors as stock ------------------------------------------------

# Params, indices, options and the words of both. Inputs on which stock aborts are not here.
GATHERS_THAT_STOCK_REFUSES = (
    (SQUARE, [0], {"axis": 2}, r"Shape must be at least rank 3 but is rank 2"),
    (SQUARE, [0], {"axis": 5}, r"Shape must be at least rank 6 but is rank 2"),
    (SQUARE, [0], {"axis": -3}, r"Shape must be at least rank 3 but is rank 2"),
    (1.0, [0], {}, r"params must be at least 1 dimensional"),
    (SQUARE, [0], {"axis": [0]}, r"axis must be scalar"),
    (
        SQUARE,
        [0],
        {"axis": 1, "batch_dims": 2},
        r"Expected batch_dims in the range \[-1, 1\], but got 2",
    ),
    (
        SQUARE,
        [0],
        {"axis": 1, "batch_dims": -2},
        r"Expected batch_dims in the range \[-1, 1\], but got -2",
    ),
    (
        SQUARE,
        [[[0]]],
        {"axis": 1, "batch_dims": 3},
        r"batch_dims \(3\) must be less than rank\(params\) \(2\)\.",
    ),
    (
        SQUARE,
        [[0], [0]],
        {"axis": 1, "batch_dims": 2},
        r"batch_dims \(2\) must be less than rank\(params\) \(2\)\.",
    ),
    (
        SQUARE,
        [[0], [0], [0]],
        {"axis": 1, "batch_dims": 1},
        r"params\.shape\[0\]: 2 should be equal to indices\.shape\[0\]: 3",
    ),
    (SQUARE, 2, {}, r"indices = 2 is not in \[0, 2\)"),
    (SQUARE, -1, {}, r"indices = -1 is not in \[0, 2\)"),
    (SQUARE, [0, 2], {}, r"indices\[1\] = 2 is not in \[0, 2\)"),
    (SQUARE, [-1, 2], {}, r"indices\[0\] = -1 is not in \[0, 2\)"),
    (SQUARE, [[0, 1], [1, 99]], {"axis": 1}, r"indices\[1,1\] = 99 is not in \[0, 2\)"),
    (
        SQUARE,
        [[0], [-5]],
        {"axis": 1, "batch_dims": 1},
        r"indices\[1,0\] = -5 is not in \[0, 2\)",
    ),
    (np.zeros([0, 2], np.float32), [0], {}, r"indices\[0\] = 0 is not in \[0, 0\)"),
)


@pytest.mark.parametrize(
    "case", GATHERS_THAT_STOCK_REFUSES, ids=lambda case: f"{case[1]} {case[2]}"
)
def test_gather_uses_the_words_of_stock(case):
    params, indices, options, words = case
    for function in (tf.gather, gs.gather):
        with pytest.raises(INVALID, match=words):
            function(tf.constant(params), tf.constant(indices), **options)


# Indices, data and the words of both.
STITCHES_THAT_STOCK_REFUSES = (
    (
        [[0, 1]],
        [[1.0, 2.0, 3.0]],
        r"data\[0\]\.shape = \[3\] does not start with indices\[0\]\.shape = \[2\]",
    ),
    (
        [[0], [0, 1]],
        [[1.0], [2.0]],
        r"data\[1\]\.shape = \[1\] does not start with indices\[1\]\.shape = \[2\]",
    ),
    (
        [[0, 1]],
        [1.0],
        r"data\[0\]\.shape = \[\] does not start with indices\[0\]\.shape = \[2\]",
    ),
    (
        [[0, 1], [2]],
        [[[1.0], [2.0]], [[1.0, 2.0]]],
        r"Need data\[0\]\.shape\[1:\] = data\[1\]\.shape\[1:\], got data\[0\]\.shape = \[2,1\], "
        r"data\[1\]\.shape = \[1,2\], indices\[0\]\.shape = \[2\], indices\[1\]\.shape = \[1\]",
    ),
    # Ours says more of it.
    ([[4], [0, -1]], [[1.0], [1.0, 2.0]], r"indices\[1\](\[1\] = -1)? is (out of range|not in)"),
)


@pytest.mark.parametrize("case", STITCHES_THAT_STOCK_REFUSES, ids=lambda case: str(case[0]))
def test_stitch_uses_the_words_of_stock(case):
    indices, data, words = case
    for function in (tf.dynamic_stitch, gs.dynamic_stitch, gs.parallel_dynamic_stitch):
        with pytest.raises(INVALID, match=words):
            function([tf.constant(i) for i in indices], [tf.constant(d) for d in data])


# ---- Bad indices -------------------------------------------------------------


@pytest.mark.parametrize("policy", ["DEFAULT", "ERROR"])
@pytest.mark.parametrize("index_dtype", cases.INDEX_DTYPES, ids=lambda dtype: dtype.name)
def test_both_sides_of_the_range_of_indices(index_dtype, policy):
    def gather(p, i):
        return gs.gather(p, i, bad_indices_policy=policy)

    for rows in (1, 5, 127):
        params = tf.range(10, 10 + rows)
        for good in (0, rows - 1):
            assert_same(gather(params, tf.constant(good, index_dtype)), params[good])
        for bad in cases.out_of_range_values(index_dtype, rows):
            for shape, position in (((), ""), ((1,), r"\[0\]"), ((1, 1), r"\[0,0\]")):
                indices = tf.constant(bad, index_dtype, shape)
                words = rf"indices{position} = {bad} is not in \[0, {rows}\)"
                assert_refused(words, gather, params, indices, modes=("eager",))
        assert_refused(words, gather, params, indices)


@pytest.mark.parametrize("dtype", [tf.int8, tf.complex128, tf.string], ids=lambda d: d.name)
def test_the_first_bad_position_in_row_major_order_is_named(dtype, rng):
    params = cases.random_values(rng, dtype, (3, 7, 2))
    indices = rng.integers(0, 7, (3, 4, 5))
    for place in ((0, 0, 0), (0, 3, 4), (1, 0, 0), (2, 3, 3), (2, 3, 4)):
        wrong = indices.copy()
        flat = wrong.reshape(-1)
        first = int(np.ravel_multi_index(place, wrong.shape))
        flat[first] = 7
        flat[first + 1 :] = -1
        words = re.escape(f"indices[{place[0]},{place[1]},{place[2]}] = 7 is not in [0, 7)")
        for batch_dims in (0, 1):

            def gather(p, i, batch_dims=batch_dims):
                return gs.gather(p, i, axis=1, batch_dims=batch_dims)

            assert_refused(words, gather, params, tf.constant(wrong), modes=("eager",))
    assert_refused(words, gather, params, tf.constant(wrong))


@pytest.mark.parametrize("threads", THREAD_COUNTS)
def test_the_first_bad_position_is_named_at_any_number_of_threads(by_threads, threads):
    reported = by_threads[threads]["errors"]
    assert len(reported) == 8 * 6
    for expected, text in reported:
        assert expected in text


@pytest.mark.parametrize("policy", ["DEFAULT", "ERROR", "CLIP", "WRAP"])
@pytest.mark.parametrize("index_dtype", cases.INDEX_DTYPES, ids=lambda dtype: dtype.name)
def test_an_axis_without_rows_refuses_any_index(policy, index_dtype):
    for params, axis, batch_dims in (
        (tf.zeros([0, 4]), 0, 0),
        (tf.zeros([0]), 0, 0),
        (tf.fill([2, 0], "a"), 1, 0),
        (tf.zeros([2, 0, 4]), 1, 1),
        (tf.zeros([0, 0]), 1, 0),
    ):

        def gather(p, i, axis=axis, batch_dims=batch_dims):
            return gs.gather(p, i, axis=axis, batch_dims=batch_dims, bad_indices_policy=policy)

        indices = tf.constant([[0, 1], [0, 1]], index_dtype)
        words = r"indices\[0,0\] = 0 is not in \[0, 0\)"
        assert_refused(words, gather, params, indices, modes=("eager",))
        empty = tf.zeros([2, 0], index_dtype)
        assert gather(params, empty).shape.num_elements() == 0


@pytest.mark.parametrize("policy", ["DEFAULT", "ERROR"])
def test_indices_are_checked_where_rows_are_empty(policy):
    for params, axis, batch_dims in (
        (tf.zeros([3, 0]), 0, 0),
        (tf.zeros([0, 3]), 1, 0),
        (tf.zeros([0, 3, 0]), 1, 0),
        (tf.zeros([2, 0, 3]), 2, 1),
        (tf.zeros([2, 3, 0]), 1, 1),
        (tf.fill([3, 0], "a"), 0, 0),
        (tf.fill([2, 0, 3], "a"), 2, 1),
    ):

        def gather(p, i, axis=axis, batch_dims=batch_dims):
            return gs.gather(p, i, axis=axis, batch_dims=batch_dims, bad_indices_policy=policy)

        for bad in (3, -1):
            indices = tf.constant([[0, 2], [1, bad]])
            assert_refused(rf"indices\[1,1\] = {bad} is not in \[0, 3\)", gather, params, indices)
        assert gather(params, tf.constant([[0, 2], [1, 0]])).shape.num_elements() == 0


@pytest.mark.parametrize("index_dtype", cases.STITCH_INDEX_DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("constant", [(), (2,), (0,)], ids=str)
@pytest.mark.parametrize("dtype", [tf.float32, tf.string], ids=lambda dtype: dtype.name)
def test_a_bad_index_of_a_stitch_is_named(index_dtype, constant, dtype):
    lowest = index_dtype.min
    for lists, words in (
        (([-1],), "indices[0][0] = -1 is not in [0, 9223372036854775807)"),
        (([0], [1, 2, -3]), "indices[1][2] = -3 is not in [0, 9223372036854775807)"),
        (([0], -3), "indices[1] = -3 is not in [0, 9223372036854775807)"),
        (([0], [[1, 2], [-3, -4]]), "indices[1][1,0] = -3 is not in [0, 9223372036854775807)"),
        (([5, lowest], [-1]), f"indices[0][1] = {lowest} is not in [0, 9223372036854775807)"),
        (([], [-559038737], [4]), "indices[1][0] = -559038737 is not in [0, 9223372036854775807)"),
    ):
        indices = cases.indices_tensors(lists, index_dtype)
        data = [cases.empty_tensor(i.shape + constant, dtype) for i in indices]
        for function in (gs.dynamic_stitch, gs.parallel_dynamic_stitch):
            with pytest.raises(INVALID, match=re.escape(words)):
                function(indices, data)


@pytest.mark.parametrize("policy", ["DEFAULT", "ERROR"])
@pytest.mark.parametrize("index_dtype", cases.STITCH_INDEX_DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("constant", [(), (2,), (0,)], ids=str)
def test_both_sides_of_the_range_of_a_stitch_with_size(policy, index_dtype, constant):
    def stitch(size):
        return lambda i, j, x, y: gs.dynamic_stitch(
            [i, j], [x, y], size=size, bad_indices_policy=policy
        )

    for size in (1, 4, 9):
        for good in (0, size - 1):
            tensors = _stitch_tensors(([good], [[0, good]]), index_dtype, constant)
            assert stitch(size)(*tensors).shape == (size, *constant)
        for bad in (-1, size, index_dtype.min, index_dtype.max):
            tensors = _stitch_tensors(([0], [[0, bad]]), index_dtype, constant)
            words = re.escape(f"indices[1][0,1] = {bad} is not in [0, {size})")
            assert_refused(words, stitch(size), *tensors, modes=("eager",))
    assert_refused(words, stitch(size), *tensors)
    tensors = _stitch_tensors(([0], [[0, 0]]), index_dtype, constant)
    assert_refused(re.escape("indices[0][0] = 0 is not in [0, 0)"), stitch(0), *tensors)


def _stitch_tensors(lists, index_dtype, constant):
    indices = cases.indices_tensors(lists, index_dtype)
    return [*indices, *(tf.zeros(i.shape + constant) for i in indices)]


def test_an_index_so_large_that_the_output_can_not_exist():
    largest = 2**63 - 1
    words = re.escape(f"indices[0][1] = {largest} is not in [0, {largest})")
    with pytest.raises(INVALID, match=words):
        gs.dynamic_stitch([tf.constant([0, largest])], [tf.zeros([2])])
    too_large = (INVALID, tf.errors.ResourceExhaustedError)
    for index in (largest - 1, 2**62, 2**60):
        for data in (tf.zeros([1]), tf.zeros([1, 8]), tf.fill([1], "a")):
            with pytest.raises(too_large, match=r"."):
                gs.dynamic_stitch([tf.constant([index])], [data])
            with pytest.raises(too_large, match=r"."):
                gs.dynamic_stitch([tf.constant([0])], [data], size=tf.constant(index))


def test_the_process_goes_on_after_an_error():
    params, bad, good = tf.range(5), tf.constant([0, 7]), tf.constant([0, 4])
    for function in (gs.gather, tf.function(gs.gather, autograph=False)):
        for _ in range(3):
            with pytest.raises(INVALID, match=r"indices\[1\] = 7 is not in \[0, 5\)"):
                function(params, bad)
            assert_same(function(params, good), good)


# ---- Mistakes that Python sees -----------------------------------------------


@pytest.mark.parametrize(
    ("indices", "found"),
    [
        ([0.5], "float32"),
        ([True], "bool"),
        (["a"], "string"),
        (np.array([1.0]), "float64"),
        (tf.constant([1 + 1j]), "complex128"),
        ([], "float32"),
    ],
    ids=str,
)
def test_indices_that_are_no_integers_are_a_type_error(indices, found):
    words = rf"indices must be int8, .*uint64, but got {found}"
    with pytest.raises(TypeError, match=words):
        gs.gather([1.0], indices)
    with pytest.raises(TypeError, match=words):
        call_in_mode("function", lambda p: gs.gather(p, indices), tf.zeros([3]))
    words = rf"indices\[0\] must be int32 or int64, but got {found}"
    with pytest.raises(TypeError, match=words):
        gs.dynamic_stitch([indices], [tf.ones(np.shape(indices))])


@pytest.mark.parametrize("axis", [0.0, "0", tf.constant(0, tf.int16), True], ids=str)
def test_an_axis_that_is_no_integer_is_a_type_error(axis):
    with pytest.raises(TypeError, match=r"axis must be int32 or int64, but got"):
        gs.gather([1.0], [0], axis=axis)


@pytest.mark.parametrize("policy", ["default", "IGNORED", "", None, 3])
def test_an_unknown_policy_is_a_value_error(policy):
    words = "bad_indices_policy must be one of 'DEFAULT', 'ERROR', 'IGNORE'"
    with pytest.raises(ValueError, match=words):
        gs.gather([1.0], [0], bad_indices_policy=policy)
    for size in (None, 3):
        with pytest.raises(ValueError, match=words):
            gs.dynamic_stitch([[0]], [[1.0]], size=size, bad_indices_policy=policy)


@pytest.mark.parametrize("policy", ["CLIP", "WRAP"])
def test_a_policy_that_only_gather_has_is_a_value_error(policy):
    for size in (None, 3):
        with pytest.raises(ValueError, match="bad_indices_policy must be one of"):
            gs.parallel_dynamic_stitch([[0]], [[1.0]], size=size, bad_indices_policy=policy)


@pytest.mark.parametrize("gradient", ["AUTO", "", None, "dense "])
def test_an_unknown_gradient_is_a_value_error(gradient):
    with pytest.raises(ValueError, match="gradient must be one of 'auto', 'dense', 'sparse'"):
        gs.gather([1.0], [0], gradient=gradient)


@pytest.mark.parametrize("options", [{"axis": 1}, {"axis": -1}, {"axis": 1, "batch_dims": 1}])
def test_sparse_gradients_elsewhere_than_at_axis_0_are_a_value_error(options):
    with pytest.raises(ValueError, match="axis 0 without batch_dims"):
        gs.gather(SQUARE, [[0], [1]], gradient="sparse", **options)


def test_lists_of_a_stitch_that_do_not_fit_are_refused():
    for function in (gs.dynamic_stitch, gs.parallel_dynamic_stitch):
        with pytest.raises(ValueError, match="same length, but have 2 and 1"):
            function([[0], [1]], [[1.0]])
        with pytest.raises(ValueError, match="at least one"):
            function([], [])
        with pytest.raises(TypeError, match="indices must be a list"):
            function(tf.constant([0]), [[1.0]])
        with pytest.raises(TypeError, match="data must be a list"):
            function([[0]], tf.constant([1.0]))


def test_ignore_without_a_size_is_refused():
    with pytest.raises(ValueError, match="size="):
        gs.dynamic_stitch([[0]], [[1.0]], bad_indices_policy="IGNORE")


@pytest.mark.parametrize("size", [1.5, "3", tf.constant(3, tf.int16)], ids=str)
def test_a_size_that_is_no_integer_is_a_type_error(size):
    with pytest.raises(TypeError, match="size must be int32 or int64"):
        gs.dynamic_stitch([[0]], [[1.0]], size=size)


# ---- The gradient ops --------------------------------------------------------

# The op, its inputs, attrs, and the words of shape function and kernel.
WRONG_GRADIENTS = (
    (
        gs.raw_ops.GatherV2Grad,
        {"grad": np.zeros([2, 3]), "indices": [0], "params_shape": [4, 3], "axis": 0},
        r"grad\.shape = \[2,3\] should be equal to \[1,3\]",
    ),
    (
        gs.raw_ops.GatherV2Grad,
        {"grad": np.zeros([1]), "indices": [0], "params_shape": [4, 3], "axis": 0},
        r"grad\.shape = \[1\] should be equal to \[[1?],[3?]\]",
    ),
    (
        gs.raw_ops.GatherV2Grad,
        {"grad": np.zeros([1, 3]), "indices": [0], "params_shape": [4, -1], "axis": 0},
        r"params_shape\[1\] = -1 must not be negative",
    ),
    (
        gs.raw_ops.GatherV2Grad,
        {"grad": np.zeros([1, 3]), "indices": [0], "params_shape": 4, "axis": 0},
        r"params_shape must be a vector",
    ),
    (
        gs.raw_ops.GatherV2Grad,
        {"grad": np.zeros([1, 3]), "indices": [0], "params_shape": [4, 3], "axis": 2},
        r"Shape must be at least rank 3 but is rank 2: axis = 2 is not in \[-2, 2\)",
    ),
    (
        gs.raw_ops.GatherV2SparseGrad,
        {"grad": np.zeros([2, 3]), "indices": [0], "params_rows": 4},
        r"grad\.shape = \[2,3\] does not start with indices\.shape = \[1\]",
    ),
    (
        gs.raw_ops.GatherV2SparseGrad,
        {"grad": np.zeros([1, 3]), "indices": [0], "params_rows": -1},
        r"params_rows = -1 must not be negative",
    ),
    (
        gs.raw_ops.GatherV2SparseGrad,
        {"grad": np.zeros([1, 3]), "indices": [0], "params_rows": [4]},
        r"params_rows must be scalar",
    ),
    (
        gs.raw_ops.ParallelDynamicStitchGrad,
        {"grad": 1.0, "indices": [[0]]},
        r"grad must be at least 1 dimensional",
    ),
)


@pytest.mark.parametrize("case", WRONG_GRADIENTS, ids=lambda case: case[2][:40])
def test_gradient_ops_refuse_with_the_same_words_when_traced_and_run(case):
    op, inputs, words = case
    with pytest.raises(INVALID, match=words):
        op(**inputs)
    with pytest.raises(ValueError, match=words):
        tf.function(lambda: op(**inputs), autograph=False).get_concrete_function()

    @tf.function(
        input_signature=[tf.TensorSpec(None, tf.as_dtype(np.asarray(inputs["grad"]).dtype))],
        autograph=False,
    )
    def function(grad):
        return op(**{**inputs, "grad": grad})

    with pytest.raises((INVALID, ValueError), match=words):
        function(inputs["grad"])


@pytest.mark.parametrize("policy", ["DEFAULT", "ERROR"])
def test_gradient_ops_name_a_bad_index(policy):
    words = r"indices\[1\] = 4 is not in \[0, 4\)"
    inputs = {"grad": np.zeros([2, 3]), "indices": [3, 4], "bad_indices_policy": policy}
    with pytest.raises(INVALID, match=words):
        gs.raw_ops.GatherV2Grad(params_shape=[4, 3], axis=0, **inputs)
    with pytest.raises(INVALID, match=words):
        gs.raw_ops.GatherV2SparseGrad(params_rows=4, **inputs)


def unaligned(values, dtype):
    """A tensor whose memory is aligned to its numbers and no more, as DLPack may hand it over."""
    values = np.asarray(values, dtype)
    memory = np.zeros(values.size + 16, dtype)
    start = next(
        k for k in range(16) if memory[k:].__array_interface__["data"][0] % 64 == values.itemsize
    )
    array = memory[start : start + values.size].reshape(values.shape)
    array[...] = values
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())


def test_memory_that_is_aligned_to_its_numbers_and_no_more():
    """Stock ops end the process over such tensors."""
    raw = gs.raw_ops
    table = unaligned(np.arange(12).reshape(4, 3), np.float32)
    right = np.arange(12, dtype=np.float32).reshape(4, 3)
    ids = unaligned([2, 0], np.int64)
    for dtype in (np.int32, np.int64):
        rows = raw.GatherV2(params=table, indices=ids, axis=unaligned(0, dtype))
        np.testing.assert_array_equal(rows, right[[2, 0]])
        merged = raw.ParallelDynamicStitchV2(
            indices=[ids], data=[rows], merged_rows=unaligned(3, dtype)
        )
        np.testing.assert_array_equal(merged, [right[0], [0, 0, 0], right[2]])
    grad = unaligned(right[:2], np.float32)
    shape = unaligned([4, 3], np.int64)
    dense = raw.GatherV2Grad(
        grad=grad, indices=ids, params_shape=shape, axis=unaligned(0, np.int32)
    )
    np.testing.assert_array_equal(dense, [right[1], [0, 0, 0], right[0], [0, 0, 0]])
    values, found, slots = raw.GatherV2SparseGrad(
        grad=grad, indices=ids, params_rows=unaligned(4, np.int64)
    )
    np.testing.assert_array_equal(found, [0, 2])
    np.testing.assert_array_equal(values, right[[1, 0]])
    np.testing.assert_array_equal(slots, [1, 0])
    grads = raw.ParallelDynamicStitchGrad(grad=table, indices=[ids])
    np.testing.assert_array_equal(grads[0], right[[2, 0]])
