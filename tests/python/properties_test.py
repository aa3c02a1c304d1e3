# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Properties that hold whatever the shapes, indices and options are."""

import math

import gather_stitch as gs
import numpy as np
import tensorflow as tf
from cases import POLICIES
from checks import BadIndex, assert_same, gather_oracle, stitch_oracle
from gradients_common import (
    gather_grad_oracle,
    output_shape,
    sparse_grad_oracle,
    stitch_grad_oracle,
)
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

EXAMPLES = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
FEW_EXAMPLES = settings(EXAMPLES, max_examples=40)

INDEX_DTYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
VALUE_DTYPES = ("int8", "uint16", "float16", "float32", "int64", "float64", "complex128", "bool")
# Whole numbers whose sums and products are exact in float64.
WHOLE = st.integers(-8, 8).map(float)


def whole_numbers(shape):
    return hnp.arrays(np.float64, shape, elements=WHOLE)


@st.composite
def geometries(draw, max_rank=4, is_vector=False):
    """(params shape, indices shape, axis, batch_dims), in any spelling.

    With is_vector the indices are one list, without batch dimensions.
    """
    batch = [] if is_vector else draw(st.lists(st.integers(0, 3), max_size=2))
    outer = draw(st.lists(st.integers(0, 3), max_size=max_rank - 1 - len(batch)))
    inner = draw(st.lists(st.integers(0, 4), max_size=max_rank - 1 - len(batch) - len(outer)))
    rows = draw(st.integers(0, 6))
    min_lookups, max_lookups = (1, 1) if is_vector else (0, 2)
    lookups = draw(st.lists(st.integers(0, 4), min_size=min_lookups, max_size=max_lookups))
    params_shape = (*batch, *outer, rows, *inner)
    indices_shape = (*batch, *lookups)
    axis, batch_dims = len(batch) + len(outer), len(batch)
    if draw(st.booleans()):
        axis -= len(params_shape)
    if draw(st.booleans()) and batch_dims < len(indices_shape):
        batch_dims -= len(indices_shape)
    return params_shape, indices_shape, axis, batch_dims


@st.composite
def indices_for(draw, geometry, policy, dtype=None):
    params_shape, indices_shape, axis, _ = geometry
    rows = params_shape[axis]
    dtype = dtype or draw(st.sampled_from(INDEX_DTYPES))
    limits = np.iinfo(dtype)
    if policy in ("DEFAULT", "ERROR"):
        assume(rows > 0 or 0 in indices_shape)
        elements = st.integers(0, max(rows - 1, 0))
    else:
        assume(rows > 0 or policy == "IGNORE" or 0 in indices_shape)
        near = st.integers(max(-2 * rows - 1, limits.min), min(3 * rows + 1, limits.max))
        elements = st.one_of(near, st.integers(limits.min, limits.max))
    return draw(hnp.arrays(dtype, indices_shape, elements=elements))


@st.composite
def gathers(draw, dtype=None, policies=POLICIES, is_vector=False):
    """Arguments of a gather that is no error."""
    geometry = draw(geometries(is_vector=is_vector))
    policy = draw(st.sampled_from(policies))
    indices = draw(indices_for(geometry, policy))
    if dtype is None:
        bits = draw(st.randoms(use_true_random=False)).randbytes
        value_dtype = np.dtype(draw(st.sampled_from(VALUE_DTYPES)))
        count = math.prod(geometry[0])
        if value_dtype == np.bool_:
            params = (np.frombuffer(bits(count), np.uint8) & 1).astype(bool)
        else:
            params = np.frombuffer(bits(count * value_dtype.itemsize), value_dtype)
        params = params.reshape(geometry[0])
    else:
        params = draw(whole_numbers(geometry[0]))
    return params, indices, geometry[2], geometry[3], policy


@st.composite
def stitches(draw, low=0):
    """(indices, data, number of rows) with repetitions and holes; data is whole numbers."""
    rows = draw(st.integers(1, 8))
    constant = tuple(draw(st.lists(st.integers(0, 3), max_size=2)))
    shapes = draw(st.lists(st.lists(st.integers(0, 3), max_size=2), min_size=1, max_size=4))
    dtype = draw(st.sampled_from(("int32", "int64")))
    high = rows - 1 if low == 0 else rows + 2
    indices = [draw(hnp.arrays(dtype, tuple(s), elements=st.integers(low, high))) for s in shapes]
    data = [draw(whole_numbers((*s, *constant))) for s in shapes]
    return indices, data, rows


def gather(params, indices, axis, batch_dims, policy, **options):
    return gs.gather(
        params,
        tf.constant(indices),
        axis=axis,
        batch_dims=batch_dims,
        bad_indices_policy=policy,
        **options,
    )


# ---- Gather ------------------------------------------------------------------


@EXAMPLES
@given(gathers())
def test_gather_is_the_equation(arguments):
    params, indices, axis, batch_dims, policy = arguments
    actual = gather(params, indices, axis, batch_dims, policy)
    assert_same(actual, gather_oracle(params, indices, axis, batch_dims, policy))


