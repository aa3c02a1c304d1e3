# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Gradients of gather on an emulated GPU.

Where a device may add in any order the numbers are such that their sums have one value.
"""

import gather_stitch as gs
import numpy as np
import pytest
import tensorflow as tf
from checks import assert_same, gather_oracle, only_ours
from device_checks import (
    GPU,
    POLICIES,
    assert_on_device,
    gradient_on_device,
    on_device,
    run_on_device,
    soft_placement,
    whole_numbers,
)
from emulated import set_block_order
from gather_grad_test import CASES_WITH_ROWS, GRADIENTS, SPARSE_SHAPES, TRAINABLE_DTYPES
from gradients_common import (
    FLOAT8_DTYPES,
    GATHER_CASES,
    INTEGER_DTYPES,
    case_id,
    gather_grad_oracle,
    is_row_gather,
    output_shape,
    random_indices,
    seeded,
    sparse_grad_oracle,
)
from tensorflow.python.eager import context
from tensorflow.python.framework import config

ALL_POLICIES = {**POLICIES, "ERROR": "ERROR"}
DTYPES = (*TRAINABLE_DTYPES, *FLOAT8_DTYPES, *INTEGER_DTYPES)


def draw(case, policy, dtype, index_dtype="int32"):
    """(params, indices, incoming gradient) of a case as arrays."""
    rng = seeded("gpu", case, policy, dtype, index_dtype)
    rows = case[0][case[2]]
    indices = random_indices(rng, case[1], rows, ALL_POLICIES[policy], index_dtype)
    return (
        whole_numbers(rng, case[0], dtype),
        indices,
        whole_numbers(rng, output_shape(*case), dtype),
    )


@pytest.mark.parametrize("policy", ALL_POLICIES)
@pytest.mark.parametrize("case", CASES_WITH_ROWS, ids=case_id)
def test_gradient_is_the_transpose_under_every_policy(case, policy):
    params_shape, _, axis, batch_dims = case
    for dtype in ("float32", "half", "complex64"):
        params, indices, upstream = draw(case, policy, dtype)
        expected = gather_grad_oracle(
            upstream, indices, params_shape, axis, batch_dims, ALL_POLICIES[policy]
        )
        ids = on_device(indices)
        for gradient in GRADIENTS if is_row_gather(*case) else ("auto", "dense"):

            def run(p, ids=ids, gradient=gradient):
                return gs.gather(
                    p,
                    ids,
                    axis=axis,
                    batch_dims=batch_dims,
                    bad_indices_policy=policy,
                    gradient=gradient,
                )

            for function in (run, tf.function(run)):
                actual = gradient_on_device(function, params, upstream)
                if isinstance(actual, tf.IndexedSlices):
                    assert gradient != "dense"
                    assert_on_device(actual.values)
                    values, rows, _ = sparse_grad_oracle(
                        upstream,
                        indices,
                        params_shape[0],
                        ALL_POLICIES[policy],
                        unique=gradient == "sparse",
                    )
                    np.testing.assert_array_equal(actual.indices, rows)
                    assert_same(actual.values, values)
                else:
                    assert_on_device(actual)
                    assert_same(actual, expected)


@pytest.mark.parametrize("case", GATHER_CASES, ids=case_id)
def test_dense_gradient_equals_stock(case):
    params, indices, upstream = draw(case, "ERROR", "float32")
    with tf.device("/CPU:0"), tf.GradientTape() as tape:
        x = tf.constant(params)
        tape.watch(x)
        stock = tf.gather(x, indices, axis=case[2], batch_dims=case[3])
        expected = tape.gradient(stock, x, output_gradients=tf.constant(upstream))
        expected = tf.convert_to_tensor(expected)
    ids = on_device(indices)
    actual = gradient_on_device(
        lambda p: gs.gather(p, ids, axis=case[2], batch_dims=case[3], gradient="dense"),
        params,
        upstream,
    )
    assert_on_device(actual)
    assert_same(actual, expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dense_op_of_every_dtype(dtype):
    for case in (((5, 3), (40,), 0, 0), ((3, 4, 2), (3, 12), 1, 1), ((2, 3, 4), (9,), 2, 0)):
        for policy, index_dtype in (("DEFAULT", "int64"), ("WRAP", "int8"), ("CLIP", "uint32")):
            _, indices, grad = draw(case, policy, dtype, index_dtype)
            expected = gather_grad_oracle(grad, indices, case[0], *case[2:], POLICIES[policy])

            def run(g, i, case=case, policy=policy):
                return gs.raw_ops.GatherV2Grad(
                    grad=g,
                    indices=i,
                    params_shape=case[0],
                    axis=case[2],
                    batch_dims=case[3],
                    bad_indices_policy=policy,
                )

            for mode, actual in run_on_device(
                "GatherV2Grad", run, tf.constant(grad), tf.constant(indices)
            ):
                assert_same(actual, expected, (case, policy, mode))


@pytest.mark.parametrize("unique", [True, False])
@pytest.mark.parametrize("policy", POLICIES)
def test_sparse_op(policy, unique):
    for indices_shape, inner in SPARSE_SHAPES:
        for dtype in ("float32", "bfloat16", "int8", "complex128", "float8_e5m2"):
            for index_dtype in ("int32", "uint8", "int64"):
                rng = seeded("gpu sparse", indices_shape, policy, dtype, index_dtype)
                indices = random_indices(rng, indices_shape, 4, POLICIES[policy], index_dtype)
                grad = whole_numbers(rng, (*indices_shape, *inner), dtype)
                with tf.device(GPU):
                    values, rows, slots = gs.raw_ops.GatherV2SparseGrad(
                        grad=on_device(grad),
                        indices=on_device(indices),
                        params_rows=4,
                        bad_indices_policy=policy,
                        unique=unique,
                    )
                assert_on_device([values, rows, slots])
                expected = sparse_grad_oracle(grad, indices, 4, POLICIES[policy], unique)
                assert_same(values, expected[0])
                assert_same(rows, expected[1])
                assert_same(slots, expected[2])


def test_a_bad_index_of_the_gradient_ops_is_an_error_and_the_device_works_on():
    grad, bad, good = on_device(tf.ones([3])), [0, 9, -1], [0, 1, 0]
    raw = gs.raw_ops
    calls = (
        lambda i: raw.GatherV2Grad(
            grad=grad, indices=i, params_shape=[4], axis=0, bad_indices_policy="ERROR"
        ),
        lambda i: (
            raw.GatherV2SparseGrad(
                grad=grad, indices=i, params_rows=4, bad_indices_policy="ERROR"
            ).values
        ),
    )
    for call, right in zip(calls, ([2.0, 1.0, 0.0, 0.0], [2.0, 1.0]), strict=True):
        with tf.device(GPU):
            with pytest.raises(
                tf.errors.InvalidArgumentError, match=r"indices\[1\] = 9 is not in \[0, 4\)"
            ):
                call(on_device(tf.constant(bad)))
            np.testing.assert_array_equal(call(on_device(tf.constant(good))), right)


@pytest.mark.parametrize("kind", ["uniform", "few rows", "all equal", "most equal"])
def test_many_indices(kind):
    # Long segments are split, and a table of few rows is a sum of many for each.
    rng = seeded("many", kind)
    rows, count = (3, 30_000) if kind == "few rows" else (500, 20_000)
    indices = rng.integers(0, rows, count)
    if kind == "all equal":
        indices[:] = 7
    elif kind == "most equal":
        indices[rng.random(count) < 0.9] = 7
    for inner in (1, 5):
        grad = whole_numbers(rng, (count, inner), "float32")
        expected = np.zeros((rows, inner), np.float32)
        np.add.at(expected, indices, grad)
        with tf.device(GPU):
            ids = on_device(indices)
            dense = gs.raw_ops.GatherV2Grad(
                grad=on_device(grad), indices=ids, params_shape=[rows, inner], axis=0
            )
            values, unique_rows, _ = gs.raw_ops.GatherV2SparseGrad(
                grad=on_device(grad), indices=ids, params_rows=rows
            )
        assert_same(dense, expected)
        np.testing.assert_array_equal(unique_rows, np.unique(indices))
        assert_same(values, expected[np.unique(indices)])


@pytest.mark.parametrize("dtype", ["float32", "float64", "half", "bfloat16"])
def test_sums_are_those_of_the_oracle_but_for_their_order(dtype):
    rng = seeded("order", dtype)
    indices = rng.integers(0, 40, 4000)
    grad = rng.random((4000, 3)).astype(tf.as_dtype(dtype).as_numpy_dtype)
    expected = gather_grad_oracle(grad, indices, (40, 3))
    with tf.device(GPU):
        actual = gs.raw_ops.GatherV2Grad(
            grad=on_device(grad), indices=on_device(indices), params_shape=[40, 3], axis=0
        )
    tolerance = {"half": 1e-3, "bfloat16": 8e-3, "float32": 1e-5, "float64": 1e-14}[dtype]
    np.testing.assert_allclose(
        actual.numpy().astype(np.float64), expected.astype(np.float64), rtol=tolerance
    )


def test_op_determinism_fixes_the_order(seed):
    rng = seeded("determinism")
    indices = rng.integers(0, 20, 5000)
    grad = rng.standard_normal((5000, 4)).astype(np.float32)
    config.enable_op_determinism()
    context.context().clear_kernel_cache()
    try:
        results = []
        for k in range(4):
            set_block_order(seed + k)
            with tf.device(GPU):
                results.append(
                    gs.raw_ops.GatherV2Grad(
                        grad=on_device(grad),
                        indices=on_device(indices),
                        params_shape=[20, 4],
                        axis=0,
                    )
                )
    finally:
        config.disable_op_determinism()
        context.context().clear_kernel_cache()
        set_block_order(seed)
    for result in results[1:]:
        assert_same(result, results[0])
    np.testing.assert_allclose(
        results[0], gather_grad_oracle(grad, indices, (20, 4)), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("gradient", GRADIENTS)
@pytest.mark.parametrize("policy", POLICIES)
def test_second_order(policy, gradient):
    case = ((5, 3), (7,), 0, 0)
    params, indices, upstream = draw(case, policy, "float32")
    again = whole_numbers(seeded("second", policy), case[0], "float32")
    ids = on_device(indices)
    with soft_placement(), tf.device(GPU), tf.GradientTape() as outer:
        w = on_device(upstream)
        outer.watch(w)
        with tf.GradientTape() as inner:
            x = on_device(params)
            inner.watch(x)
            rows = gs.gather(x, ids, bad_indices_policy=policy, gradient=gradient)
        first = inner.gradient(rows, x, output_gradients=w)
        if isinstance(first, tf.IndexedSlices):
            seed_rows = gs.gather(on_device(again), first.indices)
            first = first.values
        else:
            seed_rows = on_device(again)
        second = outer.gradient(first, w, output_gradients=seed_rows)
    assert_on_device(second)
    assert_same(second, gather_oracle(again, indices, 0, 0, POLICIES[policy]))


@pytest.mark.parametrize("policy", POLICIES)
def test_the_gradient_of_a_variable(policy):
    case = ((6, 2), (9,), 0, 0)
    values, indices, upstream = draw(case, policy, "float32")
    expected = gather_grad_oracle(upstream, indices, case[0], policy=POLICIES[policy])
    with soft_placement(), tf.device(GPU):
        variable = tf.Variable(values)
        ids = on_device(indices)
        for gradient in GRADIENTS:
            with tf.GradientTape() as tape, only_ours("ResourceGather"):
                rows = gs.gather(variable, ids, bad_indices_policy=policy, gradient=gradient)
            actual = tape.gradient(rows, variable, output_gradients=on_device(upstream))
            if isinstance(actual, tf.IndexedSlices):
                summed = np.zeros(case[0], np.float32)
                np.add.at(summed, actual.indices.numpy(), actual.values.numpy())
                assert_same(summed, expected)
            else:
                assert_same(actual, expected)
