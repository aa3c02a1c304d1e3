# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Calls each op on a device without CUDA, and then on the CPU."""

from __future__ import annotations

import emulated  # isort: skip
import gather_stitch as gs
import numpy as np
import tensorflow as tf
from device_checks import GPU, on_device
from gather_stitch import _loader


def calls(place):
    """Of each op, with its inputs brought to where `place` brings them."""
    table, ids = place(np.arange(6.0).reshape(3, 2)), place(np.array([2, 0]))
    variable = tf.Variable(np.ones((3, 2)))
    for policy in ("IGNORE", "ERROR"):
        yield lambda p=policy: gs.gather(table, ids, bad_indices_policy=p)
        yield lambda p=policy: gs.gather(variable, ids, bad_indices_policy=p)
        yield lambda p=policy: gs.raw_ops.GatherV2Grad(
            grad=table, indices=place(np.array([0, 0, 1])), params_shape=[3, 2], axis=0,
            bad_indices_policy=p,
        )  # fmt: skip
        yield lambda p=policy: gs.raw_ops.GatherV2SparseGrad(
            grad=table, indices=place(np.array([0, 0, 1])), params_rows=3, bad_indices_policy=p
        )
        yield lambda p=policy: gs.dynamic_stitch(
            [ids], [place(np.ones(2))], size=3, bad_indices_policy=p
        )
        yield lambda: gs.dynamic_stitch([ids], [place(np.ones(2))])
        yield lambda: gs.raw_ops.ParallelDynamicStitchGrad(grad=table, indices=[ids])


def main() -> None:
    print(_loader.load().gpu_library_path)
    refused = 0
    with tf.device(GPU):
        for call in calls(on_device):
            try:
                result = call()
            except tf.errors.UnimplementedError as error:
                assert "has no CUDA stream" in str(error), error
                refused += 1
            else:
                raise AssertionError(f"not refused: {result}")
    with tf.device("/CPU:0"):
        for call in calls(tf.constant):
            call()
    print(f"refused {refused} calls")


if __name__ == "__main__":
    assert emulated.FOLDER
    main()
