# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""gather: exact equality with tf.gather, and with nested loops where stock has no answer."""

from __future__ import annotations

import math
import re

import cases
import gather_stitch as gs
import numpy as np
import pytest
import tensorflow as tf
from checks import (
    assert_all_same,
    assert_same,
    bytes_of,
    call_in_mode,
    gather_oracle,
    only_ours,
    only_stock,
    outcome,
    resolve,
    run_modes,
    to_numpy,
    types_of_ops,
)
from tensorflow.python.autograph.impl import api as autograph


def stock_gather(params, indices, axis, batch_dims):
    """What tf.gather gives, also for dtypes that it lacks, as a NumPy array of params' dtype."""
    indices = tf.cast(indices, tf.int64)
    if params.dtype not in cases.STOCK_GATHER_LACKS:
        return to_numpy(tf.gather(params, indices, axis=axis, batch_dims=batch_dims))
    array = params.numpy()
    moved = tf.gather(tf.constant(bytes_of(array)), indices, axis=axis, batch_dims=batch_dims)
    return moved.numpy().view(array.dtype)


def inputs_of(table, dtype, rng):
    """Tensors of params and indices (int32) for each case."""
    params = [cases.random_values(rng, dtype, case.params) for case in table]
    indices = [cases.random_indices(rng, case.indices, case.params[case.axis]) for case in table]
    return params, indices


def gather_all(table, **options):
    """A function of all params and then all indices that gathers each case."""

    def function(*tensors):
        params, indices = tensors[: len(table)], tensors[len(table) :]
        return [
            gs.gather(p, i, axis=case.axis, batch_dims=case.batch_dims, **options)
            for p, i, case in zip(params, indices, table, strict=True)
        ]

    return function


@pytest.mark.parametrize("params_rank", [1, 2, 3, 4, 5])
def test_every_axis_and_batch_dims_equal_stock(params_rank, rng):
    table = list(cases.gather_cases(params_rank))
    params, indices = inputs_of(table, tf.float32, rng)
    expected = [
        stock_gather(p, i, case.axis, case.batch_dims)
        for p, i, case in zip(params, indices, table, strict=True)
    ]
    for mode, results in run_modes(
        "GatherV2", gather_all(table), *params, *indices, times=len(table)
    ):
        assert_all_same(results, expected, [(mode, case) for case in table])


@pytest.mark.parametrize("dtype", cases.DTYPES, ids=lambda dtype: dtype.name)
def test_every_dtype_with_every_index_dtype_equals_stock(dtype, rng):
    table = [case for case in cases.FEW_GATHER_CASES for _ in cases.INDEX_DTYPES]
    params, indices = inputs_of(table, dtype, rng)
    expected = [
        stock_gather(p, i, case.axis, case.batch_dims)
        for p, i, case in zip(params, indices, table, strict=True)
    ]
    index_dtypes = cases.INDEX_DTYPES * len(cases.FEW_GATHER_CASES)
    indices = [tf.constant(i.numpy(), d) for i, d in zip(indices, index_dtypes, strict=True)]
    contexts = list(zip(table, index_dtypes, strict=True))
    for mode, results in run_modes(
        "GatherV2", gather_all(table), *params, *indices, times=len(table)
    ):
        assert_all_same(results, expected, [(mode, context) for context in contexts])


@pytest.mark.parametrize("axis_dtype", [tf.int32, tf.int64], ids=lambda dtype: dtype.name)
def test_axis_as_a_tensor_equals_stock(axis_dtype, rng):
    params = cases.random_values(rng, tf.float32, (2, 3, 4))
    indices = cases.random_indices(rng, (5,), 2)
    for axis in range(-3, 3):
        expected = tf.gather(params, indices, axis=axis)
        for mode, result in run_modes(
            "GatherV2",
            lambda p, i, a: gs.gather(p, i, axis=a),
            params,
            indices,
            tf.constant(axis, axis_dtype),
        ):
            assert_same(result, expected, (mode, axis))


