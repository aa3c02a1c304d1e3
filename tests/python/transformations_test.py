# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""The ops inside what TensorFlow does to functions: vectorised, looped, differentiated, trained."""

import itertools

import gather_stitch as gs
import numpy as np
import pytest
import tensorflow as tf
from cases import POLICIES
from checks import assert_same, gather_oracle
from gradients_common import (
    as_numpy,
    case_id,
    gather_grad_oracle,
    gather_stitch_types,
    is_row_gather,
    merged_oracle,
    op_types,
    output_shape,
    random_indices,
    seeded,
    sparse_grad_oracle,
    stitch_grad_oracle,
)
from tensorflow.python.framework import config

# How many iterations a vectorised loop has here: no dimension of the cases is as long.
ITERATIONS = 6

VECTORIZED_CASES = (
    ((5,), (4,), 0, 0),
    ((5,), (), 0, 0),
    ((5, 3), (2, 3), 0, 0),
    ((5, 3), (4,), -2, 0),
    ((3, 5), (2, 4), 1, 0),
    ((3, 5), (), -1, 0),
    ((2, 3, 5, 2), (4,), 2, 0),
    ((2, 5, 3), (2, 4), 1, 1),
    ((2, 5, 3), (2,), -2, 1),
    ((2, 5, 3), (2, 4), 1, -1),
    ((2, 3, 5), (2, 4), 2, 1),
    ((2, 3, 5, 2), (2, 3, 4), -2, 2),
    ((2, 3, 5), (2, 3), 2, 2),
    ((5, 3), (2, 4), 0, -2),
)


def vectorized(function, *stacked):
    """`function` of the slices of `stacked`, vectorised; a loop instead is an error."""
    return tf.vectorized_map(
        lambda slices: function(*slices), stacked, fallback_to_while_loop=False
    )


def choices(count):
    """Which of the inputs are stacked: all combinations but none, of many inputs those in which
    one differs from the others or none does.
    """
    combinations = [c for c in itertools.product((True, False), repeat=count) if any(c)]
    return [c for c in combinations if count <= 4 or sum(c) in (1, count - 1, count)]


def run_both_ways(function, inputs, is_stacked, in_graph=True):
    """Results vectorised, and of one call after the other, each a list of flat outputs.

    `inputs` has a first dimension of ITERATIONS where stacked. The vectorised function is traced
    by the transformation; `in_graph` puts it in a tf.function whose inputs have unknown shapes.
    """

    def call(*slices):
        slices = iter(slices)
        return function(*(next(slices) if s else i for i, s in zip(fixed, is_stacked, strict=True)))

    fixed = inputs
    stacked = [i for i, s in zip(inputs, is_stacked, strict=True) if s]
    one_by_one = [
        tf.nest.flatten(call(*(i[k] for i in stacked)), expand_composites=True)
        for k in range(ITERATIONS)
    ]
    expected = [tf.stack(outputs) for outputs in zip(*one_by_one, strict=True)]
    actual = [vectorized(call, *stacked)]
    if in_graph:

        @tf.function(input_signature=[tf.TensorSpec(None, i.dtype) for i in inputs])
        def unknown(*inputs):
            nonlocal fixed
            fixed = inputs
            return vectorized(
                call,
                *(
                    tf.ensure_shape(i, [ITERATIONS] + [None] * (rank - 1))
                    for i, s, rank in zip(inputs, is_stacked, ranks, strict=True)
                    if s
                ),
            )

        ranks = [len(i.shape) for i in inputs]
        actual.append(unknown(*inputs))
        types = op_types(unknown.get_concrete_function())
        assert "While" not in types
        assert "StatelessWhile" not in types
    return [tf.nest.flatten(a, expand_composites=True) for a in actual], expected


def assert_vectorizes(function, inputs, is_stacked, in_graph=True):
    results, expected = run_both_ways(function, inputs, is_stacked, in_graph)
    for actual in results:
        for a, e in zip(actual, expected, strict=True):
            assert_same(a, e)


def stack(values, is_stacked):
    return tf.constant(values if is_stacked else values[0])


# ---- Vectorised: the six ops -------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("case", VECTORIZED_CASES, ids=case_id)
def test_gather(case, policy):
    params_shape, indices_shape, axis, batch_dims = case
    rng = seeded(case, policy)
    params = rng.standard_normal((ITERATIONS, *params_shape)).astype(np.float32)
    indices = random_indices(rng, (ITERATIONS, *indices_shape), params_shape[axis], policy)
    for is_stacked in choices(2):
        for gradient in ("auto", "sparse") if is_row_gather(*case) else ("auto",):
            inputs = [stack(v, s) for v, s in zip((params, indices), is_stacked, strict=True)]

            def gather(p, i, gradient=gradient):
                return gs.gather(
                    p,
                    i,
                    axis=axis,
                    batch_dims=batch_dims,
                    bad_indices_policy=policy,
                    gradient=gradient,
                )

            # With indices of unknown rank a negative number of batch_dims is only known later.
            assert_vectorizes(gather, inputs, is_stacked, in_graph=gradient == "auto")


