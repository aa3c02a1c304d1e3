# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""gather_stitch.keras.Embedding beside keras.layers.Embedding."""

import pickle
import subprocess
import sys

import gather_stitch as gs
import gather_stitch.keras
import keras
import numpy as np
import pytest
import tensorflow as tf
from checks import assert_same, types_of_ops
from gradients_common import as_numpy, op_types

Ours, Stock = gather_stitch.keras.Embedding, keras.layers.Embedding
ROWS, COLUMNS = 20, 6
TABLE = np.random.default_rng(5).standard_normal((ROWS, COLUMNS)).astype(np.float32)
IDS = np.array([[1, 5, 0, 19], [7, 0, 7, 2], [3, 3, 3, 0]])


def layer_of(cls, **options):
    return cls(ROWS, COLUMNS, weights=TABLE, **options)


def both(**options):
    return layer_of(Ours, **options), layer_of(Stock, **options)


def run_child(code, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def reads(types):
    """The counts of what reads a table, by rows and whole."""
    return types["GatherStitch>ResourceGather"], types["ReadVariableOp"]


# ---- Values ------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "int16", "float32"])
def test_values(dtype):
    ours, stock = both()
    ids = tf.constant(IDS.astype(dtype))
    with types_of_ops() as types:
        rows = ours(ids)
    assert reads(types) == (1, 0)
    assert_same(rows, stock(ids))


def test_the_table_is_not_read_in_a_function():
    ours, stock = both()
    ours_types, stock_types = (
        op_types(tf.function(layer).get_concrete_function(tf.constant(IDS)))
        for layer in (ours, stock)
    )
    assert "GatherStitch>ResourceGather" in ours_types
    assert "ReadVariableOp" not in ours_types
    assert "ReadVariableOp" in stock_types


@pytest.mark.parametrize("ids", [[-1, -20, 3], [[-7]], -2, []])
def test_negative_ids_count_from_the_end(ids):
    ours, stock = both()
    ids = tf.constant(ids, tf.int32)
    assert_same(ours(ids), stock(ids))


@pytest.mark.parametrize("bad", [20, -21])
def test_ids_outside_are_errors(bad):
    for layer in both():
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"is not in \[0, 20\)"):
            layer(tf.constant([0, bad]))


def test_arrays_lists_and_symbolic_inputs():
    ours, stock = both()
    assert_same(ours(IDS), stock(IDS))
    inputs = keras.Input([None], dtype="int32")
    assert ours(inputs).shape == stock(inputs).shape == (None, None, COLUMNS)
    assert ours(inputs).dtype == stock(inputs).dtype
    assert ours.compute_output_shape((4, None)) == (4, None, COLUMNS)


def test_ragged_ids():
    ours, stock = both()
    ids = tf.ragged.constant([[1, 2, -1], [], [5]])
    with types_of_ops() as types:
        rows = ours(ids)
    assert reads(types) == (1, 0)
    assert_same(rows.flat_values, stock(ids).flat_values)
    assert_same(rows.row_splits, stock(ids).row_splits)
    padded = layer_of(Ours, bad_indices_policy="IGNORE")(ids)
    assert padded.flat_values[2].numpy().tolist() == [0] * COLUMNS


def test_sparse_ids_take_the_way_of_keras():
    ours, stock = both()
    ids = tf.sparse.from_dense([[1, 0, 2], [0, 0, 5]])
    assert_same(ours(ids), stock(ids))
    with pytest.raises(ValueError, match="for a SparseTensor"):
        layer_of(Ours, bad_indices_policy="IGNORE")(ids)


@pytest.mark.parametrize("policy", ["ERROR", "IGNORE", "CLIP", "WRAP"])
def test_policies_decide_about_every_id_outside(policy):
    layer = layer_of(Ours, bad_indices_policy=policy)
    ids = tf.constant([3, -1, 25])
    if policy == "ERROR":
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"indices\[1\] = -1 is not in"):
            layer(ids)
        return
    with tf.GradientTape() as tape:
        rows = layer(ids)
    assert_same(rows, gs.gather(tf.constant(TABLE), ids, bad_indices_policy=policy))
    gradient = tape.gradient(rows, layer.trainable_variables[0])
    named = {"IGNORE": [3], "CLIP": [3, 0, 19], "WRAP": [3, 19, 5]}[policy]
    assert gradient.indices.numpy().tolist() == named


def test_an_unknown_policy():
    with pytest.raises(ValueError, match="bad_indices_policy must be one of"):
        Ours(3, 2, bad_indices_policy="DROP")


