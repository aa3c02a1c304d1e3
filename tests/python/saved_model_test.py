# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""SavedModels, loaded in another process: of this version, and of every release."""

import pathlib
import subprocess
import sys

import gather_stitch as gs
import golden_model
import numpy as np
import pytest
import tensorflow as tf
from checks import assert_same
from gradients_common import gather_grad_oracle
from tensorflow.core.protobuf import saved_model_pb2

GOLDEN = pathlib.Path(__file__).parent / "golden"
RELEASES = sorted(path.name for path in GOLDEN.iterdir() if (path / "saved_model").is_dir())


def replay(folder, tmp_path):
    """The results of a model, from a process that knows nothing but the folder."""
    results = tmp_path / "results.npz"
    done = subprocess.run(
        [sys.executable, str(GOLDEN / "replay.py"), str(folder), str(results)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    with np.load(results) as arrays:
        return dict(arrays.items())


def assert_same_results(actual, expected):
    signatures = {key for key in actual if key.endswith("/signature")}
    assert signatures
    for key in signatures:
        assert_same(actual[key], expected[key.replace("/signature", "/output")], key)
    # The keys tell slices from dense gradients.
    assert set(actual) - signatures == set(expected)
    for key, right in expected.items():
        assert_same(actual[key], right, key)


def ops_and_attrs(folder):
    """(op, attrs) of every node of ours in a SavedModel, which omits attrs at their defaults."""
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((folder / "saved_model" / "saved_model.pb").read_bytes())
    (meta_graph,) = saved.meta_graphs
    nodes = [n for f in meta_graph.graph_def.library.function for n in f.node_def]
    return [
        (n.op, {k: v.s.decode() for k, v in n.attr.items() if v.s})
        for n in nodes
        if n.op.startswith("GatherStitch>")
    ]


@pytest.fixture(scope="module")
def results_of_today():
    model = golden_model.Model()
    return golden_model.evaluate(model, model.inputs)


def test_the_model_is_right(results_of_today):
    # What is compared below is no mistake made twice.
    model = golden_model.Model()
    table = model.table.numpy()
    ids = model.inputs["gather_WRAP_auto"]["ids"]
    right = {
        "WRAP": table[ids % 6],
        "CLIP": table[np.clip(ids, 0, 5)],
        "IGNORE": np.where(((ids >= 0) & (ids < 6))[:, None], table[np.clip(ids, 0, 5)], 0),
    }
    for policy, rows in right.items():
        for gradient in golden_model.GRADIENTS:
            assert_same(results_of_today[f"gather_{policy}_{gradient}/output"], rows)
    for name in model.inputs:
        if name.startswith("variable_"):
            of_tensor = results_of_today[f"{name.replace('variable', 'gather')}/output"]
            assert_same(results_of_today[f"{name}/output"], of_tensor)
    ids = model.inputs["gather_DEFAULT_auto"]["ids"]
    slope = gather_grad_oracle(4 * table[ids] ** 3, ids, (6, 3))
    for policy in ("DEFAULT", "ERROR"):
        assert_same(results_of_today[f"gather_{policy}_dense/first/table/dense"], slope)
        sparse = f"gather_{policy}_sparse/first/table"
        np.testing.assert_array_equal(results_of_today[f"{sparse}/rows"], [0, 1, 3, 5])
        assert_same(results_of_today[f"{sparse}/values"], slope[[0, 1, 3, 5]])
        np.testing.assert_array_equal(
            results_of_today[f"gather_{policy}_auto/first/table/rows"], ids
        )
    merged = results_of_today["stitch/output"]
    np.testing.assert_array_equal(merged[:, 0], [3, 0, 1, 0, 5, 0, -1])
    assert results_of_today["stitch_v2_DEFAULT/output"].shape == (9, 2)
    assert results_of_today["stitch_v2_IGNORE/output"].shape == (5, 2)


def test_saved_and_loaded(tmp_path, results_of_today):
    folder = tmp_path / "today"
    golden_model.write(folder)
    assert_same_results(replay(folder, tmp_path), results_of_today)


def test_the_model_has_every_op(tmp_path):
    golden_model.save(golden_model.Model(), tmp_path / "saved_model")
    nodes = ops_and_attrs(tmp_path)
    assert {op for op, _ in nodes} == {f"GatherStitch>{name}" for name in gs.raw_ops.__all__}
    for attr, values in (
        ("gradient", {"DENSE", "SPARSE"}),
        ("bad_indices_policy", {"ERROR", "IGNORE", "CLIP", "WRAP"}),
    ):
        for gather in ("GatherStitch>GatherV2", "GatherStitch>ResourceGather"):
            assert values <= {attrs.get(attr) for op, attrs in nodes if op == gather}


@pytest.mark.parametrize("release", RELEASES)
def test_a_release_loads(release, tmp_path):
    with np.load(GOLDEN / release / "expected.npz") as arrays:
        expected = dict(arrays.items())
    assert_same_results(replay(GOLDEN / release, tmp_path), expected)


def test_this_version_has_its_golden_model():
    assert gs.__version__ in RELEASES
    files = [path for path in (GOLDEN / gs.__version__).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 200_000


def test_the_choice_of_gradient_survives_loading(tmp_path):
    # In this process too: what is saved as sparse trains on slices after loading.
    class Lookup(tf.Module):
        def __init__(self):
            self.table = tf.Variable(tf.ones([5, 2]))
            for gradient in golden_model.GRADIENTS:
                function = lambda ids, g=gradient: gs.gather(  # noqa: E731
                    self.table, ids, gradient=g
                )
                spec = [tf.TensorSpec([None], tf.int32)]
                setattr(self, gradient, tf.function(function, input_signature=spec))

    tf.saved_model.save(Lookup(), str(tmp_path / "lookup"))
    loaded = tf.saved_model.load(str(tmp_path / "lookup"))
    kinds = {}
    for gradient in golden_model.GRADIENTS:
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(getattr(loaded, gradient)(tf.constant([3, 1, 3])))
        kinds[gradient] = tape.gradient(total, loaded.table)
    np.testing.assert_array_equal(kinds["auto"].indices, [3, 1, 3])
    np.testing.assert_array_equal(kinds["sparse"].indices, [1, 3])
    np.testing.assert_array_equal(kinds["sparse"].values, [[1, 1], [2, 2]])
    assert isinstance(kinds["dense"], tf.Tensor)
    np.testing.assert_array_equal(kinds["dense"][:, 0], [0, 1, 0, 2, 0])
    # An optimizer takes the loaded variable.
    optimizer = tf.keras.optimizers.SGD(1.0)
    optimizer.apply_gradients([(kinds["sparse"], loaded.table)])
    np.testing.assert_array_equal(loaded.table[:, 0], [1, 0, 1, -1, 1])
