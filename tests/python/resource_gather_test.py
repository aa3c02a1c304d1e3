# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Gathers from variables: values, gradients, errors, threads, memory, devices, and who reads."""

import json
import pathlib
import re
import subprocess
import sys
import threading
import time

import gather_stitch as gs
import numpy as np
import pytest
import tensorflow as tf
from cases import DTYPES, INDEX_DTYPES, POLICIES
from checks import assert_same, gather_oracle, only_ours, only_stock, types_of_ops
from gather_stitch.__main__ import diagnosis
from gradients_common import (
    GATHER_CASES,
    as_numpy,
    assert_same_gradient,
    case_id,
    is_row_gather,
    op_types,
    output_shape,
    random_indices,
    random_values,
    seeded,
)
from tensorflow.python.framework import convert_to_constants
from tensorflow.python.keras.mixed_precision import autocast_variable
from tensorflow.python.ops import resource_variable_ops

CHILD = pathlib.Path(__file__).with_name("variables_child.py")
MODES = ("eager", "function", "unknown shapes")
RESOURCE_GATHER = "GatherStitch>ResourceGather"

# TensorFlow has no kernel that assigns them to a variable.
NOT_IN_VARIABLES = (
    "qint16",
    "quint16",
    "float8_e5m2fnuz",
    "float8_e4m3fnuz",
    "float8_e4m3b11fnuz",
)


def table(rows=4, columns=3, dtype=np.float32, **options):
    return tf.Variable(np.arange(rows * columns, dtype=dtype).reshape(rows, columns), **options)


def call(mode, function, *arguments):
    """Runs `function` eagerly, or traced with arguments of known or unknown shape."""
    if mode == "eager":
        return function(*arguments)
    signature = [
        tf.TensorSpec(None if mode == "unknown shapes" else a.shape, a.dtype) for a in arguments
    ]
    return tf.function(function, input_signature=signature, autograph=False)(*arguments)


def variable_of(array, mode):
    unknown = tf.TensorShape(None) if mode == "unknown shapes" else None
    return tf.Variable(array, shape=unknown)


def run_child(*arguments):
    done = subprocess.run(
        [sys.executable, str(CHILD), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


# ---- Values ------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("case", GATHER_CASES, ids=case_id)
def test_rows_are_those_of_the_equation(case, policy, mode):
    params_shape, indices_shape, axis, batch_dims = case
    rng = seeded(case, policy, mode)
    array = random_values(rng, params_shape, "float32")
    indices = random_indices(rng, indices_shape, params_shape[axis], policy)
    variable = variable_of(array, mode)

    def lookup(indices):
        return gs.gather(
            variable, indices, axis=axis, batch_dims=batch_dims, bad_indices_policy=policy
        )

    with only_ours("ResourceGather") as _, types_of_ops() as types:
        result = call(mode, lookup, tf.constant(indices))
    assert types["ReadVariableOp"] == 0
    assert_same(result, gather_oracle(array, indices, axis, batch_dims, policy))


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_every_dtype(dtype):
    rng = seeded(dtype.name)
    if dtype == tf.string:
        array = np.array([[b"a", b""], [b"long enough to be allocated", b"b"]] * 3, object)
    else:
        array = rng.integers(0, 2, (6, 2)).astype(dtype.as_numpy_dtype)
    value = tf.constant(array, dtype)
    handle = tf.raw_ops.VarHandleOp(dtype=dtype, shape=[6, 2], shared_name=f"of_{dtype.name}")
    if dtype.name in NOT_IN_VARIABLES:
        with pytest.raises(tf.errors.InvalidArgumentError, match="No OpKernel"):
            tf.raw_ops.AssignVariableOp(resource=handle, value=value)
        return
    tf.raw_ops.AssignVariableOp(resource=handle, value=value)
    options = {"indices": [4, 9, 1], "axis": 0, "bad_indices_policy": "IGNORE"}
    rows = gs.raw_ops.ResourceGather(resource=handle, dtype=dtype, **options)
    assert rows.dtype == dtype
    assert_same(rows, gs.raw_ops.GatherV2(params=value, **options))
    tf.raw_ops.DestroyResourceOp(resource=handle)


@pytest.mark.parametrize("dtype", INDEX_DTYPES, ids=lambda d: d.name)
def test_every_index_dtype(dtype):
    variable = table(200, 2)
    ids = tf.constant([[199, 0], [100, 127]], tf.int64)
    if dtype == tf.int8:
        ids = tf.minimum(ids, 127)
    expected = variable.numpy()[ids.numpy()]
    with only_ours("ResourceGather"):
        assert_same(gs.gather(variable, tf.cast(ids, dtype)), expected)
    axis = tf.constant(-2, tf.int64)
    assert_same(gs.gather(variable, tf.cast(ids, dtype), axis=axis), expected)


@pytest.mark.parametrize("dtype", ["string", "float32"])
def test_variable_of_strings_or_numbers_in_a_model(dtype):
    values = [["a", "b"], ["c", "d"], ["e", "f"]] if dtype == "string" else np.ones([3, 2])
    variable = tf.Variable(tf.constant(values, dtype), trainable=False)
    lookup = tf.function(lambda ids: gs.gather(variable, ids, bad_indices_policy="IGNORE"))
    expected = tf.gather(variable, [2, 0])
    assert_same(lookup(tf.constant([2, 0])), expected)
    variable[0].assign(variable[1])
    assert_same(lookup(tf.constant([0, -1]))[0], variable[1])
    assert_same(lookup(tf.constant([0, -1]))[1], tf.zeros([2], dtype))


def test_a_variable_of_tensor_lists():
    no_dims = tf.zeros([0], tf.int32)
    from_tensor = tf.raw_ops.TensorListFromTensor
    lists = [from_tensor(tensor=row, element_shape=no_dims) for row in ([1.0, 2.0], [3.0, 4.0])]
    variable = tf.Variable(tf.stack(lists))
    chosen = gs.gather(variable, [1, 5], bad_indices_policy="IGNORE")
    numbers = tf.raw_ops.TensorListStack(
        input_handle=chosen[0], element_shape=no_dims, element_dtype=tf.float32
    )
    assert_same(numbers, np.array([3, 4], np.float32))


def test_static_shapes():
    variable = tf.Variable(np.zeros([2, 5, 3], np.float32))
    unknown = tf.Variable(np.zeros([2, 5, 3], np.float32), shape=[None, 5, None])

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.int32), tf.TensorSpec([], tf.int32)])
    def shapes(ids, axis):
        assert gs.gather(variable, ids).shape.as_list() == [None, 4, 5, 3]
        assert gs.gather(variable, ids, axis=-1).shape.as_list() == [2, 5, None, 4]
        assert gs.gather(variable, ids, axis=1, batch_dims=1).shape.as_list() == [2, 4, 3]
        assert gs.gather(unknown, ids, axis=1).shape.as_list() == [None, None, 4, None]
        assert gs.gather(variable, ids, axis=axis).shape.rank == 4
        return 0

    shapes(tf.zeros([2, 4], tf.int32), 0)