def test_arguments_are_those_of_keras():
    assert issubclass(Ours, Stock)
    options = {
        "embeddings_initializer": keras.initializers.RandomNormal(seed=3),
        "embeddings_regularizer": "l2",
        "embeddings_constraint": "unit_norm",
        "mask_zero": True,
        "name": "words",
    }
    ours, stock = Ours(ROWS, COLUMNS, **options), Stock(ROWS, COLUMNS, **options)
    assert_same(ours(IDS), stock(IDS))
    assert [loss.numpy() for loss in ours.losses] == [loss.numpy() for loss in stock.losses]
    assert ours.get_config() == stock.get_config()
    assert [w.path for w in ours.weights] == [w.path for w in stock.weights]
    with pytest.raises(ValueError, match="input_dim"):
        Ours(0, COLUMNS)


def test_gradient_is_that_of_keras():
    def gradient(layer):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(IDS) ** 2)
        return tape.gradient(loss, layer.trainable_variables[0])

    ours, stock = map(gradient, both())
    assert isinstance(ours, tf.IndexedSlices)
    assert isinstance(stock, tf.IndexedSlices)
    assert_same(as_numpy(ours), as_numpy(stock))


# ---- Masks, precision, scopes ------------------------------------------------


def test_masks():
    for layer in both(mask_zero=True):
        assert_same(layer.compute_mask(tf.constant(IDS)), IDS != 0)
    models = [
        keras.Sequential(
            [
                layer,
                keras.layers.LSTM(
                    4, kernel_initializer="ones", recurrent_initializer="ones", use_cudnn=False
                ),
            ]
        )
        for layer in both(mask_zero=True)
    ]
    padded = np.pad(IDS + 1, ((0, 0), (0, 3))) % ROWS
    assert_same(models[0](padded), models[1](padded))
    # Padding makes no difference, so the mask has arrived.
    assert_same(models[0](padded), models[0](padded[:, :4]))


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "bfloat16", "float64"])
def test_precision(policy):
    ours, stock = both(dtype=policy)
    assert ours.variable_dtype == stock.variable_dtype
    with types_of_ops() as types:
        rows = ours(IDS)
    assert reads(types) == (1, 0)
    assert rows.dtype == ours.compute_dtype
    assert_same(rows, stock(IDS))


def test_a_variable_under_an_autocast_scope():
    class Tied(keras.layers.Layer):
        """Gathers in a layer that casts its variables."""

        def build(self, _):
            self.table = self.add_weight(shape=(ROWS, COLUMNS), initializer="ones")

        def call(self, ids):
            return gs.gather(self.table, ids), keras.ops.take(self.table, ids, axis=0)

    layer = Tied(dtype="mixed_float16")
    layer.build(None)
    with types_of_ops() as types:
        ours, stock = layer(tf.constant([1, 2]))
    assert types["GatherStitch>ResourceGather"] == 1
    assert ours.dtype == tf.float16
    assert_same(ours, stock)


def test_a_stateless_scope_gives_the_value():
    layer = layer_of(Ours)
    other = TABLE[::-1].copy()
    rows, _ = layer.stateless_call([other], [], tf.constant([0, 1]))
    assert_same(rows, other[:2])
    # In a scope that knows nothing of the variable it is read as ever.
    with keras.StatelessScope():
        assert_same(layer(tf.constant([0, 1])), TABLE[:2])


def test_lora_takes_the_way_of_keras():
    ours, stock = both()
    for layer in (ours, stock):
        layer.enable_lora(2, a_initializer="ones", b_initializer="ones")
    with types_of_ops() as types:
        rows = ours(IDS)
    assert types["GatherStitch>ResourceGather"] == 0
    assert_same(rows, stock(IDS))
    assert len(ours.trainable_variables) == 2
    layer = layer_of(Ours, bad_indices_policy="IGNORE")
    layer.enable_lora(2)
    with pytest.raises(ValueError, match="with LoRA"):
        layer(IDS)


@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_quantised_layers_take_the_way_of_keras(mode):
    ours, stock = both()
    for layer in (ours, stock):
        layer.quantize(mode)
    with types_of_ops() as types:
        rows = ours(IDS)
    assert types["GatherStitch>ResourceGather"] == 0
    assert_same(rows, stock(IDS))
    layer = layer_of(Ours, bad_indices_policy="IGNORE")
    layer.quantize(mode)
    with pytest.raises(ValueError, match="in a quantised layer"):
        layer(IDS)

    class Subclass(Ours):
        pass

    with pytest.raises(NotImplementedError):
        layer_of(Subclass).quantize(mode)


