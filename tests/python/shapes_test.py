# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Static shapes: against stock, against the result, and static errors against the kernel's."""

from __future__ import annotations

import contextlib
import re

import cases
import gather_stitch as gs
import numpy as np
import pytest
import tensorflow as tf
from checks import MODES, call_in_mode, gather_rules, only_ours

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


def trace(function, *specs):
    return tf.function(function, input_signature=specs, autograph=False).get_concrete_function()


def traced_shape(function, *specs):
    return trace(function, *specs).structured_outputs.shape


def assert_knows_at_least(shape, other, context):
    """Whatever is known of `other` is known, and the same, of `shape`."""
    if other.rank is None:
        return
    assert shape.rank == other.rank, context
    for ours, theirs in zip(shape.as_list(), other.as_list(), strict=True):
        assert theirs is None or ours == theirs, context


def hide_dims(rng, shape):
    """The shape with some dimensions, or the rank, unknown."""
    if rng.random() < 0.15:
        return None
    return [None if rng.random() < 0.4 else d for d in shape]


# ---- gather: what is known ---------------------------------------------------


@pytest.mark.parametrize("params_rank", [1, 2, 3, 4])
def test_gather_knows_what_stock_knows_and_what_comes(params_rank, rng):
    table = list(cases.gather_cases(params_rank))
    for case in [table[k] for k in rng.permutation(len(table))[:60]]:
        # Stock's shape function may abort the process on what is wrong; these are all right.
        assert gather_rules(*case) == []
        params_spec = tf.TensorSpec(hide_dims(rng, case.params))
        indices_spec = tf.TensorSpec(hide_dims(rng, case.indices), tf.int32)
        params, indices = tf.zeros(case.params), tf.zeros(case.indices, tf.int32)
        as_input = bool(rng.random() < 0.3)
        context = (case, params_spec, indices_spec, as_input)

        def gather(function, p, i, a, case=case):
            return function(p, i, axis=a, batch_dims=case.batch_dims)

        if as_input:
            specs = (params_spec, indices_spec, tf.TensorSpec([], tf.int64))
            ours = trace(lambda *args, g=gather: g(gs.gather, *args), *specs)
            stock = traced_shape(lambda *args, g=gather: g(tf.gather, *args), *specs)
            result = ours(params, indices, tf.constant(case.axis, tf.int64))
        else:
            specs = (params_spec, indices_spec)
            ours = trace(lambda p, i, g=gather, a=case.axis: g(gs.gather, p, i, a), *specs)
            stock = traced_shape(lambda p, i, g=gather, a=case.axis: g(tf.gather, p, i, a), *specs)
            result = ours(params, indices)
        shape = ours.structured_outputs.shape
        assert shape.is_compatible_with(result.shape), context
        if stock.is_compatible_with(result.shape):
            assert_knows_at_least(shape, stock, context)
        else:
            # Stock's claim is wrong where it takes a negative batch_dims literally.
            assert as_input, context
            assert case.batch_dims < 0, context


@pytest.mark.parametrize("params_rank", [1, 2, 3, 4])
def test_gather_knows_everything_of_what_is_known(params_rank):
    for case in cases.gather_cases(params_rank):
        shape = traced_shape(
            lambda p, i, case=case: gs.gather(p, i, axis=case.axis, batch_dims=case.batch_dims),
            tf.TensorSpec(case.params),
            tf.TensorSpec(case.indices, tf.int32),
        )
        axis, batch_dims = case.axis % len(case.params), case.batch_dims
        if batch_dims < 0:
            batch_dims += len(case.indices)
        expected = case.params[:axis] + case.indices[batch_dims:] + case.params[axis + 1 :]
        assert shape == expected, case
        assert shape.is_fully_defined(), case


AT_RUN_TIME = "at run time"


