# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Starts the emulated GPU before any test module is imported."""

from __future__ import annotations

import emulated  # noqa: F401  (before the plugin, which it makes importable)

pytest_plugins = ["seeds"]