def test_named_as_stock_names_it():
    variable = table()
    with tf.Graph().as_default():
        graph_variable = tf.compat.v1.get_variable("v", [3, 2], use_resource=True)
        assert gs.gather(graph_variable, [0]).op.name == "Gather"
        assert gs.gather(graph_variable, [0], name="mine").op.name == "mine"
    assert gs.batch_gather(variable, [[0], [1], [0], [2]]).numpy().tolist() == [[0], [4], [6], [11]]


# ---- What is a variable ------------------------------------------------------


def test_reference_variables_are_read_as_tensors():
    with tf.Graph().as_default():
        variable = tf.compat.v1.get_variable(
            "v", initializer=np.arange(6.0).reshape(3, 2), use_resource=False
        )
        rows = gs.gather(variable, [2, 0])
        assert rows.op.type == "GatherStitch>GatherV2"
        gradient = tf.gradients(rows, variable)[0]
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            assert session.run(rows).tolist() == [[4, 5], [0, 1]]
            assert session.run(gradient).indices.tolist() == [2, 0]


def test_a_session():
    with tf.Graph().as_default():
        variable = tf.compat.v1.get_variable(
            "v", initializer=np.arange(6.0).reshape(3, 2), use_resource=True
        )
        rows = gs.gather(variable, [2, 0])
        assert rows.op.type == RESOURCE_GATHER
        gradient = tf.gradients(rows, variable)[0]
        # What an assignment returns stands for the variable after it.
        after = gs.gather(variable.assign_add(tf.ones([3, 2], tf.float64)), [2])
        with tf.compat.v1.Session() as session:
            with pytest.raises(tf.errors.FailedPreconditionError, match="variable v "):
                session.run(rows)
            session.run(tf.compat.v1.global_variables_initializer())
            assert session.run(rows).tolist() == [[4, 5], [0, 1]]
            assert session.run(gradient).indices.tolist() == [2, 0]
            assert session.run(after).tolist() == [[5, 6]]


def test_sharded_variables_go_to_stock():
    from tensorflow.python.distribute import sharded_variable

    variable = sharded_variable.ShardedVariable([tf.Variable([[1.0]]), tf.Variable([[2.0]])])
    with only_stock("GatherV2"):
        assert gs.gather(variable, [1, 0]).numpy().tolist() == [[2], [1]]
    with pytest.raises(ValueError, match="ShardedVariable is passed on"):
        gs.gather(variable, [1, 0], bad_indices_policy="IGNORE")