@pytest.mark.parametrize(
    ("params", "indices", "axis", "batch_dims", "expected"),
    [
        # keras#15714: batch dimensions are merged from both.
        ([None, 5], [4, None], 1, 1, [4, None]),
        ([4, 5], [None, None], 1, 1, [4, None]),
        ([4, None, 7], [None, 3], 1, 1, [4, 3, 7]),
        ([None, 2, 5], [3, None, 6], 2, 2, [3, 2, 6]),
        ([None, 2, 5], [3, None, 6], -1, -1, [3, 2, 6]),
        ([None, None], [None], 0, 0, [None, None]),
        ([None, 8], [None], 0, 0, [None, 8]),
        ([None, 8], [6], 1, 0, [None, 6]),
        ([None, 8], [], 0, 0, [8]),
        # The rank is known where both are.
        ([5, 6, 7], [2, 3], AT_RUN_TIME, 0, [None, None, None, None]),
        ([4, 6, 7], [4, 3], AT_RUN_TIME, 1, [4, None, None]),
        ([None, 6, 7], [4, 3], AT_RUN_TIME, 1, [4, None, None]),
        ([5], [2, 3], AT_RUN_TIME, 0, [2, 3]),
        ([4, 5], [4, 2, 3], AT_RUN_TIME, 1, [4, 2, 3]),
        # Unknown ranks.
        (None, [2, 3], 0, 0, None),
        ([5, 6], None, 0, 0, None),
        (None, None, 0, 0, None),
        (None, None, AT_RUN_TIME, 1, None),
    ],
)
def test_gather_knows_what_can_be_known(params, indices, axis, batch_dims, expected):
    specs = [tf.TensorSpec(params), tf.TensorSpec(indices, tf.int32)]
    if axis is AT_RUN_TIME:
        shape = traced_shape(
            lambda p, i, a: gs.gather(p, i, axis=a, batch_dims=batch_dims),
            *specs,
            tf.TensorSpec([], tf.int32),
        )
    else:
        shape = traced_shape(lambda p, i: gs.gather(p, i, axis=axis, batch_dims=batch_dims), *specs)
    assert (None if shape.rank is None else shape.as_list()) == expected


def test_gather_shapes_of_huge_tensors_that_nobody_makes():
    huge = 2**40
    for params, indices, axis, batch_dims, expected in (
        ([huge, 2**20], [3], 0, 0, [3, 2**20]),
        ([huge, 3], [huge, 2], 1, 1, [huge, 2]),
        ([huge, 0], [2**20], 0, 0, [2**20, 0]),
    ):
        shape = traced_shape(
            lambda p, i, axis=axis, b=batch_dims: gs.gather(p, i, axis=axis, batch_dims=b),
            tf.TensorSpec(params),
            tf.TensorSpec(indices, tf.int64),
        )
        assert shape == expected


def test_a_gather_of_2_to_the_63_elements_is_refused_when_tracing():
    words = re.escape("must have less than 2^63 elements")
    for indices, is_refused in (([2**23 - 1], False), ([2**23], True), ([2**40, 3], True)):
        specs = [tf.TensorSpec([2**40, 3]), tf.TensorSpec(indices, tf.int64)]

        def function(p, i):
            return gs.gather(p, i, axis=1)

        if is_refused:
            with pytest.raises(ValueError, match=words):
                trace(function, *specs)
        else:
            assert traced_shape(function, *specs) == [2**40, *indices]


def test_results_have_at_most_254_dimensions():
    params = tf.reshape(tf.range(3), (3,) + (1,) * 200)
    words = re.escape("rank(output) = 255 must be at most 254")
    for rank, is_refused in ((54, False), (55, True)):
        indices = tf.reshape(tf.constant([2, 0]), (2,) + (1,) * (rank - 1))
        for mode in MODES:
            if is_refused:
                with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=words):
                    call_in_mode(mode, gs.gather, params, indices)
            else:
                result = call_in_mode(mode, gs.gather, params, indices)
                assert result.shape == (2,) + (1,) * 253
                assert tf.reshape(result, [2]).numpy().tolist() == [2, 0]


def test_batch_gather_knows_its_shape():
    for params, indices, expected in (
        ([4, 5, 6], [4, 3], [4, 3, 6]),
        ([None, 5], [4, None], [4, None]),
        ([5], [None], [None]),
    ):
        shape = traced_shape(
            gs.batch_gather, tf.TensorSpec(params), tf.TensorSpec(indices, tf.int32)
        )
        assert shape.as_list() == expected


# ---- gather: what is refused -------------------------------------------------