def test_variants_are_gathered_as_objects():
    lists = [
        tf.raw_ops.TensorListFromTensor(
            tensor=tf.range(10 * n, 11 * n), element_shape=tf.constant([], tf.int32)
        )
        for n in range(1, 5)
    ]
    table = tf.reshape(tf.stack(lists), [2, 2])

    def read(handle):
        return tf.raw_ops.TensorListStack(
            input_handle=handle, element_shape=tf.constant([], tf.int32), element_dtype=tf.int32
        )

    def function(params, indices):
        flat = tf.reshape(gs.gather(params, indices, axis=1), [-1])
        return [read(flat[k]) for k in range(6)]

    indices = [1, 0, 1]
    expected = [np.arange(10 * n, 11 * n, dtype=np.int32) for n in (2, 1, 2, 4, 3, 4)]
    for index_dtype in cases.INDEX_DTYPES:
        for mode in ("eager", "function"):
            with types_of_ops() as types:
                results = call_in_mode(mode, function, table, tf.constant(indices, index_dtype))
            assert types["GatherStitch>GatherV2"] == 1
            assert_all_same(results, expected, [(mode, index_dtype)] * 6)


def test_resource_handles_are_gathered_as_objects():
    variables = [tf.Variable([float(n)] * n) for n in range(1, 4)]
    handles = tf.stack([v.handle for v in variables])
    for index_dtype in cases.INDEX_DTYPES:
        with only_ours("GatherV2"):
            rows = gs.gather(handles, tf.constant([[2, 0], [2, 1]], index_dtype))
        assert rows.shape == [2, 2]
        flat = tf.reshape(rows, [4])
        for k, n in enumerate((3, 1, 3, 2)):
            value = tf.raw_ops.ReadVariableOp(resource=flat[k], dtype=tf.float32)
            assert_same(value, np.full(n, n, np.float32))

    def read(handles, index):
        handle = gs.gather(handles, index)
        return tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)

    assert_same(call_in_mode("function", read, handles, tf.constant(1)), np.full(2, 2, np.float32))


# ---- Policies ----------------------------------------------------------------


@pytest.mark.parametrize("policy", ["IGNORE", "CLIP", "WRAP"])
@pytest.mark.parametrize(
    "dtype", [tf.int8, tf.float32, tf.complex128, tf.bool, tf.string], ids=lambda dtype: dtype.name
)
def test_policies_for_bad_indices_equal_the_oracle(policy, dtype, rng):
    table, contexts, indices = [], [], []
    for case in cases.FEW_GATHER_CASES:
        rows = case.params[case.axis]
        for index_dtype in cases.INDEX_DTYPES:
            bad = cases.out_of_range_values(index_dtype, rows)
            assert bad
            # Good and bad ones mixed, each bad one at some place of some draw.
            pool = np.array(bad * 2 + list(range(rows)), object)
            for _ in range(2):
                drawn = rng.choice(pool, size=case.indices)
                array = np.array(drawn, index_dtype.as_numpy_dtype).reshape(case.indices)
                indices.append(tf.constant(array, index_dtype))
                table.append(case)
                contexts.append((case, index_dtype, array))
    params = [cases.random_values(rng, dtype, case.params) for case in table]
    expected = [
        gather_oracle(p.numpy(), i.numpy(), case.axis, case.batch_dims, policy)
        for p, i, case in zip(params, indices, table, strict=True)
    ]
    function = gather_all(table, bad_indices_policy=policy)
    for mode, results in run_modes("GatherV2", function, *params, *indices, times=len(table)):
        assert_all_same(results, expected, [(mode, context) for context in contexts])