@pytest.mark.parametrize("policy", ["DEFAULT", "WRAP"])
def test_auto_cast_variables_cast_rows(policy):
    variable = autocast_variable.create_autocast_variable(table())
    assert gs.gather(variable, [1]).dtype == tf.float32
    casting = autocast_variable.enable_auto_cast_variables(tf.float16)
    with casting, only_ours("ResourceGather"), types_of_ops() as types:
        rows = gs.gather(variable, [1], bad_indices_policy=policy)
    assert types["ReadVariableOp"] == 0
    assert_same(rows, np.array([[3, 4, 5]], np.float16))


def test_variables_as_indices():
    rows = tf.Variable([2, 0])
    variable = table()
    for lookup in (gs.gather, tf.function(gs.gather)):
        assert_same(lookup(variable, rows), variable.numpy()[[2, 0]])


# ---- Who reads ---------------------------------------------------------------


def test_a_gather_leaves_the_variable_as_it_is():
    # Stock's op turns the variable into one of which every read is a copy.
    def address(tensor):
        return tensor._numpy_internal().__array_interface__["data"][0]

    def reads_share_memory(variable):
        first, second = variable.value(), variable.value()
        return address(first) == address(second)

    variable = table(1000, 16)
    assert reads_share_memory(variable)
    with tf.GradientTape() as tape:
        rows = gs.gather(variable, [1, 2])
    tape.gradient(rows, variable)
    assert reads_share_memory(variable)
    tf.gather(variable, [1])
    assert not reads_share_memory(variable)


def test_the_tape_sees_trainable_variables():
    variable, frozen = table(), table(trainable=False)
    with tf.GradientTape() as tape:
        gs.gather(variable, [1])
        gs.gather(frozen, [1])
    assert [v.ref() for v in tape.watched_variables()] == [variable.ref()]


def test_gathers_have_no_order_and_assignments_do():
    variable = table()

    @tf.function(autograph=False)
    def model():
        first, second = gs.gather(variable, [0]), gs.gather(variable, [1])
        variable.assign_add(tf.ones([4, 3]))
        return first + second, gs.gather(variable, [0])

    graph = model.get_concrete_function().graph
    gathers = [op for op in graph.get_operations() if op.type == RESOURCE_GATHER]
    (assignment,) = (op for op in graph.get_operations() if op.type == "AssignAddVariableOp")
    assert [op.control_inputs for op in gathers] == [[], [], [assignment]]
    assert set(assignment.control_inputs) == set(gathers[:2])
    before, after = model()
    assert before.numpy().tolist() == [[3, 5, 7]]
    assert after.numpy().tolist() == [[1, 2, 3]]


def test_read_only_in_functions_that_functions_call():
    variable = table()

    @tf.function(autograph=False)
    def lookup(ids):
        return gs.gather(variable, ids)

    @tf.function(autograph=False)
    def model():
        return lookup(tf.constant([0])) + lookup(tf.constant([1]))

    calls = [op for op in model.get_concrete_function().graph.get_operations() if "Call" in op.type]
    assert len(calls) == 2
    assert [op.control_inputs for op in calls] == [[], []]


def test_listed():
    assert "ResourceGather" in gs.raw_ops.__all__
    text = diagnosis()
    assert "ops (7)" in text
    assert re.search(rf"{RESOURCE_GATHER} +CPU: 1", text)


# ---- Gradients ---------------------------------------------------------------


def has_gradient(case, gradient, mode):
    """Whether slices, where they are asked for, are possible and known to be."""
    *_, axis, batch_dims = case
    is_spelled_from_front = axis >= 0 and batch_dims >= 0
    return gradient != "sparse" or (
        is_row_gather(*case) and (is_spelled_from_front or mode != "unknown shapes")
    )


