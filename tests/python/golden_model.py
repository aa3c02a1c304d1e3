# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""A small model with every op of the package, its inputs, and what there is to know of it."""

from __future__ import annotations

import pathlib

import gather_stitch as gs
import numpy as np
import tensorflow as tf

GATHER_POLICIES = ("DEFAULT", "ERROR", "IGNORE", "CLIP", "WRAP")
STITCH_POLICIES = ("DEFAULT", "ERROR", "IGNORE")
GRADIENTS = ("auto", "dense", "sparse")

_GOOD_IDS = np.array([3, 0, 3, 5, 1, 3], np.int32)
_ANY_IDS = np.array([3, -1, 6, 5, 1, -13], np.int32)
_INDICES_0 = np.array([[4, 0], [4, 2]], np.int32)
_INDICES_1 = np.array([2, 6, 2], np.int32)
_DATA_0 = np.arange(1, 9, dtype=np.float32).reshape(2, 2, 2)
_DATA_1 = np.arange(-3, 3, dtype=np.float32).reshape(3, 2)


def _spec(name: str, array: np.ndarray) -> tf.TensorSpec:
    return tf.TensorSpec([None] * array.ndim, array.dtype, name)


class Model(tf.Module):
    """A table of whole numbers, and a function for every op and choice of attrs."""

    def __init__(self) -> None:
        super().__init__()
        self.table = tf.Variable(np.arange(18, dtype=np.float32).reshape(6, 3) % 5 - 2)
        self.inputs: dict[str, dict[str, np.ndarray]] = {}
        for policy in GATHER_POLICIES:
            ids = _GOOD_IDS if policy in ("DEFAULT", "ERROR") else _ANY_IDS
            for gradient in GRADIENTS:
                self._add(
                    f"gather_{policy}_{gradient}",
                    lambda ids, p=policy, g=gradient: gs.gather(
                        self.table.value(), ids, bad_indices_policy=p, gradient=g
                    ),
                    ids=ids,
                )
        self._add(
            "gather_axis",
            lambda ids: gs.gather(self.table.value(), ids, axis=-1, bad_indices_policy="WRAP"),
            ids=np.array([[0, -1], [2, 5]], np.int64),
        )
        self._add(
            "gather_batch",
            lambda ids: gs.gather(
                self.table, ids, axis=1, batch_dims=1, bad_indices_policy="IGNORE"
            ),
            ids=np.array([[0, 1], [2, 2], [1, 7], [0, 0], [2, 1], [1, 1]], np.int16),
        )
        for policy, gradient in zip(GATHER_POLICIES, (*GRADIENTS, "dense", "sparse"), strict=True):
            self._add(
                f"variable_{policy}_{gradient}",
                lambda ids, p=policy, g=gradient: gs.gather(
                    self.table, ids, bad_indices_policy=p, gradient=g
                ),
                ids=_GOOD_IDS if policy in ("DEFAULT", "ERROR") else _ANY_IDS,
            )
        self._add(
            "variable_axis",
            lambda ids: gs.gather(self.table, ids, axis=-1, bad_indices_policy="WRAP"),
            ids=np.array([[0, -1], [2, 5]], np.int64),
        )
        self._add(
            "gather_words",
            lambda ids: gs.gather(tf.constant(["zero", "one", "two"]), ids),
            ids=np.array([2, 0, 1, 2], np.uint8),
        )
        self._add(
            "gather_half",
            lambda ids: tf.cast(gs.gather(tf.constant([0.5, 1.5, 2.5], tf.half), ids), tf.float32),
            ids=np.array([2, 0], np.uint64),
        )
        stitch_inputs = {
            "indices_0": _INDICES_0, "data_0": _DATA_0, "indices_1": _INDICES_1, "data_1": _DATA_1
        }  # fmt: skip
        self._add(
            "stitch",
            lambda indices_0, data_0, indices_1, data_1: gs.parallel_dynamic_stitch(
                [indices_0, indices_1], [data_0, data_1]
            ),
            **stitch_inputs,
        )
        for policy in STITCH_POLICIES:
            size = 5 if policy == "IGNORE" else 9
            self._add(
                f"stitch_v2_{policy}",
                lambda indices_0, data_0, indices_1, data_1, s=size, p=policy: gs.dynamic_stitch(
                    [indices_0, indices_1], [data_0, data_1], size=s, bad_indices_policy=p
                ),
                **stitch_inputs,
            )
        # Their gradients are in the graph: the ops GatherV2Grad, GatherV2SparseGrad and
        # ParallelDynamicStitchGrad.
        for gradient in GRADIENTS:
            self._add(
                f"slope_{gradient}", lambda ids, g=gradient: self._slope(ids, g), ids=_GOOD_IDS
            )

    def _add(self, name, function, **inputs) -> None:
        specs = {argument: _spec(argument, value) for argument, value in inputs.items()}

        def with_arguments(*values):
            return function(**dict(zip(specs, values, strict=True)))

        # The names of the arguments are those of the signature's inputs.
        traced = tf.function(
            lambda values: {"output": with_arguments(*(values[a] for a in specs))},
            input_signature=[specs],
            autograph=False,
        )
        setattr(self, name, traced)
        self.inputs[name] = inputs

    def _slope(self, ids, gradient):
        table = tf.identity(self.table)
        with tf.GradientTape() as tape:
            tape.watch(table)
            rows = gs.gather(table, ids, gradient=gradient)
            merged = gs.dynamic_stitch([[0, 1, 0, 2, 5, 1]], [rows], size=7)
            energy = tf.reduce_sum(merged**3)
        return tf.convert_to_tensor(tape.gradient(energy, table))