@pytest.mark.parametrize("policy", ["IGNORE", "CLIP", "WRAP"])
@pytest.mark.parametrize("index_dtype", cases.INDEX_DTYPES, ids=lambda dtype: dtype.name)
def test_policies_at_every_value_near_and_far(policy, index_dtype):
    for rows in (1, 2, 3, 100, 128):
        params = np.arange(1, rows + 1, dtype=np.int32)
        values = [
            *cases.out_of_range_values(index_dtype, rows),
            *(v for v in (0, 1, rows - 1) if v < rows),
        ]
        expected = [
            0 if (row := resolve(value, rows, policy)) is None else params[row] for value in values
        ]
        indices = tf.constant(np.array(values, index_dtype.as_numpy_dtype))
        with only_ours("GatherV2"):
            result = gs.gather(params, indices, bad_indices_policy=policy)
        assert_same(result, np.array(expected, np.int32), (rows, values))


@pytest.mark.parametrize("policy", cases.POLICIES)
def test_policies_agree_where_every_index_is_good(policy, rng):
    table = list(cases.gather_cases(3))
    params, indices = inputs_of(table, tf.uint16, rng)
    expected = [
        stock_gather(p, i, case.axis, case.batch_dims)
        for p, i, case in zip(params, indices, table, strict=True)
    ]
    function = gather_all(table, bad_indices_policy=policy)
    for mode, results in run_modes("GatherV2", function, *params, *indices, times=len(table)):
        assert_all_same(results, expected, [(mode, case) for case in table])


@pytest.mark.parametrize("policy", ["DEFAULT", "ERROR"])
def test_refusing_policies_name_what_the_oracle_names(policy, rng):
    for case in cases.FEW_GATHER_CASES:
        rows = case.params[case.axis]
        params = cases.random_values(rng, tf.float32, case.params)
        for index_dtype in cases.INDEX_DTYPES:
            pool = cases.out_of_range_values(index_dtype, rows) + list(range(rows)) * 2
            for _ in range(4):
                drawn = rng.choice(np.array(pool, object), size=case.indices)
                array = np.array(drawn, index_dtype.as_numpy_dtype).reshape(case.indices)
                indices = tf.constant(array, index_dtype)
                options = {
                    "axis": case.axis,
                    "batch_dims": case.batch_dims,
                    "bad_indices_policy": policy,
                }
                expected, error = outcome(
                    gather_oracle, params.numpy(), array, case.axis, case.batch_dims
                )
                if error is None:
                    assert_same(gs.gather(params, indices, **options), expected)
                else:
                    with pytest.raises(tf.errors.InvalidArgumentError, match=re.escape(error)):
                        gs.gather(params, indices, **options)


def test_ignore_gives_an_empty_variant():
    one = tf.raw_ops.TensorListFromTensor(
        tensor=tf.range(3), element_shape=tf.constant([], tf.int32)
    )
    with only_ours("GatherV2"):
        rows = gs.gather(tf.stack([one]), [0, 5], bad_indices_policy="IGNORE")
    assert int(tf.raw_ops.TensorListLength(input_handle=rows[0])) == 3
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.raw_ops.TensorListLength(input_handle=rows[1])


# ---- Shapes at the edge ------------------------------------------------------


@pytest.mark.parametrize("policy", cases.POLICIES)
@pytest.mark.parametrize("dtype", [tf.float32, tf.string], ids=lambda dtype: dtype.name)
def test_empty_tensors(policy, dtype, rng):
    table = [case for case, _ in cases.EMPTY_GATHER_CASES]
    params, indices = inputs_of(table, dtype, rng)
    results_shapes = [shape for _, shape in cases.EMPTY_GATHER_CASES]
    function = gather_all(table, bad_indices_policy=policy)
    for mode, results in run_modes("GatherV2", function, *params, *indices, times=len(table)):
        for result, shape, case in zip(results, results_shapes, table, strict=True):
            assert result.dtype == dtype
            assert result.shape == shape, (mode, case)


