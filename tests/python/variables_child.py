# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""What the tests of variables run in processes of their own: two devices, a memory of its own.

`variables_child.py WHAT ARGUMENTS...` prints a report as one line of JSON, its last line.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import sys
import tempfile

# Where TensorFlow uses oneDNN its allocator keeps what was freed, and no copy would show.
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.eager import context

COLUMNS = 64
BATCH = 4096


def use_two_devices():
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)


def short(device):
    return device.split("/device:")[-1]


def devices():
    use_two_devices()
    import gather_stitch as gs

    module = tf.Module()
    with tf.device("CPU:1"):
        module.table = tf.Variable(np.arange(12, dtype=np.float32).reshape(4, 3))
    ids = tf.constant([2, 0])

    @tf.function(autograph=False)
    def lookup(ids):
        with tf.device("CPU:0"):
            return gs.gather(module.table, ids)

    with tf.device("CPU:0"):
        eager = gs.gather(module.table, ids)
        with tf.GradientTape() as tape:
            rows = gs.gather(module.table, ids)
    # A function copies its results to its own device, so the op itself is asked.
    tf.config.run_functions_eagerly(True)
    run_eagerly = lookup(ids)
    tf.config.run_functions_eagerly(False)
    (node,) = (
        op
        for op in lookup.get_concrete_function(ids).graph.get_operations()
        if op.type == "GatherStitch>ResourceGather"
    )
    assert not node.device, node.device
    placed = _placement_of(lookup, ids, "GatherStitch>ResourceGather")

    module.lookup = tf.function(
        lambda ids: gs.gather(module.table, ids),
        input_signature=[tf.TensorSpec([None], tf.int32)],
        autograph=False,
    )
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder)
        loaded = tf.saved_model.load(folder)
        restored = loaded.lookup(ids)
        saved = saved_model_pb2.SavedModel.FromString(
            (pathlib.Path(folder) / "saved_model.pb").read_bytes()
        )
    functions = saved.meta_graphs[0].graph_def.library.function
    saved_devices = [
        node.device
        for function in functions
        for node in function.node_def
        if node.op == "GatherStitch>ResourceGather" and node.device
    ]

    gradient = tape.gradient(rows, module.table)
    assert gradient.indices.numpy().tolist() == [2, 0]
    return {
        "placement": {
            "eager": short(eager.device),
            "function run eagerly": short(run_eagerly.device),
            "function": placed,
        },
        "rows": eager.numpy().tolist(),
        "restored": restored.numpy().tolist(),
        "saved_devices": saved_devices,
        "wrong_device": _error_of_a_handle_from_elsewhere(gs),
    }


def _placement_of(function, argument, op_type):
    """The devices that the placer gave to the ops of a type in a tf.function."""
    context.context().enable_graph_collection()
    function(argument)
    metadata = context.context().export_run_metadata()
    context.context().disable_graph_collection()
    graphs = [graph for f in metadata.function_graphs for graph in f.partition_graphs]
    placed = {short(node.device) for graph in graphs for node in graph.node if node.op == op_type}
    (device,) = placed
    return device


def _error_of_a_handle_from_elsewhere(gs):
    """What the kernel on CPU:1 says of a handle from CPU:0, which the placer cannot see."""
    handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[3, 2], shared_name="elsewhere")
    tf.raw_ops.AssignVariableOp(resource=handle, value=tf.ones([3, 2]))
    content = tf.io.serialize_tensor(handle)

    @tf.function(autograph=False)
    def gather(content):
        with tf.device("CPU:1"):
            parsed = tf.io.parse_tensor(content, tf.resource)
            return gs.raw_ops.ResourceGather(resource=parsed, indices=[0], axis=0, dtype=tf.float32)

    try:
        gather(content)
    except tf.errors.InvalidArgumentError as error:
        return error.message
    return "no error"


def mirrored():
    use_two_devices()
    import gather_stitch as gs

    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    initial = np.arange(12, dtype=np.float32).reshape(4, 3)
    with strategy.scope():
        table = tf.Variable(initial)
        counts = tf.Variable(
            [1.0, 2.0],
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )
    ids = [[0, 3, 3], [1, 1, 2]]

    def replica():
        i = tf.distribute.get_replica_context().replica_id_in_sync_group
        mine = ids[i] if isinstance(i, int) else tf.gather(tf.constant(ids), i)
        with tf.GradientTape() as tape:
            rows = gs.gather(table, mine)
            loss = tf.reduce_sum(rows**2)
        gradient = tape.gradient(loss, table)
        return rows, gradient.values, isinstance(gradient, tf.IndexedSlices)

    step = tf.function(lambda: strategy.run(replica), autograph=False)
    types = [
        op.type
        for op in step.get_concrete_function().graph.get_operations()
        if op.type in ("ReadVariableOp", "GatherStitch>ResourceGather")
    ]
    rows, gradients, is_sparse = step()
    results = [
        np.asarray(part).tolist()
        for value in (rows, gradients)
        for part in strategy.experimental_local_results(value)
    ]
    expected = [initial[i].tolist() for i in ids] + [(2 * initial[i]).tolist() for i in ids]

    # A variable that is summed when it is read outside is a tensor there.
    summed = gs.gather(counts, [1]).numpy().tolist()
    first = gs.gather(table, [2, -1], bad_indices_policy="WRAP").numpy().tolist()
    return {
        "types": types,
        "is_sparse": [bool(s) for s in strategy.experimental_local_results(is_sparse)],
        "values": results,
        "expected": expected,
        "outside": [summed, first],
        "expected_outside": [tf.gather(counts, [1]).numpy().tolist(), initial[[2, -1]].tolist()],
    }


