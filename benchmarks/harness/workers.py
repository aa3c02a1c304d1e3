# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""The processes that measure, as the one that reports sees them. Imports no framework."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]


def _environment(threads: int, malloc: str) -> dict[str, str]:
    """What a worker's environment needs before anything is imported."""
    variables = {
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": str(threads),
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_X64": "1",  # Else int64 indices are narrowed.
        # Pages of one size for all: NumPy alone asks for huge ones.
        "NUMPY_MADVISE_HUGEPAGE": "0",
    }
    if threads == 1:
        variables["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    if malloc == "recycle":
        # One heap that never shrinks while a cell is measured: an output lies in memory
        # that an earlier one has used, for every peer, and no page is faulted in.
        variables |= {
            "MALLOC_ARENA_MAX": "1",
            "MALLOC_MMAP_THRESHOLD_": str(1 << 40),
            "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
        }
    return variables


class Worker:
    """A process with a number of threads. It sleeps while it is not measuring."""

    def __init__(self, threads: int, malloc: str, arguments: Sequence[str]) -> None:
        self.threads = threads
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        command = [sys.executable, "-m", "benchmarks.harness.worker", f"--threads={threads}"]
        self._process = subprocess.Popen(
            [*command, *arguments],
            cwd=ROOT,
            env=os.environ | _environment(threads, malloc),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def hello(self) -> dict[str, Any]:
        """Labels of its cells and versions of the frameworks, once they are imported."""
        return self._answer()

    def measure(self, cell: int) -> dict[str, Any]:
        print(cell, file=self._process.stdin, flush=True)
        return self._answer()

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> dict[str, Any]:
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            last_words = self._log.read()[-4000:]
            raise SystemExit(f"{last_words}\nThe process with {self.threads} thread(s) has ended")
        return json.loads(line)
