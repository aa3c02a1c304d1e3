# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""A process that accelerates when it has already run; prints what it found as JSON.

`acceleration_late_child.py COPY`, where COPY is a folder with a second copy of the package.
"""

from __future__ import annotations

import concurrent.futures
import doctest
import json
import logging
import sys

import gather_stitch as gs
import numpy as np
import tensorflow as tf
from gather_stitch import __main__ as diagnosis
from gather_stitch import _acceleration
from tensorflow.python.framework import dtypes

raw = tf.raw_ops


def error_of(call):
    try:
        call()
    except Exception as error:
        return [type(error).__name__, str(error)]
    return None


class Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append([record.levelname, record.getMessage()])


def calls_during(function):
    before = _acceleration.kernel_calls()
    function()
    after = _acceleration.kernel_calls()
    return {k: after[k] - before[k] for k in after if after[k] > before[k]}


def where_stock_ends_the_process():
    """The error of each call that a stock kernel does not survive."""
    table = tf.Variable(tf.reshape(tf.range(24.0), [2, 3, 4]))
    cube = tf.reshape(tf.range(24.0), [2, 3, 4])
    scalar = tf.constant(3)

    def gather(axis, **options):
        axis = tf.constant(axis, tf.int64)
        return raw.GatherV2(params=cube, indices=[0], axis=axis, **options)

    def resource_gather(indices, dtype=tf.float32, batch_dims=0):
        return raw.ResourceGather(
            resource=table.handle, indices=indices, dtype=dtype, batch_dims=batch_dims
        )

    def scatter(updates, indices=(0, 1)):
        return raw.ResourceScatterAdd(resource=table.handle, indices=list(indices), updates=updates)

    in_function = tf.function(
        lambda p, a: raw.GatherV2(params=p, indices=[0], axis=a),
        input_signature=[tf.TensorSpec(None), tf.TensorSpec(None, tf.int64)],
    )
    return {
        "lowest axis": error_of(lambda: gather(-(2**63))),
        "highest axis": error_of(lambda: gather(2**63 - 1)),
        "lowest axis in a function": error_of(
            lambda: in_function(cube, tf.constant(-(2**63), tf.int64))
        ),
        "wrong dtype": error_of(lambda: resource_gather([0], tf.half)),
        "wrong dtype of a scatter": error_of(lambda: scatter(tf.ones([2, 3, 4], tf.half))),
        "batch_dims of the rank": error_of(lambda: resource_gather([[[0]]], batch_dims=3)),
        "negative batch_dims": error_of(lambda: resource_gather([[0]], batch_dims=-1)),
        "batches that do not fit": error_of(lambda: resource_gather([[0], [0], [0]], batch_dims=1)),
        "more batch_dims than indices": error_of(lambda: resource_gather(scalar, batch_dims=2)),
        "no batches": error_of(
            lambda: raw.ResourceGather(
                resource=tf.Variable(tf.zeros([0, 1])).handle,
                indices=[0],
                dtype=tf.float32,
                batch_dims=1,
            )
        ),
        "updates too short": error_of(lambda: scatter(tf.ones([2, 3, 1]))),
        "no handle": error_of(
            lambda: raw.ResourceGather(
                resource=tf.gather(tf.stack([table.handle]), tf.zeros([0], tf.int32)),
                indices=[0],
                dtype=tf.float32,
            )
        ),
    }


def variables_without_copies():
    """Whether reads of a variable stay free, and readers keep what they have read."""
    table = tf.Variable(tf.zeros([1000, 8]))

    def is_shared():
        # Through NumPy's interface both arrays are the memory of their tensors.
        first, second = table.read_value(), table.read_value()
        return bool(np.shares_memory(first.__array__(), second.__array__()))

    report = {"shared before": is_shared()}
    tf.nn.embedding_lookup(table, [1, 2])
    report["shared after a gather"] = is_shared()
    reader = table.read_value()
    table.scatter_add(tf.IndexedSlices(tf.ones([2, 8]), tf.constant([3, 3])))
    report["seen by a reader"] = float(tf.reduce_sum(tf.abs(reader)))
    report["in the variable"] = float(tf.reduce_sum(table))
    report["shared after a scatter"] = is_shared()

    doubled = tf.Variable(tf.range(12.0))
    doubled.scatter_add(tf.IndexedSlices(doubled.read_value(), tf.range(12)))
    report["added to itself"] = doubled.numpy().tolist()

    # What stock's own sparse ops leave behind: from then on each read is a copy.
    table.scatter_update(tf.IndexedSlices(tf.zeros([1, 8]), tf.constant([3])))
    report["shared after a stock op"] = is_shared()
    table.scatter_sub(tf.IndexedSlices(tf.ones([2, 8]), tf.constant([5, 5])))
    report["in the variable afterwards"] = float(tf.reduce_sum(table))
    return report


def writers_and_readers_at_once():
    """The sum that many writers leave, and whether every reader saw whole updates."""
    writers, updates, rows = 6, 40, 3000
    table = tf.Variable(tf.zeros([50, 4], tf.int32))
    slices = tf.IndexedSlices(
        tf.ones([rows, 4], tf.int32), tf.constant(np.arange(rows) % 50, tf.int32)
    )

    def write(_):
        for _ in range(updates):
            table.scatter_add(slices)
        return True

    def read(_):
        return all(int(tf.reduce_sum(table)) % (rows * 4) == 0 for _ in range(updates))

    with concurrent.futures.ThreadPoolExecutor(2 * writers) as pool:
        jobs = [pool.submit(f, None) for _ in range(writers) for f in (write, read)]
        seen_whole = all(job.result() for job in jobs)
    return [int(tf.reduce_sum(table)) == writers * updates * rows * 4, seen_whole]


def main():
    table = tf.constant(np.arange(12.0).reshape(4, 3))
    traced = tf.function(lambda i: tf.gather(table, i) + 1.0)
    batch = tf.constant([3, 1])
    traced_result = traced(batch).numpy()
    eager_result = tf.gather(table, batch).numpy()
    report = {
        "calls before": _acceleration.kernel_calls(),
        "diagnosis before": diagnosis.diagnosis(),
    }

    lines = Lines()
    logging.getLogger("gather_stitch").addHandler(lines)
    logging.getLogger("gather_stitch").setLevel(logging.INFO)
    gs.accelerate()
    assert gs.is_accelerated()
    gs.accelerate()
    report["log"] = list(lines.lines)

    report["eager"] = calls_during(lambda: tf.gather(table, batch))
    report["function"] = calls_during(lambda: traced(batch))
    np.testing.assert_array_equal(traced(batch), traced_result)
    np.testing.assert_array_equal(tf.gather(table, batch), eager_result)
    report["killers"] = where_stock_ends_the_process()
    report["variables"] = variables_without_copies()
    report["at once"] = writers_and_readers_at_once()

    ones = tf.ones([5000], tf.half)
    report["sum of half"] = float(
        raw.UnsortedSegmentSum(data=ones, segment_ids=tf.zeros([5000], tf.int32), num_segments=1)[0]
    )
    report["without indices"] = raw.ResourceGather(
        resource=tf.Variable(tf.ones([2, 3, 4])).handle,
        indices=tf.zeros([0], tf.int32),
        dtype=tf.float32,
        batch_dims=2,
    ).numpy().tolist()  # fmt: skip
    narrow, two = (
        tf.constant(np.array(values, dtypes.int4.as_numpy_dtype))
        for values in ([1, -8, 7], [1, -8])
    )
    report["int4"] = [
        raw.GatherV2(params=narrow, indices=[2, 0], axis=0).numpy().astype(int).tolist(),
        raw.DynamicStitch(indices=[[2, 0]], data=[two]).numpy().astype(int).tolist(),
    ]
    finder = doctest.DocTestFinder(recurse=False)
    (examples,) = finder.find(gs.accelerate, "accelerate", module=False, globs={})
    report["doctest"] = list(doctest.DocTestRunner().run(examples))
    report["diagnosis after"] = diagnosis.diagnosis()

    # Another copy of the package finds the process accelerated.
    for name in [n for n in sys.modules if n.split(".")[0] == "gather_stitch"]:
        del sys.modules[name]
    sys.path.insert(0, sys.argv[1])
    import gather_stitch as other

    assert other.__file__.startswith(sys.argv[1])
    assert other.is_accelerated()
    other.accelerate()
    report["by a copy"] = calls_during(lambda: tf.gather(table, batch))
    print(json.dumps(report))


if __name__ == "__main__":
    main()
