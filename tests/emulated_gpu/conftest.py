# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Starts the emulated GPU before any test module is imported."""

from __future__ import annotations

import emulated  # before the plugin, which it makes importable
import gather_stitch  # noqa: F401
import pytest

pytest_plugins = ["seeds"]


@pytest.fixture(autouse=True, scope="session")
def block_order(seed):
    """The blocks of every grid run in an order that the seed decides."""
    emulated.set_block_order(seed)
