# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""The loops of the core, timed and counted without TensorFlow."""
