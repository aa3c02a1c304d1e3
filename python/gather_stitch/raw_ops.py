# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""The ops as they are defined, with keyword arguments only, in the manner of `tf.raw_ops`.

    >>> gather_stitch.raw_ops.GatherV2(params=[1., 2., 3.], indices=[2, 0], axis=0).numpy()
    array([3., 1.], dtype=float32)

`help(gather_stitch.raw_ops.GatherV2)` shows the definition. Arguments are not looked at before
the op is: a variable is read, a RaggedTensor is refused.
"""

from tensorflow.python.autograph.impl import api as autograph

from . import _loader

_ops = _loader.load()

GatherV2 = _ops.GatherStitch_GatherV2
GatherV2Grad = _ops.GatherStitch_GatherV2Grad
GatherV2SparseGrad = _ops.GatherStitch_GatherV2SparseGrad
ParallelDynamicStitch = _ops.GatherStitch_ParallelDynamicStitch
ParallelDynamicStitchGrad = _ops.GatherStitch_ParallelDynamicStitchGrad
ParallelDynamicStitchV2 = _ops.GatherStitch_ParallelDynamicStitchV2
ResourceGather = _ops.GatherStitch_ResourceGather

__all__ = [
    "GatherV2",
    "GatherV2Grad",
    "GatherV2SparseGrad",
    "ParallelDynamicStitch",
    "ParallelDynamicStitchGrad",
    "ParallelDynamicStitchV2",
    "ResourceGather",
]

# autograph runs these as they are: generated, they have no source to convert.
for _name in __all__:
    autograph.autograph_artifact(globals()[_name])
