# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Whole models on two emulated GPUs, with TensorFlow's own ops on the CPU."""

import gather_stitch as gs
import numpy as np
import tensorflow as tf
from checks import assert_same
from device_checks import GPU, assert_on_device, on_device, soft_placement, whole_numbers
from gradients_common import seeded

DEVICES = ("/GPU:0", "/GPU:1")


def test_mirrored_strategy_on_two_devices():
    rng = seeded("strategy")
    values = rng.standard_normal((30, 4)).astype(np.float32)
    ids = rng.integers(0, 30, (2, 50))
    places = rng.integers(-5, 60, (2, 50))
    strategy = tf.distribute.MirroredStrategy(["GPU:0", "GPU:1"])
    assert strategy.num_replicas_in_sync == 2
    with soft_placement():
        with strategy.scope():
            table = tf.Variable(values)

        def step():
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            mine, mine_at = tf.constant(ids)[replica], tf.constant(places)[replica]
            rows = gs.gather(table, mine)
            same_rows = gs.gather(tf.identity(table), mine, bad_indices_policy="ERROR")
            merged = gs.dynamic_stitch([mine_at], [rows], size=60, bad_indices_policy="IGNORE")
            return rows, same_rows, merged

        def run_step():
            return strategy.run(step)

        for run in (run_step, tf.function(run_step)):
            results = run()
            for k, device in enumerate(DEVICES):
                rows, same_rows, merged = (
                    strategy.experimental_local_results(r)[k] for r in results
                )
                if run is run_step:
                    # A function's results are those of the device that calls it.
                    assert_on_device([rows, same_rows, merged], device)
                assert_same(rows, values[ids[k]])
                assert_same(same_rows, values[ids[k]])
                right = np.zeros((60, 4), np.float32)
                for place, row in zip(places[k], values[ids[k]], strict=True):
                    if 0 <= place < 60:
                        right[place] = row
                assert_same(merged, right)


def test_one_device_reads_what_the_other_made():
    values = seeded("two devices").standard_normal((30, 4)).astype(np.float32)
    with tf.device(DEVICES[1]):
        rows = gs.gather(on_device(values, DEVICES[1]), on_device([7, 0, 29], DEVICES[1]))
    with tf.device(DEVICES[0]):
        again = gs.gather(rows, on_device([2, 2, 1]))
    assert_on_device(rows, DEVICES[1])
    assert_on_device(again, DEVICES[0])
    assert_same(again, values[[29, 29, 0]])


def test_a_layer_of_experts_has_stock_s_gradients():
    # Tokens go to experts and come back; the matrix products run on the CPU.
    rng = seeded("experts")
    tokens = whole_numbers(rng, (24, 4), "float32")
    weights = whole_numbers(rng, (3, 4, 4), "float32")
    expert = rng.integers(0, 3, 24)
    parts = [np.flatnonzero(expert == e) for e in range(3)]

    def model(gather, stitch):
        def loss(x, w):
            with tf.GradientTape() as tape:
                tape.watch([x, w])
                outputs = [gather(x, tf.constant(p)) @ w[e] for e, p in enumerate(parts)]
                merged = stitch([tf.constant(p, tf.int32) for p in parts], outputs)
                result = tf.reduce_sum(merged * merged)
            return (result, *map(tf.convert_to_tensor, tape.gradient(result, [x, w])))

        return tf.function(loss)

    with tf.device("/CPU:0"):
        expected = model(tf.gather, tf.dynamic_stitch)(tf.constant(tokens), tf.constant(weights))
    with soft_placement(), tf.device(GPU):
        actual = model(gs.gather, gs.dynamic_stitch)(on_device(tokens), on_device(weights))
    for a, right in zip(actual, expected, strict=True):
        assert_same(a, right)