@pytest.mark.parametrize("policy", ["DEFAULT", "IGNORE", "WRAP"])
@pytest.mark.parametrize(
    ("case", "gradient", "mode"),
    [
        pytest.param(case, gradient, mode, id=f"{case_id(case)}-{gradient}-{mode}")
        for case in GATHER_CASES
        for gradient in ("auto", "dense", "sparse")
        for mode in MODES
        if has_gradient(case, gradient, mode)
    ],
)
def test_gradient_is_that_of_a_tensor(case, policy, gradient, mode):
    params_shape, indices_shape, axis, batch_dims = case
    rng = seeded(case, policy, gradient, mode)
    array = random_values(rng, params_shape, "float32")
    indices = tf.constant(random_indices(rng, indices_shape, params_shape[axis], policy))
    upstream = tf.constant(random_values(rng, output_shape(*case), "float32"))
    options = {
        "axis": axis,
        "batch_dims": batch_dims,
        "bad_indices_policy": policy,
        "gradient": gradient,
    }
    variable = variable_of(array, mode)

    def of_variable(indices, upstream):
        with tf.GradientTape() as tape:
            rows = gs.gather(variable, indices, **options)
        return tape.gradient(rows, variable, output_gradients=upstream)

    def of_tensor(params, indices, upstream):
        with tf.GradientTape() as tape:
            tape.watch(params)
            rows = gs.gather(params, indices, **options)
        return tape.gradient(rows, params, output_gradients=upstream)

    with types_of_ops() as types:
        actual = call(mode, of_variable, indices, upstream)
    assert types["ReadVariableOp"] == 0
    expected = call(mode, of_tensor, tf.constant(array), indices, upstream)
    assert_same_gradient(actual, expected)
    if mode != "unknown shapes" and is_row_gather(*case):
        assert isinstance(actual, tf.IndexedSlices) == (gradient != "dense")


def test_gradient_with_batch_dims_where_stock_is_wrong():
    # stock: [[3], [0], [0]]
    variable = tf.Variable([[1.0], [2.0], [3.0]])
    with tf.GradientTape() as tape:
        rows = gs.gather(variable, [[0], [0], [0]], axis=1, batch_dims=1)
    assert tape.gradient(rows, variable).numpy().tolist() == [[1], [1], [1]]


@pytest.mark.parametrize("gradient", ["auto", "dense", "sparse"])
@pytest.mark.parametrize("in_graph", [False, True], ids=["eager", "function"])
def test_second_order(in_graph, gradient):
    variable = table(4, 2)
    variable.assign_add(tf.ones([4, 2]))
    ids = tf.constant([1, 3, 1])

    def hessian_times_ones():
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                loss = tf.reduce_sum(gs.gather(variable, ids, gradient=gradient) ** 3)
            first = tf.convert_to_tensor(inner.gradient(loss, variable))
        return tf.convert_to_tensor(outer.gradient(first, variable))

    result = (tf.function(hessian_times_ones) if in_graph else hessian_times_ones)()
    # d/dv of 3 v^2, as often as the row is named.
    expected = 6 * variable.numpy() * np.array([[0], [2], [0], [1]], np.float32)
    assert_same(result, expected)


@pytest.mark.parametrize("gradient", ["auto", "dense", "sparse"])
@pytest.mark.parametrize("in_graph", [False, True], ids=["eager", "function"])
def test_forward_mode(in_graph, gradient):
    variable = table()
    tangent = tf.constant(seeded("tangent").standard_normal((4, 3)).astype(np.float32))
    ids = tf.constant([[2, -1], [2, 0]])

    def jvp():
        with tf.autodiff.ForwardAccumulator(variable, tangent) as accumulator:
            rows = gs.gather(variable, ids, bad_indices_policy="IGNORE", gradient=gradient)
            loss = rows * rows
        return accumulator.jvp(loss)

    with types_of_ops() as types:
        result = (tf.function(jvp) if in_graph else jvp)()
    assert types["ReadVariableOp"] == 0
    expected = 2 * gather_oracle(variable.numpy() * tangent.numpy(), ids.numpy(), policy="IGNORE")
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_forward_mode_along_another_axis():
    variable = tf.Variable(np.arange(12, dtype=np.float32).reshape(2, 2, 3))
    tangent = tf.constant(np.arange(12, 24, dtype=np.float32).reshape(2, 2, 3))
    with tf.autodiff.ForwardAccumulator(variable, tangent) as accumulator:
        rows = gs.gather(variable, [[2], [0]], axis=-1, batch_dims=1)
    assert_same(accumulator.jvp(rows), gs.gather(tangent, [[2], [0]], axis=-1, batch_dims=1))


def test_forward_over_reverse():
    variable = table()
    tangent = tf.ones([4, 3])
    with tf.autodiff.ForwardAccumulator(variable, tangent) as accumulator:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(gs.gather(variable, [1, 1, 2]) ** 3)
        gradient = tf.convert_to_tensor(tape.gradient(loss, variable))
    expected = 6 * variable.numpy() * np.array([[0], [2], [1], [0]], np.float32)
    assert_same(as_numpy(accumulator.jvp(gradient)), expected)


@pytest.mark.parametrize("axis_and_batch_dims", [(0, 0), (1, 0), (-1, 1), (1, -1)])
def test_vectorised(axis_and_batch_dims):
    axis, batch_dims = axis_and_batch_dims
    variable = table(4, 3)
    ids = tf.constant(seeded(axis_and_batch_dims).integers(0, 3, (5, 4, 2)), tf.int32)

    def lookup(one):
        return gs.gather(variable, one, axis=axis, batch_dims=batch_dims)

    @tf.function(autograph=False)
    def vectorized(ids):
        return tf.vectorized_map(lookup, ids, fallback_to_while_loop=False)

    assert_same(vectorized(ids), np.stack([lookup(one) for one in ids]))
    types = op_types(vectorized.get_concrete_function(ids))
    assert RESOURCE_GATHER in types
    assert "ReadVariableOp" not in types