def test_empty_tensors_equal_stock(rng):
    table = [case for case, _ in cases.EMPTY_GATHER_CASES]
    params, indices = inputs_of(table, tf.int16, rng)
    for p, i, case in zip(params, indices, table, strict=True):
        expected = tf.gather(p, i, axis=case.axis, batch_dims=case.batch_dims)
        assert_same(gs.gather(p, i, axis=case.axis, batch_dims=case.batch_dims), expected, case)


def test_ignore_takes_any_index_into_an_axis_without_rows():
    for index_dtype in cases.INDEX_DTYPES:
        bad = cases.out_of_range_values(index_dtype, 0)
        indices = tf.constant(np.array(bad, index_dtype.as_numpy_dtype))
        for shape, axis in (((0,), 0), ((0, 3), 0), ((2, 0, 3), 1)):
            with only_ours("GatherV2"):
                result = gs.gather(tf.ones(shape), indices, axis=axis, bad_indices_policy="IGNORE")
            expected = np.zeros((*shape[:axis], len(bad), *shape[axis + 1 :]), np.float32)
            assert_same(result, expected)


@pytest.mark.parametrize(
    "case",
    [
        cases.GatherCase((2,) * 8, (3, 1, 2), 4, 0),
        cases.GatherCase((2,) * 8, (2,) * 5 + (3,), 6, 5),
        cases.GatherCase((1,) * 30 + (3, 2), (1,) * 20 + (4,), 30, 15),
        cases.GatherCase((1,) * 200 + (3, 2), (1,) * 50 + (4,), -2, 0),
        cases.GatherCase((3,) + (1,) * 200, (4,) + (1,) * 53, 0, 0),
        cases.GatherCase((1,) * 251 + (3, 2), (1,) * 251 + (4,), 251, 251),
    ],
    ids=lambda case: f"{len(case.params)} with {len(case.indices)}",
)
def test_large_ranks_equal_the_oracle(case, rng):
    # NumPy holds no more than 64 dimensions.
    params = tf.reshape(
        cases.random_values(rng, tf.float32, (math.prod(case.params),)), case.params
    )
    indices = cases.random_indices(rng, (math.prod(case.indices),), case.params[case.axis])
    indices = tf.reshape(indices, case.indices)
    rank = len(case.params)
    axis, batch_dims = case.axis % rank, case.batch_dims
    sizes = [
        [math.prod(dims) for dims in split]
        for split in (
            (
                case.params[:batch_dims],
                case.params[batch_dims:axis],
                case.params[axis : axis + 1],
                case.params[axis + 1 :],
            ),
            (case.indices[:batch_dims], case.indices[batch_dims:]),
        )
    ]
    flat_params = tf.reshape(params, sizes[0]).numpy()
    flat_indices = tf.reshape(indices, sizes[1]).numpy()
    expected_shape = case.params[:axis] + case.indices[batch_dims:] + case.params[axis + 1 :]
    expected = gather_oracle(flat_params, flat_indices, 2, 1)
    for mode, result in run_modes(
        "GatherV2",
        lambda p, i: gs.gather(p, i, axis=case.axis, batch_dims=case.batch_dims),
        params,
        indices,
    ):
        assert result.shape == expected_shape, mode
        assert_same(tf.reshape(result, expected.shape), expected, mode)


@pytest.mark.parametrize("row_bytes", [1, 2, 3, 5, 7, 9, 15, 17, 31, 33, 63, 65, 127, 129, 255])
def test_rows_of_odd_sizes_on_every_axis(row_bytes, rng):
    params = cases.random_values(rng, tf.uint8, (3, 6, row_bytes))
    for axis, rows in ((0, 3), (1, 6), (2, row_bytes)):
        indices = cases.random_indices(rng, (11,), rows)
        with only_ours("GatherV2"):
            result = gs.gather(params, indices, axis=axis)
        assert_same(result, tf.gather(params, indices, axis=axis))