WRONG_GATHERS = (
    # Shapes of params and indices, axis, batch_dims: both sides of each boundary.
    ((), (2,), 0, 0),
    ((), (), -1, 0),
    ((2, 3), (2,), 2, 0),
    ((2, 3), (2,), -3, 0),
    ((2, 3), (2,), 5, 0),
    ((2, 3), (2,), 100, 0),
    ((2, 3), (2,), -100, 0),
    ((2, 3), (2,), 1, 2),
    ((2, 3), (2,), 1, -2),
    ((2, 3), (), 1, 1),
    ((2, 3), (), 1, -1),
    ((2, 3), (2, 3), 1, 2),
    ((2, 3), (2, 3, 4), -1, 2),
    ((2, 3), (2, 3, 4), 0, 1),
    ((2, 3), (2, 3, 4), -2, 1),
    ((2, 3), (2, 3, 4), 0, -2),
    ((2, 3, 4), (2, 3, 4), 1, 2),
    ((2, 3), (3, 3), 1, 1),
    ((2, 3), (0,), 1, 1),
    ((0, 3), (2,), 1, 1),
    ((2, 3, 4), (2, 2, 5), 2, 2),
    ((2, 3, 4), (1, 3, 5), 2, -1),
)
RIGHT_GATHERS = (
    ((2, 3), (2,), 1, 0),
    ((2, 3), (2,), -2, 0),
    ((2, 3), (2,), 1, 1),
    ((2, 3), (2,), 1, -1),
    ((2, 3), (2,), 0, -1),
    ((2, 3), (), 1, 0),
    ((2, 3, 4), (2, 3, 4), 2, 2),
    ((2, 3, 4), (2, 3, 4), 2, -2),
    ((2, 3, 4), (2, 3), 2, 2),
    ((0, 3), (0,), 1, 1),
)


def specs_of(params_shape, indices_shape):
    return tf.TensorSpec(params_shape), tf.TensorSpec(indices_shape, tf.int32)


@pytest.mark.parametrize("case", WRONG_GATHERS, ids=str)
def test_shape_function_and_kernel_refuse_a_gather_with_the_same_words(case):
    params_shape, indices_shape, axis, batch_dims = case
    words = re.escape(gather_rules(*case)[0])
    traced_words = "|".join(re.escape(rule) for rule in gather_rules(*case))
    params, indices = tf.zeros(params_shape), tf.zeros(indices_shape, tf.int32)

    def function(p, i, a=axis):
        return gs.gather(p, i, axis=a, batch_dims=batch_dims)

    with pytest.raises(ValueError, match=traced_words):
        trace(function, *specs_of(params_shape, indices_shape))
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        function(params, indices)
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        call_in_mode("unknown shapes", function, params, indices, tf.constant(axis))


@pytest.mark.parametrize("case", RIGHT_GATHERS, ids=str)
def test_shape_function_and_kernel_accept_the_other_side_of_the_boundary(case):
    params_shape, indices_shape, axis, batch_dims = case
    assert gather_rules(*case) == []
    shapes = set()
    for mode in MODES:
        with only_ours("GatherV2"):
            result = call_in_mode(
                mode,
                lambda p, i: gs.gather(p, i, axis=axis, batch_dims=batch_dims),
                tf.zeros(params_shape),
                tf.zeros(indices_shape, tf.int32),
            )
        shapes.add(tuple(result.shape))
    assert len(shapes) == 1


@pytest.mark.parametrize(
    ("params", "indices", "axis", "batch_dims", "words"),
    [
        ([None, None], [None], 2, 0, "axis = 2 is not in [-2, 2)"),
        ([None, None], None, -3, 0, "axis = -3 is not in [-2, 2)"),
        (None, [None], 0, 2, "Expected batch_dims in the range [-1, 1], but got 2"),
        (
            [None, None],
            [None, None],
            0,
            1,
            "batch_dims (1) must be less than or equal to axis (0).",
        ),
        ([3, None], [2, None], 1, 1, "params.shape[0]: 3 should be equal to indices.shape[0]: 2"),
        (
            [None, 3, None],
            [None, 2, None],
            2,
            2,
            "params.shape[1]: 3 should be equal to indices.shape[1]: 2",
        ),
        ([3, None], [2, None], AT_RUN_TIME, 1, "params.shape[0]: 3 should be equal to"),
        ([None, None], [None] * 3, AT_RUN_TIME, 2, "batch_dims (2) must be less than rank(params)"),
        ([], None, AT_RUN_TIME, 0, "params must be at least 1 dimensional"),
    ],
)
def test_what_is_known_is_refused_when_tracing(params, indices, axis, batch_dims, words):
    specs = specs_of(params, indices)
    if axis is AT_RUN_TIME:
        specs = (*specs, tf.TensorSpec([], tf.int32))
    with pytest.raises(ValueError, match=re.escape(words)):
        trace(
            lambda p, i, a=axis: gs.gather(p, i, axis=a, batch_dims=batch_dims),
            *specs,
        )


