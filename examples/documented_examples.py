# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""What the two ops do, example by example, with our result next to stock's.

Every example is a function of `ops`, which is stock TensorFlow or ours. It is printed as it
stands here and run on both; the two results have to be the same value of the same shape and
dtype, and the value that is written beside the example.

    python examples/documented_examples.py
    python examples/documented_examples.py --only stitch
"""

import argparse
import inspect
import os
import sys
import textwrap
from itertools import zip_longest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # Before the import, which reads it.

import numpy as np
import tensorflow as tf
from side_by_side import OURS, STOCK

EXAMPLES = []


def gives(expected):
    """Lists the function below as an example whose result is `expected`."""

    def register(example):
        EXAMPLES.append((example, expected))
        return example

    return register


@gives(13)
def gather_scalar(ops):
    """A scalar index takes one element, and the axis is gone."""
    params = tf.constant([10, 11, 12, 13, 14, 15])
    return ops.gather(params, 3)


@gives(["pear", "fig", "pear", "plum"])
def gather_vector(ops):
    """A vector of indices takes them in its order, repeated ones too."""
    params = tf.constant(["fig", "kiwi", "pear", "plum"])
    return ops.gather(params, [2, 0, 2, 3])


@gives([[[4, 5], [0, 1]], [[2, 3], [4, 5]], [[0, 1], [0, 1]]])
def gather_matrix_of_indices(ops):
    """Indices of any rank: their shape takes the place of the axis."""
    params = tf.constant([[0, 1], [2, 3], [4, 5]])
    return ops.gather(params, [[2, 0], [1, 2], [0, 0]])


@gives([[0.3, 0.1], [1.3, 1.1], [2.3, 2.1]])
def gather_columns(ops):
    """An axis from the end: -1 takes columns."""
    params = tf.constant([[0.0, 0.1, 0.2, 0.3], [1.0, 1.1, 1.2, 1.3], [2.0, 2.1, 2.2, 2.3]])
    return ops.gather(params, [3, 1], axis=-1)


@gives([[3, 1, 1], [10, 30, 20]])
def gather_batch(ops):
    """With batch_dims each row has indices of its own."""
    params = tf.constant([[1, 2, 3], [10, 20, 30]])
    return ops.gather(params, [[2, 0, 0], [0, 2, 1]], batch_dims=1)


@gives([[[2, 1], [4, 3]], [[5, 5], [7, 7]]])
def gather_batch_axis(ops):
    """batch_dims and axis together: the dimension between them is kept."""
    params = tf.constant([[[1, 2], [3, 4]], [[5, 6], [7, 8]]])
    return ops.gather(params, [[1, 0], [0, 0]], axis=2, batch_dims=1)


@gives([[1, 2], [11, 12], [21, 22], [31, 32], [41, 42], [51, 52], [61, 62]])
def stitch_mixed_ranks(ops):
    """Indices of every rank say where each row of data goes."""
    indices = [6, [4, 1], [[5, 2], [0, 3]]]
    data = [
        [61, 62],
        [[41, 42], [11, 12]],
        [[[51, 52], [21, 22]], [[1, 2], [31, 32]]],
    ]
    return ops.parallel_dynamic_stitch(indices, data)


@gives([1, 20, 30])
def stitch_duplicates(ops):
    """Where an index is named twice the last one wins."""
    return ops.parallel_dynamic_stitch([[0, 1], [1, 2]], [[1, 2], [20, 30]])


@gives([1.1, -1.0, 6.2, 5.3, -1.0, 8.4])
def stitch_round_trip(ops):
    """Partition, work on one part, stitch back: here 1 is added to all but the -1s."""
    x = tf.constant([0.1, -1.0, 5.2, 4.3, -1.0, 7.4])
    part = tf.cast(tf.not_equal(x, -1.0), tf.int32)
    kept, changed = tf.dynamic_partition(x, part, 2)
    places = tf.dynamic_partition(tf.range(tf.size(x)), part, 2)
    return ops.parallel_dynamic_stitch(places, [kept, changed + 1.0])


def run(only=""):
    """Prints the examples with `only` in their name; gives the number of all and of equal ones."""
    examples = [(e, expected) for e, expected in EXAMPLES if only in e.__name__]
    equal = 0
    for example, expected in examples:
        print(f"\n    {example.__doc__}")
        print(textwrap.indent(source_of(example), " " * 8))
        stock, ours = (example(ops).numpy() for ops in (STOCK, OURS))
        is_equal = same(stock, ours) and as_documented(ours, expected)
        equal += is_equal
        print_side_by_side(stock, ours, is_equal)
    return len(examples), equal


def source_of(example):
    """Gives the lines below the docstring, so that what is printed is what is run."""
    lines = inspect.getsource(example).splitlines()
    body = lines[1 + next(i for i, line in enumerate(lines) if line.endswith('"""')) :]
    return textwrap.dedent("\n".join(body)).replace("return ", "")


def same(stock, ours):
    if (stock.dtype, stock.shape) != (ours.dtype, ours.shape):
        return False
    if stock.dtype == object:  # Strings.
        return np.array_equal(stock, ours)
    return stock.tobytes() == ours.tobytes()


def as_documented(value, expected):
    if value.dtype == object:
        return np.array_equal(value, np.array(expected, dtype="S").astype(object))
    return value.shape == np.shape(expected) and np.allclose(value, expected, rtol=1e-6, atol=0)


def print_side_by_side(stock, ours, is_equal):
    columns = [["stock", *lines_of(stock)], ["ours", *lines_of(ours)]]
    width = max(map(len, columns[0])) + 4
    verdict = "equal" if is_equal else "NOT EQUAL"
    for i, (left, right) in enumerate(zip_longest(*columns, fillvalue="")):
        print(f"      {left:<{width}}{right:<{width}}{verdict if i == 1 else ''}".rstrip())


def lines_of(value):
    if value.dtype == object:
        value = value.astype(str)
    return np.array2string(value, separator=", ").replace("\n\n", "\n").splitlines()


def main():
    parser = argparse.ArgumentParser(description="The documented examples, beside stock's.")
    parser.add_argument(
        "--only", default="", metavar="WORD", help="those with WORD in their name: gather, stitch"
    )
    total, equal = run(parser.parse_args().only)
    print(f"\n    {equal} of {total} examples equal to stock")
    return 0 if total and equal == total else 1


if __name__ == "__main__":
    sys.exit(main())
