# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""The seed of the random tests, a plugin of pytest."""

from __future__ import annotations

import os
import random
import zlib

import numpy as np
import pytest


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
