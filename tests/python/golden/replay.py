# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Loads a model that write.py wrote, in a process that did not make it, and evaluates it.

python tests/python/golden/replay.py FOLDER RESULTS.npz
"""

import collections
import pathlib
import sys

import numpy as np
import tensorflow as tf

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import golden_model


def replay(folder: pathlib.Path) -> dict[str, np.ndarray]:
    inputs: dict[str, dict[str, np.ndarray]] = collections.defaultdict(dict)
    with np.load(folder / "inputs.npz") as arrays:
        for key, value in arrays.items():
            name, argument = key.split("/")
            inputs[name][argument] = value
    loaded = tf.saved_model.load(str(folder / "saved_model"))
    results = golden_model.evaluate(loaded, inputs)
    for name, arguments in inputs.items():
        tensors = {argument: tf.constant(value) for argument, value in arguments.items()}
        output = loaded.signatures[name](**tensors)["output"].numpy()
        results[f"{name}/signature"] = (
            output.astype(np.bytes_) if output.dtype == object else output
        )
    return results


if __name__ == "__main__":
    source, target = map(pathlib.Path, sys.argv[1:])
    np.savez(target, **replay(source))
