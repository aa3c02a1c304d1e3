# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Gradients of stitch: the mask of overwritten rows, second order, and the gradient op."""

import re

import gather_stitch as gs
import numpy as np
import pytest
import tensorflow as tf
from checks import assert_same
from gradients_common import (
    FLOAT8_DTYPES,
    INTEGER_DTYPES,
    as_numpy,
    gather_grad_oracle,
    gather_stitch_types,
    merged_oracle,
    op_types,
    random_values,
    seeded,
    stitch_grad_oracle,
    winners_oracle,
)

# Shapes of the indices of each input; constant; largest index.
STITCH_CASES = (
    (((4,),), (2,), 9),
    (((6,),), (), 3),
    (((), (3,), (2, 2)), (2, 3), 5),
    (((5,), (5,)), (1,), 4),
    (((3,), (0,), (), (4,)), (2,), 12),
    (((0,), (0, 2)), (3,), 0),
    (((4,), (2,)), (0,), 5),
    (((1,),) * 9, (2,), 3),
)


def make_case(case, dtype="float64", index_dtype="int32", low=0):
    shapes, constant, largest = case
    rng = seeded(case, dtype, index_dtype, low)
    indices = [rng.integers(low, largest + 1, s).astype(index_dtype) for s in shapes]
    data = [random_values(rng, (*s, *constant), dtype) for s in shapes]
    return rng, indices, data


def gradients_of(function, data, upstream):
    data = [tf.convert_to_tensor(d) for d in data]
    with tf.GradientTape() as tape:
        tape.watch(data)
        merged = function(data)
    return tape.gradient(merged, data, output_gradients=tf.convert_to_tensor(upstream))


@pytest.mark.parametrize("function", [gs.parallel_dynamic_stitch, gs.dynamic_stitch])
def test_an_overwritten_row_has_no_gradient(function):
    # tensorflow#7397
    (grad,) = gradients_of(lambda x: function([[0, 1, 0]], x), [np.ones(3, "f")], np.ones(2, "f"))
    np.testing.assert_array_equal(grad, [0, 1, 1])


def merged_and_gradients(indices, options):
    def run(data, upstream):
        with tf.GradientTape() as tape:
            tape.watch(data)
            merged = gs.dynamic_stitch([tf.constant(i) for i in indices], data, **options)
        return merged, tape.gradient(merged, data, output_gradients=upstream)

    return run


@pytest.mark.parametrize("in_graph", [False, True], ids=["eager", "function"])
@pytest.mark.parametrize("index_dtype", ["int32", "int64"])
@pytest.mark.parametrize("case", STITCH_CASES, ids=str)
def test_gradients_of_both_ops(case, index_dtype, in_graph):
    for dtype in ("float32", "float64", "half", "bfloat16", "complex64", "complex128"):
        # Without size: every index is good. With: some are before, some past the end.
        for low, size, options in (
            (0, None, {}),
            (0, case[2] + 3, {"size": case[2] + 3}),
            (-2, case[2] - 1, {"size": case[2] - 1, "bad_indices_policy": "IGNORE"}),
        ):
            if size is not None and size < 0:
                continue
            rng, indices, data = make_case(case, dtype, index_dtype, low)
            merged = merged_oracle(indices, data, size)
            upstream = random_values(rng, merged.shape, dtype)

            run = merged_and_gradients(indices, options)
            if in_graph:
                run = tf.function(run)
            actual, grads = run([tf.constant(d) for d in data], tf.constant(upstream))
            assert_same(actual, merged)
            for grad, right in zip(grads, stitch_grad_oracle(upstream, indices), strict=True):
                assert_same(grad, right)


def test_stock_has_the_same_gradient_where_nothing_is_overwritten():
    rng = seeded("distinct")
    rows = rng.permutation(30)[:20].astype(np.int32)
    indices = [rows[:3], rows[3], rows[4:20].reshape(4, 4)]
    data = [rng.standard_normal((*i.shape, 3)).astype(np.float32) for i in indices]
    upstream = rng.standard_normal((rows.max() + 1, 3)).astype(np.float32)
    ours = gradients_of(lambda d: gs.dynamic_stitch(indices, d), data, upstream)
    for stock in (tf.dynamic_stitch, lambda i, d: tf.raw_ops.ParallelDynamicStitch(
        indices=i, data=d)):  # fmt: skip
        right = gradients_of(lambda d, stock=stock: stock(indices, d), data, upstream)
        for grad, stock_grad in zip(ours, right, strict=True):
            assert_same(grad, stock_grad)


