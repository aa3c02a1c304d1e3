# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""use_stock_ops(): the same results out of TensorFlow's own ops."""

import concurrent.futures
import subprocess
import sys

import gather_stitch as gs
import numpy as np
import pytest
import tensorflow as tf
from cases import POLICIES, STITCH_CASES, indices_tensors
from checks import assert_same, gather_oracle, stitch_oracle, types_of_ops
from gradients_common import (
    GATHER_CASES,
    INTEGER_DTYPES,
    as_numpy,
    case_id,
    gather_grad_oracle,
    gather_stitch_types,
    output_shape,
    random_indices,
    random_values,
    seeded,
    stitch_grad_oracle,
)


def in_stock_ops(function, *inputs, mode="eager"):
    """The result of `function` with use_stock_ops(), none of whose ops is ours."""
    if mode == "eager":
        with gs.use_stock_ops(), types_of_ops() as types:
            result = function(*inputs)
        assert not [t for t in types if t.startswith("GatherStitch>")], dict(types)
        return result
    specs = [tf.TensorSpec(None if mode == "unknown" else i.shape, i.dtype) for i in inputs]
    traced = tf.function(function, input_signature=specs)
    with gs.use_stock_ops():
        graph = traced.get_concrete_function()
    assert gather_stitch_types(graph) == []
    # What was traced stays, outside of the context too.
    return graph(*inputs)


MODES = ("eager", "static", "unknown")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("case", GATHER_CASES, ids=case_id)
def test_gather_and_its_gradient(case, policy, mode):
    params_shape, indices_shape, axis, batch_dims = case
    rng = seeded(case, policy, mode)
    params = random_values(rng, params_shape, "float32")
    indices = random_indices(rng, indices_shape, params_shape[axis], policy)
    upstream = random_values(rng, output_shape(*case), "float32")

    def run(params, indices, upstream):
        with tf.GradientTape() as tape:
            tape.watch(params)
            output = gs.gather(
                params, indices, axis=axis, batch_dims=batch_dims, bad_indices_policy=policy
            )
        grad = tape.gradient(output, params, output_gradients=upstream)
        return output, tf.convert_to_tensor(grad)

    inputs = [tf.constant(i) for i in (params, indices, upstream)]
    output, grad = in_stock_ops(run, *inputs, mode=mode)
    assert_same(output, gather_oracle(params, indices, axis, batch_dims, policy))
    expected = gather_grad_oracle(upstream, indices, params_shape, axis, batch_dims, policy)
    # A zero may have the other sign.
    assert_same(grad + 0.0, expected + 0.0)


@pytest.mark.parametrize("index_dtype", INTEGER_DTYPES)
@pytest.mark.parametrize("policy", POLICIES)
def test_gather_of_every_index_dtype(policy, index_dtype):
    params = np.arange(15, dtype=np.float32).reshape(5, 3)
    indices = random_indices(seeded(policy, index_dtype), (9,), 5, policy, index_dtype)
    if policy in ("IGNORE", "CLIP", "WRAP"):
        limits = np.iinfo(index_dtype)
        indices[:4] = [limits.min, limits.max, limits.max - 1, 4]
    expected = gather_oracle(params, indices, policy=policy)
    for mode in MODES:
        actual = in_stock_ops(
            lambda p, i: gs.gather(p, i, bad_indices_policy=policy),
            tf.constant(params),
            tf.constant(indices),
            mode=mode,
        )
        assert_same(actual, expected)


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint16", "int32", "uint64", "half", "bfloat16", "complex64"]
)
def test_gather_of_other_dtypes(dtype):
    params = random_values(seeded(dtype), (4, 2), dtype)
    for policy in ("DEFAULT", "IGNORE", "WRAP"):
        indices = random_indices(seeded(policy), (6,), 4, policy)
        for mode in MODES:
            actual = in_stock_ops(
                lambda p, i, policy=policy: gs.gather(p, i, bad_indices_policy=policy),
                tf.constant(params),
                tf.constant(indices),
                mode=mode,
            )
            assert_same(actual, gather_oracle(params, indices, policy=policy))


