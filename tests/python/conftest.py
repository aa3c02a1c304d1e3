# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Fixtures of all Python tests."""

from __future__ import annotations

import json
import os
import pathlib
import random
import subprocess
import sys
import zlib

import numpy as np
import pytest

THREAD_COUNTS = (1, 2, 16)


def pytest_addoption(parser):
    parser.addoption(
        "--seed",
        type=int,
        default=None,
        help="seed of the random tests; a new one is drawn, and shown, where none is given",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    if config.option.seed is None:
        config.option.seed = random.SystemRandom().randrange(2**31)
    if getattr(config.option, "hypothesis_seed", "absent") is None:
        config.option.hypothesis_seed = str(config.option.seed)
    # For helpers that are no fixtures, and for processes that tests start.
    os.environ["GATHER_STITCH_SEED"] = str(config.option.seed)


def pytest_report_header(config):
    return f"seed: {config.option.seed} (repeat with --seed={config.option.seed})"


@pytest.fixture(scope="session")
def seed(request) -> int:
    return request.config.option.seed


@pytest.fixture
def rng(request, seed) -> np.random.Generator:
    """Random numbers of this test alone: they do not depend on which other tests run."""
    return np.random.default_rng([seed, zlib.crc32(request.node.nodeid.encode())])


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