def test_vectorised_with_the_same_indices_and_unknown_ranks():
    variable = variable_of(np.arange(12, dtype=np.float32).reshape(4, 3), "unknown shapes")

    def lookup(one):
        same = gs.gather(variable, tf.constant([3, 3]), axis=-2)
        return one * same + gs.gather(variable, tf.cast([one], tf.int32), axis=1)[:2]

    ids = tf.constant([2.0, 0.0])
    actual = tf.vectorized_map(lookup, ids, fallback_to_while_loop=False)
    assert_same(actual, np.stack([lookup(one) for one in ids]))


@pytest.mark.parametrize("gradient", ["auto", "dense", "sparse"])
def test_jacobian(gradient):
    variable = table()

    @tf.function(autograph=False)
    def jacobian():
        with tf.GradientTape() as tape:
            rows = gs.gather(variable, [3, 0], gradient=gradient) ** 2
        return tape.jacobian(rows, variable, experimental_use_pfor=True)

    with tf.GradientTape(persistent=True) as tape:
        value = tf.identity(variable)
        tape.watch(value)
        rows = tf.gather(value, [3, 0]) ** 2
    assert_same(as_numpy(jacobian()), tape.jacobian(rows, value, experimental_use_pfor=False))


@pytest.mark.parametrize("index_dtype", [tf.int32, tf.int64])
def test_in_loops_and_branches(index_dtype):
    def gradient(gather):
        variable = table()

        @tf.function
        def model(count, ids):
            with tf.GradientTape() as tape:
                total = tf.zeros([3])
                for i in tf.range(count):
                    total += gather(variable, [i])[0] * tf.cast(i + 1, tf.float32)
                if count > 2:
                    total += gather(variable, ids)[0]
                loss = tf.reduce_sum(total**2)
            return tf.convert_to_tensor(tape.gradient(loss, variable))

        return model(tf.constant(3), tf.constant([1], index_dtype))

    assert_same(gradient(gs.gather), gradient(tf.gather))


@pytest.mark.parametrize("index_dtype", [tf.int32, tf.int64])
def test_tensors_in_branches(index_dtype):
    # tf.cond pairs the slices of one branch with those that stock makes in the other.
    def gradient(gather):
        @tf.function
        def model(count, x, ids):
            with tf.GradientTape() as tape:
                tape.watch(x)
                total = tf.zeros([3])
                if count > 2:
                    total += gather(x, ids)[0]
                loss = tf.reduce_sum(total**2)
            return tf.convert_to_tensor(tape.gradient(loss, x))

        x = tf.constant(table().numpy())
        return model(tf.constant(3), x, tf.constant([1], index_dtype))

    assert_same(gradient(gs.gather), gradient(tf.gather))


def test_slices_of_our_own_and_of_stock_add_up():
    variable = table()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(gs.gather(variable, [1])) + tf.reduce_sum(tf.gather(variable, [1, 2]))
    assert tf.convert_to_tensor(tape.gradient(loss, variable)).numpy()[:, 0].tolist() == [
        0,
        2,
        1,
        0,
    ]


# ---- Errors ------------------------------------------------------------------


def gather_handle(handle, dtype=tf.float32, indices=(0,), axis=0, **attrs):
    return gs.raw_ops.ResourceGather(
        resource=handle, indices=list(indices), axis=axis, dtype=dtype, **attrs
    )


def test_wrong_dtype_names_both():
    variable = table(name="embedding")
    words = r"wrong dtype\. Expected half got float"
    with pytest.raises(tf.errors.InvalidArgumentError, match=words + r".*embedding"):
        gather_handle(variable.handle, tf.half)
    with pytest.raises(ValueError, match=words):
        tf.function(lambda: gather_handle(variable.handle, tf.half), autograph=False)()
    # A handle that says nothing about its variable.
    unknown = tf.raw_ops.PlaceholderWithDefault(input=variable.handle, shape=[])
    with pytest.raises(tf.errors.InvalidArgumentError, match=words + r".*embedding"):
        gather_handle(unknown, tf.half)