def test_gather_of_every_kind_of_axis():
    params = tf.reshape(tf.range(60.0), [3, 4, 5])
    stacked = tf.stack([params + 100 * k for k in range(ITERATIONS)])
    indices = tf.constant([[0, 2], [1, 1]])
    for axis in (0, 1, 2, -1, -2, -3):
        for kind in (int, lambda a: tf.constant(a, tf.int32), lambda a: tf.constant(a, tf.int64)):
            for is_stacked in ((True, False), (False, True)):
                inputs = [stacked if is_stacked[0] else params]
                inputs.append(tf.stack([indices] * ITERATIONS) if is_stacked[1] else indices)
                assert_vectorizes(
                    lambda p, i, a=kind(axis): gs.gather(p, i, axis=a),
                    inputs,
                    is_stacked,
                    in_graph=False,
                )


def test_gather_by_an_axis_of_run_time():
    params = np.arange(60.0).reshape(3, 4, 5)
    stacked = np.stack([params + 100 * k for k in range(ITERATIONS)])
    indices = np.arange(ITERATIONS * 2).reshape(ITERATIONS, 2) % 3

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32)])
    def run(axis):
        return (
            vectorized(lambda p: gs.gather(p, indices[0], axis=axis), tf.constant(stacked)),
            vectorized(lambda i: gs.gather(params, i, axis=axis), tf.constant(indices)),
            vectorized(
                lambda p, i: gs.gather(p, i, axis=axis), tf.constant(stacked), tf.constant(indices)
            ),
        )

    for axis in (0, 1, 2, -1, -2, -3):
        by_params, by_indices, by_both = run(axis)
        for k in range(ITERATIONS):
            assert_same(by_params[k], gather_oracle(stacked[k], indices[0], axis))
            assert_same(by_indices[k], gather_oracle(params, indices[k], axis))
            assert_same(by_both[k], gather_oracle(stacked[k], indices[k], axis))


def test_an_axis_that_differs_by_iteration_is_refused():
    with pytest.raises(ValueError, match=r"axis|loop invariant"):
        vectorized(lambda a: gs.gather(tf.zeros([3, 3]), [0], axis=a), tf.zeros([2], tf.int32))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("case", VECTORIZED_CASES, ids=case_id)
def test_dense_gradient(case, policy):
    params_shape, indices_shape, axis, batch_dims = case
    rng = seeded(case, policy, "grad")
    grad = rng.standard_normal((ITERATIONS, *output_shape(*case))).astype(np.float32)
    indices = random_indices(rng, (ITERATIONS, *indices_shape), params_shape[axis], policy)
    for is_stacked in choices(2):
        inputs = [stack(v, s) for v, s in zip((grad, indices), is_stacked, strict=True)]

        def dense(g, i):
            return gs.raw_ops.GatherV2Grad(
                grad=g,
                indices=i,
                params_shape=params_shape,
                axis=axis,
                batch_dims=batch_dims,
                bad_indices_policy=policy,
            )

        assert_vectorizes(dense, inputs, is_stacked)


@pytest.mark.parametrize("unique", [True, False])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("indices_shape", "inner"), [((7,), (2,)), ((), (3,)), ((2, 3), ()), ((0,), (2,))], ids=str
)
def test_slices(indices_shape, inner, policy, unique):
    rng = seeded(indices_shape, policy, unique)
    indices = random_indices(rng, (ITERATIONS, *indices_shape), 4, policy)
    grad = rng.standard_normal((ITERATIONS, *indices_shape, *inner))

    def sparse(g, i):
        outputs = gs.raw_ops.GatherV2SparseGrad(
            grad=g, indices=i, params_rows=4, bad_indices_policy=policy, unique=unique
        )
        return tuple(outputs)

    # The same indices in all iterations: each has what one call has.
    values, rows, slots = vectorized(lambda g: sparse(g, indices[0]), tf.constant(grad))
    for k in range(ITERATIONS):
        expected = sparse_grad_oracle(grad[k], indices[0], 4, policy, unique)
        for actual, right in zip((values[k], rows[k], slots[k]), expected, strict=True):
            assert_same(actual, right)

    # Others in each: the slices may be more, with rows of -1 where there is nothing, but mean
    # the same; and slots say where each index went.
    for grad_is_stacked in (True, False):
        stacked = [tf.constant(indices)] + ([tf.constant(grad)] if grad_is_stacked else [])
        values, rows, slots = vectorized(
            lambda i, g=grad[0]: sparse(g, i), *stacked
        )  # fmt: skip
        for k in range(ITERATIONS):
            this_grad = grad[k if grad_is_stacked else 0]
            good = rows[k].numpy() >= 0
            dense = gather_grad_oracle(values[k].numpy()[good], rows[k].numpy()[good], (4, *inner))
            right = gather_grad_oracle(this_grad, indices[k], (4, *inner), policy=policy)
            np.testing.assert_allclose(dense, right, rtol=1e-12)
            assert not values[k].numpy()[~good].any()
            slot_rows = gather_oracle(rows[k].numpy() + 1, slots[k].numpy(), policy="IGNORE") - 1
            expected_rows = sparse_grad_oracle(this_grad, indices[k], 4, policy, False)
            kept = np.full(indices_shape, -1)
            kept[expected_rows[2] >= 0] = expected_rows[1]
            np.testing.assert_array_equal(slot_rows, kept)


STITCHES = (
    # indices shapes, constant, rows
    (((4,),), (2,), 5),
    (((3,), (2, 2), ()), (), 4),
    (((0,), (5,)), (2, 1), 6),
    (((0,),), (2,), 0),
)