# ---- Memory ------------------------------------------------------------------


def status(field):
    """A figure of this process in MiB."""
    text = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(rf"{field}:\s+(\d+) kB", text)[1]) / 1024


def peak_growth(step, *arguments, steps=5):
    """By how many MiB memory grows at most during some calls after the first."""
    step(*arguments)
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts anew.
    before = status("VmRSS")
    for _ in range(steps):
        step(*arguments)
    return status("VmHWM") - before


def rows_of(mebibytes):
    return int(mebibytes) * 2**20 // (4 * COLUMNS)


def memory(optimizer, mebibytes):
    import gather_stitch as gs

    rows = rows_of(mebibytes)
    slots = [tf.Variable(tf.zeros([rows, COLUMNS])) for _ in range(3 if optimizer == "adam" else 2)]
    table = slots[0]
    gather = tf.gather if optimizer == "sgd_on_stock" else gs.gather
    if optimizer == "sgd_on_stock":
        gather = lambda v, ids, **_: tf.gather(tf.identity(v), ids)  # noqa: E731

    @tf.function(autograph=False)
    def step(ids):
        with tf.GradientTape() as tape:
            rows = gather(table, ids, gradient="sparse")
            loss = tf.reduce_mean((rows - 1.0) ** 2)
        gradient = tape.gradient(loss, table)
        UPDATES[optimizer](gs, slots, gradient)
        return loss

    rng = np.random.default_rng(1)
    ids = tf.constant(rng.integers(0, rows, BATCH), tf.int64)
    first = float(step(ids))
    growth = peak_growth(step, ids)
    assert float(step(ids)) < first
    graph = step.get_concrete_function(ids).graph
    handles = {tensor.name for tensor in graph.inputs if tensor.dtype == tf.resource}
    touching = {
        op.type for op in graph.get_operations() if handles & {tensor.name for tensor in op.inputs}
    }
    by_rows = {
        "GatherStitch>ResourceGather",
        "ResourceScatterSub",
        "ResourceScatterUpdate",
        "ResourceSparseApplyAdagradV2",
    }
    return {"growth": growth, "whole_table_ops": sorted(touching - by_rows)}


def _sgd(_, slots, gradient):
    slots[0].scatter_sub(tf.IndexedSlices(0.5 * gradient.values, gradient.indices))


def _sgd_on_stock(_, slots, gradient):
    slots[0].scatter_sub(tf.IndexedSlices(0.5 * gradient.values, gradient.indices))


def _adagrad(_, slots, gradient):
    tf.raw_ops.ResourceSparseApplyAdagradV2(
        var=slots[0].handle,
        accum=slots[1].handle,
        lr=0.1,
        epsilon=1e-7,
        grad=gradient.values,
        indices=gradient.indices,
    )


def _adam(gs, slots, gradient):
    # The moments of the rows at hand; the others stay.
    table, first, second = slots
    rows = gradient.indices
    m = 0.9 * gs.gather(first, rows) + 0.1 * gradient.values
    v = 0.99 * gs.gather(second, rows) + 0.01 * gradient.values**2
    first.scatter_update(tf.IndexedSlices(m, rows))
    second.scatter_update(tf.IndexedSlices(v, rows))
    table.scatter_sub(tf.IndexedSlices(0.01 * m / (tf.sqrt(v) + 1e-7), rows))


UPDATES = {"sgd": _sgd, "sgd_on_stock": _sgd_on_stock, "adagrad": _adagrad, "adam": _adam}


def keras_memory(optimizer, mebibytes):
    import gather_stitch.keras
    import keras

    rows = rows_of(mebibytes)
    layer = gather_stitch.keras.Embedding(rows, COLUMNS, embeddings_initializer="zeros")
    layer.build()
    optimizer = getattr(keras.optimizers, optimizer)()
    optimizer.build(layer.trainable_variables)
    (table,) = layer.trainable_variables

    @tf.function(autograph=False)
    def update_alone(ids):
        gradient = tf.IndexedSlices(
            tf.ones([BATCH, COLUMNS]), ids, tf.constant([rows, COLUMNS], tf.int32)
        )
        optimizer.apply([gradient], [table])

    @tf.function(autograph=False)
    def training(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((layer(ids) - 1.0) ** 2)
        optimizer.apply([tape.gradient(loss, table.value)], [table])

    ids = tf.constant(np.random.default_rng(1).integers(0, rows, BATCH), tf.int64)
    update_alone(ids)
    training(ids)
    return {
        "update_alone": peak_growth(update_alone, ids),
        "training": peak_growth(training, ids),
    }


if __name__ == "__main__":
    what = {f.__name__: f for f in (devices, mirrored, memory, keras_memory)}[sys.argv[1]]
    print(json.dumps(what(*sys.argv[2:])))