def test_handles_that_are_no_variable():
    lookup_table = tf.raw_ops.MutableHashTableV2(
        key_dtype=tf.int64, value_dtype=tf.float32, shared_name="a_table"
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"a_table.*tensorflow::Var"):
        gather_handle(lookup_table)
    handles = tf.stack([table().handle])
    with pytest.raises(tf.errors.InvalidArgumentError, match="resource must be scalar"):
        gather_handle(handles)
    # The runtime looks at handles before an op does.
    words = "Empty resource handle|resource must be scalar"
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        gather_handle(handles[:0])

    @tf.function(input_signature=[tf.TensorSpec(None, tf.resource)])
    def of_any_shape(handle):
        return gather_handle(handle)

    for handle in (handles, handles[:0]):
        with pytest.raises(tf.errors.InvalidArgumentError, match=words):
            of_any_shape(handle)
    with pytest.raises(ValueError, match="resource must be scalar"):
        tf.function(lambda: gather_handle(handles), autograph=False)()


def test_uninitialised_and_deleted_variables_are_named():
    handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[3, 2], shared_name="never_assigned")
    with pytest.raises(tf.errors.FailedPreconditionError, match="never_assigned"):
        gather_handle(handle)
    with pytest.raises(tf.errors.FailedPreconditionError, match="never_assigned"):
        tf.function(lambda: gather_handle(handle), autograph=False)()
    tf.raw_ops.AssignVariableOp(resource=handle, value=tf.ones([3, 2]))
    assert gather_handle(handle).numpy().tolist() == [[1, 1]]
    tf.raw_ops.DestroyResourceOp(resource=handle)
    with pytest.raises(tf.errors.FailedPreconditionError, match=r"never_assigned.*deleted"):
        gather_handle(handle)
    with tf.init_scope():
        empty = resource_variable_ops.UninitializedVariable(
            dtype=tf.float32, shape=[3, 2], name="still_empty"
        )
    with pytest.raises(tf.errors.FailedPreconditionError, match="still_empty"):
        gs.gather(empty, [0])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"indices": [1, 3, 4, 0, 0], "batch_dims": 1},
            r"batch_dims \(1\) must be less than or",
        ),
        ({"indices": [0], "axis": 2}, r"axis = 2 is not in \[-2, 2\)"),
        ({"indices": [0], "axis": -(2**63)}, r"axis = -9223372036854775808 is not in \[-2, 2\)"),
        ({"indices": [0], "batch_dims": -2}, r"batch_dims in the range \[-1, 1\], but got -2"),
        ({"indices": [0], "axis": 1, "batch_dims": 1}, r"params.shape\[0\]: 5 should be equal to"),
        ({"indices": [1, 5]}, r"indices\[1\] = 5 is not in \[0, 5\)"),
        ({"indices": [1, -1], "bad_indices_policy": "ERROR"}, r"indices\[1\] = -1 is not in"),
    ],
)
def test_mistakes_in_the_words_of_a_tensor(options, words, mode):
    variable = variable_of(np.zeros([5, 1], np.float32), mode)
    options = dict(options)
    axis = tf.constant(options.pop("axis", 0), tf.int64)
    ids = tf.constant(options.pop("indices"))
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match=words):
        call(mode, lambda ids: gs.gather(variable, ids, axis=axis, **options), ids)


def test_tensorflow_106497_batch_dims_above_axis():
    # stock: abort
    variable = tf.Variable([10.0, 20.0, 30.0, 40.0, 50.0])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"batch_dims \(1\) must be less than"):
        gather_handle(variable.handle, indices=[1, 3, 4], batch_dims=1)


def test_cve_2021_37653_empty_batches():
    # stock: a division by 0
    variable = tf.Variable(tf.zeros([0, 1]))
    words = r"params.shape\[0\]: 0 should be equal to indices.shape\[0\]: 1"
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        gather_handle(variable.handle, indices=[0], axis=1, batch_dims=1)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"batch_dims \(1\) must be less than"):
        gather_handle(variable.handle, indices=[0], batch_dims=1)
    ids = tf.zeros([0, 3], tf.int32)
    assert gs.gather(variable, ids, axis=1, batch_dims=1).shape == (0, 3)


def test_scalar_variables():
    with pytest.raises(tf.errors.InvalidArgumentError, match="at least 1 dimensional"):
        gs.gather(tf.Variable(1.0), [0])


def test_mistakes_that_python_sees():
    variable = table()
    with pytest.raises(TypeError, match="indices must be int8"):
        gs.gather(variable, [0.5])
    with pytest.raises(TypeError, match="an empty list has no dtype"):
        gs.gather(variable, [])
    with pytest.raises(TypeError, match="axis must be int32 or int64"):
        gs.gather(variable, [0], axis=0.5)
    with pytest.raises(ValueError, match="bad_indices_policy must be one of"):
        gs.gather(variable, [0], bad_indices_policy="DROP")
    with pytest.raises(ValueError, match='gradient="sparse" needs'):
        gs.gather(variable, [0], axis=1, gradient="sparse")


