# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""What people reported about gather and stitch, by the number of the report, answered right.

`stock` in a comment is what TensorFlow 2.21 does; it is not run where it ends the process.
"""

import re

import gather_stitch as gs
import numpy as np
import pytest
import tensorflow as tf
from checks import assert_same, only_ours
from gradients_common import as_numpy, op_types

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
BOTH_WAYS = pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["eager", "function"])
# A function that is being traced says ValueError, with the same words.
REFUSED = (tf.errors.InvalidArgumentError, ValueError)


# ---- The process dies --------------------------------------------------------


@BOTH_WAYS
@pytest.mark.parametrize("axis", [INT64_MIN, INT64_MIN + 1, INT64_MAX])
def test_tensorflow_62603_an_axis_beyond_int32(axis, wrap):
    # stock: abort
    words = re.escape(f"axis = {axis} is not in [-2, 2)")
    table, row = tf.constant([[0.69]]), tf.constant([0])
    with pytest.raises(REFUSED, match=words):
        wrap(lambda: gs.gather(table, row, axis=tf.constant(axis, tf.int64)))()

    @tf.function(input_signature=[tf.TensorSpec([], tf.int64)])
    def at_run_time(axis):
        return gs.gather(table, row, axis=axis)

    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        at_run_time(axis)


@BOTH_WAYS
@pytest.mark.parametrize(
    ("axis", "batch_dims"),
    [(-12345, 11282), (0, 11282), (-12345, 0), (0, -11282), (0, INT64_MAX), (0, INT64_MIN)],
)
def test_tensorflow_60756_axis_and_batch_dims_far_out(axis, batch_dims, wrap):
    # stock: abort under jit_compile
    params, indices = tf.zeros([4]), tf.zeros([4, 0], tf.int32)
    with pytest.raises(REFUSED, match=r"is not in \[-1, 1\)|Expected batch_dims in the range"):
        wrap(
            lambda: gs.raw_ops.GatherV2(
                params=params, indices=indices, axis=axis, batch_dims=batch_dims
            )
        )()


@pytest.mark.parametrize("stitch", [gs.parallel_dynamic_stitch, gs.dynamic_stitch])
def test_cve_2023_25659_a_negative_index_of_stitch(stitch):
    # stock: an error without the value
    words = re.escape("indices[0][0] = -559038737 is not in [0, ")
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        stitch([[-559038737], [4]], [[1.0], [2.0]])

    @tf.function(input_signature=[tf.TensorSpec([1], tf.int32)] * 2)
    def at_run_time(first, second):
        return stitch([first, second], [[1.0], [2.0]])

    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        at_run_time([-559038737], [4])
    second = re.escape("indices[1][0] = -559038737 is not in [0, ")
    with pytest.raises(tf.errors.InvalidArgumentError, match=second):
        at_run_time([4], [-559038737])


def test_cve_2021_37653_empty_batches():
    # The report is about a variable's op: a division by zero.
    gathered = gs.gather(tf.zeros([0, 1]), tf.zeros([0], tf.int32), axis=1, batch_dims=1)
    assert gathered.shape == (0,)
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=re.escape("params.shape[0]: 0 should be equal to indices.shape[0]: 1"),
    ):
        gs.gather(tf.zeros([0, 1]), tf.constant([0]), axis=1, batch_dims=1)


# ---- Wrong or different answers ----------------------------------------------


@BOTH_WAYS
def test_tensorflow_7397_gradient_of_an_overwritten_row(wrap):
    # stock: [1 1 1]
    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            merged = gs.dynamic_stitch([[0, 1, 0]], [x])
        return tape.gradient(merged, x)

    np.testing.assert_array_equal(wrap(run)(tf.constant([5.0, 6.0, 7.0])), [0, 1, 1])


def test_pytorch_88096_the_last_of_many_writers_wins_whole():
    # stock: two winners in 40 runs, and torn rows that mix two inputs
    data = [tf.fill([1, 200_000], float(m)) for m in range(64)]
    indices = [tf.constant([0])] * 64
    for _ in range(10):
        for merged in (
            gs.parallel_dynamic_stitch(indices, data),
            gs.parallel_dynamic_stitch(indices, data, size=1),
        ):
            assert merged.shape == (1, 200_000)
            assert tf.reduce_min(merged) == tf.reduce_max(merged) == 63.0


def test_tensorflow_115254_57999_61865_the_policy_table():
    # stock: an error here, [10 30 10 10] under jit_compile
    params, indices = tf.constant([10, 20, 30]), [0, 7, -1, -9]
    right = {"IGNORE": [10, 0, 0, 0], "CLIP": [10, 30, 10, 10], "WRAP": [10, 20, 30, 10]}
    for policy, rows in right.items():
        np.testing.assert_array_equal(gs.gather(params, indices, bad_indices_policy=policy), rows)
    for policy in ("DEFAULT", "ERROR"):
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=re.escape("indices[1] = 7 is not in [0, 3)")
        ):
            gs.gather(params, indices, bad_indices_policy=policy)


def test_tensorflow_119991_bad_indices_in_batches():
    params = tf.constant([[7, 8, 9, 11], [13, 17, 19, 23]])
    indices = [[-3, 1], [-1, 0]]
    gathered = gs.gather(params, indices, axis=1, batch_dims=1, bad_indices_policy="IGNORE")
    np.testing.assert_array_equal(gathered, [[0, 8], [0, 13]])
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=re.escape("indices[0,0] = -3 is not in [0, 4)")
    ):
        gs.gather(params, indices, axis=1, batch_dims=1)


def test_jax_9839_gradient_of_bad_indices_is_the_transpose():
    params = tf.constant([[7.0, 8.0, 9.0, 11.0], [13.0, 17.0, 19.0, 23.0]])
    indices = [[-3, 1], [-1, 0]]
    right = {
        "IGNORE": [[0, 10, 0, 0], [1000, 0, 0, 0]],
        "CLIP": [[1, 10, 0, 0], [1100, 0, 0, 0]],
        "WRAP": [[0, 11, 0, 0], [1000, 0, 0, 100]],
    }
    for policy, grad in right.items():
        with tf.GradientTape() as tape:
            tape.watch(params)
            y = gs.gather(params, indices, axis=1, batch_dims=1, bad_indices_policy=policy)
        upstream = tf.constant([[1.0, 10.0], [100.0, 1000.0]])
        np.testing.assert_array_equal(
            tape.gradient(y, params, output_gradients=upstream), grad, policy
        )


@BOTH_WAYS
def test_openxla_49169_45969_a_table_without_rows(wrap):
    # stock: shape (4,) under jit_compile
    params, indices = tf.zeros([0, 4]), tf.zeros([2, 2], tf.int32)
    gathered = wrap(lambda: gs.gather(params, indices, bad_indices_policy="IGNORE"))()
    assert_same(gathered, np.zeros((2, 2, 4), np.float32))


@pytest.mark.parametrize(("dtype", "stock"), [("half", 2048), ("bfloat16", 256)])
def test_mxnet_17703_sums_of_narrow_floats(dtype, stock):
    params = tf.zeros([4, 1], dtype)
    zeros = tf.zeros([5000], tf.int32)
    right = np.float32(5000).astype(tf.as_dtype(dtype).as_numpy_dtype)

    def gradient(gather, **options):
        with tf.GradientTape() as tape:
            tape.watch(params)
            y = gather(params, zeros, **options)
        return tape.gradient(y, params)

    assert tf.convert_to_tensor(gradient(tf.gather))[0, 0] == stock
    dense = gradient(gs.gather, gradient="dense")
    np.testing.assert_array_equal(dense, np.array([[right], [0], [0], [0]], right.dtype))
    sparse = gradient(gs.gather, gradient="sparse")
    np.testing.assert_array_equal(sparse.indices, [0])
    assert sparse.values[0, 0] == right


@BOTH_WAYS
def test_seen_batch_dims_beyond_axis(wrap):
    # stock: batch_dims is silently ignored
    with pytest.raises(
        REFUSED, match=re.escape("batch_dims (1) must be less than or equal to axis (0)")
    ):
        wrap(lambda: gs.gather([[0, 1, 2], [3, 4, 5]], [[1], [0]], axis=0, batch_dims=1))()


def test_seen_one_kind_of_gradient_for_both_spellings():
    # stock: IndexedSlices and dense
    v = tf.Variable(tf.ones([4, 3]))
    for gradient, kind in (
        ("auto", tf.IndexedSlices), ("sparse", tf.IndexedSlices), ("dense", tf.Tensor)
    ):  # fmt: skip
        for axis in (0, -2):
            with tf.GradientTape() as tape:
                y = gs.gather(v, [1], axis=axis, gradient=gradient)
            grad = tape.gradient(y, v)
            assert isinstance(grad, kind)
            np.testing.assert_array_equal(as_numpy(grad)[:, 0], [0, 1, 0, 0])


def test_seen_global_norm():
    # stock: 2.0
    x = tf.constant([1.0, 2.0])
    for gradient in ("sparse", "dense"):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(gs.gather(x, [0, 0, 0, 0], gradient=gradient))
        assert tf.linalg.global_norm([tape.gradient(y, x)]) == 4.0


@BOTH_WAYS
def test_tensorflow_43491_122053_rows_that_no_index_names(wrap):
    np.testing.assert_array_equal(
        wrap(lambda: gs.dynamic_stitch([[4]], [[9.0]]))(), [0, 0, 0, 0, 9]
    )
    # Memory that was in use before is zero too.
    for _ in range(20):
        tf.fill([1000, 64], 7.0)
        merged = gs.dynamic_stitch([[999]], [tf.ones([1, 64])])
        assert tf.reduce_sum(merged) == 64


# ---- Not possible ------------------------------------------------------------


@BOTH_WAYS
def test_tensorflow_105143_122057_routing_by_a_size(wrap):
    tokens = tf.reshape(tf.range(24.0), [8, 3])
    experts = tf.constant([0, 1, 1, 0, 1, 0, 0, 1])

    def route(tokens, experts):
        positions = tf.dynamic_partition(tf.range(8), experts, 2)
        first, second = tf.dynamic_partition(tokens, experts, 2)
        merged = gs.parallel_dynamic_stitch(positions, [first * 2, second * 10], size=8)
        assert merged.shape == (8, 3)
        return merged

    factor = np.where(experts.numpy() == 0, 2, 10)[:, None]
    np.testing.assert_array_equal(wrap(route)(tokens, experts), tokens * factor)


def test_tensorflow_59724_14944_numpy_10696_padding_ids():
    table = tf.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    ids = tf.constant([[2, 0, -1], [1, -1, -1]])
    for gradient in ("auto", "dense", "sparse"):
        with tf.GradientTape() as tape, only_ours("ResourceGather"):
            y = gs.gather(table, ids, bad_indices_policy="IGNORE", gradient=gradient)
        np.testing.assert_array_equal(y, [[[5, 6], [1, 2], [0, 0]], [[3, 4], [0, 0], [0, 0]]])
        grad = tape.gradient(y, table)
        np.testing.assert_array_equal(as_numpy(grad), np.ones((3, 2)))
        if gradient != "dense":
            assert len(grad.indices) == 3
            assert (grad.indices.numpy() >= 0).all()


def test_tensorflow_11101_minus_one_is_the_last():
    assert gs.gather([10, 20, 30], [-1], bad_indices_policy="WRAP").numpy() == [30]


@pytest.mark.parametrize("stitch", [gs.parallel_dynamic_stitch, gs.dynamic_stitch])
def test_documentation_int64_indices_of_stitch(stitch):
    # stock: int32 only
    indices = [tf.constant([2, 0], tf.int64), tf.constant(1, tf.int64)]
    data = [tf.constant([[1, 2], [3, 4]]), tf.constant([5, 6])]
    with only_ours("ParallelDynamicStitch"):
        merged = stitch(indices, data)
    np.testing.assert_array_equal(merged, [[3, 4], [5, 6], [1, 2]])


@pytest.mark.parametrize(
    "dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
)
def test_tensorflow_58697_every_integer_indexes(dtype):
    indices = tf.constant([2, 0, 2], dtype)
    values = [1.0, 2.0, 3.0]
    for params, op in ((tf.constant(values), "GatherV2"), (tf.Variable(values), "ResourceGather")):
        with only_ours(op):
            gathered = gs.gather(params, indices)
        np.testing.assert_array_equal(gathered, [3, 1, 3])


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "half",
     "bfloat16", "float32", "float64", "complex64", "complex128", "string"],
)  # fmt: skip
def test_tensorflow_31696_a_variable_is_a_tensor(dtype):
    values = ["a", "b"] if dtype == "string" else [0, 1]
    tensor = tf.constant(values, dtype) if dtype != "bool" else tf.constant([False, True])
    variable = tf.Variable(tensor)
    for policy in ("DEFAULT", "WRAP"):
        assert_same(
            gs.gather(variable, [1, 0, 1], bad_indices_policy=policy),
            gs.gather(tensor, [1, 0, 1], bad_indices_policy=policy),
        )
    np.testing.assert_array_equal(gs.gather(variable, [1, 0]), tensor[::-1])


@pytest.mark.parametrize("dtype", ["float8_e5m2", "float8_e4m3fn"])
def test_pytorch_133605_169656_float8(dtype):
    values = tf.cast(tf.constant([[1.0, 2.0], [3.0, 4.0], [0.5, -6.0]]), dtype)
    for table in (values, tf.Variable(values)):
        rows = gs.gather(table, [2, -1, 0], bad_indices_policy="IGNORE")
        assert rows.dtype == dtype
        np.testing.assert_array_equal(tf.cast(rows, tf.float32), [[0.5, -6], [0, 0], [1, 2]])
    merged = gs.dynamic_stitch([[2, 0], [2]], [values[:2], values[2:]])
    assert merged.dtype == dtype
    np.testing.assert_array_equal(tf.cast(merged, tf.float32), [[3, 4], [0, 0], [0.5, -6]])


def test_seen_boolean_mask_round_trip():
    mask = tf.constant([True, False, True, True, False, False])
    positions = tf.boolean_mask(tf.range(6), mask)
    kept = tf.boolean_mask(tf.range(10.0, 16.0), mask)
    assert gs.dynamic_stitch([positions], [kept]).shape == (4,)

    @tf.function
    def run(positions, kept):
        merged = gs.dynamic_stitch([positions], [kept], size=6)
        assert merged.shape == (6,)
        return merged

    np.testing.assert_array_equal(run(positions, kept), [10, 0, 12, 13, 0, 0])


def test_keras_15714_wala_823_static_shapes_of_batches():
    # stock: (None, None)
    @tf.function(input_signature=[tf.TensorSpec([None, 5]), tf.TensorSpec([4, None], tf.int32)])
    def run(params, indices):
        gathered = gs.gather(params, indices, axis=1, batch_dims=1)
        assert gathered.shape.as_list() == [4, None]
        return gathered

    np.testing.assert_array_equal(run(tf.ones([4, 5]), tf.zeros([4, 2], tf.int32)), tf.ones([4, 2]))

    @tf.function(input_signature=[tf.TensorSpec([3, 5]), tf.TensorSpec([4, None], tf.int32)])
    def mismatch(params, indices):
        return gs.gather(params, indices, axis=1, batch_dims=1)

    with pytest.raises(
        ValueError, match=re.escape("params.shape[0]: 3 should be equal to indices.shape[0]: 4")
    ):
        mismatch.get_concrete_function()


def test_tensorflow_10270_an_optimizer_gets_unique_rows():
    table = tf.Variable(tf.ones([5, 2]))
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(gs.gather(table, [3, 0, 3, 3], gradient="sparse"))
    grad = tape.gradient(y, table)
    np.testing.assert_array_equal(grad.indices, [0, 3])
    np.testing.assert_array_equal(grad.values, [[1, 1], [3, 3]])


def test_keras_onnx_656_tflite_stock_ops_for_exporters():
    @tf.function(input_signature=[tf.TensorSpec([2], tf.int32), tf.TensorSpec([2, 3])])
    def model(indices, data):
        return gs.dynamic_stitch([indices], [data], size=4)

    with gs.use_stock_ops():
        graph = model.get_concrete_function()
    types = set(op_types(graph))
    assert not {t for t in types if "Stitch" in t}, types
    np.testing.assert_array_equal(
        graph(tf.constant([2, 2]), tf.constant([[1.0] * 3, [2.0] * 3])),
        [[0, 0, 0], [0, 0, 0], [2, 2, 2], [0, 0, 0]],
    )


def test_numpy_13827_tvm_3303_clip_inside_the_kernel():
    params = tf.constant([10, 20, 30])
    with only_ours("GatherV2"):
        gathered = gs.gather(params, [-5, 1, 99], bad_indices_policy="CLIP")
    np.testing.assert_array_equal(gathered, [10, 20, 30])


# ---- Slow: what can be counted -----------------------------------------------


def test_pytorch_41162_5159_111247_a_gradient_is_a_few_ops():
    # stock: 70 to 121 ops with batch_dims
    @tf.function(
        input_signature=[tf.TensorSpec([None, None, 3]), tf.TensorSpec([None, None], tf.int32)]
    )
    def run(params, indices):
        with tf.GradientTape() as tape:
            tape.watch(params)
            y = gs.gather(params, indices, axis=1, batch_dims=1)
        return tape.gradient(y, params)

    computing = [
        t
        for t in op_types(run.get_concrete_function())
        if t not in ("Placeholder", "Identity", "Const", "NoOp")
    ]
    # The gather, ones for the incoming gradient (shape and fill), the shape, the gradient.
    assert len(computing) <= 6, computing
    assert computing.count("GatherStitch>GatherV2Grad") == 1


def test_tensorflow_11709_lookup_over_shards_is_right():
    shards = [tf.Variable([[0.0], [2.0], [4.0]]), tf.Variable([[1.0], [3.0], [5.0]])]
    ids = tf.constant([5, 0, 3, 0])
    with tf.GradientTape() as tape:
        positions = tf.dynamic_partition(tf.range(4), ids % 2, 2)
        parts = tf.dynamic_partition(ids // 2, ids % 2, 2)
        rows = [gs.gather(s, p, gradient="sparse") for s, p in zip(shards, parts, strict=True)]
        merged = gs.parallel_dynamic_stitch(positions, rows, size=4)
    np.testing.assert_array_equal(merged, [[5], [0], [3], [0]])
    first, second = tape.gradient(merged, shards)
    np.testing.assert_array_equal(first.indices, [0])
    np.testing.assert_array_equal(first.values, [[2]])
    np.testing.assert_array_equal(second.indices, [1, 2])