@pytest.mark.parametrize("axis_shape", [(1,), (2,), (1, 1), (0,)], ids=str)
def test_axis_must_be_scalar(axis_shape):
    axis = tf.zeros(axis_shape, tf.int32)
    arguments = (tf.zeros([2, 3]), tf.constant([0]), axis)

    def function(p, i, a):
        return gs.gather(p, i, axis=a)

    with pytest.raises(ValueError, match="axis must be scalar"):
        trace(function, *specs_of([2, 3], [1]), tf.TensorSpec(axis_shape, tf.int32))
    for mode in ("eager", "unknown shapes"):
        with pytest.raises(tf.errors.InvalidArgumentError, match="axis must be scalar"):
            call_in_mode(mode, function, *arguments)


# ---- gather: any int64 -------------------------------------------------------

EXTREMES = (
    INT64_MIN,
    INT64_MIN + 1,
    -(2**31) - 1,
    -12345,
    -2,
    -1,
    0,
    1,
    3,
    11282,
    2**31,
    2**32 + 1,
    2**62,
    INT64_MAX,
)
EXTREME_SHAPES = (
    ((), ()),
    ((4,), (4, 0)),
    ((1, 1), (1,)),
    ((2, 3, 2), (2, 3)),
    ((0, 2), (0, 2, 2)),
)


@pytest.mark.parametrize("shapes", EXTREME_SHAPES, ids=str)
def test_any_axis_and_batch_dims_give_a_result_or_an_error(shapes):
    params, indices = tf.zeros(shapes[0]), tf.zeros(shapes[1], tf.int32)
    specs = specs_of(*shapes)
    for batch_dims in EXTREMES:
        # One function for every axis at run time.
        unknown = trace(
            lambda p, i, a, b=batch_dims: gs.gather(p, i, axis=a, batch_dims=b),
            tf.TensorSpec(None),
            tf.TensorSpec(None, tf.int32),
            tf.TensorSpec(None, tf.int64),
        )
        for axis in EXTREMES:

            def function(p, i, axis=axis, b=batch_dims):
                return gs.gather(p, i, axis=tf.constant(axis, tf.int64), batch_dims=b)

            broken = gather_rules(*shapes, axis, batch_dims)
            if not broken:
                eager = function(params, indices)
                assert trace(function, *specs).structured_outputs.shape == eager.shape
                assert unknown(params, indices, tf.constant(axis, tf.int64)).shape == eager.shape
                continue
            words = re.escape(broken[0])
            with pytest.raises(ValueError, match="|".join(map(re.escape, broken))):
                trace(function, *specs)
            with pytest.raises(tf.errors.InvalidArgumentError, match=words):
                function(params, indices)
            with pytest.raises(tf.errors.InvalidArgumentError, match=words):
                unknown(params, indices, tf.constant(axis, tf.int64))


@pytest.mark.parametrize("batch_dims", EXTREMES, ids=str)
def test_any_axis_traces_where_ranks_are_unknown(batch_dims):
    """What some rank would make right is accepted; the rest gives an error or waits for it."""
    dims = (2, 3) + (1,) * 10
    traced = 0
    for axis in EXTREMES:
        for params_shape, indices_shape in ((None, None), (None, (2, 3)), ((2, 3), None)):
            is_possible = any(
                gather_rules(p, i, axis, batch_dims) == []
                for p in ([params_shape] if params_shape else [dims[:k] for k in range(12)])
                for i in ([indices_shape] if indices_shape else [dims[:k] for k in range(12)])
            )

            def function(p, i, axis=axis):
                return gs.gather(p, i, axis=tf.constant(axis, tf.int64), batch_dims=batch_dims)

            with contextlib.nullcontext() if is_possible else contextlib.suppress(ValueError):
                trace(function, *specs_of(params_shape, indices_shape))
            traced += is_possible
    assert traced > 0 or abs(batch_dims) > 12


