# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""What the tests of XLA run in processes of their own: flags and first uses are a process's.

`xla_child.py WHAT FOLDER` prints a report as one line of JSON, its last line. The folder is where
XLA was told to write the programs that it compiles.
"""

from __future__ import annotations

import json
import pathlib
import sys

import tensorflow as tf
from tensorflow.python.eager import context

FOLDER = pathlib.Path(sys.argv[2])


def compiled(function):
    return tf.function(function, jit_compile=True, autograph=False)


def use_every_op(gs):
    """Values from programs that have each op once and more."""
    variable = tf.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])

    def function(table, ids):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(table)
            rows = gs.gather(table, ids)
            of_variable = gs.gather(variable, ids, gradient="dense")
            merged = gs.dynamic_stitch([ids], [rows + of_variable], size=4)
            known = gs.dynamic_stitch([[2, 0, 1]], [table])
            loss = tf.reduce_sum(merged) + tf.reduce_sum(known)
        slices = tape.gradient(loss, table)
        return merged, tf.convert_to_tensor(slices), tape.gradient(loss, variable)

    results = compiled(function)(variable.read_value(), tf.constant([2, 0, 7]))
    return [r.numpy().tolist() for r in results]


def loaded_first():
    import gather_stitch as gs

    return use_every_op(gs)


def loaded_last():
    # XLA's registry is read when XLA is first used.
    assert compiled(lambda x: x + 1)(tf.constant(1)) == 2
    import gather_stitch as gs

    return use_every_op(gs)


def programs():
    return len(list(FOLDER.glob("*before_optimizations.txt")))


def compilations():
    """{name: programs compiled for several values of the same shapes}."""
    import gather_stitch as gs

    table = tf.Variable(tf.ones([6, 2]))
    data = tf.ones([3, 2])

    def step(ids):
        with tf.GradientTape() as tape:
            rows = gs.gather(table, ids, bad_indices_policy="IGNORE")
            loss = tf.reduce_sum(rows**2)
        gradient = tape.gradient(loss, table)
        table.scatter_sub(gradient)
        return loss

    def stitch_and_gradient(stitch):
        def function(ids, data):
            with tf.GradientTape() as tape:
                tape.watch(data)
                merged = stitch(ids, data)
            return merged, tape.gradient(merged, data)

        return function

    functions = {
        "gather": (lambda ids, d: gs.gather(d, ids)),
        "gather_wrap": (lambda ids, d: gs.gather(d, ids, bad_indices_policy="WRAP")),
        "variable": (lambda ids, d: gs.gather(table, ids)),
        "training": (lambda ids, d: step(ids)),
        "stitch": stitch_and_gradient(lambda i, d: gs.dynamic_stitch([i], [d], size=9)),
        "stock_stitch": (lambda i, d: tf.dynamic_stitch([i], [d])),
    }
    report = {}
    for name, function in functions.items():
        function = compiled(function)
        before = programs()
        for ids in ([0, 1, 2], [2, 0, 1], [1, 2, 0], [2, 1, 0], [0, 2, 1]):
            function(tf.constant(ids), data * ids[0])
        report[name] = programs() - before
    # A size is part of the program.
    function = compiled(lambda i, d, n: gs.dynamic_stitch([i], [d], size=n))
    before = programs()
    for size in (4, 5, 4, 5):
        function(tf.constant([0, 1, 2]), data, tf.constant(size))
    report["two_sizes"] = programs() - before
    return report


def clusters_of(function, *arguments):
    """The result, and how many clusters of XLA are in the graph that was made for it."""
    context.enable_run_metadata()
    result = function(*arguments)
    metadata = context.export_run_metadata()
    context.disable_run_metadata()
    types = [
        node.op
        for graphs in metadata.function_graphs
        for graph in graphs.partition_graphs
        for node in graph.node
    ]
    return result, types.count("_XlaRun") + types.count("XlaLaunch")


def text_of_error(function, *arguments):
    try:
        function(*arguments)
    except tf.errors.OpError as error:
        return type(error).__name__, error.message
    return None


def clusters():
    import gather_stitch as gs

    table = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    good, bad = tf.constant([2, 0]), tf.constant([2, 9])

    def lookup(policy):
        @tf.function(autograph=False)
        def function(ids):
            return gs.gather(table * 2, ids, bad_indices_policy=policy) + 1

        return function

    @tf.function(autograph=False)
    def stitch(ids):
        return gs.dynamic_stitch([ids], [table[:2] * 2]) + 1

    @tf.function(autograph=False)
    def sized(ids):
        return gs.dynamic_stitch([ids], [table[:2] * 2], size=3) + 1

    @tf.function(autograph=False)
    def gradient(ids):
        x = table * 2
        with tf.GradientTape() as tape:
            tape.watch(x)
            rows = gs.gather(x, ids, bad_indices_policy="ERROR", gradient="dense")
            loss = tf.reduce_sum(rows**2)
        return tape.gradient(loss, x) + 1

    report = {}
    for name, function in {
        "DEFAULT": lookup("DEFAULT"),
        "IGNORE": lookup("IGNORE"),
        "ERROR": lookup("ERROR"),
        "gradient": gradient,
        "stitch": stitch,
        "sized": sized,
    }.items():
        # The second call finds what the first one left.
        result, count = clusters_of(function, good)
        results = [result.numpy().tolist(), function(good).numpy().tolist()]
        error = text_of_error(function, bad)
        after_bad = None if error else function(bad).numpy().tolist()
        report[name] = [results, count, error, after_bad]
    return report


WHAT = {f.__name__: f for f in (loaded_first, loaded_last, compilations, clusters)}
print(json.dumps(WHAT[sys.argv[1]]()))