# ---- Models ------------------------------------------------------------------


def sequential(cls):
    return keras.Sequential(
        [
            keras.Input([4], dtype="int32"),
            cls(ROWS, COLUMNS, name="embedding"),
            keras.layers.Flatten(name="flatten"),
            keras.layers.Dense(1, name="dense"),
        ]
    )


def functional(cls):
    users, items = (keras.Input([], dtype="int64", name=name) for name in ("users", "items"))
    table = cls(ROWS, COLUMNS, name="shared")
    product = keras.layers.Dot(1, name="dot")([table(users), table(items)])
    output = keras.layers.Dense(1, name="dense")(product)
    return keras.Model({"users": users, "items": items}, output)


def inputs_of(model, count=64):
    rng = np.random.default_rng(7)
    labels = rng.standard_normal((count, 1)).astype(np.float32)
    if isinstance(model, keras.Sequential):
        return rng.integers(0, ROWS, (count, 4)), labels
    return {name: rng.integers(0, ROWS, count) for name in ("users", "items")}, labels


def same_models(build):
    ours, stock = build(Ours), build(Stock)
    stock.set_weights([np.random.default_rng(3).standard_normal(w.shape) for w in stock.weights])
    ours.set_weights(stock.get_weights())
    return ours, stock


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adagrad"])
@pytest.mark.parametrize("build", [sequential, functional])
def test_fit_evaluate_predict(build, optimizer):
    results = []
    for model in same_models(build):
        x, y = inputs_of(model)
        model.compile(optimizer, "mse", metrics=["mae"])
        history = model.fit(x, y, batch_size=16, epochs=3, shuffle=False, verbose=0)
        results.append(
            [
                history.history["loss"],
                model.evaluate(x, y, verbose=0),
                model.predict(x, verbose=0),
                *model.get_weights(),
            ]
        )
    for ours, stock in zip(*results, strict=True):
        np.testing.assert_allclose(ours, stock, rtol=1e-5, atol=1e-6)


def test_fit_compiled_by_xla():
    results = []
    for model in same_models(sequential):
        x, y = inputs_of(model)
        model.compile("sgd", "mse", jit_compile=True)
        assert model.jit_compile
        results.append(model.fit(x, y, batch_size=16, shuffle=False, verbose=0).history["loss"])
    np.testing.assert_allclose(*results, rtol=1e-5)


def test_padding_under_xla():
    layer = layer_of(Ours, bad_indices_policy="IGNORE")
    compiled = tf.function(layer, jit_compile=True)
    ids = tf.constant([[1, -1], [30, 2]])
    assert_same(compiled(ids), layer(ids))


def test_run_eagerly():
    (model, _), losses = same_models(sequential), []
    x, y = inputs_of(model)
    weights = model.get_weights()
    for eagerly in (True, False):
        model.set_weights(weights)
        model.compile("sgd", "mse", run_eagerly=eagerly)
        losses.append(model.fit(x, y, batch_size=16, shuffle=False, verbose=0).history["loss"])
    np.testing.assert_allclose(*losses, rtol=1e-6)


# ---- Saving and loading ------------------------------------------------------

SAVE_OURS = """
import sys
import keras, gather_stitch.keras
layer = gather_stitch.keras.Embedding(20, 6, name="embedding")
model = keras.Sequential([keras.Input([4], dtype="int32"), layer])
model.save(sys.argv[1])
print(model(keras.ops.ones([1, 4], "int32")).numpy().sum())
"""

LOAD_WITHOUT_US = """
import sys
import keras
model = keras.models.load_model(sys.argv[1])
assert type(model.layers[0]) is keras.layers.Embedding, type(model.layers[0])
assert "gather_stitch" not in sys.modules
print(model(keras.ops.ones([1, 4], "int32")).numpy().sum())
"""


@pytest.mark.parametrize("suffix", ["keras", "h5"])
def test_saved_models_load_where_we_are_not(tmp_path, suffix):
    path = tmp_path / f"model.{suffix}"
    saved = run_child(SAVE_OURS, path).splitlines()[-1]
    assert run_child(LOAD_WITHOUT_US, path).splitlines()[-1] == saved
    # Here they load as they were.
    model = keras.models.load_model(path)
    assert type(model.layers[0]) is Ours


