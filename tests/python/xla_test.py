# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""The ops compiled by XLA, in a tf.function with jit_compile=True.

A compilation costs a tenth of a second and more, so that one program has many cases.
"""

from __future__ import annotations

import collections
import json
import os
import pathlib
import re
import subprocess
import sys

import gather_stitch as gs
import numpy as np
import pytest
import tensorflow as tf
from cases import (
    DTYPES,
    EMPTY_GATHER_CASES,
    FEW_GATHER_CASES,
    INDEX_DTYPES,
    STITCH_CASES,
    gather_cases,
    indices_tensors,
    out_of_range_values,
)
from cases import random_values as random_tensor
from checks import assert_all_same, assert_same, gather_oracle, only_ours, resolve, to_numpy
from gather_stitch import _loader
from gradients_common import (
    FLOAT8_DTYPES,
    GATHER_CASES,
    gather_grad_oracle,
    is_row_gather,
    merged_oracle,
    output_shape,
    random_values,
    sparse_grad_oracle,
    stitch_grad_oracle,
)
from gradients_common import random_indices as indices_with_bad_ones
from tensorflow.python.framework import dtypes

# Those that XLA compiles. DEFAULT has its XLA meaning: zeros, and no gradient.
POLICIES = ("DEFAULT", "IGNORE", "CLIP", "WRAP")
NOT_IN_XLA = {
    tf.string,
    tf.qint16,
    tf.quint16,
    dtypes.float4_e2m1fn,
    dtypes.int4,
    dtypes.uint4,
    dtypes.int2,
    dtypes.uint2,
}
XLA_DTYPES = tuple(dtype for dtype in DTYPES if dtype not in NOT_IN_XLA)


def compiled(function):
    return tf.function(function, jit_compile=True, autograph=False)


def meaning(policy):
    """The policy of the oracles that is what XLA does."""
    return "IGNORE" if policy == "DEFAULT" else policy


def instructions(function, *tensors, stage="hlo"):
    """How often each instruction is in the program that XLA is given, or makes of it."""
    # Without the defaults of a lambda's arguments.
    text = compiled(lambda *args: function(*args)).experimental_get_compiler_ir(*tensors)(
        stage=stage
    )
    return collections.Counter(re.findall(r" = \S+ ([a-z][a-z0-9-]*)\(", text))


def test_the_kernels_are_loaded():
    assert _loader.has_xla_kernels()
    for name in _loader.OP_NAMES:
        registered = _loader.kernels.get_registered_kernels_for_op(name).kernel
        devices = {kernel.device_type for kernel in registered}
        assert {"CPU", "XLA_CPU_JIT", "XLA_GPU_JIT"} <= devices


# ---- Gather ------------------------------------------------------------------


def gather_all(cases, params, indices, policies):
    return [
        gs.gather(p, i, axis=c.axis, batch_dims=c.batch_dims, bad_indices_policy=policy)
        for c, p, i, policy in zip(cases, params, indices, policies, strict=True)
    ]


@pytest.mark.parametrize("params_rank", [1, 2, 3, 4, 5])
def test_gather(params_rank, rng):
    cases = list(gather_cases(params_rank))
    policies = [POLICIES[i % 4] for i in range(len(cases))]
    params = [random_tensor(rng, tf.int32, case.params) for case in cases]
    indices = [tf.constant(rng.integers(-3, 8, case.indices), tf.int32) for case in cases]
    with only_ours("GatherV2", len(cases)):
        graph = compiled(lambda p, i: gather_all(cases, p, i, policies)).get_concrete_function(
            params, indices
        )
    actual = graph(params, indices)
    right = gather_all(cases, params, indices, [meaning(policy) for policy in policies])
    assert_all_same(actual, right, list(zip(cases, policies, strict=True)))


@pytest.mark.parametrize("index_dtype", INDEX_DTYPES, ids=lambda d: d.name)
def test_gather_of_every_index_dtype(index_dtype, rng):
    # Also more rows than a narrow dtype has values, and as many as fill it.
    rows = [5, 127, 128, 129, 200, 255, 256, 300]
    tables = [random_tensor(rng, tf.int16, (n,)) for n in rows]
    limit = np.iinfo(index_dtype.as_numpy_dtype).max
    indices = []
    for n in rows:
        values = [0, min(n - 1, limit), *out_of_range_values(index_dtype, n)]
        indices.append(tf.constant(np.array(values, index_dtype.as_numpy_dtype)))

    def function(tables, indices):
        return [
            gs.gather(t, i, bad_indices_policy=policy)
            for t, i in zip(tables, indices, strict=True)
            for policy in POLICIES
        ]

    actual = iter(compiled(function)(tables, indices))
    for t, i in zip(tables, indices, strict=True):
        for policy in POLICIES:
            right = gather_oracle(t.numpy(), i.numpy(), policy=meaning(policy))
            assert_same(next(actual), right, (t.shape, policy))


def test_gather_of_every_dtype(rng):
    tables = [random_tensor(rng, dtype, (4, 3)) for dtype in XLA_DTYPES]
    indices = tf.constant([[3, -1], [0, 4]])

    def function(tables, indices):
        return [
            gs.gather(t, indices, bad_indices_policy=policy)
            for t in tables
            for policy in ("DEFAULT", "WRAP")
        ]

    actual = compiled(function)(tables, indices)
    right = [
        gs.gather(t, indices, bad_indices_policy=policy)
        for t in tables
        for policy in ("IGNORE", "WRAP")
    ]
    contexts = [(t.dtype, policy) for t in tables for policy in ("DEFAULT", "WRAP")]
    assert_all_same(actual, right, contexts)


def test_gather_of_nothing(rng):
    cases = [case for case, _ in EMPTY_GATHER_CASES]
    shapes = [shape for _, shape in EMPTY_GATHER_CASES]
    params = [tf.zeros(case.params) for case in cases]
    indices = [tf.zeros(case.indices, tf.int32) for case in cases]
    for policies in (["DEFAULT"] * len(cases), ["IGNORE"] * len(cases)):
        actual = compiled(lambda p, i, o=policies: gather_all(cases, p, i, o))(params, indices)
        assert_all_same(actual, [np.zeros(s, np.float32) for s in shapes], cases)
    # A table without rows has no row to clip or wrap to; without an index none is needed.
    for policy in ("CLIP", "WRAP"):
        gather = compiled(lambda p, i, o=policy: gs.gather(p, i, bad_indices_policy=o))
        assert gather(tf.zeros([0, 3]), tf.zeros([2, 0], tf.int32)).shape == (2, 0, 3)
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"is not in \[0, 0\)"):
            gather(tf.zeros([0, 3]), tf.zeros([2], tf.int32))


def test_gather_by_the_error_policy_is_refused():
    variable = tf.Variable([1.0, 2.0])
    others = '"DEFAULT".*"IGNORE".*"CLIP".*"WRAP"'
    for function in (
        lambda i: gs.gather([1.0, 2.0], i, bad_indices_policy="ERROR"),
        lambda i: gs.gather(variable, i, bad_indices_policy="ERROR"),
        lambda i: gs.dynamic_stitch([i], [[1.0]], size=3, bad_indices_policy="ERROR"),
        lambda i: gs.raw_ops.GatherV2Grad(
            grad=[1.0], indices=i, params_shape=[4], axis=0, bad_indices_policy="ERROR"
        ),
        lambda i: gs.raw_ops.GatherV2SparseGrad(
            grad=[1.0], indices=i, params_rows=4, bad_indices_policy="ERROR"
        ),
    ):
        with pytest.raises(tf.errors.UnimplementedError, match=others):
            compiled(function)(tf.constant([0]))


def test_gather_has_one_gather_and_no_transpose(rng):
    for case in FEW_GATHER_CASES:
        tensors = random_tensor(rng, tf.float32, case.params), tf.zeros(case.indices, tf.int32)
        for policy in POLICIES:
            found = instructions(
                lambda p, i, c=case, o=policy: gs.gather(
                    p, i, axis=c.axis, batch_dims=c.batch_dims, bad_indices_policy=o
                ),
                *tensors,
            )
            assert found["gather"] == 1, (case, found)
            assert not found["transpose"] + found["scatter"] + found["concatenate"], (case, found)


# ---- Gradients of gather -----------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_dense_gradient(policy, rng):
    cases = GATHER_CASES
    dtypes_of_cases = [
        ("float32", "int64", "bfloat16", "complex64")[i % 4] for i, _ in enumerate(cases)
    ]
    indices, grads = [], []
    for (params_shape, indices_shape, axis, batch_dims), dtype in zip(
        cases, dtypes_of_cases, strict=True
    ):
        rows = params_shape[axis]
        indices.append(indices_with_bad_ones(rng, indices_shape, rows, meaning(policy)))
        shape = output_shape(params_shape, indices_shape, axis, batch_dims)
        # XLA leaves the order of a sum open: small whole numbers have one sum.
        values = np.round(random_values(rng, shape, "float32") * 4)
        grads.append(values.astype(tf.as_dtype(dtype).as_numpy_dtype))

    def function(grads, indices):
        return [
            gs.raw_ops.GatherV2Grad(
                grad=grad,
                indices=index,
                params_shape=params_shape,
                axis=axis,
                batch_dims=batch_dims,
                bad_indices_policy=policy,
            )
            for grad, index, (params_shape, _, axis, batch_dims) in zip(
                grads, indices, cases, strict=True
            )
        ]

    actual = compiled(function)([tf.constant(g) for g in grads], [tf.constant(i) for i in indices])
    for result, grad, index, (params_shape, _, axis, batch_dims) in zip(
        actual, grads, indices, cases, strict=True
    ):
        right = gather_grad_oracle(grad, index, params_shape, axis, batch_dims, meaning(policy))
        # The empty sum of a negative zero is no negative zero.
        assert_same(result + tf.zeros([], result.dtype), right, (params_shape, axis, batch_dims))


def test_dense_gradient_of_every_dtype(rng):
    names = [d.name for d in XLA_DTYPES if d != tf.bool]
    indices = np.array([1, 0, 1, 7, 1, -1], np.int16)
    grads = [random_tensor(rng, tf.as_dtype(n), (6, 2)) for n in names]
    # Of float8 and the like no bits, some of which are no numbers.
    grads = [
        tf.constant(rng.integers(-3, 4, (6, 2)).astype(np.float32).astype(g.dtype.as_numpy_dtype))
        if g.dtype.is_floating or g.dtype.is_complex or g.dtype.name in FLOAT8_DTYPES
        else g
        for g in grads
    ]

    def function(grads):
        return [
            gs.raw_ops.GatherV2Grad(
                grad=g, indices=indices, params_shape=[3, 2], axis=0, bad_indices_policy="IGNORE"
            )
            for g in grads
        ]

    assert_all_same(compiled(function)(grads), function(grads), names)


@pytest.mark.parametrize("dtype", ["half", "bfloat16", "float8_e5m2"])
def test_short_floats_are_summed_in_float32(dtype):
    dtype = tf.as_dtype(dtype)
    ones = tf.cast(tf.ones([5000, 1]), dtype)
    zeros = tf.zeros([5000], tf.int32)
    actual = compiled(
        lambda g, i: gs.raw_ops.GatherV2Grad(grad=g, indices=i, params_shape=[2, 1], axis=0)
    )(ones, zeros)
    right = np.array([[5000], [0]], np.float32).astype(dtype.as_numpy_dtype)
    assert_same(actual, right)


@pytest.mark.parametrize("policy", POLICIES)
def test_slices_keep_every_index(policy, rng):
    shapes = [((6,), (2,)), ((2, 3), ()), ((), (3,)), ((0,), (2,)), ((4,), (0,))]
    rows = 5
    grads, indices = [], []
    for indices_shape, inner in shapes:
        indices.append(indices_with_bad_ones(rng, indices_shape, rows, meaning(policy), "uint8"))
        grads.append(random_values(rng, indices_shape + inner, "float32"))

    def function(grads, indices):
        return [
            gs.raw_ops.GatherV2SparseGrad(
                grad=g, indices=i, params_rows=rows, bad_indices_policy=policy, unique=unique
            )
            for g, i in zip(grads, indices, strict=True)
            for unique in (False, True)
        ]

    actual = iter(
        compiled(function)(list(map(tf.constant, grads)), list(map(tf.constant, indices)))
    )
    for grad, index in zip(grads, indices, strict=True):
        for _ in range(2):
            values, found_rows, slots = map(to_numpy, next(actual))
            assert found_rows.dtype == slots.dtype == np.int64
            resolved = [resolve(int(i), rows, meaning(policy)) for i in index.reshape(-1)]
            np.testing.assert_array_equal(found_rows, [-1 if r is None else r for r in resolved])
            kept = found_rows >= 0
            right_values, right_rows, right_slots = sparse_grad_oracle(
                grad, index, rows, meaning(policy), unique=False
            )
            assert_same(values[kept], right_values)
            assert_same(found_rows[kept], right_rows)
            np.testing.assert_array_equal(slots.reshape(-1) >= 0, kept)
            np.testing.assert_array_equal(slots.reshape(-1)[kept], np.flatnonzero(kept))
            np.testing.assert_array_equal(right_slots >= 0, slots >= 0)
            assert not values[~kept].any()


@pytest.mark.parametrize("policy", POLICIES)
def test_registered_gradients(policy, rng):
    # Every choice of gradient, of both orders, against the eager ones.
    cases = GATHER_CASES[:15:2]

    def gradients(tables, indices, policy):
        results = []
        for (shape, indices_shape, axis, batch_dims), table, index in zip(
            cases, tables, indices, strict=True
        ):
            choices = ("auto", "dense", "sparse")
            for choice in choices[
                : 3 if is_row_gather(shape, indices_shape, axis, batch_dims) else 2
            ]:
                with tf.GradientTape() as outer:
                    outer.watch(table)
                    with tf.GradientTape() as inner:
                        inner.watch(table)
                        rows = gs.gather(
                            table,
                            index,
                            axis=axis,
                            batch_dims=batch_dims,
                            bad_indices_policy=policy,
                            gradient=choice,
                        )
                        loss = tf.reduce_sum(rows**3)
                    first = tf.convert_to_tensor(inner.gradient(loss, table))
                    loss = tf.reduce_sum(first**2)
                results += [first, tf.convert_to_tensor(outer.gradient(loss, table))]
        return results

    tables = [tf.constant(rng.integers(-2, 3, c[0]), tf.float32) for c in cases]
    indices = [
        tf.constant(indices_with_bad_ones(rng, c[1], c[0][c[2]], meaning(policy))) for c in cases
    ]
    actual = compiled(lambda t, i: gradients(t, i, policy))(tables, indices)
    right = gradients(tables, indices, meaning(policy))
    for a, r in zip(actual, right, strict=True):
        assert_same(a + 0.0, r + 0.0)


def test_dense_gradient_has_one_scatter_and_no_transpose():
    for case in FEW_GATHER_CASES:
        axis = case.axis
        shape = output_shape(case.params, case.indices, axis, case.batch_dims)
        for policy in POLICIES:
            found = instructions(
                lambda g, i, c=case, o=policy: gs.raw_ops.GatherV2Grad(
                    grad=g,
                    indices=i,
                    params_shape=c.params,
                    axis=c.axis,
                    batch_dims=c.batch_dims,
                    bad_indices_policy=o,
                ),
                tf.zeros(shape),
                tf.zeros(case.indices, tf.int32),
            )
            assert found["scatter"] == 1, (case, found)
            assert not found["transpose"] + found["gather"] + found["concatenate"], (case, found)


# ---- Variables ---------------------------------------------------------------


def test_gather_from_a_variable(rng):
    variable = tf.Variable(random_values(rng, (2, 4, 3), "float32"))
    indices = tf.constant([[3, -1, 1], [0, 9, 3]])

    def function(indices):
        return [
            gs.gather(
                variable, indices, axis=axis, batch_dims=batch_dims, bad_indices_policy=policy
            )
            for axis, batch_dims in ((0, 0), (1, 0), (-1, 0), (1, 1), (2, 1))
            for policy in POLICIES
        ]

    with only_ours("ResourceGather", 20):
        actual = compiled(function)(indices)
    position = iter(actual)
    for axis, batch_dims in ((0, 0), (1, 0), (-1, 0), (1, 1), (2, 1)):
        for policy in POLICIES:
            right = gather_oracle(
                variable.numpy(), indices.numpy(), axis, batch_dims, meaning(policy)
            )
            assert_same(next(position), right, (axis, batch_dims, policy))


@pytest.mark.parametrize("gradient", ["auto", "dense", "sparse"])
def test_training_of_a_variable(gradient):
    ids = tf.constant([[3, -1], [1, 3]])
    tables = [tf.Variable(tf.reshape(tf.range(10.0), [5, 2])) for _ in range(2)]
    steps = []
    for table in tables:

        def step(table=table, optimizer=None):
            optimizer = optimizer or tf.keras.optimizers.SGD(0.5)

            def train(ids):
                with tf.GradientTape() as tape:
                    rows = gs.gather(table, ids, bad_indices_policy="IGNORE", gradient=gradient)
                    loss = tf.reduce_sum(rows**2)
                optimizer.apply_gradients([(tape.gradient(loss, table), table)])
                return loss

            return train

        steps.append(step())
    for eager_step, compiled_step in [(steps[0], compiled(steps[1]))]:
        for _ in range(3):
            assert eager_step(ids) == compiled_step(ids)
    np.testing.assert_array_equal(*tables)
    assert not np.array_equal(tables[0], tf.reshape(tf.range(10.0), [5, 2]))


# ---- Stitch ------------------------------------------------------------------


@pytest.mark.parametrize("index_dtype", [tf.int32, tf.int64], ids=lambda d: d.name)
def test_stitch(index_dtype, rng):
    # Without size where indices are constants; with a size of more rows, and of fewer.
    indices = [indices_tensors(case.indices, index_dtype) for case in STITCH_CASES]
    arrays = [[to_numpy(i) for i in list_] for list_ in indices]
    rows = [max((int(a.max()) + 1 for a in list_ if a.size), default=0) for list_ in arrays]
    data = [
        [random_tensor(rng, tf.float32, (*i.shape, *case.constant)) for i in list_]
        for case, list_ in zip(STITCH_CASES, indices, strict=True)
    ]

    def function(indices_of_run_time, data):
        results = []
        for known, unknown, values, n in zip(arrays, indices_of_run_time, data, rows, strict=True):
            known = [tf.constant(array, index_dtype) for array in known]
            results.append(gs.dynamic_stitch(known, values))
            for size in (n + 2, n // 2, 0):
                results.append(gs.parallel_dynamic_stitch(unknown, values, size=size))
        return results

    actual = iter(compiled(function)(indices, data))
    for case, index, values, n in zip(STITCH_CASES, arrays, data, rows, strict=True):
        values = [v.numpy() for v in values]
        for size in (None, n + 2, n // 2, 0):
            assert_same(next(actual), merged_oracle(index, values, size), (case, size))


def test_gradient_of_stitch(rng):
    cases = STITCH_CASES
    indices = [indices_tensors(case.indices, tf.int32) for case in cases]
    arrays = [[to_numpy(i) for i in list_] for list_ in indices]
    sizes = [max((int(a.max()) + 1 for a in list_ if a.size), default=0) for list_ in arrays]
    sizes = [max(n + 1 - 2 * (k % 2), 0) for k, n in enumerate(sizes)]
    data = [
        [random_tensor(rng, tf.float32, (*i.shape, *case.constant)) for i in list_]
        for case, list_ in zip(cases, indices, strict=True)
    ]
    upstream = [
        tf.constant(random_values(rng, (n, *case.constant), "float32"))
        for case, n in zip(cases, sizes, strict=True)
    ]

    def function(indices, data, upstream):
        results = []
        for index, values, up, n in zip(indices, data, upstream, sizes, strict=True):
            with tf.GradientTape() as tape:
                tape.watch(values)
                merged = gs.dynamic_stitch(index, values, size=n, bad_indices_policy="IGNORE")
            results.append(tape.gradient(merged, values, output_gradients=up))
        return results

    actual = compiled(function)(indices, data, upstream)
    for case, found, up, index in zip(cases, actual, upstream, arrays, strict=True):
        for a, r in zip(found, stitch_grad_oracle(up, index), strict=True):
            assert_same(a, r, case)


def test_stitch_of_every_dtype(rng):
    indices = [tf.constant([2, 0, 2]), tf.constant([2, 4])]
    data = [[random_tensor(rng, d, (3, 2)), random_tensor(rng, d, (2, 2))] for d in XLA_DTYPES]

    def function(indices, data):
        return [gs.dynamic_stitch(indices, values, size=5) for values in data]

    assert_all_same(compiled(function)(indices, data), function(indices, data), XLA_DTYPES)


def test_bad_indices_of_a_stitch_are_dropped():
    data = [tf.constant([1.0, 2.0, 3.0]), tf.constant([4.0])]
    for dtype in (tf.int32, tf.int64):
        indices = [
            tf.constant([-1, dtype.max, 1], dtype),
            tf.constant([dtype.min], dtype),
        ]
        for policy in ("DEFAULT", "IGNORE"):
            actual = compiled(
                lambda i, d, o=policy: gs.dynamic_stitch(i, d, size=4, bad_indices_policy=o)
            )(indices, data)
            np.testing.assert_array_equal(actual, [0, 3, 0, 0])


def test_a_stitch_of_unknown_indices_needs_a_size():
    with pytest.raises(tf.errors.UnimplementedError, match=r"indices\[1\] is not known.*size="):
        compiled(lambda i, d: gs.dynamic_stitch([[0, 1], i], [d, d]))(
            tf.constant([1, 2]), tf.constant([3.0, 4.0])
        )


def test_a_bad_constant_index_of_a_stitch():
    # Known when XLA compiles, and not before.
    stitch = tf.function(
        lambda d: gs.dynamic_stitch([tf.stack([0, -tf.size(d) - 1])], [d]),
        input_signature=[tf.TensorSpec([None])],
        jit_compile=True,
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"indices\[0\]\[1\] = -3 is not in"):
        stitch(tf.constant([3.0, 4.0]))


def test_wrong_sizes_of_a_stitch():
    stitch = compiled(lambda i, d, n: gs.dynamic_stitch([i], [d], size=n))
    arguments = tf.constant([0, 1]), tf.constant([3.0, 4.0])
    with pytest.raises(tf.errors.InvalidArgumentError, match="must not be negative"):
        stitch(*arguments, tf.constant(-1))


def test_stitch_has_one_scatter_and_one_gather():
    indices = [tf.zeros([4], tf.int32), tf.zeros([2, 3], tf.int32)]
    data = [tf.zeros([4, 5]), tf.zeros([2, 3, 5])]
    found = instructions(lambda i, d: gs.dynamic_stitch(i, d, size=9), indices, data)
    assert (found["scatter"], found["gather"], found["transpose"]) == (1, 1, 0), found
    found = instructions(
        lambda d: gs.dynamic_stitch([[0, 1, 2, 2], [[4, 3, 2], [1, 1, 0]]], d), data
    )
    assert (found["scatter"], found["gather"], found["transpose"]) == (0, 1, 0), found
    # The winners' map, who won, and the rows of each input.
    found = instructions(
        lambda g, i: gs.raw_ops.ParallelDynamicStitchGrad(grad=g, indices=i),
        tf.zeros([9, 5]),
        indices,
    )
    assert (found["scatter"], found["gather"], found["transpose"]) == (1, 3, 0), found


# ---- Sizes that are known at run time only -----------------------------------


def test_routing_by_dynamic_partition(rng):
    # tensorflow#105143: the parts have bounded sizes, the result has a known one.
    tokens = tf.constant(random_values(rng, (8, 3), "float32"))
    scale = tf.Variable([1.0, 10.0])

    def route(tokens, experts):
        parts = tf.dynamic_partition(tokens, experts, 2)
        places = tf.dynamic_partition(tf.range(8), experts, 2)
        return gs.dynamic_stitch(places, [p * scale[m] for m, p in enumerate(parts)], size=8)

    def step(tokens, experts):
        with tf.GradientTape() as tape:
            tape.watch(tokens)
            merged = route(tokens, experts)
            loss = tf.reduce_sum(merged**2)
        return merged, tape.gradient(loss, tokens)

    program = compiled(step)
    for experts in ([0, 1, 0, 1, 1, 0, 0, 1], [0] * 8, [1] * 8, [0] * 7 + [1]):
        merged, gradient = program(tokens, tf.constant(experts))
        factor = np.where(np.array(experts)[:, None] == 0, np.float32(1), np.float32(10))
        np.testing.assert_array_equal(merged, tokens * factor)
        np.testing.assert_allclose(gradient, 2 * tokens * factor**2, rtol=1e-6)


@pytest.mark.parametrize("policy", POLICIES)
def test_gather_at_as_many_indices_as_a_mask_leaves(policy, rng):
    table = tf.constant(rng.integers(-4, 5, (5, 3)), tf.float32)
    ids = tf.constant([4, 7, -1, 0, 4, 2])

    def function(table, ids, mask, policy):
        ids = tf.boolean_mask(ids, mask)
        with tf.GradientTape() as tape:
            tape.watch(table)
            rows = gs.gather(table, ids, bad_indices_policy=policy, gradient="dense")
            loss = tf.reduce_sum(rows**2)
        return rows, tape.gradient(loss, table)

    program = compiled(lambda t, i, m: function(t, i, m, policy))
    for mask in ([1, 1, 1, 1, 1, 1], [0, 1, 1, 0, 1, 0], [0] * 6):
        mask = tf.constant(np.array(mask, bool))
        for a, r in zip(
            program(table, ids, mask), function(table, ids, mask, meaning(policy)), strict=True
        ):
            assert_same(a, r, (policy, mask))


# ---- Inside other programs ---------------------------------------------------


def test_loops_branches_and_vectorised_loops(rng):
    table = tf.constant(random_values(rng, (5, 3), "float32"))
    ids = tf.constant([[4, 7], [-1, 0], [2, 2]])

    def lookup(row):
        return gs.gather(table, row, bad_indices_policy="IGNORE")

    def function(ids):
        def body(k, total):
            return k + 1, total + lookup(ids[k])

        _, looped = tf.while_loop(
            lambda k, _: k < 3, body, (0, tf.zeros([2, 3])), maximum_iterations=3
        )
        branched = tf.cond(ids[0, 0] > 3, lambda: lookup(ids[1]), lambda: gs.gather(table, ids[2]))
        mapped = tf.vectorized_map(lookup, ids)
        stitched = tf.vectorized_map(
            lambda row: gs.dynamic_stitch([row], [tf.constant([1.0, 2.0])], size=5), ids[1:]
        )
        return looped, branched, mapped, stitched

    actual = compiled(function)(ids)
    rows = lookup(ids)
    assert_same(actual[0], rows[0] + rows[1] + rows[2])
    assert_same(actual[1], rows[1])
    assert_same(actual[2], rows)
    np.testing.assert_array_equal(actual[3], [[2, 0, 0, 0, 0], [0, 0, 2, 0, 0]])


# ---- Processes of their own --------------------------------------------------


def child(what, folder, **flags):
    done = subprocess.run(
        [sys.executable, str(pathlib.Path(__file__).with_name("xla_child.py")), what, str(folder)],
        env={**os.environ, **flags},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("what", ["loaded_first", "loaded_last"])
def test_loaded_before_and_after_the_first_use_of_xla(what, tmp_path):
    merged, gradient, of_variable = child(what, tmp_path)
    assert merged == [[2, 4], [0, 0], [10, 12], [0, 0]]
    # Each row once in the stitch of known indices, those of the ids once more.
    assert gradient == [[2, 2], [1, 1], [2, 2]]
    assert of_variable == [[1, 1], [0, 0], [1, 1]]


def test_one_compilation_for_all_values(tmp_path):
    flags = f"--xla_dump_to={tmp_path} --xla_dump_hlo_as_text"
    report = child("compilations", tmp_path, XLA_FLAGS=flags)
    stock = report.pop("stock_stitch")
    two_sizes = report.pop("two_sizes")
    assert set(report.values()) == {1}, report
    assert two_sizes == 2
    # What would be counted if indices were constants.
    assert stock == 5


def test_auto_clustering(tmp_path):
    flags = "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit --tf_xla_min_cluster_size=1"
    report = child("clusters", tmp_path, TF_XLA_FLAGS=flags)
    rows = [[11, 13], [3, 5]]
    merged = [[7, 9], [1, 1], [3, 5]]
    right = {
        "DEFAULT": rows,
        "IGNORE": rows,
        "ERROR": rows,
        "gradient": [[5, 9], [1, 1], [21, 25]],
        "stitch": merged,
        "sized": merged,
    }
    for name, (results, clusters, _, _) in report.items():
        assert results == [right[name]] * 2, name
        assert clusters == 1, name
    # Compiled: a bad index is what it is under XLA.
    assert report["DEFAULT"][3] == report["IGNORE"][3] == [[11, 13], [1, 1]]
    assert report["sized"][3] == [[1, 1], [1, 1], [3, 5]]
    # Fallen back: it is what it is on a CPU.
    for name in ("ERROR", "gradient"):
        kind, text = report[name][2]
        assert kind == "InvalidArgumentError"
        assert "indices[1] = 9 is not in [0, 3)" in text
    assert len(report["stitch"][3]) == 10


def test_the_example_trains_as_its_eager_run_does():
    path = pathlib.Path(__file__).parents[2] / "examples/compiled_experts.py"
    command = [sys.executable, str(path), "--steps", "20"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    # It exits with an error where the losses of the two differ by more than rounding.
    assert "1 compiled program" in done.stdout