def stitch_inputs(case, low=0, high=0):
    shapes, constant, rows = case
    rng = seeded(case, low, high)
    indices = [
        rng.integers(low, max(rows, 1) + high, (ITERATIONS, *s)).astype(np.int32) for s in shapes
    ]
    data = [rng.standard_normal((ITERATIONS, *s, *constant)) for s in shapes]
    return indices, data, rng


@pytest.mark.parametrize("case", STITCHES, ids=str)
def test_stitch(case):
    indices, data, _ = stitch_inputs(case)
    for is_stacked in choices(len(data)):
        inputs = [stack(v, s) for v, s in zip(data, is_stacked, strict=True)]
        for function in (gs.parallel_dynamic_stitch, gs.dynamic_stitch):
            assert_vectorizes(
                lambda *d, f=function: f([i[0] for i in indices], list(d)), inputs, is_stacked
            )


@pytest.mark.parametrize("index_dtype", [tf.int32, tf.int64], ids=lambda d: d.name)
@pytest.mark.parametrize("policy", ["DEFAULT", "ERROR", "IGNORE"])
@pytest.mark.parametrize("case", STITCHES, ids=str)
def test_stitch_of_a_given_size(case, policy, index_dtype):
    low, high = (-3, 4) if policy == "IGNORE" else (0, 0)
    indices, data, _ = stitch_inputs(case, low, high)
    size = max(case[2], 1)
    for is_stacked in choices(2 * len(data)):
        inputs = [stack(v, s) for v, s in zip((*indices, *data), is_stacked, strict=True)]
        inputs = [tf.cast(i, index_dtype) for i in inputs[: len(data)]] + inputs[len(data) :]

        def stitch(*inputs):
            half = len(inputs) // 2
            return gs.dynamic_stitch(
                list(inputs[:half]), list(inputs[half:]), size=size, bad_indices_policy=policy
            )

        assert_vectorizes(stitch, inputs, is_stacked, in_graph=len(data) < 3)


@pytest.mark.parametrize("case", STITCHES, ids=str)
def test_gradient_of_stitch(case):
    indices, _, rng = stitch_inputs(case, -3, 4)
    grad = rng.standard_normal((ITERATIONS, case[2], *case[1]))
    for is_stacked in choices(1 + len(indices)):
        inputs = [stack(v, s) for v, s in zip((grad, *indices), is_stacked, strict=True)]
        assert_vectorizes(
            lambda g, *i: tuple(gs.raw_ops.ParallelDynamicStitchGrad(grad=g, indices=list(i))),
            inputs,
            is_stacked,
        )


def test_indices_that_differ_need_a_size():
    indices = tf.constant([[0, 1], [1, 3]])
    data = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    with pytest.raises(ValueError, match="size="):
        vectorized(lambda i, d: gs.dynamic_stitch([i], [d]), indices, data)
    np.testing.assert_array_equal(
        vectorized(lambda i, d: gs.dynamic_stitch([i], [d], size=4), indices, data),
        [[1, 2, 0, 0], [0, 3, 0, 4]],
    )
    # And so does a size that differs.
    with pytest.raises(ValueError, match="size"):
        vectorized(lambda n: gs.dynamic_stitch([[0]], [[1.0]], size=n), tf.constant([1, 2]))


@pytest.mark.parametrize("bad", [-1, 5, 5 + 5, -5])
def test_a_bad_index_of_one_iteration_hits_no_other(bad):
    # Row 5 of iteration 0 must not become row 0 of iteration 1.
    indices = tf.constant([[0, bad], [1, 2]])
    data = tf.constant([[1.0, 2.0], [3.0, 4.0]])

    def run(policy):
        return vectorized(
            lambda i, d: gs.dynamic_stitch([i], [d], size=5, bad_indices_policy=policy),
            indices,
            data,
        )

    np.testing.assert_array_equal(run("IGNORE"), [[1, 0, 0, 0, 0], [0, 3, 4, 0, 0]])
    for policy in ("DEFAULT", "ERROR"):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"is not in \[0, "):
            run(policy)
    for policy in ("DEFAULT", "ERROR"):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"is not in \[0, "):
            vectorized(
                lambda p, i, policy=policy: gs.gather(p, i, bad_indices_policy=policy),
                tf.zeros([2, 5]),
                indices,
            )


def test_no_iterations():
    gathered = vectorized(lambda p: gs.gather(p, [0, 1]), tf.zeros([0, 3]))
    assert gathered.shape == (0, 2)
    merged = vectorized(lambda d: gs.dynamic_stitch([[0, 3]], [d]), tf.zeros([0, 2, 5]))
    assert merged.shape == (0, 4, 5)


def test_nested_vectorisation():
    params = tf.random.stateless_normal([3, 4, 5], [1, 2])
    indices = tf.constant([[0, 2], [1, 1], [4, 3]])
    actual = vectorized(lambda p, i: vectorized(lambda row: gs.gather(row, i), p), params, indices)
    np.testing.assert_array_equal(actual, tf.gather(params, indices, axis=2, batch_dims=1))


# ---- Jacobians ---------------------------------------------------------------


