# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""A progress bar with the time left, for a terminal or a log."""

from __future__ import annotations

import shutil
import sys
import time


class Progress:
    def __init__(self) -> None:
        self._start = time.monotonic()
        self._is_terminal = sys.stderr.isatty()
        self._next_log = 0.0  # share done at which a log gets its next line

    def show(self, done: int, steps: int, what: str) -> None:
        elapsed = time.monotonic() - self._start
        left = elapsed / max(done, 1) * (steps - done)
        share = done / steps
        filled = round(20 * share)
        bar = "#" * filled + "." * (20 - filled)
        line = f"[{bar}] {share:4.0%}, {_clock(left)} left  {done}/{steps}"
        if self._is_terminal:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\033[K{line}  {what}"[: width + 4], end="", file=sys.stderr, flush=True)
        elif share >= self._next_log:
            print(line, file=sys.stderr, flush=True)
            self._next_log += 0.05

    def close(self) -> None:
        if self._is_terminal:
            print("\r\033[K", end="", file=sys.stderr)
        print(f"Measured for {_clock(time.monotonic() - self._start)}", file=sys.stderr)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes}:{seconds:02}"
