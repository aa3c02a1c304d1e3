# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""A job: one cell with every peer that does its work, each checked before it is timed."""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from . import frameworks, machine, timing
from .names import COPY, OURS, is_stock


@dataclasses.dataclass(frozen=True)
class Peer:
    name: str
    call: Callable[[], Any]  # Its result is in memory when it returns.
    is_right: Callable[[Any], bool]  # Of the result as NumPy arrays.


@dataclasses.dataclass
class Job:
    """What a family makes of a cell."""

    expected: Any  # An array, or a list of them.
    moved_bytes: int  # That had to be read or written at least once.
    hottest_share: float = 0.0  # Of the indices, on one row.
    output_bytes: int = 0  # Where the peak of memory is of interest.
    peers: list[Peer] = dataclasses.field(default_factory=list)

    def add(
        self, name: str, call: Callable[[], Any], is_right: Callable[[Any], bool] | None = None
    ) -> None:
        """Adds a peer; `is_right` where its result is not `expected` as it stands."""
        self.peers.append(Peer(name, call, is_right or self._is_expected))

    def _is_expected(self, result: Any) -> bool:
        return equal(result, self.expected)


def equal(result: Any, expected: Any) -> bool:
    if isinstance(expected, list):
        return len(result) == len(expected) and all(map(equal, result, expected))
    return (
        result.dtype == expected.dtype
        and result.shape == expected.shape
        and np.array_equal(result, expected)
    )


def equal_at(expected: np.ndarray, rows: np.ndarray) -> Callable[[Any], bool]:
    """A check of some rows only, where the definition of a peer leaves the others open."""
    return lambda result: equal(result[rows], expected[rows])


def measure(job: Job, threads: int, budget_seconds: float) -> dict[str, Any]:
    """Checks every peer, then times those that are right; a record as JSON has it."""
    right: list[Peer] = []
    excluded: dict[str, str] = {}
    peaks: dict[str, int] = {}
    for peer in job.peers:
        try:
            if peer.is_right(frameworks.to_numpy(peer.call())):
                right.append(peer)
            else:
                excluded[peer.name] = "wrong result"
        except Exception as error:  # A dtype or layout that this peer does not serve.
            excluded[peer.name] = "".join(traceback.format_exception_only(error)).strip()
    if job.output_bytes:
        for peer in right:
            if peer.name == OURS or is_stock(peer.name):
                peaks[peer.name] = machine.peak_bytes(peer.call)
    calls = {peer.name: peer.call for peer in right}
    calls[COPY] = machine.copy_call(job.moved_bytes // 2, threads)
    kept = {name for name in calls if name in (OURS, COPY) or is_stock(name)}
    samples = timing.race(calls, kept, budget_seconds)
    return {
        "moved_bytes": int(job.moved_bytes),
        "hottest_share": round(job.hottest_share, 4),
        "output_bytes": job.output_bytes,
        "peak_bytes": peaks,
        "excluded": excluded,
        "peers": {name: timing.summary(samples[name], samples.get(OURS)) for name in calls},
    }
