# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Programs that know TensorFlow alone, and what they compute with each kind of kernels.

`acceleration_child.py (stock|accelerated) FOLDER` runs them all. The stock process never imports
gather_stitch, and leaves a SavedModel in FOLDER that the accelerated one loads. Each writes
FOLDER/NAME.npz with every result, and prints the calls of our kernels in each program as JSON.
"""

from __future__ import annotations

import json
import pathlib
import sys

import numpy as np
import tensorflow as tf

WHICH, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
ROWS, COLUMNS = 50, 8


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def ids(*shape, seed=1, rows=ROWS):
    return np.random.default_rng(seed).integers(0, rows, shape, np.int32)


def eager():
    table = tf.constant(numbers(ROWS, COLUMNS))
    with tf.GradientTape() as tape:
        tape.watch(table)
        rows = tf.gather(table, ids(4, 5))
        columns = tf.gather(table, ids(7, rows=COLUMNS), axis=1)
        loss = tf.reduce_sum(rows**2) + tf.reduce_sum(columns**2)
    gradient = tf.convert_to_tensor(tape.gradient(loss, table))
    merged = tf.dynamic_stitch([[0, 2], [1, 2]], [table[:2], table[2:4]])
    both = tf.raw_ops.ParallelDynamicStitch(indices=[[0, 2], [1, 3]], data=[table[:2], table[2:4]])
    return rows, columns, gradient, merged, both


def step(table, batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.nn.embedding_lookup(table, batch) ** 3)
    gradient = tape.gradient(loss, table)
    table.scatter_sub(tf.IndexedSlices(0.01 * gradient.values, gradient.indices))
    return loss


def function():
    table = tf.Variable(numbers(ROWS, COLUMNS))
    traced = tf.function(lambda batch: step(table, batch))
    losses = [traced(tf.constant(ids(6, seed=k))) for k in range(4)]
    return losses, table


class Model(tf.Module):
    def __init__(self):
        super().__init__()
        self.table = tf.Variable(numbers(ROWS, COLUMNS))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
    def train(self, batch):
        return step(self.table, batch)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
    def merge(self, batch):
        rows = tf.gather(self.table.read_value(), batch)
        halves = tf.split(rows, 2)
        return tf.dynamic_stitch([[1, 3, 5], [0, 2, 4]], halves)


def saved_model():
    path = str(FOLDER / "model")
    if WHICH == "stock":
        tf.saved_model.save(Model(), path)
    model = tf.saved_model.load(path)
    batch = tf.constant(ids(6))
    return model.train(batch), model.merge(batch), model.table


def v1_session():
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        table = v1.get_variable("table", initializer=numbers(ROWS, COLUMNS), use_resource=False)
        batch = v1.placeholder(tf.int32)
        rows = tf.gather(table, batch)
        (gradient,) = tf.gradients(tf.reduce_sum(rows**2), table)
        session.run(v1.global_variables_initializer())
        return session.run(
            [rows, tf.convert_to_tensor(gradient), tf.dynamic_stitch([batch], [rows])],
            {batch: np.arange(5, dtype=np.int32)},
        )


def data_map():
    table = tf.constant(numbers(ROWS, COLUMNS))
    batches = tf.data.Dataset.from_tensor_slices(ids(12, 3))
    return list(batches.map(lambda i: tf.gather(table, i), num_parallel_calls=2))


def keras():
    tf.keras.utils.set_random_seed(3)
    model = tf.keras.Sequential(
        [tf.keras.layers.Embedding(ROWS, COLUMNS), tf.keras.layers.Flatten(),
         tf.keras.layers.Dense(1)]
    )  # fmt: skip
    model.compile("sgd", "mse", jit_compile=False)
    model.fit(ids(64, 4), numbers(64, 1), batch_size=16, epochs=2, verbose=0, shuffle=False)
    return model.predict(ids(9, 4, seed=5), verbose=0), *model.get_weights()


def constant_folding():
    table, batch = numbers(ROWS, COLUMNS), ids(5)

    @tf.function
    def constant():
        return tf.gather(tf.constant(table), tf.constant(batch)) + 1.0

    # Folded once, when the function is optimized.
    constant()
    return constant()


def mirrored():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        table = tf.Variable(numbers(ROWS, COLUMNS))
        optimizer = tf.keras.optimizers.SGD(0.1)
        optimizer.build([table])

    @tf.function
    def train(batch):
        def replica(batch):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.nn.embedding_lookup(table, batch) ** 2)
            optimizer.apply_gradients([(tape.gradient(loss, table), table)])
            return loss

        return strategy.reduce("SUM", strategy.run(replica, [batch]), axis=None)

    return train(tf.constant(ids(6))), *strategy.experimental_local_results(table)


def jit_compile():
    compiled = tf.function(lambda t, i: tf.gather(t, i), jit_compile=True)
    return compiled(numbers(ROWS, COLUMNS), ids(6))


PROGRAMS = (
    eager,
    function,
    saved_model,
    v1_session,
    data_map,
    keras,
    constant_folding,
    mirrored,
    jit_compile,
)


def as_arrays(results):
    for result in tf.nest.flatten(results):
        yield np.asarray(result.numpy() if hasattr(result, "numpy") else result)


def main():
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    if WHICH == "accelerated":
        # By the environment: importing is all that a program has to do.
        from gather_stitch import _acceleration

        kernel_calls = _acceleration.kernel_calls
    else:
        kernel_calls = dict
    report = {}
    for program in PROGRAMS:
        before = kernel_calls()
        results = list(as_arrays(program()))
        np.savez(FOLDER / f"{WHICH}-{program.__name__}.npz", *results)
        after = kernel_calls()
        report[program.__name__] = {k: after[k] - before[k] for k in after if after[k] > before[k]}
    assert ("gather_stitch" in sys.modules) == (WHICH == "accelerated")
    print(json.dumps(report))


if __name__ == "__main__":
    main()
