# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Gradients of gather: values, kinds, second order, and the gradient ops themselves."""

import re

import gather_stitch as gs
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from cases import POLICIES
from checks import assert_same, gather_oracle, resolve
from gradients_common import (
    FLOAT8_DTYPES,
    GATHER_CASES,
    INTEGER_DTYPES,
    as_numpy,
    assert_same_gradient,
    case_id,
    gather_grad_oracle,
    gather_stitch_types,
    is_row_gather,
    op_types,
    output_shape,
    random_indices,
    random_values,
    seeded,
    sparse_grad_oracle,
)

GRADIENTS = ("auto", "dense", "sparse")
TRAINABLE_DTYPES = ("float32", "float64", "half", "bfloat16", "complex64", "complex128")

# Cases in which every policy has a meaning for indices outside.
CASES_WITH_ROWS = [
    case for case in GATHER_CASES if case[0][case[2]] > 0 and 0 not in (*case[0], *case[1])
]


def make_case(case, policy, dtype, index_dtype="int32"):
    """(params, indices, incoming gradient) of a case as arrays."""
    params_shape, indices_shape, axis, batch_dims = case
    rng = seeded(case, policy, dtype, index_dtype)
    params = random_values(rng, params_shape, dtype)
    indices = random_indices(rng, indices_shape, params_shape[axis], policy, index_dtype)
    upstream = random_values(rng, output_shape(*case), dtype)
    return params, indices, upstream


def gradient_of(function, params, upstream):
    params = tf.convert_to_tensor(params)
    with tf.GradientTape() as tape:
        tape.watch(params)
        output = function(params)
    return tape.gradient(output, params, output_gradients=tf.convert_to_tensor(upstream))


# ---- Against stock -----------------------------------------------------------