def test_gather_of_strings():
    words = tf.constant(["a", "b", "c"])
    for policy, right in (("IGNORE", [b"c", b"", b"a"]), ("CLIP", [b"c", b"a", b"a"])):
        actual = in_stock_ops(
            lambda w, policy=policy: gs.gather(w, [2, -1, 0], bad_indices_policy=policy), words
        )
        np.testing.assert_array_equal(actual, right)


@pytest.mark.parametrize("mode", MODES)
def test_an_empty_table(mode):
    # IGNORE gives zeros where there is no row at all; CLIP and WRAP have none to give.
    for shape, axis, batch_dims, indices in (
        ((0, 3), 0, 0, [[0, -1]]),
        ((2, 0), 1, 0, [5]),
        ((2, 0, 3), 1, 1, [[0], [7]]),
        ((2, 0), -1, -1, [[0, 1], [2, 3]]),
    ):

        def run(params, indices, policy="IGNORE", axis=axis, batch_dims=batch_dims):
            return gs.gather(
                params, indices, axis=axis, batch_dims=batch_dims, bad_indices_policy=policy
            )

        inputs = [tf.zeros(shape), tf.constant(indices)]
        right = np.zeros(output_shape(shape, np.shape(indices), axis, batch_dims), np.float32)
        if batch_dims == -1:
            # One batch dimension: the last of two counts from the end.
            assert right.shape == (2, 2)
        assert_same(in_stock_ops(run, *inputs, mode=mode), right)
        for policy in ("DEFAULT", "ERROR", "CLIP", "WRAP"):
            with pytest.raises(tf.errors.InvalidArgumentError):
                in_stock_ops(
                    lambda p, i, run=run, policy=policy: run(p, i, policy), *inputs, mode=mode
                )


@pytest.mark.parametrize("policy", ["DEFAULT", "ERROR"])
def test_a_bad_index_of_gather(policy):
    for mode in MODES:
        for bad in (5, -1):
            with pytest.raises(tf.errors.InvalidArgumentError, match=r"is not in \[0, 5\)"):
                in_stock_ops(
                    lambda i: gs.gather(tf.zeros([5]), i, bad_indices_policy=policy),
                    tf.constant([0, bad]),
                    mode=mode,
                )


def test_a_wrong_axis_or_batch_dims():
    with gs.use_stock_ops():
        for policy in POLICIES:
            with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=r"axis|rank"):
                gs.gather(tf.zeros([2, 3]), [0], axis=2, bad_indices_policy=policy)
            with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=r"axis|rank"):
                gs.gather(tf.zeros([2, 3]), [0], axis=-3, bad_indices_policy=policy)
        with pytest.raises(ValueError, match="bad_indices_policy"):
            gs.gather([1], [0], bad_indices_policy="NONE")
        with pytest.raises(ValueError, match="gradient"):
            gs.gather([1], [0], gradient="none")
        with pytest.raises(TypeError, match="indices"):
            gs.gather([1], [0.5])


def test_an_axis_of_run_time():
    params = np.arange(24.0).reshape(2, 3, 4)
    for policy in ("IGNORE", "CLIP", "WRAP"):
        for axis in (0, 1, 2, -1, -3):
            for dtype in (tf.int32, tf.int64):
                actual = in_stock_ops(
                    lambda p, a, policy=policy: gs.gather(
                        p, [[0, -1], [9, 1]], axis=a, bad_indices_policy=policy
                    ),
                    tf.constant(params),
                    tf.constant(axis, dtype),
                    mode="unknown",
                )
                assert_same(actual, gather_oracle(params, np.array([[0, -1], [9, 1]]), axis,
                                                  policy=policy))  # fmt: skip


def test_the_gradient_option_is_accepted():
    x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    for gradient in ("auto", "dense", "sparse"):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = in_stock_ops(lambda x, g=gradient: gs.gather(x, [1, 1], gradient=g), x)
        np.testing.assert_array_equal(as_numpy(tape.gradient(y, x)), [[0, 0], [2, 2]])


def test_gather_from_a_variable():
    table = tf.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    for arguments in ({}, {"bad_indices_policy": "WRAP"}):
        with tf.GradientTape() as tape:
            y = in_stock_ops(lambda a=arguments: gs.gather(table, [1, 1, 0], **a))
        np.testing.assert_array_equal(y, [[3, 4], [3, 4], [1, 2]])
        np.testing.assert_array_equal(as_numpy(tape.gradient(y, table)), [[1, 1], [2, 2], [0, 0]])