@pytest.mark.parametrize("gradient", ["auto", "dense", "sparse"])
@pytest.mark.parametrize("policy", POLICIES)
def test_jacobian_of_gather(policy, gradient):
    for case in VECTORIZED_CASES:
        params_shape, indices_shape, axis, batch_dims = case
        if gradient != "auto" and not is_row_gather(*case):
            continue  # "sparse" is refused, and "auto" is "dense".
        rng = seeded("jacobian", case, policy)
        x = tf.constant(rng.integers(-3, 4, params_shape).astype(np.float64))
        indices = random_indices(rng, indices_shape, params_shape[axis], policy)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = gs.gather(
                x,
                indices,
                axis=axis,
                batch_dims=batch_dims,
                bad_indices_policy=policy,
                gradient=gradient,
            )
        actual = tf.convert_to_tensor(tape.jacobian(y, x, experimental_use_pfor=True))
        units = np.eye(int(np.prod(y.shape))).reshape((-1, *y.shape))
        rows = [gather_grad_oracle(u, indices, params_shape, axis, batch_dims, policy)
                for u in units]  # fmt: skip
        assert_same(actual, np.reshape(rows, (*y.shape, *params_shape)))


def test_jacobian_is_vectorised():
    # A converter that is missing makes a while loop, or an error.
    @tf.function
    def run(x, w):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch([x, w])
            rows = gs.gather(x, [[0, 1], [2, 0]], axis=1, gradient="dense")
            merged = gs.dynamic_stitch([[1, 0, 1]], [w], size=4)
            y = gs.gather(rows, [1, 0], batch_dims=0) ** 2
            z = merged**3
        return tape.jacobian(y, x), tape.jacobian(z, w)

    x, w = tf.random.stateless_normal([3, 4], [1, 2]), tf.constant([[1.0, 2], [3, 4], [5, 6]])
    graph = run.get_concrete_function(x, w)
    assert not {"While", "StatelessWhile"} & set(op_types(graph))
    assert {"GatherStitch>GatherV2Grad", "GatherStitch>ParallelDynamicStitchGrad"} <= set(
        gather_stitch_types(graph)
    )
    jacobian_y, jacobian_z = run(x, w)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.gather(tf.gather(x, [[0, 1], [2, 0]], axis=1), [1, 0]) ** 2
    np.testing.assert_array_equal(jacobian_y, tape.jacobian(y, x))
    expected = np.zeros((4, 2, 3, 2), np.float32)
    for row, source in ((0, 1), (1, 2)):
        for k in range(2):
            expected[row, k, source, k] = 3 * w[source, k] ** 2
    np.testing.assert_array_equal(jacobian_z, expected)


@pytest.mark.parametrize("gradient", ["auto", "sparse", "dense"])
def test_hessian(gradient):
    rng = seeded("hessian")
    x = tf.constant(rng.integers(-3, 4, (4, 2)).astype(np.float64))
    indices = [1, 1, 3, 0]

    def hessian(gather, **options):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = tf.reduce_sum(gather(x, indices, **options) ** 3)
            first = tf.convert_to_tensor(inner.gradient(y, x))
        return outer.jacobian(first, x, experimental_use_pfor=True)

    actual = hessian(gs.gather, gradient=gradient)
    counts = np.bincount(indices, minlength=4)
    diagonal = (6 * counts[:, None] * x.numpy()).reshape(-1)
    np.testing.assert_array_equal(tf.reshape(actual, [8, 8]), np.diag(diagonal))
    np.testing.assert_array_equal(actual, hessian(tf.gather))


@pytest.mark.parametrize("axis_and_batch_dims", [(0, 0), (1, 0), (-1, 0), (1, 1), (2, 1)], ids=str)
def test_batch_jacobian(axis_and_batch_dims):
    axis, batch_dims = axis_and_batch_dims
    x = tf.random.stateless_normal([3, 4, 5], [3, 4])
    if batch_dims:
        indices = [[0, 1], [2, 2], [3, 0]]
    else:
        indices = [2, 0, 1] if axis == 0 else [1, 1, 0]

    def jacobian(gather):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = gather(x, indices, axis=axis, batch_dims=batch_dims) ** 2
        return tape.batch_jacobian(y, x, experimental_use_pfor=True)

    np.testing.assert_array_equal(jacobian(gs.gather), jacobian(tf.gather))


@pytest.mark.parametrize("options", [{}, {"size": 7}], ids=str)
def test_jacobian_of_stitch(options):
    indices = [np.array([0, 2, 0]), np.array([[5, 2]])]
    rng = seeded("jacobian of stitch")
    data = [tf.constant(rng.integers(-3, 4, (*i.shape, 2)).astype(np.float64)) for i in indices]
    with tf.GradientTape() as tape:
        tape.watch(data)
        y = gs.dynamic_stitch(indices, data, **options)
    actual = tape.jacobian(y, data, experimental_use_pfor=True)
    units = np.eye(int(np.prod(y.shape))).reshape((-1, *y.shape))
    rows = [stitch_grad_oracle(u, indices) for u in units]
    for m, value in enumerate(data):
        expected = np.reshape([r[m] for r in rows], (*y.shape, *value.shape))
        assert_same(actual[m], expected)