@pytest.mark.parametrize("in_graph", [False, True], ids=["eager", "function"])
@pytest.mark.parametrize("index_dtype", ["int32", "int64"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", GATHER_CASES, ids=case_id)
def test_auto_is_stock_bit_for_bit(case, dtype, index_dtype, in_graph):
    *_, axis, batch_dims = case
    params, indices, upstream = make_case(case, "DEFAULT", dtype, index_dtype)

    def run(gather):
        def gradient(params, indices, upstream):
            return gradient_of(
                lambda p: gather(p, indices, axis=axis, batch_dims=batch_dims), params, upstream
            )

        if in_graph:
            gradient = tf.function(gradient)
        return gradient(tf.constant(params), tf.constant(indices), tf.constant(upstream))

    ours, stock = run(gs.gather), run(tf.gather)
    if isinstance(ours, tf.IndexedSlices) and not isinstance(stock, tf.IndexedSlices):
        # Stock gives slices for axis 0 but not for the same axis spelled -rank.
        assert axis < 0 or batch_dims < 0
        assert_same(as_numpy(ours), stock)
    else:
        assert_same_gradient(ours, stock)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", GATHER_CASES, ids=case_id)
def test_dense_is_stock_bit_for_bit(case, dtype):
    *_, axis, batch_dims = case
    params, indices, upstream = make_case(case, "DEFAULT", dtype)
    ours = gradient_of(
        lambda p: gs.gather(p, indices, axis=axis, batch_dims=batch_dims, gradient="dense"),
        params,
        upstream,
    )
    stock = gradient_of(
        lambda p: tf.gather(p, indices, axis=axis, batch_dims=batch_dims), params, upstream
    )
    assert isinstance(ours, tf.Tensor)
    assert_same(ours, tf.convert_to_tensor(stock))


def test_large_sums_are_stock_bit_for_bit():
    # Enough for several threads, and few enough rows for long sums.
    rng = seeded("large sums")
    for rows, count, inner in ((10, 20000, 16), (1000, 3000, 64), (3, 5000, 1), (50000, 60000, 2)):
        params = rng.standard_normal((rows, inner)).astype(np.float32)
        indices = rng.integers(0, rows, count)
        upstream = rng.standard_normal((count, inner)).astype(np.float32)
        stock = tf.math.unsorted_segment_sum(upstream, indices, rows)
        for gradient in GRADIENTS:
            ours = gradient_of(
                lambda p, i=indices, g=gradient: gs.gather(p, i, gradient=g), params, upstream
            )
            if gradient == "sparse":
                assert_same(ours.indices, np.unique(indices))
                ours = tf.tensor_scatter_nd_update(
                    tf.zeros_like(params), ours.indices[:, None], ours.values
                )
            assert_same(tf.convert_to_tensor(ours), stock)


def test_sums_start_at_plus_zero_as_in_stock():
    params = np.ones(3, np.float32)
    upstream = np.array([-0.0, -0.0, 1.0], np.float32)
    dense = gradient_of(lambda p: gs.gather(p, [0, 0, 2], gradient="dense"), params, upstream)
    stock = gradient_of(lambda p: tf.gather(p, [0, 0, 2]), params, upstream)
    assert_same(dense, tf.convert_to_tensor(stock))
    assert not np.signbit(dense.numpy()).any()


def test_infinities_and_nans_stay_in_their_rows():
    upstream = np.array([[np.inf, 1], [-np.inf, 2], [np.nan, 3], [4, 5]], np.float32)
    grad = gradient_of(
        lambda p: gs.gather(p, [0, 0, 1, 2], gradient="dense"), np.zeros((4, 2), "f"), upstream
    )
    np.testing.assert_array_equal(grad, [[np.nan, 3], [np.nan, 3], [4, 5], [0, 0]])


# ---- Against the oracle ------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("case", GATHER_CASES, ids=case_id)
def test_gradient_is_the_transpose_under_every_policy(case, policy):
    params_shape, indices_shape, axis, batch_dims = case
    row_gather = is_row_gather(*case)
    for dtype in TRAINABLE_DTYPES:
        params, indices, upstream = make_case(case, policy, dtype)
        expected = gather_grad_oracle(upstream, indices, params_shape, axis, batch_dims, policy)
        for gradient in GRADIENTS if row_gather else ("auto", "dense"):
            actual = gradient_of(
                lambda p, i=indices, g=gradient: gs.gather(
                    p, i, axis=axis, batch_dims=batch_dims, bad_indices_policy=policy, gradient=g
                ),
                params,
                upstream,
            )
            assert isinstance(actual, tf.IndexedSlices) == (row_gather and gradient != "dense")
            if not isinstance(actual, tf.IndexedSlices):
                assert_same(actual, expected)
                continue
            assert actual.indices.dtype in (tf.int32, tf.int64)
            np.testing.assert_array_equal(actual.dense_shape, params_shape)
            values, rows, _ = sparse_grad_oracle(
                upstream, indices, params_shape[0], policy, unique=gradient == "sparse"
            )
            np.testing.assert_array_equal(actual.indices, rows)
            assert_same(actual.values, values)


@pytest.mark.parametrize("index_dtype", INTEGER_DTYPES)
@pytest.mark.parametrize("policy", POLICIES)
def test_every_index_dtype(policy, index_dtype):
    for case in (((5, 3), (7,), 0, 0), ((2, 5, 3), (2, 6), 1, 1)):
        params, indices, upstream = make_case(case, policy, "float32", index_dtype)
        if policy in ("IGNORE", "CLIP", "WRAP"):
            limits = np.iinfo(index_dtype)
            indices.reshape(-1)[:3] = [limits.min, limits.max, limits.max - 3]
        expected = gather_grad_oracle(upstream, indices, case[0], *case[2:], policy)
        for gradient in GRADIENTS if is_row_gather(*case) else ("auto", "dense"):
            actual = gradient_of(
                lambda p, i=indices, c=case, g=gradient: gs.gather(
                    p, i, axis=c[2], batch_dims=c[3], bad_indices_policy=policy, gradient=g
                ),
                params,
                upstream,
            )
            if gradient == "auto" and is_row_gather(*case):
                # Narrow and unsigned row numbers would not densify or reach an optimizer.
                assert actual.indices.dtype in (tf.int32, tf.int64)
                assert_same(tf.convert_to_tensor(actual), expected)
            elif gradient == "sparse":
                assert np.all(np.diff(actual.indices) > 0)
                dense = np.zeros_like(params)
                dense[actual.indices.numpy()] = actual.values
                np.testing.assert_array_equal(dense, expected)
            else:
                assert_same(actual, expected)


@pytest.mark.parametrize("dtype", ["half", "bfloat16"])
@pytest.mark.parametrize("gradient", ["dense", "sparse"])
def test_narrow_floats_are_summed_in_float32(dtype, gradient):
    # In the type itself the sum stops at 2048 (half) and 256 (bfloat16).
    rng = seeded(dtype, gradient)
    indices = rng.integers(0, 4, 12000)
    numpy_dtype = tf.as_dtype(dtype).as_numpy_dtype
    upstream = rng.random((indices.size, 3)).astype(numpy_dtype)
    expected = gather_grad_oracle(upstream, indices, (4, 3))
    assert expected.min() > 1000
    actual = gradient_of(
        lambda p: gs.gather(p, indices, gradient=gradient), np.zeros((4, 3), numpy_dtype), upstream
    )
    if gradient == "sparse":
        assert_same(actual.indices, np.arange(4))
        actual = actual.values
    assert_same(actual, expected)


# ---- Kinds of gradients ------------------------------------------------------


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("in_graph", [False, True], ids=["eager", "function"])
def test_both_spellings_of_axis_and_batch_dims_give_one_kind(gradient, in_graph):
    params, indices, upstream = make_case(((4, 3), (2, 3), 0, 0), "DEFAULT", "float32")
    expected = gather_grad_oracle(upstream, indices, (4, 3))
    for make_axis in (lambda a: a, lambda a: tf.constant(a), lambda a: tf.constant(a, tf.int64)):
        for axis, batch_dims in ((0, 0), (0, -2), (-2, 0), (-2, -2)):
            run = lambda p, axis=axis, batch_dims=batch_dims, make_axis=make_axis: gradient_of(  # noqa: E731
                lambda p: gs.gather(
                    p, indices, axis=make_axis(axis), batch_dims=batch_dims, gradient=gradient
                ),
                p,
                upstream,
            )
            actual = (tf.function(run) if in_graph else run)(tf.constant(params))
            assert isinstance(actual, tf.IndexedSlices) == (gradient != "dense")
            np.testing.assert_allclose(as_numpy(actual), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("axis", "batch_dims"), [(1, 0), (-1, 0), (1, 1), (tf.constant(1), 0)], ids=str
)
def test_sparse_is_refused_elsewhere(axis, batch_dims):
    with pytest.raises(ValueError, match="needs a gather along axis 0 without batch_dims"):
        gs.gather(tf.zeros([2, 3]), [[0], [1]], axis=axis, batch_dims=batch_dims, gradient="sparse")


def test_an_axis_known_only_at_run_time_gives_a_dense_gradient():
    params, indices, upstream = make_case(((4, 3), (5,), 0, 0), "DEFAULT", "float64")

    @tf.function(
        input_signature=[
            tf.TensorSpec([], tf.int32),
            tf.TensorSpec(None, tf.float64),
            tf.TensorSpec(None, tf.int32),
            tf.TensorSpec(None, tf.float64),
        ]
    )
    def run(axis, params, indices, upstream):
        return gradient_of(lambda p: gs.gather(p, indices, axis=axis), params, upstream)

    for axis in (0, -2):
        actual = run(axis, params, indices, upstream)
        assert isinstance(actual, tf.Tensor)
        assert_same(actual, gather_grad_oracle(upstream, indices, (4, 3)))
    params, indices, upstream = make_case(((3, 4), (5,), 1, 0), "DEFAULT", "float64")
    for axis in (1, -1):
        expected = gather_grad_oracle(upstream, indices, (3, 4), 1)
        assert_same(run(axis, params, indices, upstream), expected)


def test_indices_and_axis_have_no_gradient():
    params = tf.zeros([3])
    indices, axis = tf.constant([0.0, 1.0]), tf.constant(0)
    with tf.GradientTape() as tape:
        tape.watch([params, indices])
        output = gs.gather(params, tf.cast(indices, tf.int32), axis=axis)
    params_grad, indices_grad = tape.gradient(output, [params, indices])
    np.testing.assert_array_equal(tf.convert_to_tensor(params_grad), [1, 1, 0])
    assert indices_grad is None


def test_global_norm_of_repeated_rows():
    x = tf.constant([3.0])
    for gradient in ("dense", "sparse"):
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(gs.gather(x, [0, 0, 0, 0], gradient=gradient))
        assert tf.linalg.global_norm([tape.gradient(total, x)]).numpy() == 4.0


# ---- Graphs ------------------------------------------------------------------


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("known", ["rank", "nothing"])
@pytest.mark.parametrize("policy", ["DEFAULT", "IGNORE", "WRAP"])
def test_unknown_shapes(policy, known, gradient):
    for case in GATHER_CASES:
        params_shape, indices_shape, axis, batch_dims = case
        if gradient == "sparse" and (axis, batch_dims) != (0, 0):
            continue
        if policy == "WRAP" and params_shape[axis] == 0:
            continue
        params, indices, upstream = make_case(case, policy, "float32")
        specs = [
            tf.TensorSpec([None] * a.ndim if known == "rank" else None, a.dtype)
            for a in (params, indices, upstream)
        ]

        @tf.function(input_signature=specs)
        def run(params, indices, upstream, axis=axis, batch_dims=batch_dims):
            return gradient_of(
                lambda p: gs.gather(
                    p,
                    indices,
                    axis=axis,
                    batch_dims=batch_dims,
                    bad_indices_policy=policy,
                    gradient=gradient,
                ),
                params,
                upstream,
            )

        actual = run(params, indices, upstream)
        expected = gather_grad_oracle(upstream, indices, params_shape, axis, batch_dims, policy)
        assert_same(tf.convert_to_tensor(actual), expected)


def test_the_static_shape_of_a_gradient_is_that_of_params():
    @tf.function
    def run(params, indices):
        grad = gradient_of(lambda p: gs.gather(p, indices, axis=1), params, tf.ones([2, 3, 5]))
        assert grad.shape.as_list() == [2, 4, 5]
        slices = gradient_of(lambda p: gs.gather(p, indices), params, tf.ones([3, 4, 5]))
        assert slices.values.shape.as_list()[1:] == [4, 5]
        assert slices.shape.as_list() == [2, 4, 5]
        return grad, slices

    grad, _ = run(tf.zeros([2, 4, 5]), tf.constant([0, 1, 1]))
    assert grad.shape == [2, 4, 5]


@pytest.mark.parametrize(
    ("case", "gradient", "most"),
    [
        (((5, 3), (4,), 0, 0), "auto", 4),
        (((5, 3), (4,), 0, 0), "sparse", 4),
        (((5, 3), (4,), 0, 0), "dense", 4),
        (((5, 3), (4,), 1, 0), "auto", 4),
        (((2, 5, 3), (2, 4), 1, 1), "auto", 4),
        (((2, 3, 5, 2), (2, 3, 4), 2, 2), "auto", 4),
    ],
    ids=str,
)
@pytest.mark.parametrize("shapes", ["static", "unknown"])
def test_a_gradient_is_a_few_ops(case, gradient, most, shapes):
    params_shape, indices_shape, axis, batch_dims = case

    def specs(*shape_list):
        return [
            tf.TensorSpec(shape if shapes == "static" else [None] * len(shape), dtype)
            for shape, dtype in zip(shape_list, (tf.float32, tf.int32, tf.float32), strict=True)
        ]

    signature = specs(params_shape, indices_shape, output_shape(*case))

    def count(gather, **options):
        @tf.function(input_signature=signature)
        def with_gradient(params, indices, upstream):
            with tf.GradientTape() as tape:
                tape.watch(params)
                output = gather(params, indices, axis=axis, batch_dims=batch_dims, **options)
            return output, tape.gradient(output, params, output_gradients=upstream)

        return [
            t
            for t in op_types(with_gradient.get_concrete_function())
            if t not in ("Placeholder", "Identity", "Const", "NoOp")
            and not re.fullmatch("(GatherStitch>)?GatherV2", t)
        ]

    ours = count(gs.gather, gradient=gradient)
    # The unknown number of rows of an axis-0 gradient is sliced out of the shape.
    assert len(ours) <= most, ours
    assert sum(t.startswith("GatherStitch>") for t in ours) == 1
    if batch_dims:
        assert len(ours) * 5 < len(count(tf.gather))


def test_incoming_indexed_slices():
    rng = seeded("incoming slices")
    params = rng.standard_normal((6, 2))
    outer, inner = rng.integers(0, 6, 8), np.array([7, 0, 0, 3])
    upstream = rng.standard_normal((4, 2))
    inner_grad = gather_grad_oracle(upstream, inner, (8, 2))
    expected = gather_grad_oracle(inner_grad, outer, (6, 2))
    for first in GRADIENTS:
        for second in ("auto", "sparse"):
            for wrap in (lambda f: f, tf.function):
                run = wrap(
                    lambda p, first=first, second=second: gradient_of(
                        lambda p: gs.gather(gs.gather(p, outer, gradient=first), inner,
                                            gradient=second), p, upstream)
                )  # fmt: skip
                actual = run(tf.constant(params))
                assert isinstance(actual, tf.IndexedSlices) == (first != "dense")
                np.testing.assert_allclose(as_numpy(actual), expected, rtol=1e-12)
    # Stock above ours and ours above stock.
    for f, g in ((gs.gather, tf.gather), (tf.gather, gs.gather)):
        actual = gradient_of(lambda p, f=f, g=g: g(f(p, outer), inner), params, upstream)
        np.testing.assert_allclose(as_numpy(actual), expected, rtol=1e-12)
        actual = gradient_of(
            lambda p, f=f, g=g: g(f(p, [1, 0, 1], axis=1), [5, 0, 0, 3]), params, np.ones((4, 3))
        )
        counts = [2, 0, 0, 1, 0, 1]
        np.testing.assert_array_equal(as_numpy(actual), np.outer(counts, [1, 2]))


# ---- Numerically, and higher orders ------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_numerically(policy):
    for case in CASES_WITH_ROWS:
        *_, axis, batch_dims = case
        params, indices, _ = make_case(case, policy, "float64")

        def function(p, i=indices, axis=axis, batch_dims=batch_dims):
            return gs.gather(
                p, i, axis=axis, batch_dims=batch_dims, bad_indices_policy=policy, gradient="dense"
            )

        theoretical, numerical = tf.test.compute_gradient(function, [params])
        np.testing.assert_allclose(theoretical[0], numerical[0], atol=1e-9)
        # The matrix of a gather has one 1 in each row of a good index, so this is no 0 == 0.
        if policy != "IGNORE":
            assert np.count_nonzero(theoretical[0]) > 0


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("policy", POLICIES)
def test_second_and_third_order(policy, gradient):
    # Small whole numbers: every sum is exact, in whatever order.
    for case in CASES_WITH_ROWS:
        *_, axis, batch_dims = case
        if gradient == "sparse" and not is_row_gather(*case):
            continue
        rng = seeded("second order", case, policy)
        params = rng.integers(-3, 4, case[0]).astype(np.float64)
        indices = random_indices(rng, case[1], case[0][axis], policy)
        weights, weights_2 = rng.integers(-3, 4, (2, *case[0])).astype(np.float64)
        arguments = {"axis": axis, "batch_dims": batch_dims, "bad_indices_policy": policy}

        def run(x, indices=indices, w=weights, w2=weights_2, arguments=arguments):
            with tf.GradientTape() as third, tf.GradientTape() as second:
                second.watch(x)
                third.watch(x)
                with tf.GradientTape() as first:
                    first.watch(x)
                    y = tf.reduce_sum(gs.gather(x, indices, gradient=gradient, **arguments) ** 4)
                gradient_1 = tf.convert_to_tensor(first.gradient(y, x))
                z = tf.reduce_sum(gradient_1 * w)
                gradient_2 = tf.convert_to_tensor(second.gradient(z, x))
                u = tf.reduce_sum(gradient_2 * w2)
            return gradient_1, gradient_2, tf.convert_to_tensor(third.gradient(u, x))

        def gather(array, indices=indices, axis=axis, batch_dims=batch_dims):
            return gather_oracle(array, indices, axis, batch_dims, policy)

        def scatter(array, shape=case[0], indices=indices, axis=axis, batch_dims=batch_dims):
            return gather_grad_oracle(array, indices, shape, axis, batch_dims, policy)

        y, w, w2 = gather(params), gather(weights), gather(weights_2)
        expected = scatter(4 * y**3), scatter(12 * y**2 * w), scatter(24 * y * w * w2)
        # Graphs take long to trace, and what depends on the policy is in the ops.
        for wrapped in (run, tf.function(run)) if policy in ("DEFAULT", "WRAP") else (run,):
            for actual, right in zip(wrapped(tf.constant(params)), expected, strict=True):
                np.testing.assert_array_equal(actual, right)


@pytest.mark.parametrize("gradient", ["auto", "sparse"])
@pytest.mark.parametrize("policy", POLICIES)
def test_second_order_through_the_values_of_slices(policy, gradient):
    rng = seeded("values", policy, gradient)
    params = rng.integers(-3, 4, (4, 2)).astype(np.float64)
    indices = random_indices(rng, (3, 3), 4, policy)
    x = tf.constant(params)
    with tf.GradientTape() as second:
        second.watch(x)
        with tf.GradientTape() as first:
            first.watch(x)
            y = tf.reduce_sum(
                gs.gather(x, indices, bad_indices_policy=policy, gradient=gradient) ** 2
            )
        slices = first.gradient(y, x)
        norm = tf.reduce_sum(slices.values**2)
    actual = as_numpy(second.gradient(norm, x))
    counts = np.zeros(4)
    for index in indices.reshape(-1):
        row = resolve(int(index), 4, policy)
        if row is not None:
            counts[row] += 1
    # Slices as they come: the norm is the sum over indices of (2x)^2; summed: of (2 count x)^2.
    factor = 8 * counts if gradient == "auto" else 8 * counts**2
    np.testing.assert_array_equal(actual, factor[:, None] * params)


def test_second_order_is_stock():
    rng = seeded("second order of stock")
    x = tf.constant(rng.standard_normal((4, 5, 3)))
    indices = rng.integers(0, 4, (4, 6))

    def hessian_product(gather):
        with tf.GradientTape() as second:
            second.watch(x)
            with tf.GradientTape() as first:
                first.watch(x)
                y = tf.reduce_sum(tf.sin(gather(x, indices, axis=1, batch_dims=1)))
            z = tf.reduce_sum(first.gradient(y, x) * tf.cos(x))
        return second.gradient(z, x)

    assert_same(hessian_product(gs.gather), hessian_product(tf.gather))


# ---- The op GatherV2Grad -----------------------------------------------------


@pytest.mark.parametrize("dtype", [*FLOAT8_DTYPES, *INTEGER_DTYPES, *TRAINABLE_DTYPES])
@pytest.mark.parametrize("policy", ["DEFAULT", "IGNORE", "WRAP"])
def test_dense_op_of_every_dtype(dtype, policy):
    for case in (((5, 3), (40,), 0, 0), ((3, 4, 2), (3, 12), 1, 1), ((2, 3, 4), (9,), 2, 0)):
        _, indices, grad = make_case(case, policy, dtype)
        actual = gs.raw_ops.GatherV2Grad(
            grad=grad,
            indices=indices,
            params_shape=case[0],
            axis=case[2],
            batch_dims=case[3],
            bad_indices_policy=policy,
        )
        assert_same(actual, gather_grad_oracle(grad, indices, case[0], *case[2:], policy))


@pytest.mark.parametrize(
    ("dtype", "bits"), [("qint8", "int8"), ("quint8", "uint8"), ("qint32", "int32")]
)
def test_dense_op_of_quantized_dtypes(dtype, bits):
    grad = tf.bitcast(tf.constant([[1, 2], [3, 4], [5, 6]], bits), dtype)
    actual = gs.raw_ops.GatherV2Grad(grad=grad, indices=[2, 0, 2], params_shape=[3, 2], axis=0)
    assert actual.dtype == dtype
    np.testing.assert_array_equal(tf.bitcast(actual, bits), [[3, 4], [0, 0], [6, 8]])


@pytest.mark.parametrize("dtype", [*FLOAT8_DTYPES, "half", "bfloat16"])
def test_every_pair_of_narrow_floats_is_summed_as_in_float32(dtype):
    # All values of an 8-bit type, or a sample of a 16-bit one: subnormals, overflow, NaN.
    numpy_dtype = tf.as_dtype(dtype).as_numpy_dtype
    if tf.as_dtype(dtype).size == 1:
        values = np.arange(256, dtype=np.uint8).view(numpy_dtype)
    else:
        values = np.arange(0, 1 << 16, 97, dtype=np.uint16).view(numpy_dtype)
    left, right = (v.reshape(-1) for v in np.meshgrid(values, values))
    with np.errstate(invalid="ignore", over="ignore"):
        # A sum starts from zero: it is never -0.
        sums = np.float32(0) + left.astype(np.float32) + right.astype(np.float32)
        expected = sums.astype(numpy_dtype)
    actual = gs.raw_ops.GatherV2Grad(
        grad=np.stack([left, right]), indices=[0, 0], params_shape=[1, left.size], axis=0
    ).numpy()[0]
    nans = np.isnan(expected.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(actual.astype(np.float32)), nans)
    assert nans.any()
    # TensorFlow runs kernels in a mode that takes subnormal float32 for zero.
    subnormal = np.zeros(nans.shape, bool)
    for numbers in (left, right, sums):
        numbers = np.abs(numbers.astype(np.float32))
        subnormal |= (numbers > 0) & (numbers < np.finfo(np.float32).tiny)
    assert subnormal.any() == (dtype == "bfloat16")
    compared = ~nans & ~subnormal
    assert_same(actual[compared], expected[compared])


def test_the_two_types_of_infinite_float8():
    # e5m2 has infinities, e4m3fn only NaN: what overflows is what ml_dtypes says.
    for dtype, largest in ((ml_dtypes.float8_e5m2, 57344), (ml_dtypes.float8_e4m3fn, 448)):
        grad = np.array([[largest], [largest]], dtype)
        actual = gs.raw_ops.GatherV2Grad(grad=grad, indices=[0, 0], params_shape=[1, 1], axis=0)
        expected = np.float32(2 * largest).astype(dtype)
        np.testing.assert_array_equal(
            actual.numpy().astype(np.float32), expected.astype(np.float32).reshape(1, 1)
        )


GRAD_ERRORS = (
    # grad shape, indices, params_shape, axis, batch_dims, words
    ([2], [0, 9], [5], 0, 0, "indices[1] = 9 is not in [0, 5)"),
    ([2, 2], [[0, 1], [-1, 7]], [5], 0, 0, "indices[1,0] = -1 is not in [0, 5)"),
    ([2, 0], [0, 9], [5, 0], 0, 0, "indices[1] = 9 is not in [0, 5)"),
    ([], 5, [5], 0, 0, "indices = 5 is not in [0, 5)"),
    ([3], [0, 1], [5], 0, 0, "grad.shape = [3] should be equal to [2]"),
    ([2, 4], [0, 1], [5, 3], 0, 0, "grad.shape = [2,4] should be equal to [2,3]"),
    ([2], [0, 1], [], 0, 0, "params must be at least 1 dimensional"),
    ([2], [0, 1], [-1], 0, 0, "params_shape[0] = -1 must not be negative"),
    ([2], [0, 1], [5], 1, 0, "axis = 1 is not in [-1, 1)"),
    ([2], [0, 1], [2, 5], 1, 2, "batch_dims in the range [-1, 1], but got 2"),
    ([2], [0, 1], [[5]], 0, 0, "params_shape must be a vector"),
    ([2], [0, 1], [5], [0], 0, "axis must be scalar"),
)


@pytest.mark.parametrize("error", GRAD_ERRORS, ids=lambda e: e[-1])
def test_errors_of_the_dense_op(error):
    grad_shape, indices, params_shape, axis, batch_dims, words = error

    def run(grad, indices, params_shape, axis):
        return gs.raw_ops.GatherV2Grad(
            grad=grad,
            indices=indices,
            params_shape=params_shape,
            axis=axis,
            batch_dims=batch_dims,
        )

    inputs = [
        tf.zeros(grad_shape),
        tf.constant(indices),
        tf.constant(params_shape, tf.int64),
        tf.constant(axis),
    ]
    with pytest.raises(tf.errors.InvalidArgumentError, match=re.escape(words)):
        run(*inputs)
    # At run time of a graph that knew no shape and no value.
    unknown = tf.function(run, input_signature=[tf.TensorSpec(None, i.dtype) for i in inputs])
    with pytest.raises(tf.errors.InvalidArgumentError, match=re.escape(words)):
        unknown(*inputs)
    # While a graph is built, in the same words, where it is not a value of an index.
    if not words.startswith("indices"):
        with pytest.raises(ValueError, match=re.escape(words)):
            tf.function(lambda: run(*(tf.constant(i.numpy()) for i in inputs)))()


def test_ignore_drops_what_the_default_refuses():
    actual = gs.raw_ops.GatherV2Grad(
        grad=[1.0, 2.0, 4.0],
        indices=[-1, 0, 5],
        params_shape=[5],
        axis=0,
        bad_indices_policy="IGNORE",
    )
    np.testing.assert_array_equal(actual, [2, 0, 0, 0, 0])


def test_the_gradient_of_the_dense_op_is_a_gather():
    for case in CASES_WITH_ROWS:
        params_shape, _, axis, batch_dims = case
        for policy in POLICIES:
            _, indices, grad = make_case(case, policy, "float32")
            upstream = random_values(seeded("upstream", case, policy), params_shape, "float32")
            actual = gradient_of(
                lambda g, i=indices, p=policy, c=case: gs.raw_ops.GatherV2Grad(
                    grad=g,
                    indices=i,
                    params_shape=c[0],
                    axis=c[2],
                    batch_dims=c[3],
                    bad_indices_policy=p,
                ),
                grad,
                upstream,
            )
            expected = gather_oracle(upstream, indices, axis, batch_dims, policy)
            assert_same(actual, expected)


# ---- The op GatherV2SparseGrad -----------------------------------------------

SPARSE_SHAPES = (((7,), ()), ((9,), (3,)), ((2, 4), (2, 2)), ((), (3,)), ((0,), (2,)), ((6,), (0,)))


@pytest.mark.parametrize("unique", [True, False])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("indices_shape", "inner"), SPARSE_SHAPES, ids=str)
def test_sparse_op(indices_shape, inner, policy, unique):
    for dtype in (*TRAINABLE_DTYPES, *FLOAT8_DTYPES, *INTEGER_DTYPES):
        for index_dtype in ("int32", "uint8", "int64"):
            rng = seeded("sparse", indices_shape, policy, dtype, index_dtype)
            indices = random_indices(rng, indices_shape, 4, policy, index_dtype)
            grad = random_values(rng, (*indices_shape, *inner), dtype)
            values, rows, slots = gs.raw_ops.GatherV2SparseGrad(
                grad=grad,
                indices=indices,
                params_rows=4,
                bad_indices_policy=policy,
                unique=unique,
            )
            expected = sparse_grad_oracle(grad, indices, 4, policy, unique)
            assert_same(values, expected[0])
            assert_same(rows, expected[1])
            assert_same(slots, expected[2])


@pytest.mark.parametrize("unique", [True, False])
def test_sparse_op_of_many_indices(unique):
    # Dense and thin use of the rows: the plan may count rows or sort them.
    rng = seeded("many", unique)
    for rows, count in ((100, 30000), (10**9, 30000), (20000, 30000), (2**40, 2000)):
        indices = rng.integers(-rows // 10, rows, count)
        grad = rng.standard_normal((count, 2)).astype(np.float32)
        actual = gs.raw_ops.GatherV2SparseGrad(
            grad=grad, indices=indices, params_rows=rows, bad_indices_policy="IGNORE", unique=unique
        )
        expected = sparse_grad_oracle(grad, indices, rows, "IGNORE", unique)
        for a, e in zip(actual, expected, strict=True):
            assert_same(a, e)
        assert 0 < len(expected[1]) < count


def test_nothing_is_left_where_every_index_is_bad():
    values, rows, slots = gs.raw_ops.GatherV2SparseGrad(
        grad=np.ones((3, 2), np.float32),
        indices=[-1, 4, 9],
        params_rows=4,
        bad_indices_policy="IGNORE",
    )
    assert values.shape == (0, 2)
    assert rows.shape == (0,)
    np.testing.assert_array_equal(slots, [-1, -1, -1])


def test_a_table_without_rows():
    for policy in ("IGNORE", "CLIP", "WRAP", "DEFAULT", "ERROR"):
        empty = gs.raw_ops.GatherV2SparseGrad(
            grad=np.zeros((0, 2), "f"),
            indices=np.zeros(0, "i"),
            params_rows=0,
            bad_indices_policy=policy,
        )
        assert empty.values.shape == (0, 2)

        def one_index(policy=policy):
            return gs.raw_ops.GatherV2SparseGrad(
                grad=np.zeros((1, 2), "f"), indices=[0], params_rows=0, bad_indices_policy=policy
            )

        if policy == "IGNORE":
            assert one_index().values.shape == (0, 2)
        else:
            with pytest.raises(tf.errors.InvalidArgumentError, match=r"indices\[0\] = 0 is not in"):
                one_index()


def test_the_values_of_one_call_do_not_change_the_incoming_gradient():
    # values may share the memory of grad: whoever still holds grad must not notice.
    grad = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    slices = gs.raw_ops.GatherV2SparseGrad(grad=grad, indices=[1, 0], params_rows=2, unique=False)
    np.testing.assert_array_equal(slices.values, [[1, 2], [3, 4]])
    del slices
    np.testing.assert_array_equal(grad, [[1, 2], [3, 4]])


SPARSE_ERRORS = (
    ([2, 3], [0, 9], 5, "indices[1] = 9 is not in [0, 5)"),
    ([2, 0], [0, -9], 5, "indices[1] = -9 is not in [0, 5)"),
    ([3, 3], [0, 1], 5, "grad.shape = [3,3] does not start with indices.shape = [2]"),
    ([2], [[0, 1]], 5, "grad.shape = [2] does not start with indices.shape = [1,2]"),
    ([2], [0, 1], -5, "params_rows = -5 must not be negative"),
    ([2], [0, 1], [5], "params_rows must be scalar"),
)


@pytest.mark.parametrize("error", SPARSE_ERRORS, ids=lambda e: e[-1])
def test_errors_of_the_sparse_op(error):
    grad_shape, indices, params_rows, words = error

    def run(grad, indices, params_rows):
        return gs.raw_ops.GatherV2SparseGrad(grad=grad, indices=indices, params_rows=params_rows)

    inputs = [tf.zeros(grad_shape), tf.constant(indices), tf.constant(params_rows, tf.int64)]
    unknown = tf.function(run, input_signature=[tf.TensorSpec(None, i.dtype) for i in inputs])
    for function in (run, unknown):
        with pytest.raises(tf.errors.InvalidArgumentError, match=re.escape(words)):
            function(*inputs)
    if not words.startswith("indices"):
        with pytest.raises(ValueError, match=re.escape(words)):
            tf.function(lambda: run(*(tf.constant(i.numpy()) for i in inputs)))()


def test_the_static_shapes_of_the_sparse_op_hold_at_run_time():
    for policy in POLICIES:
        for unique in (False, True):
            run = tf.function(
                lambda grad, policy=policy, unique=unique: gs.raw_ops.GatherV2SparseGrad(
                    grad=grad,
                    indices=[[0, 1], [1, 1]],
                    params_rows=3,
                    bad_indices_policy=policy,
                    unique=unique,
                )
            )
            outputs = run(tf.zeros([2, 2, 5]))
            shapes = [o.shape for o in run.get_concrete_function(tf.zeros([2, 2, 5])).outputs]
            for static, output in zip(shapes, outputs, strict=True):
                assert static.is_compatible_with(output.shape)
                assert static.rank == output.shape.rank
            assert shapes[0][1] == 5
            assert shapes[2].as_list() == [2, 2]
            assert (shapes[1][0] == 4) == (not unique and policy in ("ERROR", "CLIP", "WRAP"))


def test_the_gradient_of_the_sparse_op():
    rng = seeded("gradient of the sparse op")
    for policy in POLICIES:
        for unique in (True, False):
            indices = random_indices(rng, (3, 4), 5, policy)
            grad = rng.standard_normal((3, 4, 2))
            values, _, slots = sparse_grad_oracle(grad, indices, 5, policy, unique)
            upstream = rng.standard_normal(values.shape)
            actual = gradient_of(
                lambda g, i=indices, p=policy, u=unique: (
                    gs.raw_ops.GatherV2SparseGrad(
                        grad=g, indices=i, params_rows=5, bad_indices_policy=p, unique=u
                    ).values
                ),
                grad,
                upstream,
            )
            assert_same(actual, gather_oracle(upstream, slots, policy="IGNORE"))


def test_the_ops_that_run_are_ours():
    @tf.function
    def run(x):
        return [
            gradient_of(lambda p, g=g: gs.gather(p, [1, 0], gradient=g), x, tf.ones([2]))
            for g in GRADIENTS
        ]

    types = gather_stitch_types(run.get_concrete_function(tf.zeros([3])))
    assert types.count("GatherStitch>GatherV2SparseGrad") == 2
    assert types.count("GatherStitch>GatherV2Grad") == 1