def misaligned(array, offset):
    """The array as a tensor whose memory starts `offset` elements past an aligned address."""
    room = np.zeros(array.size + 64 + offset, array.dtype)
    first = (-room.ctypes.data % 64) // array.itemsize + offset
    view = room[first : first + array.size].reshape(array.shape)
    view[...] = array
    tensor = tf.experimental.dlpack.from_dlpack(view.__dlpack__())
    assert tensor.shape == array.shape
    return tensor


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32, np.float64, np.complex128])
def test_params_and_indices_at_misaligned_addresses(dtype, rng):
    for offset in (1, 2, 3, 5):
        for row in ((), (1,), (3,), (4,), (16,), (33,)):
            array = rng.integers(0, 100, (7, *row)).astype(dtype)
            for index_dtype in (np.int8, np.uint16, np.int32, np.int64):
                indices = rng.integers(0, 7, 9).astype(index_dtype)
                with only_ours("GatherV2"):
                    result = gs.gather(misaligned(array, offset), misaligned(indices, offset))
                assert_same(result, array[indices], (offset, row, index_dtype))


@pytest.mark.parametrize(
    ("row", "count"),
    [((), 400_000), ((2,), 200_000), ((4,), 100_000), ((17,), 40_000), ((256,), 4_000)],
    ids=str,
)
def test_work_for_several_threads_equals_stock(row, count, rng):
    params = tf.constant(rng.standard_normal((3000, *row)), tf.float32)
    for indices in (
        cases.random_indices(rng, (count,), 3000),
        tf.constant(np.sort(rng.integers(0, 3000, count)), tf.int64),
        tf.range(count) % 3000,
    ):
        with only_ours("GatherV2"):
            result = gs.gather(params, indices)
        assert_same(result, tf.gather(params, indices))


def test_batched_work_for_several_threads_equals_stock(rng):
    params = tf.constant(rng.standard_normal((8, 4, 500, 6)), tf.float32)
    indices = cases.random_indices(rng, (8, 3000), 500)
    with only_ours("GatherV2"):
        result = gs.gather(params, indices, axis=2, batch_dims=1)
    assert_same(result, tf.gather(params, indices, axis=2, batch_dims=1))
    with only_ours("GatherV2"):
        result = gs.gather(params, indices[0], axis=-2)
    assert_same(result, tf.gather(params, indices[0], axis=-2))


def test_strings_for_several_threads_equal_stock(rng):
    params = cases.random_values(rng, tf.string, (2, 500, 3))
    indices = cases.random_indices(rng, (2, 20_000), 500)
    with only_ours("GatherV2"):
        result = gs.gather(params, indices, axis=1, batch_dims=1)
    assert_same(result, tf.gather(params, indices, axis=1, batch_dims=1))


# ---- The public function -----------------------------------------------------


@pytest.mark.parametrize("validate_indices", [None, True, False])
def test_validate_indices_is_ignored_as_in_stock(validate_indices):
    params, indices = tf.constant([1.0, 2.0, 3.0]), tf.constant([2, 0])
    with only_ours("GatherV2"):
        result = gs.gather(params, indices, validate_indices)
    assert_same(result, tf.gather(params, indices, validate_indices))
    for function in (gs.gather, tf.gather):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"indices\[0\] = 3 is not in"):
            function(params, [3], validate_indices)


@pytest.mark.parametrize("batch_dims", [0, 1, 2, -1, -2])
def test_axis_none_is_batch_dims_literally(batch_dims, rng):
    params = cases.random_values(rng, tf.int32, (2, 2, 2))
    indices = cases.random_indices(rng, (2, 2), 2)
    expected = tf.gather(params, indices, batch_dims=batch_dims)
    for mode, result in run_modes(
        "GatherV2", lambda p, i: gs.gather(p, i, batch_dims=batch_dims), params, indices
    ):
        assert_same(result, expected, mode)