def test_batch_gather():
    params, indices = tf.constant([[1, 2, 3], [4, 5, 6]]), tf.constant([[2, 0], [1, 1]])
    for mode in MODES:
        actual = in_stock_ops(gs.batch_gather, params, indices, mode=mode)
        np.testing.assert_array_equal(actual, [[3, 1], [5, 5]])


# ---- Stitch ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "index_dtype"),
    [("eager", tf.int32), ("eager", tf.int64), ("static", tf.int32), ("unknown", tf.int64)],
    ids=lambda value: getattr(value, "name", value),
)
@pytest.mark.parametrize("case", STITCH_CASES, ids=str)
def test_stitch_and_its_gradient(case, index_dtype, mode):
    indices = indices_tensors(case.indices, index_dtype)
    arrays = [i.numpy() for i in indices]
    rng = seeded(case, mode)
    data = [random_values(rng, (*i.shape, *case.constant), "float32") for i in indices]
    rows = max((int(a.max()) + 1 for a in arrays if a.size), default=0)
    for size, policy in ((None, "DEFAULT"), (rows + 2, "DEFAULT"), (rows // 2, "IGNORE")):
        merged_rows = rows if size is None else size
        upstream = random_values(rng, (merged_rows, *case.constant), "float32")

        def run(*inputs, size=size, policy=policy):
            half = len(inputs) // 2
            indices, data = list(inputs[:half]), list(inputs[half:-1])
            with tf.GradientTape() as tape:
                tape.watch(data)
                merged = gs.dynamic_stitch(indices, data, size=size, bad_indices_policy=policy)
            return merged, tape.gradient(merged, data, output_gradients=inputs[-1])

        inputs = [*indices, *(tf.constant(d) for d in data), tf.constant(upstream)]
        merged, grads = in_stock_ops(run, *inputs, mode=mode)
        assert_same(merged, stitch_oracle(arrays, data, size, "IGNORE"))
        for grad, right in zip(grads, stitch_grad_oracle(upstream, arrays), strict=True):
            assert_same(tf.convert_to_tensor(grad) + 0.0, right + 0.0)


def test_stitch_by_a_size_of_run_time():
    for dtype in (tf.int32, tf.int64):
        actual = in_stock_ops(
            lambda n: gs.parallel_dynamic_stitch([[3, 1]], [[1.0, 2.0]], size=n),
            tf.constant(6, dtype),
            mode="static",
        )
        np.testing.assert_array_equal(actual, [0, 2, 0, 1, 0, 0])


@pytest.mark.parametrize("mode", MODES)
def test_a_bad_index_of_stitch(mode):
    data = tf.constant([1.0, 2.0])
    for bad, options in (
        (-1, {}),
        (-1, {"size": 4}),
        (4, {"size": 4}),
        (-1, {"size": 4, "bad_indices_policy": "ERROR"}),
        (9, {"size": 4, "bad_indices_policy": "ERROR"}),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError):
            in_stock_ops(
                lambda i, d, o=options: gs.dynamic_stitch([i], [d], **o),
                tf.constant([0, bad]),
                data,
                mode=mode,
            )


def test_stitch_of_other_dtypes():
    indices = [np.array([2, 0]), np.array([2])]
    for dtype in ("bool", "int8", "uint16", "int64", "half", "bfloat16", "complex128"):
        data = [random_values(seeded(dtype), (len(i), 3), dtype) for i in indices]
        actual = in_stock_ops(lambda *d: gs.dynamic_stitch(indices, list(d)), *data)
        assert_same(actual, stitch_oracle(indices, data))
    words = in_stock_ops(lambda: gs.dynamic_stitch([[2, 0], [0]], [["a", "b"], ["c"]]))
    np.testing.assert_array_equal(words, [b"c", b"", b"a"])


def test_wrong_shapes_of_stitch():
    with gs.use_stock_ops():
        with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="does not start"):
            gs.dynamic_stitch([[0, 1]], [[1.0, 2.0, 3.0]])
        with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=r"Need data\[0\]"):
            gs.dynamic_stitch([[0], [1]], [[[1.0]], [[1.0, 2.0]]])
        with pytest.raises(ValueError, match="same length"):
            gs.dynamic_stitch([[0]], [[1.0], [2.0]])