def test_stock_has_another_gradient_where_something_is():
    # When this fails, TensorFlow has the right gradient too, and the documents can say so.
    (stock,) = gradients_of(
        lambda x: tf.dynamic_stitch([[0, 1, 0]], x), [np.ones(3, "f")], np.ones(2, "f")
    )
    np.testing.assert_array_equal(stock, [1, 1, 1])


def test_numerically():
    for case in STITCH_CASES:
        _, indices, data = make_case(case)
        if all(d.size == 0 for d in data):
            continue

        def function(*data, indices=indices):
            return gs.parallel_dynamic_stitch(indices, list(data), size=15)

        filled = [m for m, d in enumerate(data) if d.size]
        theoretical, numerical = tf.test.compute_gradient(function, data)
        for m in filled:
            np.testing.assert_allclose(theoretical[m], numerical[m], atol=1e-9)
        winners = {w for w in winners_oracle(indices, 15) if w is not None}
        ones = sum(np.count_nonzero(theoretical[m]) for m in filled)
        assert ones == len(winners) * int(np.prod(case[1]))


def test_only_data_has_a_gradient():
    indices = [tf.constant([0, 1]), tf.constant([1])]
    data = [tf.ones([2]), tf.ones([1])]
    size = tf.constant(3)
    with tf.GradientTape() as tape:
        tape.watch([*data])
        merged = gs.dynamic_stitch(indices, data, size=size)
    grads = tape.gradient(merged, [*data, *indices, size])
    np.testing.assert_array_equal(grads[0], [1, 0])
    np.testing.assert_array_equal(grads[1], [1])
    assert grads[2:] == [None, None, None]


def test_an_input_that_is_not_watched():
    x, y = tf.constant([1.0, 2.0]), tf.constant([3.0])
    with tf.GradientTape() as tape:
        tape.watch(y)
        merged = gs.dynamic_stitch([[0, 1], [0]], [x, y])
    grads = tape.gradient(merged, [x, y])
    assert grads[0] is None
    np.testing.assert_array_equal(grads[1], [1])


