# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""The records of a run as rows of a table: a cell at all threads beside itself at one."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

from .names import COPY, OURS, is_stock

# A cell is large from so many indices on, or where the grid has lowered them for so much output.
LARGE_COUNT, LARGE_BYTES = 10**4, 64 << 20


@dataclasses.dataclass(frozen=True)
class Ratio:
    """How many times slower than ours a peer is, with its confidence interval."""

    peer: str
    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


class Row:
    """One cell at one number of threads."""

    def __init__(self, record: dict[str, Any], one_thread: Row | None = None) -> None:
        self._record = record
        self.one_thread = one_thread
        self.family: str = record["family"]
        self.label: str = record["label"]
        self.cell: dict[str, Any] = record["cell"]
        self.threads: int = record["threads"]
        self.moved_bytes: int = record["moved_bytes"]
        self.output_bytes: int = record["output_bytes"]
        self.hottest_share: float = record["hottest_share"]
        self.excluded: dict[str, str] = record["excluded"]

    @property
    def is_measured(self) -> bool:
        return OURS in self._record["peers"]

    @property
    def row_bytes(self) -> int:
        return self.cell["row_bytes"]

    @property
    def indices(self) -> int:
        return self.cell["indices"]

    @property
    def is_large(self) -> bool:
        return self.indices >= LARGE_COUNT or self.indices * self.row_bytes >= LARGE_BYTES

    def us(self, peer: str = OURS) -> float:
        return self._record["peers"][peer]["wall_us"][0]

    @property
    def cpu_us(self) -> float:
        return self._record["peers"][OURS]["cpu_us"]

    @property
    def stock(self) -> Ratio | None:
        """The faster of stock's ways."""
        return self._best(peer for peer in self._record["peers"] if is_stock(peer))

    @property
    def other(self) -> Ratio | None:
        """The fastest of the other frameworks."""
        return self._best(
            peer
            for peer in self._record["peers"]
            if peer not in (OURS, COPY) and not is_stock(peer)
        )

    def ratio(self, peer: str) -> Ratio | None:
        return self._best(p for p in self._record["peers"] if p == peer)

    def _best(self, peers: Iterable[str]) -> Ratio | None:
        ratios = [Ratio(peer, *self._record["peers"][peer]["over_ours"]) for peer in peers]
        return min(ratios, key=lambda ratio: ratio.value, default=None)

    @property
    def gigabytes_per_second(self) -> float:
        return self.moved_bytes / self.us() / 1e3

    def copy_share(self, peer: str = OURS) -> float | None:
        """The peer's bandwidth as a share of that of a plain copy of as many bytes."""
        if peer not in self._record["peers"]:
            return None
        return self.us(COPY) / self.us(peer)

    def gain(self, peer: str = OURS) -> float | None:
        """How many times faster all threads are than one."""
        return self.one_thread.us(peer) / self.us(peer) if self.one_thread else None

    @property
    def peak_bytes(self) -> int | None:
        return self._record["peak_bytes"].get(OURS)

    @property
    def loses(self) -> bool:
        rows = (self, self.one_thread) if self.one_thread else (self,)
        return any(row.stock is not None and row.stock.value < 1 for row in rows)


def rows_of(records: Sequence[dict[str, Any]]) -> list[Row]:
    """A row for each cell at the most threads that it was measured with."""
    most = max(record["threads"] for record in records)
    singles = {
        (record["family"], record["label"]): Row(record)
        for record in records
        if record["threads"] == 1 and most > 1
    }
    return [
        Row(record, singles.get((record["family"], record["label"])))
        for record in records
        if record["threads"] == most
    ]


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))
