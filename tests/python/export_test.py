# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Models taken elsewhere: what docs/export.md says is run as it stands there."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import gather_stitch as gs
import keras
import numpy as np
import pytest
import tensorflow as tf
from checks import assert_same
from gather_stitch import _loader
from gather_stitch.keras import Embedding
from gradients_common import gather_stitch_types

DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "export.md"
# Of the model in the document at the ids [2, 0, -1, 1].
RESULT = [[3, 4], [0, 0], [1, 2], [0, 0], [0, 0], [0, 0]]
IDS = [2, 0, -1, 1]


def blocks(language):
    found = re.findall(r"^```(\w*)\n(.*?)^```", DOCUMENT.read_text(), re.M | re.S)
    return [text for name, text in found if name == language]


def run(command, **options):
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, **options
    )


def run_in_tflite(model, *inputs):
    interpreter = tf.lite.Interpreter(model_content=model)
    interpreter.allocate_tensors()
    details = sorted(interpreter.get_input_details(), key=lambda detail: detail["name"])
    for detail, value in zip(details, inputs, strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    (output,) = interpreter.get_output_details()
    return interpreter.get_tensor(output["index"])


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    """The names that the Python of the document defines, and the folder that it ran in."""
    folder = tmp_path_factory.mktemp("export")
    program = folder / "document.py"
    program.write_text(
        "\n".join(blocks("python")) + "\nopen('model.tflite', 'wb').write(flat_model)\n"
        f"print(loaded(tf.constant({IDS})).numpy().tolist())\n"
    )
    done = run([sys.executable, str(program)], cwd=folder)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.strip() == str([[float(x) for x in row] for row in RESULT])
    return folder


def test_a_process_without_the_package(document):
    program = f"""
import sys
import tensorflow as tf
loaded = tf.saved_model.load("portable_model")
print(loaded(tf.constant({IDS})).numpy().tolist())
try:
    tf.saved_model.load("our_model")
except Exception as error:
    print(type(error).__name__, error)
assert "gather_stitch" not in sys.modules
"""
    done = run([sys.executable, "-c", program], cwd=document)
    assert done.returncode == 0, done.stderr[-4000:]
    result, error = done.stdout.split("\n", 1)
    assert result == str([[float(x) for x in row] for row in RESULT])
    # The words that the page explains.
    assert error.startswith("RuntimeError")
    assert "Op type not registered 'GatherStitch>" in error


def test_tflite_runs_the_model(document):
    output = run_in_tflite((document / "model.tflite").read_bytes(), np.array(IDS, np.int32))
    assert_same(output, np.array(RESULT, np.float32))


def test_a_program_in_cpp_runs_our_model(document):
    (source,) = blocks("cpp")
    (document / "load_model.cc").write_text(source)
    (commands,) = [b for b in blocks("") if "g++" in b]
    # What the two short programs in Python print is known here.
    tensorflow, library = tf.sysconfig.get_lib(), str(_loader.OP_LIBRARY)
    answers = iter((tensorflow, library))
    commands = re.sub(r"\$\(python -c \".*?\"\)", lambda _: next(answers), commands)
    assert "python" not in commands.replace(tensorflow, "").replace(library, "")
    done = run(["bash", "-ec", commands], cwd=document)
    assert done.returncode == 0, (done.stdout, done.stderr[-4000:])
    numbers = [float(x) for x in done.stdout.split()]
    assert numbers == [x for row in RESULT for x in row]


def test_what_freezing_leaves_of_our_op():
    # It knows stock's ops only: the page says so.
    from tensorflow.python.framework import convert_to_constants

    variable = tf.Variable([1.0, 2.0])
    spec = [tf.TensorSpec([2], tf.int32)]
    for is_stock in (False, True):
        lookup = tf.function(lambda ids: gs.gather(variable, ids), input_signature=spec)
        if is_stock:
            with gs.use_stock_ops():
                graph = lookup.get_concrete_function()
        else:
            graph = lookup.get_concrete_function()
        if not is_stock:
            with pytest.raises((ValueError, tf.errors.OpError, AttributeError, KeyError)):
                convert_to_constants.convert_variables_to_constants_v2(graph)(tf.constant([1, 0]))
            continue
        frozen = convert_to_constants.convert_variables_to_constants_v2(graph)
        assert_same(frozen(tf.constant([1, 0]))[0], np.array([2, 1], np.float32))


TFLITE_MODELS = {
    "gather": lambda table: lambda ids, rows: gs.gather(rows, ids, axis=1, batch_dims=0),
    "gather_ignore": lambda table: (
        lambda ids, rows: gs.gather(rows, ids, bad_indices_policy="IGNORE")
    ),
    "gather_clip": lambda table: lambda ids, rows: gs.gather(rows, ids, bad_indices_policy="CLIP"),
    "gather_wrap": lambda table: lambda ids, rows: gs.gather(rows, ids, bad_indices_policy="WRAP"),
    "variable": lambda table: lambda ids, rows: gs.gather(table, ids, bad_indices_policy="IGNORE"),
    "stitch": lambda table: lambda ids, rows: gs.dynamic_stitch([ids], [rows]),
    "stitch_size": lambda table: (
        lambda ids, rows: gs.dynamic_stitch(
            [ids, ids[:1]], [rows, rows[1:2]], size=6, bad_indices_policy="IGNORE"
        )
    ),
}


@pytest.mark.parametrize("name", TFLITE_MODELS)
def test_tflite_equals_eager(name):
    module = tf.Module()
    module.table = tf.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    function = TFLITE_MODELS[name](module.table)
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    ids = {
        "gather": [2, 0, 0, 1],
        "stitch": [2, 0, 2, 5],
        "stitch_size": [2, 9, 2, -1],
    }.get(name, [2, -1, 9, 0])
    ids = np.array(ids, np.int32)
    right = function(tf.constant(ids), tf.constant(rows))
    signature = [tf.TensorSpec([4], tf.int32), tf.TensorSpec([4, 3], tf.float32)]
    with gs.use_stock_ops():
        graph = tf.function(function, input_signature=signature).get_concrete_function()
    assert not gather_stitch_types(graph)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([graph], module)
    assert_same(run_in_tflite(converter.convert(), ids, rows), right)


def test_an_embedding_emits_stock_ops():
    layer = Embedding(6, 2, bad_indices_policy="IGNORE")
    ids = tf.constant([[1, -1], [9, 5]])
    right = layer(ids)
    signature = [tf.TensorSpec([2, 2], tf.int32)]
    with gs.use_stock_ops():
        graph = tf.function(layer.__call__, input_signature=signature).get_concrete_function()
    assert not gather_stitch_types(graph)
    assert_same(graph(ids), right)


@keras.saving.register_keras_serializable("tests")
class RowsAndStitch(keras.layers.Layer):
    """A gather from a weight and a stitch, as somebody's own layer has them."""

    def build(self, _):
        self.table = self.add_weight(shape=(7, 4), initializer="uniform", name="table")

    def call(self, ids):
        rows = gs.gather(self.table, ids, bad_indices_policy="IGNORE")
        places = tf.constant([3, 0, 5])
        return gs.dynamic_stitch([places], [tf.transpose(rows, [1, 0, 2])], size=6)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_a_layer_of_keras_saved_and_loaded(tmp_path, policy):
    keras.utils.set_random_seed(2)
    keras.config.set_dtype_policy(policy)
    try:
        inputs = keras.Input((3,), dtype="int32")
        outputs = keras.layers.Dense(2)(RowsAndStitch()(inputs)[3])
        network = keras.Model(inputs, outputs)
    finally:
        keras.config.set_dtype_policy("float32")
    ids = np.array([[1, 6, 7], [-1, 0, 1]])
    network.compile("sgd", "mse")
    network.fit(ids, np.ones((2, 2)), epochs=2, verbose=0)
    right = network.predict(ids, verbose=0)
    path = tmp_path / "network.keras"
    network.save(path)
    loaded = keras.saving.load_model(path)
    assert_same(loaded.predict(ids, verbose=0), right)
    loaded.fit(ids, np.ones((2, 2)), epochs=1, verbose=0)
    assert not np.array_equal(loaded.predict(ids, verbose=0), right)
    # As a model for who has no plugin.
    with gs.use_stock_ops():
        graph = tf.function(
            lambda i: loaded(i), input_signature=[tf.TensorSpec([2, 3], tf.int32)]
        ).get_concrete_function()
    assert not gather_stitch_types(graph)
    np.testing.assert_array_equal(graph(tf.constant(ids, tf.int32)), loaded.predict(ids, verbose=0))


def test_the_library_has_the_name_that_the_page_gives():
    assert _loader.OP_LIBRARY.name == "_ops.so"
    assert _loader.OP_LIBRARY.is_file()
