# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Fixtures of all Python tests."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

pytest_plugins = ["seeds"]

THREAD_COUNTS = (1, 2, 16)


def report_of_child(threads: int, seed: int, **environment: str) -> dict:
    """What `threads_child.py` reports from a process with so many threads an op."""
    child = pathlib.Path(__file__).with_name("threads_child.py")
    done = subprocess.run(
        [sys.executable, str(child), str(threads), str(seed)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="session")
def by_threads(seed) -> dict[int, dict]:
    """The reports of processes with 1, 2 and 16 threads an op."""
    return {threads: report_of_child(threads, seed) for threads in THREAD_COUNTS}