@pytest.mark.parametrize("axis", [-(2**63), 2**63 - 1, 2**31], ids=str)
def test_a_large_axis_as_a_python_int_is_refused(axis):
    for function in (
        lambda: gs.gather([[0.69]], [0], axis=axis),
        tf.function(lambda: gs.gather([[0.69]], [0], axis=axis), autograph=False),
    ):
        with pytest.raises(
            (tf.errors.InvalidArgumentError, ValueError), match=r"is not in \[-2, 2\)"
        ):
            function()


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**30], ids=str)
def test_what_is_no_int64_is_refused(value):
    with pytest.raises((ValueError, OverflowError, TypeError)):
        gs.gather([1.0], [0], axis=value)
    with pytest.raises((ValueError, OverflowError, TypeError)):
        gs.gather([1.0], [0], batch_dims=value)


# ---- stitch ------------------------------------------------------------------


def stitch_of(inputs_count, function, **options):
    return lambda *tensors: function(
        list(tensors[:inputs_count]), list(tensors[inputs_count:]), **options
    )


def stitch_specs(case, rng=None):
    shapes = [np.shape(i) for i in case.indices]
    data_shapes = [s + case.constant for s in shapes]
    if rng is not None:
        shapes = [hide_dims(rng, s) for s in shapes]
        data_shapes = [hide_dims(rng, s) for s in data_shapes]
    return [tf.TensorSpec(s, tf.int32) for s in shapes] + [tf.TensorSpec(s) for s in data_shapes]


@pytest.mark.parametrize("case", cases.STITCH_CASES, ids=str)
def test_stitch_knows_what_stock_knows_and_what_comes(case, rng):
    count = len(case.indices)
    indices = cases.indices_tensors(case.indices, tf.int32)
    data = [tf.zeros(i.shape + case.constant) for i in indices]
    for _ in range(8):
        specs = stitch_specs(case, rng)
        stock = traced_shape(stitch_of(count, tf.dynamic_stitch), *specs)
        for options in ({}, {"size": 20}):
            ours = trace(stitch_of(count, gs.dynamic_stitch, **options), *specs)
            shape = ours.structured_outputs.shape
            context = (specs, options)
            assert_knows_at_least(shape, stock, context)
            assert shape.is_compatible_with(ours(*indices, *data).shape), context