@EXAMPLES
@given(geometries(), st.sampled_from(POLICIES), st.data())
def test_a_gather_is_refused_where_the_equation_has_no_row(geometry, policy, data):
    params_shape, indices_shape, axis, batch_dims = geometry
    rows = params_shape[axis]
    indices = data.draw(hnp.arrays(np.int32, indices_shape, elements=st.integers(-1, rows)))
    params = np.arange(math.prod(params_shape)).reshape(params_shape)
    try:
        expected = gather_oracle(params, indices, axis, batch_dims, policy)
    except BadIndex as error:
        expected = str(error)
    try:
        actual = gather(params, indices, axis, batch_dims, policy).numpy()
    except tf.errors.InvalidArgumentError as error:
        assert isinstance(expected, str), error
        assert expected in str(error)
    else:
        assert_same(actual, expected)


@FEW_EXAMPLES
@given(gathers(is_vector=True), st.data())
def test_a_gather_of_a_gather_is_one_gather(arguments, data):
    # gather(gather(x, i), j) == gather(x, i[j]), along an axis without batches.
    params, indices, axis, batch_dims, policy = arguments
    assume(indices.size)
    second = data.draw(
        hnp.arrays(np.int64, st.integers(0, 5), elements=st.integers(0, indices.size - 1))
    )
    axis_from_front = axis % params.ndim
    first = gather(params, indices, axis, batch_dims, policy)
    twice = gs.gather(first, second, axis=axis_from_front)
    assert_same(twice, gather(params, indices[second], axis, 0, policy))


@FEW_EXAMPLES
@given(gathers(is_vector=True), st.randoms(use_true_random=False))
def test_permuting_the_indices_permutes_the_rows(arguments, random):
    params, indices, axis, batch_dims, policy = arguments
    order = list(range(indices.size))
    random.shuffle(order)
    axis_from_front = axis % params.ndim
    straight = gather(params, indices, axis, batch_dims, policy)
    shuffled = gather(params, indices[order], axis, batch_dims, policy)
    assert_same(shuffled, np.take(straight.numpy(), order, axis_from_front))


@FEW_EXAMPLES
@given(gathers())
def test_all_spellings_are_one(arguments):
    params, indices, axis, batch_dims, policy = arguments
    assume(batch_dims < indices.ndim)
    expected = gather(params, indices, axis, batch_dims, policy)
    axis_from_front = axis % params.ndim
    for a in (axis_from_front, axis_from_front - params.ndim):
        for b in {batch_dims, batch_dims % indices.ndim - indices.ndim}:
            assert_same(gather(params, indices, a, b, policy), expected)


# ---- Gradients of gather -----------------------------------------------------


@EXAMPLES
@given(gathers(dtype="whole"), st.sampled_from(("auto", "dense", "sparse")), st.data())
def test_the_gradient_is_the_transpose(arguments, gradient, data):
    params, indices, axis, batch_dims, policy = arguments
    is_row_gather = axis in (0, -params.ndim) and batch_dims in (0, -indices.ndim)
    assume(gradient != "sparse" or is_row_gather)
    x = tf.constant(params)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = gather(x, indices, axis, batch_dims, policy, gradient=gradient)
    g = data.draw(whole_numbers(tuple(y.shape)))
    grad = tape.gradient(y, x, output_gradients=tf.constant(g))
    if isinstance(grad, tf.IndexedSlices):
        rows = grad.indices.numpy()
        assert ((rows >= 0) & (rows < params.shape[0])).all()
        if gradient == "sparse":
            assert (np.diff(rows) > 0).all()
    dense = tf.convert_to_tensor(grad).numpy()
    # <g, gather(x)> == <grad(g), x>
    assert np.vdot(g, y) == np.vdot(dense, params)
    assert_same(dense, gather_grad_oracle(g, indices, params.shape, axis, batch_dims, policy))


@EXAMPLES
@given(gathers(dtype="whole"), st.data())
def test_the_transpose_of_the_transpose_is_the_gather(arguments, data):
    params, indices, axis, batch_dims, policy = arguments
    shape = output_shape(params.shape, indices.shape, axis, batch_dims)
    g = tf.constant(data.draw(whole_numbers(shape)))
    with tf.GradientTape() as tape:
        tape.watch(g)
        grad = gs.raw_ops.GatherV2Grad(
            grad=g,
            indices=tf.constant(indices),
            params_shape=params.shape,
            axis=axis,
            batch_dims=batch_dims,
            bad_indices_policy=policy,
        )
    back = tape.gradient(grad, g, output_gradients=tf.constant(params))
    assert_same(back, gather_oracle(params, indices, axis, batch_dims, policy))


@EXAMPLES
@given(st.data(), st.sampled_from(POLICIES), st.booleans())
def test_slices_are_the_equation(data, policy, unique):
    rows = data.draw(st.integers(0, 6))
    inner = tuple(data.draw(st.lists(st.integers(0, 3), max_size=2)))
    shape = tuple(data.draw(st.lists(st.integers(0, 4), max_size=2)))
    indices = data.draw(indices_for(((rows,), shape, 0, 0), policy))
    grad = data.draw(
        hnp.arrays(np.float32, (*shape, *inner), elements=st.floats(-100, 100, width=32))
    )
    actual = gs.raw_ops.GatherV2SparseGrad(
        grad=grad,
        indices=tf.constant(indices),
        params_rows=rows,
        bad_indices_policy=policy,
        unique=unique,
    )
    expected = sparse_grad_oracle(grad, indices, rows, policy, unique)
    for a, right in zip(actual, expected, strict=True):
        assert_same(a, right)