def test_jacobian_of_the_gradient_ops():
    # Second derivatives as whole matrices go through the gradients' own gradients.
    rng = seeded("jacobian of gradients")
    w = tf.constant(rng.integers(-3, 4, (3, 2)).astype(np.float64))
    with tf.GradientTape() as outer:
        outer.watch(w)
        with tf.GradientTape() as inner:
            inner.watch(w)
            y = tf.reduce_sum(gs.dynamic_stitch([[1, 0, 1]], [w]) ** 3)
        first = inner.gradient(y, w)
    actual = outer.jacobian(first, w, experimental_use_pfor=True)
    mask = np.array([[0], [1], [1]])
    expected = np.diag((6 * mask * w.numpy()).reshape(-1))
    np.testing.assert_array_equal(tf.reshape(actual, [6, 6]), expected)

    grad = tf.constant(rng.integers(-3, 4, (4, 2)).astype(np.float64))
    for unique in (True, False):
        with tf.GradientTape() as tape:
            tape.watch(grad)
            values = gs.raw_ops.GatherV2SparseGrad(
                grad=grad,
                indices=[2, 9, 2, 0],
                params_rows=3,
                bad_indices_policy="IGNORE",
                unique=unique,
            ).values
        slots = [1, None, 1, 0] if unique else [0, None, 1, 2]
        expected = np.zeros((len(values), 2, 4, 2))
        for source, slot in enumerate(slots):
            if slot is not None:
                expected[slot, :, source] = np.eye(2)
        actual = tape.jacobian(values, grad, experimental_use_pfor=True)
        np.testing.assert_array_equal(actual, expected)


# ---- Loops -------------------------------------------------------------------


@pytest.mark.parametrize("in_graph", [False, True], ids=["eager", "function"])
def test_map_fn(in_graph):
    rng = seeded("map_fn")
    params = tf.constant(rng.standard_normal((4, 5, 2)))
    indices = tf.constant(rng.integers(0, 5, (4, 3)))

    def run(params, indices):
        with tf.GradientTape() as tape:
            tape.watch(params)
            gathered = tf.map_fn(
                lambda pair: gs.gather(*pair), (params, indices), fn_output_signature=tf.float64
            )
            merged = tf.map_fn(
                lambda rows: gs.dynamic_stitch([[0, 1, 0]], [rows]),
                gathered,
                fn_output_signature=tf.float64,
            )
            total = tf.reduce_sum(merged**2)
        return gathered, merged, tape.gradient(total, params)

    gathered, merged, grad = (tf.function(run) if in_graph else run)(params, indices)
    np.testing.assert_array_equal(gathered, tf.gather(params, indices, axis=1, batch_dims=1))
    np.testing.assert_array_equal(merged, tf.stack([gathered[:, 2], gathered[:, 1]], axis=1))
    expected = np.zeros(params.shape)
    for k in range(4):
        for source in (1, 2):
            row = indices[k, source]
            expected[k, row] += 2 * params[k, row]
    np.testing.assert_allclose(grad, expected, rtol=1e-12)