@pytest.mark.parametrize("index_dtype", cases.STITCH_INDEX_DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("case", cases.STITCH_CASES, ids=str)
def test_stitch_knows_its_size_from_constant_indices(case, index_dtype):
    data_specs = stitch_specs(case)[len(case.indices) :]

    def function(*data):
        return gs.dynamic_stitch(cases.indices_tensors(case.indices, index_dtype), list(data))

    traced = trace(function, *data_specs)
    shape = traced.structured_outputs.shape
    assert shape.is_fully_defined()
    assert shape == traced(*(tf.zeros(s.shape) for s in data_specs)).shape


def test_stitch_does_not_know_its_size_where_some_indices_are_not_constant():
    shape = traced_shape(
        lambda i, d: gs.dynamic_stitch([[5], i], [d, d]),
        tf.TensorSpec([1], tf.int32),
        tf.TensorSpec([1, 3]),
    )
    assert shape.as_list() == [None, 3]


def test_stitch_takes_the_constant_part_from_whichever_input_has_it():
    for indices_shapes, data_shapes, expected in (
        ([[None], [None]], [[None, None, 3], [None, 2, None]], [None, 2, 3]),
        ([None, [2]], [None, [2, 7]], [None, 7]),
        ([[2], None], [None, [2, 7]], None),
        ([None], [[4, 7]], None),
        ([[], [None, None]], [[None], [None, None, 6]], [None, 6]),
    ):
        specs = [tf.TensorSpec(s, tf.int32) for s in indices_shapes] + [
            tf.TensorSpec(s) for s in data_shapes
        ]
        shape = traced_shape(stitch_of(len(indices_shapes), gs.dynamic_stitch), *specs)
        assert (None if shape.rank is None else shape.as_list()) == expected


@pytest.mark.parametrize(
    ("size", "expected"),
    [(7, 7), (0, 0), (np.int64(2**40), 2**40), (tf.TensorSpec([], tf.int32), None)],
    ids=str,
)
def test_size_is_the_static_first_dimension(size, expected):
    specs = [tf.TensorSpec([None], tf.int32), tf.TensorSpec([None, 3])]
    if isinstance(size, tf.TensorSpec):
        shape = traced_shape(lambda i, d, s: gs.dynamic_stitch([i], [d], size=s), *specs, size)
    else:
        shape = traced_shape(lambda i, d: gs.dynamic_stitch([i], [d], size=size), *specs)
    assert shape.as_list() == [expected, 3]


WRONG_STITCHES = (
    # Shapes of indices and of data, and the words.
    ([(2,)], [(3,)], "data[0].shape = [3] does not start with indices[0].shape = [2]"),
    ([(2,)], [(1,)], "data[0].shape = [1] does not start with indices[0].shape = [2]"),
    ([(2,)], [()], "data[0].shape = [] does not start with indices[0].shape = [2]"),
    (
        [(1,), (2, 2)],
        [(1, 5), (2,)],
        "data[1].shape = [2] does not start with indices[1].shape = [2,2]",
    ),
    (
        [(), (2, 2)],
        [(5,), (2, 3, 5)],
        "data[1].shape = [2,3,5] does not start with indices[1].shape = [2,2]",
    ),
    (
        [(2,), (1,)],
        [(2, 1), (1, 2)],
        "Need data[0].shape[1:] = data[1].shape[1:], got data[0].shape = [2,1], "
        "data[1].shape = [1,2], indices[0].shape = [2], indices[1].shape = [1]",
    ),
    (
        [(), (1,)],
        [(2,), (1,)],
        "Need data[0].shape[0:] = data[1].shape[1:], got data[0].shape = [2], "
        "data[1].shape = [1], indices[0].shape = [], indices[1].shape = [1]",
    ),
    (
        [(0,), (0,), (0,)],
        [(0, 2), (0, 2), (0, 3)],
        "Need data[0].shape[1:] = data[2].shape[1:], got data[0].shape = [0,2], "
        "data[2].shape = [0,3], indices[0].shape = [0], indices[2].shape = [0]",
    ),
)


@pytest.mark.parametrize("options", [{}, {"size": 4}], ids=str)
@pytest.mark.parametrize("case", WRONG_STITCHES, ids=lambda case: case[2][:40])
def test_shape_function_and_kernel_refuse_a_stitch_with_the_same_words(case, options):
    indices_shapes, data_shapes, words = case
    words = re.escape(words)
    function = stitch_of(len(indices_shapes), gs.parallel_dynamic_stitch, **options)
    specs = [tf.TensorSpec(s, tf.int32) for s in indices_shapes] + [
        tf.TensorSpec(s) for s in data_shapes
    ]
    tensors = [tf.zeros(s.shape, s.dtype) for s in specs]
    with pytest.raises(ValueError, match=words):
        trace(function, *specs)
    for mode in ("eager", "unknown shapes"):
        with pytest.raises(tf.errors.InvalidArgumentError, match=words):
            call_in_mode(mode, function, *tensors)


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (-1, "merged_rows = -1 must not be negative"),
        (-(2**31), "merged_rows = -2147483648 must not be negative"),
        ([3], "merged_rows must be scalar"),
    ],
    ids=str,
)
def test_shape_function_and_kernel_refuse_a_size_with_the_same_words(size, words):
    indices, data = tf.constant([0]), tf.constant([1.0])

    def function(i, d, s):
        return gs.dynamic_stitch([i], [d], size=s)

    with pytest.raises(ValueError, match=words):
        trace(
            lambda i, d: function(i, d, tf.constant(size)),
            tf.TensorSpec([1], tf.int32),
            tf.TensorSpec([1]),
        )
    for mode in ("eager", "unknown shapes"):
        with pytest.raises(tf.errors.InvalidArgumentError, match=words):
            call_in_mode(mode, function, indices, data, tf.constant(size))


@pytest.mark.parametrize("index_dtype", cases.STITCH_INDEX_DTYPES, ids=lambda dtype: dtype.name)
def test_a_constant_negative_index_is_refused_when_tracing(index_dtype):
    words = re.escape("indices[1][0,1] = -3 is not in [0, ")
    data = [tf.zeros([1]), tf.zeros([1, 2])]

    def function(*data):
        indices = cases.indices_tensors(([0], [[1, -3]]), index_dtype)
        return gs.dynamic_stitch(indices, list(data))

    with pytest.raises(ValueError, match=words):
        call_in_mode("function", function, *data)
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        function(*data)