# ---- Stitch ------------------------------------------------------------------


@EXAMPLES
@given(stitches())
def test_the_last_writer_wins(arguments):
    indices, data, _ = arguments
    expected = stitch_oracle(indices, data)
    for function in (gs.parallel_dynamic_stitch, gs.dynamic_stitch):
        assert_same(function(list(map(tf.constant, indices)), data), expected)
    assert_same(tf.dynamic_stitch([tf.cast(i, tf.int32) for i in indices], data), expected)


@EXAMPLES
@given(stitches(low=-2))
def test_a_given_size_drops_the_rest(arguments):
    indices, data, rows = arguments
    tensors = list(map(tf.constant, indices))
    actual = gs.dynamic_stitch(tensors, data, size=rows, bad_indices_policy="IGNORE")
    assert_same(actual, stitch_oracle(indices, data, rows, "IGNORE"))
    try:
        expected = stitch_oracle(indices, data, rows)
    except BadIndex as error:
        expected = str(error)
    try:
        actual = gs.dynamic_stitch(tensors, data, size=rows)
    except tf.errors.InvalidArgumentError as error:
        assert isinstance(expected, str), error
        assert expected in str(error)
    else:
        assert_same(actual, expected)


@EXAMPLES
@given(
    hnp.arrays(np.int32, st.integers(0, 30), elements=st.integers(0, 4)),
    st.lists(st.integers(0, 3), max_size=2),
    st.randoms(use_true_random=False),
)
def test_partition_then_stitch_is_the_identity(partitions, inner, random):
    count = math.prod((partitions.size, *inner))
    values = np.frombuffer(random.randbytes(count * 8), np.int64)
    x = values.reshape(partitions.size, *inner)
    parts = tf.dynamic_partition(x, partitions, 5)
    positions = tf.dynamic_partition(tf.range(partitions.size), partitions, 5)
    order = list(range(5))
    random.shuffle(order)
    positions, parts = [positions[k] for k in order], [parts[k] for k in order]
    assert_same(gs.parallel_dynamic_stitch(positions, parts), x)
    assert_same(gs.parallel_dynamic_stitch(positions, parts, size=partitions.size), x)


@FEW_EXAMPLES
@given(stitches(), st.randoms(use_true_random=False))
def test_the_order_of_inputs_matters_only_where_rows_are_overwritten(arguments, random):
    indices, data, _ = arguments
    everything = np.concatenate([i.reshape(-1) for i in indices])
    order = list(range(len(indices)))
    random.shuffle(order)
    straight = gs.dynamic_stitch(list(map(tf.constant, indices)), data)
    shuffled = gs.dynamic_stitch([tf.constant(indices[k]) for k in order], [data[k] for k in order])
    for row in range(straight.shape[0]):
        if np.count_nonzero(everything == row) < 2:
            assert_same(shuffled[row], straight[row])


@FEW_EXAMPLES
@given(stitches())
def test_a_stitch_is_what_gather_undoes(arguments):
    # gather(stitch(i, d), i) == d, where nothing is overwritten.
    indices, data, _ = arguments
    everything = np.concatenate([i.reshape(-1) for i in indices])
    merged = gs.dynamic_stitch(list(map(tf.constant, indices)), data)
    _, counts = np.unique(everything, return_counts=True)
    for index, value in zip(indices, data, strict=True):
        gathered = gs.gather(merged, tf.constant(index))
        if (counts < 2).all():
            assert_same(gathered, value)
        # And in any case the last row of all is there.
    if everything.size:
        last = next(m for m in reversed(range(len(indices))) if indices[m].size)
        row = indices[last].reshape(-1)[-1]
        constant = merged.shape[1:]
        assert_same(merged[int(row)], data[last].reshape(indices[last].size, *constant)[-1])


@EXAMPLES
@given(stitches(low=-2), st.booleans(), st.data())
def test_the_gradient_of_stitch_is_the_transpose(arguments, has_size, data):
    indices, values, rows = arguments
    if not has_size:
        assume(all(i.size == 0 or i.min() >= 0 for i in indices))
    options = {"size": rows, "bad_indices_policy": "IGNORE"} if has_size else {}
    x = [tf.constant(v) for v in values]
    with tf.GradientTape() as tape:
        tape.watch(x)
        merged = gs.dynamic_stitch(list(map(tf.constant, indices)), x, **options)
    g = data.draw(whole_numbers(tuple(merged.shape)))
    grads = tape.gradient(merged, x, output_gradients=tf.constant(g))
    for grad, right in zip(grads, stitch_grad_oracle(g, indices), strict=True):
        assert_same(grad, right)
    inner_products = sum(np.vdot(grad, v) for grad, v in zip(grads, values, strict=True))
    assert np.vdot(g, merged) == inner_products