@pytest.mark.parametrize("gradient", ["auto", "dense", "sparse"])
def test_while_loop(gradient):
    rng = seeded("while loop")
    start = tf.constant(rng.integers(-3, 4, (5, 2)).astype(np.float64))
    steps = tf.constant(rng.integers(0, 5, (4, 5)))
    upstream = rng.integers(-3, 4, (5, 2)).astype(np.float64)

    @tf.function
    def loop(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            _, y = tf.while_loop(
                lambda k, _: k < 4,
                lambda k, y: (k + 1, gs.gather(y, steps[k], gradient=gradient)),
                (0, x),
            )
        return y, tape.gradient(y, x, output_gradients=upstream)

    @tf.function
    def autograph_loop(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x
            for k in tf.range(4):
                rows = gs.gather(y, steps[k], gradient=gradient)
                y = gs.dynamic_stitch([tf.range(5)], [rows], size=5)
        return y, tape.gradient(y, x, output_gradients=upstream)

    order = np.arange(5)
    for step in steps.numpy():
        order = order[step]
    for run in (loop, autograph_loop):
        y, grad = run(start)
        np.testing.assert_array_equal(y, start.numpy()[order])
        np.testing.assert_array_equal(as_numpy(grad), gather_grad_oracle(upstream, order, (5, 2)))
        assert {"While", "StatelessWhile"} & set(op_types(run.get_concrete_function(start)))


def test_branches():
    x = tf.constant([1.0, 2.0, 3.0])

    @tf.function
    def run(x, go_left):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.cond(
                go_left,
                lambda: gs.gather(x, [2, 2], gradient="dense"),
                lambda: gs.dynamic_stitch([[0, 1, 0]], [x]),
            )
        return y, tape.gradient(y, x)

    for go_left, right, right_grad in ((True, [3, 3], [0, 0, 2]), (False, [3, 2], [0, 1, 1])):
        y, grad = run(x, tf.constant(go_left))
        np.testing.assert_array_equal(y, right)
        np.testing.assert_array_equal(as_numpy(grad), right_grad)


# ---- Forward mode ------------------------------------------------------------


@pytest.mark.parametrize("gradient", ["auto", "dense", "sparse"])
@pytest.mark.parametrize("in_graph", [False, True], ids=["eager", "function"])
def test_forward_mode_of_gather(in_graph, gradient):
    for policy in POLICIES:
        for case in VECTORIZED_CASES:
            params_shape, indices_shape, axis, batch_dims = case
            if gradient == "sparse" and not is_row_gather(*case):
                continue
            rng = seeded("forward", case, policy)
            x, tangent = rng.standard_normal((2, *params_shape))
            indices = random_indices(rng, indices_shape, params_shape[axis], policy)

            def run(x, tangent, indices=indices, axis=axis, batch_dims=batch_dims, policy=policy):
                with tf.autodiff.ForwardAccumulator(x, tangent) as accumulator:
                    y = gs.gather(
                        x,
                        indices,
                        axis=axis,
                        batch_dims=batch_dims,
                        bad_indices_policy=policy,
                        gradient=gradient,
                    )
                return accumulator.jvp(y)

            jvp = (tf.function(run) if in_graph else run)(tf.constant(x), tf.constant(tangent))
            assert_same(jvp, gather_oracle(tangent, indices, axis, batch_dims, policy))
        if in_graph:
            break  # Graphs take long to trace.


@pytest.mark.parametrize("options", [{}, {"size": 8}], ids=str)
@pytest.mark.parametrize("in_graph", [False, True], ids=["eager", "function"])
def test_forward_mode_of_stitch(in_graph, options):
    rng = seeded("forward stitch")
    indices = [np.array([0, 2, 0]), np.array([[5, 2]])]
    data = [tf.constant(rng.standard_normal((*i.shape, 2))) for i in indices]
    tangents = [tf.constant(rng.standard_normal(d.shape)) for d in data]

    def run(data, tangents):
        with tf.autodiff.ForwardAccumulator(data, tangents) as accumulator:
            merged = gs.dynamic_stitch(indices, data, **options)
        return accumulator.jvp(merged)

    jvp = (tf.function(run) if in_graph else run)(data, tangents)
    assert_same(jvp, merged_oracle(indices, tangents, options.get("size")))


def test_forward_mode_of_the_gradient_ops():
    rng = seeded("forward of gradients")
    grad, tangent = (tf.constant(v) for v in rng.standard_normal((2, 4, 3)))
    merged, merged_tangent = (tf.constant(v) for v in rng.standard_normal((2, 3, 2)))
    indices = [1, 0, 1, 7]
    with tf.autodiff.ForwardAccumulator([grad, merged], [tangent, merged_tangent]) as accumulator:
        dense = gs.raw_ops.GatherV2Grad(
            grad=grad, indices=indices, params_shape=[5, 3], axis=0, bad_indices_policy="IGNORE"
        )
        sparse = gs.raw_ops.GatherV2SparseGrad(
            grad=grad, indices=indices, params_rows=5, bad_indices_policy="IGNORE"
        )
        data_grad = gs.raw_ops.ParallelDynamicStitchGrad(grad=merged, indices=[[2, 0, 2]])
    tangent, merged_tangent = tangent.numpy(), merged_tangent.numpy()
    assert_same(
        accumulator.jvp(dense), gather_grad_oracle(tangent, indices, (5, 3), policy="IGNORE")
    )
    expected = sparse_grad_oracle(tangent, indices, 5, "IGNORE", True)[0]
    assert_same(accumulator.jvp(sparse.values), expected)
    assert_same(accumulator.jvp(data_grad[0]), stitch_grad_oracle(merged_tangent, [[2, 0, 2]])[0])


@pytest.mark.parametrize("gradient", ["auto", "dense", "sparse"])
def test_forward_over_reverse_and_reverse_over_forward(gradient):
    rng = seeded("mixed modes")
    x = tf.constant(rng.integers(-3, 4, (4, 2)).astype(np.float64))
    v = tf.constant(rng.integers(-3, 4, (4, 2)).astype(np.float64))
    indices = [1, 1, 3]

    def energy(x):
        rows = gs.gather(x, indices, gradient=gradient)
        return tf.reduce_sum(gs.dynamic_stitch([[0, 2], [2]], [rows[:2], rows[2:]]) ** 3)

    # Row 0 of the stitch is x[1], row 2 is x[3]: the second x[1] was overwritten.
    mask = np.array([[0], [1], [0], [1]])
    expected = 6 * mask * x.numpy() * v.numpy()

    def forward_over_reverse(x, v):
        with tf.autodiff.ForwardAccumulator(x, v) as accumulator:
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = energy(x)
            grad = tf.convert_to_tensor(tape.gradient(y, x))
        # Slices that stock makes dense have slices for a tangent.
        return tf.convert_to_tensor(accumulator.jvp(grad))

    def reverse_over_forward(x, v):
        with tf.GradientTape() as tape:
            tape.watch(x)
            with tf.autodiff.ForwardAccumulator(x, v) as accumulator:
                y = energy(x)
            jvp = accumulator.jvp(y)
        return tf.convert_to_tensor(tape.gradient(jvp, x))

    for run in (forward_over_reverse, reverse_over_forward):
        np.testing.assert_array_equal(run(x, v), expected)
        np.testing.assert_array_equal(tf.function(run)(x, v), expected)


def test_forward_over_forward():
    x = tf.constant([1.0, 2.0, 3.0])
    v, w = tf.constant([1.0, 0.0, 2.0]), tf.constant([0.5, 1.0, 1.0])
    with (
        tf.autodiff.ForwardAccumulator(x, v) as outer,
        tf.autodiff.ForwardAccumulator(x, w) as inner,
    ):
        y = gs.gather(x, [2, 0]) ** 2
        jvp = inner.jvp(y)
    np.testing.assert_array_equal(outer.jvp(jvp), [2 * 2 * 1.0, 2 * 1 * 0.5])


# ---- Wrappers of functions ---------------------------------------------------


def model(x, gradient="auto"):
    rows = gs.gather(x, [[1, 0], [1, 1]], axis=1, gradient="dense")
    picked = gs.gather(rows, [2, 0, 2], gradient=gradient)
    return gs.dynamic_stitch([[3, 0, 3]], [picked], size=5) ** 2


def model_grad(x):
    """By hand: picked is rows[2], rows[0], rows[2]; its first was overwritten."""
    grad = np.zeros_like(x)
    for row in (0, 2):
        grad[row] = 2 * x[row] * [1, 3]
    return grad


@pytest.mark.parametrize("gradient", ["auto", "sparse"])
def test_recompute_grad(gradient):
    x = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    calls = []

    @tf.recompute_grad
    def recomputed(x):
        calls.append(1)
        return model(x, gradient)

    for wrapped in (recomputed, tf.function(recomputed)):
        calls.clear()
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = wrapped(x)
        grad = tape.gradient(y, x)
        np.testing.assert_array_equal(y, model(x))
        np.testing.assert_array_equal(grad, model_grad(x.numpy()))
        assert len(calls) >= 2


def test_custom_gradient():
    @tf.custom_gradient
    def doubled(x):
        y = gs.gather(x, [0, 0, 1])

        def grad(upstream):
            return 2 * gs.raw_ops.GatherV2Grad(
                grad=upstream, indices=[0, 0, 1], params_shape=tf.shape(x, tf.int64), axis=0
            )

        return y, grad

    x = tf.constant([1.0, 2.0, 3.0])
    for wrapped in (doubled, tf.function(doubled)):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = wrapped(x) * [1.0, 10.0, 100.0]
        np.testing.assert_array_equal(tape.gradient(y, x), [22, 200, 0])


def test_persistent_tape():
    x = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = model(x)
        z = tf.reduce_sum(y)
    for _ in range(2):
        np.testing.assert_array_equal(tape.gradient(y, x), model_grad(x.numpy()))
        np.testing.assert_array_equal(tape.gradient(z, x), model_grad(x.numpy()))
    jacobian = tape.jacobian(y, x)
    np.testing.assert_array_equal(tf.reduce_sum(jacobian, [0, 1, 2, 3][: jacobian.shape.rank - 2]),
                                  model_grad(x.numpy()))  # fmt: skip


def test_functions_run_eagerly():
    x = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])

    @tf.function
    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = model(x)
        return y, tape.gradient(y, x)

    in_graph = run(x)
    tf.config.run_functions_eagerly(True)
    try:
        eagerly = run(x)
    finally:
        tf.config.run_functions_eagerly(False)
    for a, b in zip(in_graph, eagerly, strict=True):
        assert_same(a, b)
    np.testing.assert_array_equal(in_graph[1], model_grad(x.numpy()))