@pytest.mark.parametrize(
    ("params", "indices"),
    [
        ([1, 2, 3], [2, 0]),
        ([1.5, 2.5], 1),
        ([[1, 2], [3, 4]], [[0], [1]]),
        (["a", "bc"], (1, 1)),
        ([True, False], [1]),
        (np.arange(6.0).reshape(2, 3), np.array([1, 0], np.int64)),
        (np.arange(6, dtype=np.uint8), np.int16(3)),
        (tf.Variable([1.0, 2.0, 3.0]), [2]),
        (tf.constant([1, 2, 3]), tf.Variable([0, 2])),
    ],
    ids=str,
)
def test_lists_arrays_and_variables_equal_stock(params, indices):
    with only_ours("ResourceGather" if isinstance(params, tf.Variable) else "GatherV2"):
        result = gs.gather(params, indices)
    assert_same(result, tf.gather(params, indices))


def test_a_variable_is_read_in_a_function():
    variable = tf.Variable([[1.0, 2.0], [3.0, 4.0]])

    @tf.function
    def function(indices):
        return gs.gather(variable, indices, axis=1)

    with only_ours("ResourceGather"):
        before = function(tf.constant([1, 1]))
    assert_same(before, np.array([[2, 2], [4, 4]], np.float32))
    variable.assign([[5.0, 6.0], [7.0, 8.0]])
    assert_same(function(tf.constant([1, 1])), np.array([[6, 6], [8, 8]], np.float32))


def test_autograph_leaves_the_function_alone():
    @tf.function
    def function(params, indices):
        return gs.gather(params, indices), gs.batch_gather(params[None], indices[None])

    params, indices = tf.constant([1, 2, 3]), tf.constant([2, 0])
    with only_ours("GatherV2", times=2):
        results = function(params, indices)
    assert_same(results[0], tf.gather(params, indices))
    assert_same(results[1], tf.gather(params, indices)[None])


@pytest.mark.parametrize("name", gs.raw_ops.__all__)
def test_autograph_leaves_raw_ops_alone(name):
    # Otherwise it looks for their source, and warns that there is none.
    assert autograph.is_autograph_artifact(getattr(gs.raw_ops, name))


@pytest.mark.parametrize(
    ("params_shape", "indices_shape"),
    [((5,), (3,)), ((2, 5), (2, 3)), ((2, 3, 4), (2, 3)), ((2, 3, 4, 2), (2, 3, 5))],
    ids=str,
)
def test_batch_gather_equals_stock(params_shape, indices_shape, rng):
    axis = len(indices_shape) - 1
    params = cases.random_values(rng, tf.float32, params_shape)
    indices = cases.random_indices(rng, indices_shape, params_shape[axis])
    expected = tf.compat.v1.batch_gather(params, indices)
    for mode, result in run_modes("GatherV2", gs.batch_gather, params, indices):
        assert_same(result, expected, mode)


@pytest.mark.parametrize("index_dtype", cases.INDEX_DTYPES, ids=lambda dtype: dtype.name)
def test_raw_op_equals_the_function(index_dtype, rng):
    params = cases.random_values(rng, tf.float32, (2, 3, 4))
    indices = tf.constant([[2, 0], [1, 1]], index_dtype)
    expected = tf.gather(params, tf.cast(indices, tf.int32), axis=1, batch_dims=1)
    for mode, result in run_modes(
        "GatherV2",
        lambda p, i: gs.raw_ops.GatherV2(
            params=p, indices=i, axis=1, batch_dims=1, bad_indices_policy="CLIP", gradient="DENSE"
        ),
        params,
        indices,
    ):
        assert_same(result, expected, mode)


def test_raw_ops_take_keywords_only():
    with pytest.raises(TypeError):
        gs.raw_ops.GatherV2([1.0], [0], 0)
    with pytest.raises(TypeError):
        tf.raw_ops.GatherV2([1.0], [0], 0)


RAGGED = tf.ragged.constant([[1, 2], [3], [4, 5, 6]])


