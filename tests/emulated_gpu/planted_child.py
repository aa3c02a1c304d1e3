# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Gathers without a fault, says so, and then with the one that is planted.

python planted_child.py FAULT ROW_BYTES [ROWS]

With ROWS the table has so many, almost all of which take no memory.
"""

from __future__ import annotations

import sys

import emulated
import numpy as np
import tensorflow as tf


def check(table, ids, expected, fault: str) -> None:
    """The second call finds the memory that the first one has used."""
    for _ in range(2):
        result = ops.emulated_gpu_planted_gather(params=table, indices=ids, fault=fault)
        assert "GPU" in result.device
        np.testing.assert_array_equal(result.numpy(), expected, f"fault: {fault}")


def main(fault: str, row_bytes: int, rows: int | None = None) -> None:
    values = np.arange(5 * row_bytes, dtype=np.uint8).reshape(5, row_bytes)
    with tf.device("/GPU:0"):
        if rows is None:
            table, ids = tf.constant(values), np.array([4, 0, 2, 2, 1])
            expected = values[ids]
        else:
            # On both sides of 2^31 and of 2^32 bytes, as far as the table goes.
            ids = np.array([0, 2**31 // row_bytes - 1, 2**31 // row_bytes, 2**32 // row_bytes])
            ids = np.append(ids, rows - 1)
            table = ops.emulated_gpu_sparse_table(shape=[rows, row_bytes], rows=ids, values=values)
            expected = values
        indices = tf.constant(ids, tf.int64)
        check(table, indices, expected, "none")
        print("right without a fault", flush=True)
        check(table, indices, expected, fault)
    print("not found", flush=True)


ops = tf.load_op_library(str(emulated.FOLDER / "planted_gather.so"))
if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