@pytest.mark.parametrize("build", [sequential, functional])
def test_models_of_keras_load_and_give_their_weights(tmp_path, build):
    ours, stock = build(Ours), build(Stock)
    x, _ = inputs_of(stock)
    for name in ("model.keras", "model.weights.h5"):
        path = tmp_path / name
        stock.set_weights([w + 1 for w in stock.get_weights()])
        (stock.save_weights if "weights" in name else stock.save)(path)
        ours.load_weights(path)
        assert_same(ours.predict(x, verbose=0), stock.predict(x, verbose=0))
        (ours.save_weights if "weights" in name else ours.save)(path)
        stock.set_weights([w * 0 for w in stock.get_weights()])
        stock.load_weights(path)
        assert_same(ours.predict(x, verbose=0), stock.predict(x, verbose=0))
    # Their files name the layer of Keras, and keep it.
    stock.save(tmp_path / "stock.keras")
    loaded = keras.models.load_model(tmp_path / "stock.keras")
    assert Ours not in {type(layer) for layer in loaded.layers}


@pytest.mark.parametrize("build", [sequential, functional])
def test_a_model_is_taken_over(build):
    stock = build(Stock)

    def convert(layer):
        cls = Ours if type(layer) is Stock else type(layer)
        return cls.from_config(layer.get_config())

    ours = keras.models.clone_model(stock, clone_function=convert)
    ours.set_weights(stock.get_weights())
    assert Ours in {type(layer) for layer in ours.layers}
    x, _ = inputs_of(stock)
    assert_same(ours.predict(x, verbose=0), stock.predict(x, verbose=0))


def test_training_goes_on_after_loading(tmp_path):
    model, _ = same_models(sequential)
    x, y = inputs_of(model)
    model.compile("adam", "mse")
    model.fit(x, y, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    results = [m.fit(x, y, shuffle=False, verbose=0).history["loss"] for m in (model, loaded)]
    np.testing.assert_allclose(*results, rtol=1e-6)


def test_a_policy_is_saved(tmp_path):
    model = keras.Sequential([layer_of(Ours, bad_indices_policy="IGNORE")])
    model.build([None, 4])
    path = tmp_path / "model.keras"
    model.save(path)
    loaded = keras.models.load_model(path)
    assert loaded.layers[0].bad_indices_policy == "IGNORE"
    ids = tf.constant([[1, -1, 50, 2]])
    assert_same(loaded(ids), model(ids))
    # Where the policy is unknown the model is refused, not loaded without it.
    with pytest.raises(AssertionError, match="bad_indices_policy"):
        run_child(LOAD_WITHOUT_US, path)


def test_saved_model_and_export(tmp_path):
    model, _ = same_models(sequential)
    x, _ = inputs_of(model)
    model.export(tmp_path / "exported", verbose=False)
    served = tf.saved_model.load(tmp_path / "exported")
    np.testing.assert_allclose(
        served.serve(tf.constant(x, tf.int32)), model.predict(x, verbose=0), rtol=1e-6
    )


def test_copies():
    model, _ = same_models(sequential)
    x, _ = inputs_of(model)
    for copy in (pickle.loads(pickle.dumps(model)), keras.models.clone_model(model)):
        assert type(copy.layers[0]) is Ours
        copy.set_weights(model.get_weights())
        assert_same(copy.predict(x, verbose=0), model.predict(x, verbose=0))


def test_subclasses_are_saved_under_their_own_name(tmp_path):
    @keras.saving.register_keras_serializable("tests")
    class Doubled(Ours):
        def call(self, inputs):
            return 2 * super().call(inputs)

    model = keras.Sequential([layer_of(Doubled)])
    assert_same(model(IDS), 2 * TABLE[IDS])
    model.save(tmp_path / "model.keras")
    assert type(keras.models.load_model(tmp_path / "model.keras").layers[0]) is Doubled


# ---- The module --------------------------------------------------------------


def test_imported_when_it_is_used():
    code = """
import sys
import gather_stitch
assert "gather_stitch.keras" not in sys.modules
assert gather_stitch.keras.Embedding.__name__ == "Embedding"
assert "gather_stitch.keras" in sys.modules
try:
    gather_stitch.no_such_name
except AttributeError as error:
    print(error)
"""
    assert "no attribute 'no_such_name'" in run_child(code)


def test_another_backend_is_refused():
    code = """
import keras
keras.backend.backend = lambda: "jax"
try:
    import gather_stitch.keras
except ImportError as error:
    print(error)
"""
    assert "KERAS_BACKEND=tensorflow" in run_child(code)
