# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Many threads that call the ops at once, and callers that allow few threads."""

import concurrent.futures
import os
import re
import subprocess
import sys

import gather_stitch as gs
import numpy as np
import pytest
import tensorflow as tf
from checks import assert_same
from gradients_common import seeded

CALLERS = 16


@pytest.fixture(scope="module")
def calls():
    """Calls of all six ops on tensors that they share, large enough for several threads each."""
    rng = seeded("threads")
    table = tf.constant(rng.standard_normal((2000, 24)), tf.float32)
    words = tf.constant([f"word {k}" * (k % 7) for k in range(500)])
    ids = tf.constant(rng.integers(0, 2000, 6000))
    any_ids = tf.constant(rng.integers(-500, 2500, 6000), tf.int32)
    grad = tf.constant(rng.standard_normal((6000, 24)), tf.float32)
    batches = tf.reshape(table, [20, 100, 24])
    batch_ids = tf.constant(rng.integers(0, 100, (20, 300)))
    halves = [ids[:3000], ids[3000:]]
    half_grads = [grad[:3000], grad[3000:]]
    dense_shape = [2000, 24]

    def train():
        with tf.GradientTape() as tape:
            tape.watch(table)
            rows = gs.gather(table, any_ids, bad_indices_policy="IGNORE", gradient="dense")
            merged = gs.dynamic_stitch([ids], [rows], size=2000)
        return merged, tape.gradient(merged, table)

    train_in_graph = tf.function(train)
    raw = gs.raw_ops
    return {
        "gather": lambda: gs.gather(table, ids),
        "ignore": lambda: gs.gather(table, any_ids, bad_indices_policy="IGNORE"),
        "wrap": lambda: gs.gather(table, any_ids, bad_indices_policy="WRAP"),
        "words": lambda: gs.gather(words, any_ids, bad_indices_policy="CLIP"),
        "batches": lambda: gs.gather(batches, batch_ids, axis=1, batch_dims=1),
        "axis": lambda: gs.gather(table, ids[:24] % 24, axis=1),
        "dense": lambda: raw.GatherV2Grad(
            grad=grad, indices=ids, params_shape=dense_shape, axis=0
        ),
        "sparse": lambda: tuple(
            raw.GatherV2SparseGrad(grad=grad, indices=ids, params_rows=2000)
        ),
        "slices": lambda: tuple(
            raw.GatherV2SparseGrad(
                grad=grad, indices=any_ids, params_rows=2000, unique=False,
                bad_indices_policy="IGNORE",
            )
        ),
        "stitch": lambda: gs.parallel_dynamic_stitch(halves, half_grads),
        "stitch words": lambda: gs.dynamic_stitch(
            [any_ids[:500]], [words], size=700, bad_indices_policy="IGNORE"
        ),
        "stitch grad": lambda: tuple(raw.ParallelDynamicStitchGrad(grad=table, indices=halves)),
        "train": train,
        "train in graph": train_in_graph,
    }  # fmt: skip


def test_many_callers_at_once(calls):
    expected = {name: tf.nest.flatten(call()) for name, call in calls.items()}
    names = list(calls)

    def work(caller):
        order = np.random.default_rng(caller).permutation(3 * len(names)) % len(names)
        for k in order:
            name = names[k]
            for actual, right in zip(tf.nest.flatten(calls[name]()), expected[name], strict=True):
                assert_same(actual, right, name)
        return caller

    with concurrent.futures.ThreadPoolExecutor(CALLERS) as pool:
        assert list(pool.map(work, range(CALLERS))) == list(range(CALLERS))


def test_errors_of_one_caller_are_not_those_of_another():
    params = tf.range(100.0)

    def work(caller):
        for k in range(50):
            bad = 100 + caller
            if k % 2:
                with pytest.raises(
                    tf.errors.InvalidArgumentError, match=rf"indices\[{k}\] = {bad} is not in"
                ):
                    gs.gather(params, [caller] * k + [bad])
            else:
                np.testing.assert_array_equal(gs.gather(params, [caller, k]), [caller, k])
        return True

    with concurrent.futures.ThreadPoolExecutor(CALLERS) as pool:
        assert all(pool.map(work, range(CALLERS)))


