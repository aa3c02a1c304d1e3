# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Names of peers in records. Those of other frameworks are their own."""

OURS = "gather_stitch"
# A plain copy of as many bytes as the job has to move.
COPY = "copy"
# Stock TensorFlow; where it has several ways, what each is called follows.
STOCK = "tensorflow"


def is_stock(name: str) -> bool:
    return name.startswith(STOCK)