def test_the_same_tensor_twice():
    x = tf.constant([1.0, 2.0, 3.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        merged = gs.dynamic_stitch([[0, 1, 2], [3, 1, 4]], [x, x])
    upstream = tf.constant([1.0, 2.0, 4.0, 8.0, 16.0])
    grad = tape.gradient(merged, x, output_gradients=upstream)
    np.testing.assert_array_equal(grad, [1 + 8, 0 + 2, 4 + 16])


@pytest.mark.parametrize("options", [{}, {"size": 13}], ids=str)
@pytest.mark.parametrize("case", STITCH_CASES, ids=str)
def test_second_and_third_order(case, options):
    shapes, constant, _ = case
    rng, indices, _ = make_case(case)
    data = [rng.integers(-3, 4, (*s, *constant)).astype(np.float64) for s in shapes]
    weights = [rng.integers(-3, 4, d.shape).astype(np.float64) for d in data]

    def run(x):
        with tf.GradientTape() as third, tf.GradientTape() as second:
            second.watch(x)
            third.watch(x)
            with tf.GradientTape() as first:
                first.watch(x)
                y = tf.reduce_sum(gs.dynamic_stitch(indices, x, **options) ** 4)
            order_1 = first.gradient(y, x)
            z = tf.add_n([tf.reduce_sum(g * w) for g, w in zip(order_1, weights, strict=True)])
            order_2 = second.gradient(z, x)
            u = tf.add_n([tf.reduce_sum(g * w) for g, w in zip(order_2, weights, strict=True)])
        return order_1, order_2, third.gradient(u, x)

    masks = stitch_grad_oracle(np.ones((13, *constant)), indices)
    for wrapped in (run, tf.function(run)):
        orders = wrapped([tf.constant(d) for d in data])
        for m, mask in enumerate(masks):
            x, w = data[m], weights[m]
            np.testing.assert_array_equal(orders[0][m], mask * 4 * x**3)
            np.testing.assert_array_equal(orders[1][m], mask * 12 * x**2 * w)
            np.testing.assert_array_equal(orders[2][m], mask * 24 * x * w * w)


def test_unknown_shapes():
    for case in STITCH_CASES:
        rng, indices, data = make_case(case)
        merged_rows = len(merged_oracle(indices, data))
        for size in (None, merged_rows):
            upstream = rng.standard_normal((merged_rows, *case[1]))
            specs = [
                [tf.TensorSpec(None, tf.int32)] * len(indices),
                [tf.TensorSpec(None, tf.float64)] * len(data),
                tf.TensorSpec(None, tf.float64),
                tf.TensorSpec(None, tf.int64),
            ]

            @tf.function(input_signature=specs)
            def run(indices, data, upstream, rows, size=size):
                with tf.GradientTape() as tape:
                    tape.watch(data)
                    merged = gs.dynamic_stitch(indices, data, size=None if size is None else rows)
                return tape.gradient(merged, data, output_gradients=upstream)

            actual = run(
                [tf.constant(i) for i in indices],
                [tf.constant(d) for d in data],
                upstream,
                tf.constant(merged_rows, tf.int64),
            )
            for grad, right in zip(actual, stitch_grad_oracle(upstream, indices), strict=True):
                assert_same(grad, right)


def test_static_shapes_of_gradients_are_those_of_data():
    @tf.function
    def run(x, y):
        grads = gradients_of(
            lambda d: gs.dynamic_stitch([[0, 1, 0], 2], d), [x, y], tf.ones([3, 4])
        )
        assert [g.shape.as_list() for g in grads] == [[3, 4], [4]]
        return grads

    run(tf.zeros([3, 4]), tf.zeros([4]))


def test_incoming_indexed_slices():
    rng = seeded("incoming slices")
    indices = [np.array([0, 3, 1]), np.array([3, 4])]
    data = [rng.standard_normal((3, 2)), rng.standard_normal((2, 2))]
    rows = np.array([4, 3, 3, 0, 2, 3])
    upstream = rng.standard_normal((6, 2))
    merged_grad = gather_grad_oracle(upstream, rows, (5, 2))
    for gather in (gs.gather, tf.gather):
        for size in (None, 5):
            actual = gradients_of(
                lambda d, gather=gather, size=size: gather(
                    gs.dynamic_stitch(indices, d, size=size), rows
                ),
                data,
                upstream,
            )
            for grad, right in zip(actual, stitch_grad_oracle(merged_grad, indices), strict=True):
                assert isinstance(grad, tf.Tensor)
                assert_same(grad, right)


def test_a_gradient_is_one_op():
    signature = [tf.TensorSpec([3, 2]), tf.TensorSpec([4, 2]), tf.TensorSpec([9, 2])]

    def count(stitch):
        @tf.function(input_signature=signature)
        def with_gradient(x, y, upstream):
            with tf.GradientTape() as tape:
                tape.watch([x, y])
                merged = stitch([[0, 1, 0], [5, 6, 7, 8]], [x, y])
            return merged, tape.gradient(merged, [x, y], output_gradients=upstream)

        return [
            t
            for t in op_types(with_gradient.get_concrete_function())
            if t not in ("Placeholder", "Identity", "Const", "NoOp") and "Stitch" in t
        ], op_types(with_gradient.get_concrete_function())

    for options in ({}, {"size": 9}):
        stitches, everything = count(lambda i, d, options=options: gs.dynamic_stitch(
            i, d, **options))  # fmt: skip
        assert len(stitches) == 2
        assert stitches.count("GatherStitch>ParallelDynamicStitchGrad") == 1
        others = set(everything) - set(stitches) - {"Placeholder", "Identity", "Const", "NoOp"}
        assert others == set()


# ---- The op ParallelDynamicStitchGrad ----------------------------------------

ALL_DTYPES = (
    *INTEGER_DTYPES,
    *FLOAT8_DTYPES,
    *("half", "bfloat16", "float32", "float64", "complex64", "complex128", "bool"),
)


@pytest.mark.parametrize("dtype", ALL_DTYPES)
def test_the_gradient_op_of_every_dtype(dtype):
    for case in STITCH_CASES:
        rng, indices, _ = make_case(case, index_dtype="int64", low=-2)
        for rows in (0, 1, case[2], case[2] + 4):
            # Indices on both sides of grad's rows have no gradient.
            grad = random_values(rng, (rows, *case[1]), dtype)
            actual = gs.raw_ops.ParallelDynamicStitchGrad(grad=grad, indices=indices)
            for a, right in zip(actual, stitch_grad_oracle(grad, indices), strict=True):
                assert_same(a, right)


def test_the_gradient_op_of_strings():
    grad = tf.constant([["a", "b"], ["c", "d"]])
    first, second = gs.raw_ops.ParallelDynamicStitchGrad(grad=grad, indices=[[1, 0, 9], [1]])
    np.testing.assert_array_equal(first, [[b"", b""], [b"a", b"b"], [b"", b""]])
    np.testing.assert_array_equal(second, [[b"c", b"d"]])


def test_an_index_far_outside_has_no_gradient():
    (actual,) = gs.raw_ops.ParallelDynamicStitchGrad(
        grad=[1.0, 2.0], indices=[tf.constant([2**62, -(2**63), 1, 2**63 - 1], tf.int64)]
    )
    np.testing.assert_array_equal(actual, [0, 0, 2, 0])


def test_grad_must_have_rows():
    words = "grad must be at least 1 dimensional"
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        gs.raw_ops.ParallelDynamicStitchGrad(grad=1.0, indices=[[0]])
    with pytest.raises(ValueError, match=words):
        tf.function(lambda: gs.raw_ops.ParallelDynamicStitchGrad(grad=1.0, indices=[[0]]))()
    unknown = tf.function(
        lambda grad: gs.raw_ops.ParallelDynamicStitchGrad(grad=grad, indices=[[0]]),
        input_signature=[tf.TensorSpec(None)],
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match=re.escape(words)):
        unknown(1.0)


def test_the_gradient_of_the_gradient_op_is_a_stitch():
    for case in STITCH_CASES:
        rng, indices, _ = make_case(case, index_dtype="int64", low=-1)
        grad = rng.standard_normal((case[2] + 1, *case[1]))
        upstream = [rng.standard_normal((*s, *case[1])) for s in case[0]]
        x = tf.constant(grad)
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = gs.raw_ops.ParallelDynamicStitchGrad(grad=x, indices=indices)
        actual = tape.gradient(outputs, x, output_gradients=[tf.constant(u) for u in upstream])
        assert_same(actual, merged_oracle(indices, upstream, case[2] + 1))


def test_partition_and_stitch_have_gradients_that_undo_each_other():
    rng = seeded("round trip")
    x = tf.constant(rng.standard_normal((40, 3)))
    experts = rng.integers(0, 4, 40)
    upstream = rng.standard_normal((40, 3))

    def round_trip(x):
        positions = tf.dynamic_partition(tf.range(40), experts, 4)
        parts = tf.dynamic_partition(x, experts, 4)
        scaled = [part * (k + 1) for k, part in enumerate(parts)]
        return gs.parallel_dynamic_stitch(positions, scaled, size=40)

    for wrapped in (round_trip, tf.function(round_trip)):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = wrapped(x)
        np.testing.assert_array_equal(y, x * (experts + 1)[:, None])
        grad = tape.gradient(y, x, output_gradients=tf.convert_to_tensor(upstream))
        np.testing.assert_array_equal(as_numpy(grad), upstream * (experts + 1)[:, None])


def test_the_ops_that_run_are_ours():
    @tf.function
    def run(x):
        return [
            gradients_of(lambda d, s=size: gs.dynamic_stitch([[1, 0]], d, size=s), [x], [1.0, 2.0])
            for size in (None, 2)
        ]

    types = gather_stitch_types(run.get_concrete_function(tf.zeros([2])))
    assert sorted(types) == [
        "GatherStitch>ParallelDynamicStitch",
        "GatherStitch>ParallelDynamicStitchGrad",
        "GatherStitch>ParallelDynamicStitchGrad",
        "GatherStitch>ParallelDynamicStitchV2",
    ]