def test_callers_in_one_graph():
    # The executor of a graph runs these side by side.
    rng = seeded("one graph")
    table = tf.constant(rng.standard_normal((300, 16)), tf.float32)
    ids = [tf.constant(rng.integers(0, 300, 2000)) for _ in range(24)]

    @tf.function
    def run():
        rows = [gs.gather(table, i) for i in ids]
        grads = [
            gs.raw_ops.GatherV2Grad(grad=r, indices=i, params_shape=[300, 16], axis=0)
            for r, i in zip(rows, ids, strict=True)
        ]
        return rows, grads, gs.dynamic_stitch(ids, rows, size=300)

    rows, grads, merged = run()
    for k, i in enumerate(ids):
        assert_same(rows[k], tf.gather(table, i))
        assert_same(grads[k], tf.math.unsorted_segment_sum(rows[k], i, 300))
    everything = np.unique(tf.concat(ids, 0))
    right = np.zeros((300, 16), np.float32)
    right[everything] = table.numpy()[everything]
    assert_same(merged, right)


@pytest.mark.parametrize("parallelism", [1, 4, tf.data.AUTOTUNE])
def test_tf_data(parallelism):
    rng = seeded("tf.data")
    table = tf.constant(rng.standard_normal((50, 8)), tf.float32)
    ids = rng.integers(-5, 55, (40, 30)).astype(np.int32)

    def element(row):
        rows = gs.gather(table, row, bad_indices_policy="IGNORE")
        return rows, gs.dynamic_stitch([row], [rows], size=50, bad_indices_policy="IGNORE")

    data = tf.data.Dataset.from_tensor_slices(ids).map(element, num_parallel_calls=parallelism)
    for k, (rows, merged) in enumerate(data):
        good = (ids[k] >= 0) & (ids[k] < 50)
        right = np.where(good[:, None], table.numpy()[np.clip(ids[k], 0, 49)], 0)
        assert_same(rows, right)
        right = np.zeros((50, 8), np.float32)
        right[ids[k][good]] = table.numpy()[ids[k][good]]
        assert_same(merged, right)
    assert k == 39


PROGRAM = """
import sys
import tensorflow as tf
tf.config.threading.set_intra_op_parallelism_threads(4)
import gather_stitch as gs

table = tf.ones([1000, 64])
ids = tf.range(4000) % 1000

def element(_):
    rows = gs.gather(table, ids)
    return gs.dynamic_stitch([ids], [rows])

for threads in (0, 1, 2):
    print(f"begin {threads}", file=sys.stderr, flush=True)
    if threads == 0:
        element(0)
    else:
        data = tf.data.Dataset.range(2).map(element, num_parallel_calls=2)
        options = tf.data.Options()
        options.threading.max_intra_op_parallelism = threads
        assert [tf.reduce_sum(x).numpy() for x in data.with_options(options)] == [64000.0] * 2
"""


def test_as_many_threads_as_the_caller_allows():
    # tf.data allows one thread, or as many as its options say; the log tells what was taken.
    environment = dict(os.environ, TF_CPP_VMODULE="gather_tensor=1,stitch_tensors=1")
    environment["TF_CPP_MIN_LOG_LEVEL"] = "0"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    taken = {}
    for line in done.stderr.splitlines():
        if line.startswith("begin "):
            taken[int(line.split()[1])] = current = []
        elif re.search(r"(gather_tensor|stitch_tensors)\.cc:", line):
            current.append(int(re.search(r"(\d+) threads", line).group(1)))
    assert set(taken[0]) == {4}
    assert len(taken[1]) >= 4
    assert set(taken[1]) == {1}
    assert set(taken[2]) == {2}