def evaluate(model, inputs) -> dict[str, np.ndarray]:
    """Outputs of all functions, and of the differentiable ones gradients of first and second
    order and the Jacobian, each through calls of the functions as they are.
    """
    results = {}
    for name, arguments in inputs.items():
        function = getattr(model, name)
        tensors = {argument: tf.constant(value) for argument, value in arguments.items()}
        sources = {"table": model.table}
        sources.update({a: t for a, t in tensors.items() if t.dtype.is_floating})
        with tf.GradientTape() as second:
            second.watch(sources)
            with tf.GradientTape(persistent=True) as first:
                first.watch(sources)
                output = function(tensors)["output"]
                if output.dtype.is_floating:
                    energy = tf.reduce_sum(output**4)
            results[f"{name}/output"] = _as_array(output)
            if not output.dtype.is_floating:
                continue
            slopes = {s: g for s, g in first.gradient(energy, sources).items() if g is not None}
            total = tf.add_n(
                [tf.reduce_sum(tf.convert_to_tensor(g) ** 2) for g in slopes.values()] or [0.0]
            )
        for source, slope in slopes.items():
            _record(results, f"{name}/first/{source}", slope)
        for source, slope in second.gradient(total, sources).items():
            if slope is not None:
                _record(results, f"{name}/second/{source}", tf.convert_to_tensor(slope))
        if "slope" not in name:
            jacobian = first.jacobian(output, sources, experimental_use_pfor=True)
            for source, slope in jacobian.items():
                if slope is not None:
                    _record(results, f"{name}/jacobian/{source}", slope)
    return results


def _record(results, key, slope) -> None:
    if isinstance(slope, tf.IndexedSlices):
        results[f"{key}/values"] = slope.values.numpy()
        results[f"{key}/rows"] = slope.indices.numpy()
    else:
        results[f"{key}/dense"] = slope.numpy()


def _as_array(tensor) -> np.ndarray:
    array = tensor.numpy()
    return array.astype(np.bytes_) if array.dtype == object else array


def write(folder: pathlib.Path) -> None:
    """The SavedModel, the inputs, and the results."""
    folder.mkdir(parents=True)
    model = Model()
    save(model, folder / "saved_model")
    inputs = {
        f"{name}/{argument}": value
        for name, arguments in model.inputs.items()
        for argument, value in arguments.items()
    }
    np.savez_compressed(folder / "inputs.npz", **inputs)
    np.savez_compressed(folder / "expected.npz", **evaluate(model, model.inputs))


def save(model: Model, folder: pathlib.Path) -> None:
    signatures = {name: getattr(model, name) for name in model.inputs}
    options = tf.saved_model.SaveOptions(save_debug_info=False)
    tf.saved_model.save(model, str(folder), signatures, options)
