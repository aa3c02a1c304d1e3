# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes the SavedModel of this release and what it gives: run once, before a release.

    python tests/python/golden/write.py

A folder that exists is the promise of a release that is out, so it is never written again.
"""

import pathlib
import sys

import gather_stitch as gs

GOLDEN = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(GOLDEN.parent))
import golden_model  # noqa: E402

if __name__ == "__main__":
    release = GOLDEN / gs.__version__
    if release.exists():
        sys.exit(f"{release} exists: a release that is out does not change")
    golden_model.write(release)