@pytest.mark.parametrize("size", EXTREMES, ids=str)
def test_any_size_gives_a_result_or_an_error(size):
    # Rows of 2^60 elements: a few are too many for any machine, and none is not.
    data = tf.zeros([0, 2**60, 0]) if 0 <= size < 8 else tf.zeros([0, 2**60])
    indices = tf.zeros([0], tf.int32)
    rows = tf.constant(size, tf.int64)
    for mode in MODES:

        def function(i, d, s):
            return gs.dynamic_stitch([i], [d], size=s)

        if 0 <= size < 8:
            assert call_in_mode(mode, function, indices, data, rows).shape == (size, 2**60, 0)
            continue
        with pytest.raises((tf.errors.InvalidArgumentError, tf.errors.ResourceExhaustedError)):
            call_in_mode(mode, function, indices, data, rows)


@pytest.mark.parametrize("index_dtype", cases.STITCH_INDEX_DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("dtype", [tf.float32, tf.string], ids=lambda dtype: dtype.name)
def test_stitches_of_very_many_empty_rows(index_dtype, dtype):
    largest = min(index_dtype.max, 2**62)
    indices, data = [tf.constant([0, largest], index_dtype)], [cases.empty_tensor([2, 0], dtype)]
    with only_ours("ParallelDynamicStitch"):
        assert gs.dynamic_stitch(indices, data).shape == (largest + 1, 0)
    with only_ours("ParallelDynamicStitchV2"):
        assert gs.dynamic_stitch(indices, data, size=2**62 + 1).shape == (2**62 + 1, 0)


# ---- The gradient ops --------------------------------------------------------


def test_gradient_ops_of_very_many_empty_rows():
    rows = 2**62
    with only_ours("GatherV2Grad"):
        grad = gs.raw_ops.GatherV2Grad(
            grad=tf.zeros([1, 0]), indices=[0], params_shape=[rows, 0], axis=0
        )
    assert grad.shape == (rows, 0)
    with only_ours("GatherV2SparseGrad"):
        values, found, slots = gs.raw_ops.GatherV2SparseGrad(
            grad=[[1.0], [2.0], [4.0]],
            indices=tf.constant([rows - 1, 0, rows - 1]),
            params_rows=rows,
        )
    assert values.numpy().tolist() == [[2.0], [5.0]]
    assert found.numpy().tolist() == [0, rows - 1]
    assert slots.numpy().tolist() == [1, 0, 1]
    with only_ours("ParallelDynamicStitchGrad"):
        (grad,) = gs.raw_ops.ParallelDynamicStitchGrad(
            grad=tf.zeros([rows, 0]), indices=[[0, rows - 1]]
        )
    assert grad.shape == (2, 0)


def test_gradient_ops_know_their_shapes():
    indices = tf.TensorSpec([None, 3], tf.int32)
    for op, specs, expected in (
        (
            lambda g, i: gs.raw_ops.GatherV2Grad(grad=g, indices=i, params_shape=[4, 5, 6], axis=1),
            (tf.TensorSpec([4, None, 3, 6]), indices),
            [[4, 5, 6]],
        ),
        (
            lambda g, i, p: gs.raw_ops.GatherV2Grad(
                grad=g, indices=i, params_shape=tf.shape(p, tf.int64), axis=1
            ),
            (tf.TensorSpec(None), indices, tf.TensorSpec([4, None, 6])),
            [[4, None, 6]],
        ),
        (
            lambda g, i: gs.raw_ops.GatherV2SparseGrad(grad=g, indices=i, params_rows=9),
            (tf.TensorSpec([None, 3, 7]), indices),
            [[None, 7], [None], [None, 3]],
        ),
        (
            lambda g, i: gs.raw_ops.GatherV2SparseGrad(
                grad=g, indices=i, params_rows=9, unique=False, bad_indices_policy="CLIP"
            ),
            (tf.TensorSpec([2, 3, 7]), tf.TensorSpec([2, 3], tf.int32)),
            [[6, 7], [6], [2, 3]],
        ),
        (
            lambda g, i: gs.raw_ops.ParallelDynamicStitchGrad(grad=g, indices=[i, 2]),
            (tf.TensorSpec([None, 8]), indices),
            [[None, 3, 8], [8]],
        ),
    ):
        outputs = tf.nest.flatten(trace(op, *specs).structured_outputs)
        assert [o.shape.as_list() for o in outputs] == expected