@pytest.mark.parametrize(
    ("params", "indices", "options", "op_type"),
    [
        (RAGGED, [2, 0], {}, "RaggedGather"),
        (RAGGED, tf.constant([[1], [2]]), {"name": "a_name"}, "RaggedGather"),
        ([10, 20, 30, 40, 50, 60, 70], RAGGED, {}, "GatherV2"),
        (RAGGED, tf.ragged.constant([[0], [], [1, 2]]), {"axis": 0}, "RaggedGather"),
        (RAGGED, tf.constant([[0], [0], [2]]), {"batch_dims": 1}, "GatherV2"),
        (RAGGED, [0], {"axis": 0, "validate_indices": True}, "RaggedGather"),
    ],
)
def test_ragged_tensors_go_to_stock(params, indices, options, op_type):
    with only_stock(op_type):
        result = gs.gather(params, indices, **options)
    expected = tf.gather(params, indices, **options)
    assert type(result) is type(expected)
    if isinstance(expected, tf.RaggedTensor):
        assert result.to_list() == expected.to_list()
    else:
        assert_same(result, expected)


@pytest.mark.parametrize(
    "options",
    [
        {"bad_indices_policy": "IGNORE"},
        {"bad_indices_policy": "ERROR"},
        {"gradient": "dense"},
        {"gradient": "sparse"},
    ],
    ids=str,
)
def test_ragged_tensors_with_options_that_stock_lacks_are_refused(options):
    with pytest.raises(ValueError, match="RaggedTensor"):
        gs.gather(RAGGED, [0], **options)
    with pytest.raises(ValueError, match="RaggedTensor"):
        gs.gather([1] * 7, RAGGED, **options)


def nodes_of(function):
    """(name, type without namespace) of the gathers and stitches that a function is traced to."""
    graph = tf.function(function, autograph=False).get_concrete_function().graph
    return [
        (op.name, kind)
        for op in graph.get_operations()
        if (kind := op.type.removeprefix("GatherStitch>")) == "GatherV2"
    ]


@pytest.mark.parametrize(
    "options",
    [{}, {"name": "rows"}, {"axis": 1}, {"axis": 1, "batch_dims": 1, "name": "rows"}],
    ids=str,
)
def test_nodes_are_named_as_those_of_stock(options):
    def trace(gather):
        def function():
            params, indices = tf.zeros([2, 3]), tf.constant([[1], [0]])
            gather(params, indices, **options)
            with tf.name_scope("outer"):
                gather(params, indices, **options)
                gather(params, indices, **options)

        return nodes_of(function)

    expected = trace(tf.gather)
    assert len(expected) == 3
    assert trace(gs.gather) == expected


def test_a_name_does_not_change_an_eager_call():
    with only_ours("GatherV2"):
        result = gs.gather([1, 2], [1], name="rows")
    assert_same(result, to_numpy(tf.constant([2])))


def test_batch_gather_is_named():
    def function():
        params, indices = tf.zeros([2, 3]), tf.constant([[1], [0]])
        gs.batch_gather(params, indices)
        gs.batch_gather(params, indices, name="rows")

    assert nodes_of(function) == [("BatchGather", "GatherV2"), ("rows", "GatherV2")]


def test_options_are_attrs_of_the_node():
    @tf.function(autograph=False)
    def function(params, indices):
        return gs.gather(params, indices, bad_indices_policy="WRAP", gradient="sparse")

    graph = function.get_concrete_function(tf.TensorSpec([5, 2]), tf.TensorSpec([3], tf.int8)).graph
    (node,) = [op for op in graph.get_operations() if op.type == "GatherStitch>GatherV2"]
    assert node.get_attr("bad_indices_policy") == b"WRAP"
    assert node.get_attr("gradient") == b"SPARSE"
    assert node.get_attr("batch_dims") == 0
    assert node.get_attr("Tindices") == tf.int8