# ---- The context -------------------------------------------------------------


def our_ops(function):
    with types_of_ops() as types:
        function()
    return [t for t in types if t.startswith("GatherStitch>")]


def lookup():
    return gs.gather(tf.constant([1, 2]), tf.constant([0]))


def test_the_context_ends():
    assert our_ops(lookup) == ["GatherStitch>GatherV2"]
    with gs.use_stock_ops():
        assert our_ops(lookup) == []
        with gs.use_stock_ops():
            assert our_ops(lookup) == []
        assert our_ops(lookup) == []
    assert our_ops(lookup) == ["GatherStitch>GatherV2"]
    with pytest.raises(RuntimeError, match="inside"), gs.use_stock_ops():
        raise RuntimeError("inside")
    assert our_ops(lookup) == ["GatherStitch>GatherV2"]


def test_the_context_is_of_one_thread():
    with concurrent.futures.ThreadPoolExecutor(1) as other, gs.use_stock_ops():
        graph = other.submit(lambda: tf.function(lookup).get_concrete_function()).result()
        assert gather_stitch_types(graph) == ["GatherStitch>GatherV2"]
        here = tf.function(lookup).get_concrete_function()
        assert gather_stitch_types(here) == []
    graph = tf.function(lookup).get_concrete_function()
    assert gather_stitch_types(graph) == ["GatherStitch>GatherV2"]


def test_a_function_keeps_what_it_was_traced_into():
    ours = tf.function(lookup)
    assert gather_stitch_types(ours.get_concrete_function()) == ["GatherStitch>GatherV2"]
    stock = tf.function(lookup)
    with gs.use_stock_ops():
        assert gather_stitch_types(ours.get_concrete_function()) == ["GatherStitch>GatherV2"]
        stock.get_concrete_function()
    assert gather_stitch_types(stock.get_concrete_function()) == []


def test_an_exported_model_loads_without_the_package(tmp_path):
    class Lookup(tf.Module):
        def __init__(self):
            self.table = tf.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])

        @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
        def __call__(self, ids):
            rows = gs.gather(self.table, ids, bad_indices_policy="IGNORE")
            return gs.dynamic_stitch([[0, 2], [2]], [rows[:2], rows[2:3]], size=4)

    with gs.use_stock_ops():
        tf.saved_model.save(Lookup(), str(tmp_path / "model"))
    program = f"""
import sys
import tensorflow as tf
loaded = tf.saved_model.load({str(tmp_path / "model")!r})
print(loaded(tf.constant([2, 0, 7])).numpy().tolist())
assert "gather_stitch" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.strip() == "[[5.0, 6.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]"


def test_a_model_converts_to_tflite():
    # onnx/keras-onnx#656, TFLite: exporters know no DynamicStitch.
    @tf.function(
        input_signature=[
            tf.TensorSpec([3], tf.int32),
            tf.TensorSpec([3, 2], tf.float32),
            tf.TensorSpec([2], tf.int32),
        ]
    )
    def model(ids, rows, picked):
        merged = gs.dynamic_stitch([ids], [rows], size=5)
        return gs.gather(merged, picked, bad_indices_policy="IGNORE")

    with gs.use_stock_ops():
        graph = model.get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([graph])
    interpreter = tf.lite.Interpreter(model_content=converter.convert())
    interpreter.allocate_tensors()
    inputs = [
        np.array([1, 4, 1], np.int32),
        np.array([[1, 2], [3, 4], [5, 6]], np.float32),
        np.array([1, 3], np.int32),
    ]
    by_name = {"ids": inputs[0], "picked": inputs[2], "rows": inputs[1]}
    for detail in interpreter.get_input_details():
        name = next(n for n in by_name if n in detail["name"])
        interpreter.set_tensor(detail["index"], by_name[name])
    interpreter.invoke()
    (output,) = interpreter.get_output_details()
    np.testing.assert_array_equal(interpreter.get_tensor(output["index"]), [[5, 6], [0, 0]])
