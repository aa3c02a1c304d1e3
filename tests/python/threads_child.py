# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Prints hashes of results and texts of errors, computed with a given number of threads.

python threads_child.py THREADS SEED
"""

from __future__ import annotations

import hashlib
import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import gather_stitch as gs
import numpy as np
import tensorflow as tf
from checks import types_of_ops
from gather_stitch import _loader

DTYPES = (tf.float32, tf.float16, tf.bfloat16)


def digest(*values) -> str:
    hashed = hashlib.sha256()
    for value in values:
        array = value.numpy()
        hashed.update(f"{array.dtype} {array.shape} ".encode())
        hashed.update(array.tobytes())
    return hashed.hexdigest()


def results_of_gather(rng, dtype):
    """Each op on work that several threads share, with many duplicates."""
    policies = ("DEFAULT", "ERROR", "IGNORE", "CLIP", "WRAP")
    # The last is one row for all: sums of many.
    for rows, count, inner in ((3000, 20_000, 17), (50_000, 60_000, 3), (7, 40_000, 9)):
        params = tf.constant(rng.standard_normal((rows, inner)), dtype)
        grad = tf.constant(rng.standard_normal((count, inner)), dtype)
        for policy in policies:
            low, high = (0, rows) if policy in policies[:2] else (-rows, 2 * rows)
            indices = tf.constant(rng.integers(low, high, count), tf.int32)
            name = f"{rows} {policy}"
            yield (
                f"gather {name}",
                gs.raw_ops.GatherV2(
                    params=params, indices=indices, axis=0, bad_indices_policy=policy
                ),
            )
            yield (
                f"dense {name}",
                gs.raw_ops.GatherV2Grad(
                    grad=grad,
                    indices=indices,
                    params_shape=[rows, inner],
                    axis=0,
                    bad_indices_policy=policy,
                ),
            )
            for unique in (False, True):
                yield (
                    f"sparse {unique} {name}",
                    gs.raw_ops.GatherV2SparseGrad(
                        grad=grad,
                        indices=indices,
                        params_rows=rows,
                        bad_indices_policy=policy,
                        unique=unique,
                    ),
                )
    batches, outer, rows, count, inner = 6, 3, 200, 900, 5
    indices = tf.constant(rng.integers(0, rows, (batches, count)), tf.int64)
    params = tf.constant(rng.standard_normal((batches, outer, rows, inner)), dtype)
    with tf.GradientTape() as tape:
        tape.watch(params)
        gathered = gs.gather(params, indices, axis=2, batch_dims=1)
    weights = tf.constant(rng.standard_normal(gathered.shape), dtype)
    yield "gather batched", gathered
    yield "tape batched", tape.gradient(gathered, params, weights)


def results_of_stitch(rng, dtype):
    for rows, counts, inner in ((20_000, (15_000, 9_000, 0), 4), (10, (30_000, 5), 33)):
        indices = [tf.constant(rng.integers(0, rows, n), tf.int32) for n in counts]
        data = [tf.constant(rng.standard_normal((n, inner)), dtype) for n in counts]
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(data)
            merged = gs.parallel_dynamic_stitch(indices, data)
            cut = gs.dynamic_stitch(indices, data, size=rows // 2, bad_indices_policy="IGNORE")
        yield f"stitch {rows}", merged
        yield f"stitch V2 {rows}", cut
        for name, result in (("stitch", merged), ("stitch V2", cut)):
            weights = tf.constant(rng.standard_normal(result.shape), dtype)
            yield f"tape {name} {rows}", tape.gradient(result, data, weights)


def text_of_error(function, *args, **options) -> str:
    try:
        function(*args, **options)
    except tf.errors.InvalidArgumentError as error:
        return str(error)
    return "no error"


def errors(rng):
    """The same mistake many times: which of several bad indices is named is no matter of luck."""
    for k in range(8):
        shape = (400, 500)
        indices = rng.integers(0, 9, shape)
        first = int(rng.integers(0, indices.size - 1))
        later = rng.integers(first + 1, indices.size, 50)
        indices.reshape(-1)[later] = rng.integers(9, 100, 50)
        indices.reshape(-1)[first] = -1 - k
        place = ",".join(str(int(p)) for p in np.unravel_index(first, shape))
        expected = f"indices[{place}] = {-1 - k} is not in [0, 9)"
        for inner in ((), (3,), (0,)):
            yield (
                expected,
                text_of_error(gs.gather, tf.zeros((9, *inner)), tf.constant(indices, tf.int32)),
            )
        yield (
            expected,
            text_of_error(
                gs.gather, tf.zeros((400, 2, 9)), tf.constant(indices), axis=2, batch_dims=1
            ),
        )
        yield (
            expected,
            text_of_error(
                gs.gather, tf.fill((9,), "a"), tf.constant(indices), bad_indices_policy="ERROR"
            ),
        )
        lists = [tf.zeros([1000], tf.int32), tf.constant(indices, tf.int32)]
        yield (
            expected.replace("indices", "indices[1]"),
            text_of_error(gs.dynamic_stitch, lists, [tf.zeros(i.shape) for i in lists], size=9),
        )


def main(threads: int, seed: int) -> None:
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    rng = np.random.default_rng(seed)
    hashes = {}
    with types_of_ops() as types:
        for dtype in DTYPES:
            for results in (results_of_gather, results_of_stitch):
                for name, value in results(rng, dtype):
                    key = f"{dtype.name} {name}"
                    assert key not in hashes
                    hashes[key] = digest(*tf.nest.flatten(value, expand_composites=True))
    report = {
        "cpu_features": _loader.cpu_features(_loader.load()),
        "threads": tf.config.threading.get_intra_op_parallelism_threads(),
        "ops": sorted(name for name in types if name.startswith("GatherStitch>")),
        "hashes": hashes,
        "errors": list(errors(rng)),
    }
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