# ---- Threads -----------------------------------------------------------------


def run_beside(write, read, seconds=1.5):
    """Calls `write(i)` in a thread and `read()` in this one for a while; returns the counts."""
    stop = threading.Event()
    failures, writes = [], 0

    def keep_writing():
        nonlocal writes
        while not stop.is_set():
            try:
                write(writes)
            except Exception as error:
                failures.append(error)
                return
            writes += 1

    thread = threading.Thread(target=keep_writing)
    thread.start()
    reads = 0
    deadline = time.monotonic() + seconds
    try:
        while time.monotonic() < deadline or not (writes > 10 and reads > 10):
            assert time.monotonic() < deadline + 60, (writes, reads)
            assert not failures, failures
            read()
            reads += 1
    finally:
        stop.set()
        thread.join()
    assert not failures, failures
    return writes, reads


def test_assigned_to_by_another_thread():
    # Every assignment is of one number, so that rows of two are a torn read.
    variable = tf.Variable(tf.zeros([2000, 64]))
    ids = tf.random.uniform([5000], 0, 2000, tf.int32)
    values = [tf.fill([2000, 64], float(k)) for k in range(4)]
    seen = set()

    def read():
        rows = gs.gather(variable, ids).numpy()
        assert rows.min() == rows.max()
        seen.add(rows[0, 0])

    run_beside(lambda i: variable.assign(values[i % 4]), read)
    assert len(seen) > 1


def test_resized_by_another_thread():
    variable = tf.Variable(tf.zeros([1000, 64]), shape=[None, 64])
    ids = tf.range(999, -1, -1)
    values = [tf.zeros([1000, 64]), tf.ones([10, 64])]
    outcomes = set()

    def read():
        try:
            with tf.GradientTape() as tape:
                rows = gs.gather(variable, ids)
            outcomes.add(float(rows.numpy().max()))
            tape.gradient(rows, variable)
        except tf.errors.InvalidArgumentError as error:
            assert "indices[0] = 999 is not in [0, 10)" in str(error)
            outcomes.add("refused")

    run_beside(lambda i: variable.assign(values[i % 2]), read)
    assert outcomes == {0.0, "refused"}


def test_deleted_by_another_thread():
    handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[100, 64], shared_name="comes_and_goes")
    value = tf.ones([100, 64])
    outcomes = set()

    def write(_):
        tf.raw_ops.AssignVariableOp(resource=handle, value=value)
        tf.raw_ops.DestroyResourceOp(resource=handle)

    def read():
        try:
            rows = gather_handle(handle, indices=range(100))
            assert rows.numpy().min() == 1
            outcomes.add("read")
        except tf.errors.FailedPreconditionError as error:
            assert "comes_and_goes" in str(error)
            outcomes.add("deleted")

    run_beside(write, read)
    assert "deleted" in outcomes


def test_rows_updated_by_another_thread():
    # A sparse update holds the lock as well, and copies no table while rows are read.
    variable = tf.Variable(tf.zeros([1000, 8]))
    updates = tf.IndexedSlices(tf.ones([1000, 8]), tf.range(1000), [1000, 8])

    def read():
        rows = gs.gather(variable, tf.range(1000)).numpy()
        assert (rows == rows.round()).all()

    writes, _ = run_beside(lambda _: variable.scatter_add(updates), read, seconds=0.5)
    assert variable.numpy().min() == variable.numpy().max() == writes


# ---- Modules, checkpoints, saved models, stock ops ---------------------------


class Lookup(tf.Module):
    def __init__(self):
        super().__init__()
        self.table = tf.Variable(np.arange(12, dtype=np.float32).reshape(4, 3), name="table")
        self.names = tf.Variable(["a", "b", "c", "d"], trainable=False)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
    def __call__(self, ids):
        rows = gs.gather(self.table, ids, bad_indices_policy="WRAP", gradient="sparse")
        return rows, gs.gather(self.names, ids, bad_indices_policy="IGNORE")


def test_module_and_checkpoint(tmp_path):
    module = Lookup()
    assert {v.name for v in module.trainable_variables} == {"table:0"}
    module.table.assign_add(tf.ones([4, 3]))
    path = tf.train.Checkpoint(module).write(str(tmp_path / "checkpoint"))
    other = Lookup()
    other([0])
    tf.train.Checkpoint(other).read(path).assert_consumed()
    for actual, expected in zip(other([3, -1]), module([3, -1]), strict=True):
        assert_same(actual, expected)