def test_v1_graph_and_session():
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [3, 2])
        y = model(x)
        (grad,) = tf.compat.v1.gradients(y, x)
        with tf.compat.v1.Session() as session:
            value = np.arange(6, dtype=np.float32).reshape(3, 2)
            actual, actual_grad = session.run([y, grad], {x: value})
    np.testing.assert_array_equal(actual, model(tf.constant(value)))
    np.testing.assert_array_equal(actual_grad, model_grad(value))


# ---- Training ----------------------------------------------------------------


def optimizers():
    adam = tf.keras.optimizers.Adam
    return {
        "SGD": lambda: tf.keras.optimizers.SGD(0.5),
        "momentum": lambda: tf.keras.optimizers.SGD(0.5, momentum=0.5),
        "Adam": lambda: adam(0.1),
        "AdamW": lambda: tf.keras.optimizers.AdamW(0.1),
        "Adagrad": lambda: tf.keras.optimizers.Adagrad(0.5),
        "RMSprop": lambda: tf.keras.optimizers.RMSprop(0.1),
        "clipped": lambda: adam(0.1, global_clipnorm=1e9),
    }


def as_dense(grad):
    return tf.convert_to_tensor(grad)


def as_unique_slices(grad):
    rows = tf.unique(tf.sort(grad.indices)).y
    return tf.IndexedSlices(tf.gather(as_dense(grad), rows), rows, grad.dense_shape)


