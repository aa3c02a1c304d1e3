# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""What the families share: cells, peers, the timing loop, the machine, the report."""