def test_saved_model(tmp_path):
    module = Lookup()
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    with tf.GradientTape() as tape:
        rows, names = loaded(tf.constant([1, -1, 1], tf.int64))
    assert_same(rows, module.table.numpy()[[1, 3, 1]])
    assert names.numpy().tolist() == [b"b", b"", b"b"]
    gradient = tape.gradient(rows, loaded.table)
    assert gradient.indices.numpy().tolist() == [1, 3]
    assert gradient.values.numpy().tolist() == [[2, 2, 2], [1, 1, 1]]
    loaded.table.assign(tf.zeros([4, 3]))
    assert loaded([2])[0].numpy().tolist() == [[0, 0, 0]]


def test_in_a_tf_data_pipeline():
    variable = table()
    data = (
        tf.data.Dataset.range(4)
        .batch(2)
        .map(lambda ids: gs.gather(variable, ids), num_parallel_calls=2)
    )
    assert_same(np.concatenate([batch.numpy() for batch in data]), variable)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("is_known", [True, False], ids=["known", "unknown"])
def test_stock_ops_with_the_same_results(policy, is_known):
    variable = variable_of(table().numpy(), "function" if is_known else "unknown shapes")
    ids = [[2, 0], [3, 3]] if policy in ("DEFAULT", "ERROR") else [[2, -3], [9, 3]]

    @tf.function(autograph=False)
    def lookup():
        with tf.GradientTape() as tape:
            rows = gs.gather(variable, ids, bad_indices_policy=policy)
            loss = rows**2
        return rows, tf.convert_to_tensor(tape.gradient(loss, variable))

    expected = lookup()
    with gs.use_stock_ops():
        lowered = tf.function(lookup.python_function, autograph=False)
        graph = lowered.get_concrete_function()
    types = op_types(graph)
    assert not [name for name in types if name.startswith("GatherStitch>")]
    assert ("ResourceGather" in types) == (is_known or policy in ("DEFAULT", "ERROR"))
    assert ("ReadVariableOp" in types) != ("ResourceGather" in types)
    for actual, ours in zip(graph(), expected, strict=True):
        assert_same(actual, ours)


def test_stock_ops_along_another_axis():
    variable = table()
    with gs.use_stock_ops(), only_stock("GatherV2"):
        rows = gs.gather(variable, [[0], [2], [1], [0]], axis=1, batch_dims=1)
    assert rows.numpy().tolist() == [[0], [5], [7], [9]]


def test_stock_ops_freeze():
    variable = table()
    lookup = tf.function(
        lambda ids: gs.gather(variable, ids, bad_indices_policy="CLIP"),
        input_signature=[tf.TensorSpec([None], tf.int32)],
        autograph=False,
    )
    with gs.use_stock_ops():
        frozen = convert_to_constants.convert_variables_to_constants_v2(
            lookup.get_concrete_function()
        )
    assert not frozen.variables
    assert_same(frozen(tf.constant([-1, 2, 7]))[0], variable.numpy()[[0, 2, 3]])


# ---- Devices, memory ---------------------------------------------------------


def test_two_devices():
    report = run_child("devices")
    # An op that reads a table runs where the table is.
    assert set(report["placement"].values()) == {"CPU:1"}
    assert len(report["placement"]) == 3
    # Nothing about a device stays in a saved model.
    assert report["saved_devices"] == []
    assert report["restored"] == report["rows"]
    # A handle of another device is an error that names the variable and both devices.
    for word in ("elsewhere", "CPU:0", "CPU:1"):
        assert word in report["wrong_device"]


def test_mirrored_strategy():
    report = run_child("mirrored")
    # The graph of two replicas.
    assert report["types"].count(RESOURCE_GATHER) == 2
    assert "ReadVariableOp" not in report["types"]
    assert report["is_sparse"] == [True]
    assert report["values"] == report["expected"]
    assert report["outside"] == report["expected_outside"]


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "adam"])
def test_training_takes_memory_for_rows_alone(optimizer):
    # The batch has 1 MiB of rows. A copy of the larger table would add 512 MiB.
    growth = {}
    for mebibytes in (32, 512):
        report = run_child("memory", optimizer, mebibytes)
        # All that touches the table are gathers and updates of rows.
        assert report["whole_table_ops"] == []
        growth[mebibytes] = report["growth"]
    assert growth[512] < 32, growth
    assert growth[512] < growth[32] + 16, growth


def test_the_measure_of_memory_sees_a_copy():
    report = run_child("memory", "sgd_on_stock", 256)
    assert report["whole_table_ops"] == ["ReadVariableOp"]
    assert report["growth"] > 200


@pytest.mark.parametrize("optimizer", ["SGD", "Adagrad", "Adam"])
def test_training_with_a_keras_optimizer_adds_no_copy(optimizer):
    # Some optimizers of Keras compute with whole tables: what counts is what the layer adds.
    report = run_child("keras_memory", optimizer, 128)
    assert report["training"] < report["update_alone"] + 48, report