def train(optimizer, gather, steps=4, in_graph=True, change=None):
    """A table after some steps, some of whose ids come several times."""
    rng = np.random.default_rng(7)
    table = tf.Variable(rng.integers(-4, 5, (6, 3)).astype(np.float32))
    ids = tf.constant(rng.integers(0, 6, (steps, 8)), tf.int32)
    target = tf.constant(rng.integers(-4, 5, (8, 3)).astype(np.float32))
    kinds = []

    def step(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((gather(table, ids) - target) ** 2)
        grad = tape.gradient(loss, table)
        if change is not None:
            grad = change(grad)
        kinds.append(type(grad))
        optimizer.apply_gradients([(grad, table)])
        return loss

    optimizer.build([table])
    if in_graph:
        step = tf.function(step)
    losses = [step(ids[k]).numpy() for k in range(steps)]
    return table.numpy(), losses, kinds[0]


@pytest.mark.parametrize("name", optimizers())
@pytest.mark.parametrize("in_graph", [False, True], ids=["eager", "function"])
def test_training(name, in_graph):
    make = optimizers()[name]
    stock, stock_losses, stock_kind = train(make(), tf.gather, in_graph=in_graph)
    table, losses, kind = train(make(), gs.gather, in_graph=in_graph)
    assert kind is stock_kind is tf.IndexedSlices
    # The same slices: the same bits.
    assert_same(table, stock)
    assert losses == stock_losses
    # Keras does not sum the slices of a row before it squares them, so the other two forms are
    # compared with stock's slices brought into that form.
    for gradient, change in (("dense", as_dense), ("sparse", as_unique_slices)):
        expected, _, _ = train(make(), tf.gather, in_graph=in_graph, change=change)
        table, losses, kind = train(
            make(), lambda p, i, g=gradient: gs.gather(p, i, gradient=g), in_graph=in_graph
        )
        assert (kind is tf.IndexedSlices) == (gradient == "sparse")
        assert losses[0] == stock_losses[0]
        assert_same(table, expected)
        assert not np.array_equal(table, train(make(), tf.gather, steps=1)[0])


@pytest.mark.parametrize("gradient", ["auto", "sparse", "dense"])
@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "Adagrad"])
def test_training_with_padding_ids(optimizer, gradient):
    # A dropped index must not reach the optimizer, which would refuse -1 or move a wrong row.
    table = tf.Variable(tf.ones([4, 2]))
    ids = tf.constant([[2, -1, 2], [-1, -1, 0]])
    optimizer = optimizers()[optimizer]()
    optimizer.build([table])

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            rows = gs.gather(table, ids, bad_indices_policy="IGNORE", gradient=gradient)
            loss = tf.reduce_sum(rows)
        optimizer.apply_gradients([(tape.gradient(loss, table), table)])
        return rows

    rows = step()
    np.testing.assert_array_equal(rows[0], [[1, 1], [0, 0], [1, 1]])
    after = table.numpy()
    assert (after[[0, 2]] < 1).all()
    np.testing.assert_array_equal(after[[1, 3]], np.ones((2, 2)))


def test_training_with_narrow_ids():
    # Row numbers of uint8 would make scatters fail.
    for dtype in ("uint8", "int16", "uint32", "uint64"):
        table = tf.Variable(tf.ones([4, 2]))
        optimizer = optimizers()["SGD"]()
        optimizer.build([table])
        for gradient in ("auto", "sparse"):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(
                    gs.gather(table, tf.constant([1, 3, 1], dtype), gradient=gradient)
                )
            optimizer.apply_gradients([(tape.gradient(loss, table), table)])
        np.testing.assert_array_equal(table, [[1, 1], [-1, -1], [1, 1], [0, 0]])


def test_training_through_stitch():
    weights = [tf.Variable(tf.ones([3, 2])), tf.Variable(tf.ones([2, 2]))]
    optimizer = optimizers()["SGD"]()
    optimizer.build(weights)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            merged = gs.dynamic_stitch([[0, 1, 2], [2, 3]], weights)
            loss = tf.reduce_sum(merged)
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))

    step()
    np.testing.assert_array_equal(weights[0], [[0.5, 0.5], [0.5, 0.5], [1, 1]])
    np.testing.assert_array_equal(weights[1], [[0.5, 0.5], [0.5, 0.5]])


def test_a_keras_model_trains():
    class Layer(tf.keras.layers.Layer):
        def build(self, _):
            self.table = self.add_weight(shape=(10, 4), initializer="uniform", name="table")

        def call(self, ids):
            return tf.reduce_sum(gs.gather(self.table, ids, gradient="sparse"), axis=1)

    tf.keras.utils.set_random_seed(3)
    network = tf.keras.Sequential(
        [tf.keras.Input((3,), dtype="int32"), Layer(), tf.keras.layers.Dense(1)]
    )
    network.compile(tf.keras.optimizers.Adam(0.05), "mse")
    ids = np.random.default_rng(0).integers(0, 10, (64, 3))
    target = (ids == 3).sum(1, keepdims=True).astype(np.float32)
    history = network.fit(ids, target, epochs=12, batch_size=16, verbose=0).history["loss"]
    assert history[-1] < 0.2 * history[0]


def test_hessians_of_a_graph():
    @tf.function
    def hessian(x):
        y = tf.reduce_sum(gs.gather(x, [1, 1, 3]) ** 3)
        merged = gs.dynamic_stitch([[0, 1, 0, 1]], [x])
        return tf.hessians(y + tf.reduce_sum(merged**3), x)[0]

    x = tf.constant([1.0, 2.0, 3.0, 4.0])
    # Rows 2 and 3 win the stitch.
    np.testing.assert_array_equal(hessian(x), np.diag([0, 6 * 2 * 2, 6 * 3, 6 * 4 * 2]))


def test_op_determinism():
    rng = seeded("determinism")
    x = tf.constant(rng.standard_normal((50, 3)), tf.float32)
    ids = tf.constant(rng.integers(0, 50, 4000), tf.int32)

    def results():
        with tf.GradientTape() as tape:
            tape.watch(x)
            rows = gs.gather(x, ids, gradient="dense")
            merged = gs.dynamic_stitch([ids], [rows])
            loss = tf.reduce_sum(rows**2) + tf.reduce_sum(merged)
        return rows, merged, tape.gradient(loss, x)

    right = results()
    tf.keras.utils.set_random_seed(1)
    tf.config.experimental.enable_op_determinism()
    try:
        for function in (results, tf.function(results)):
            for actual, expected in zip(function(), right, strict=True):
                assert_same(actual, expected)
    finally:
        config.disable_op_determinism()
