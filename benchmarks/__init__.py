# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Times gather_stitch against stock TensorFlow, NumPy, PyTorch and JAX: see README.md."""
