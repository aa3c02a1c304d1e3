# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""What the library has to reach, as data, and whether a run shows that it does."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from .names import COPY, OURS
from .rows import Row, geometric_mean

MEMORY_SLACK = 1 << 20  # A constant for each thread and input; the rest of the process moves too.
# The figure of a row that counts; None where the row has none.
Figure = Callable[[Row], "float | None"]


def over_stock(row: Row) -> float | None:
    return row.stock.value if row.stock else None


def over_stock_at_most(row: Row) -> float | None:
    """The upper end of the interval, where times scatter by more than what is asked."""
    return row.stock.high if row.stock else None


def over_others(row: Row) -> float | None:
    return row.other.value if row.other else None


def second_thread(row: Row) -> float | None:
    """The gain of the threads, as a share of what is asked of it."""
    if row.one_thread is None or row.one_thread.us() <= 200:
        return None
    is_one_row = "gradient" in row.family and row.row_bytes < 256 and row.hottest_share > 0.5
    if is_one_row:  # A row's sum has one order.
        return None
    return row.gain() / min(1.7, 0.9 * row.gain(COPY))


def memory(bytes_for: Callable[[Row], int]) -> Figure:
    """Memory that may be used over memory that was."""

    def figure(row: Row) -> float | None:
        if row.peak_bytes is None or not row.is_large:
            return None
        allowed = row.output_bytes + bytes_for(row) + MEMORY_SLACK
        return allowed / max(row.peak_bytes, 1)

    return figure


@dataclasses.dataclass(frozen=True)
class Target:
    """At least `geometric_mean` over the rows, and at least `worst` in each."""

    name: str
    selects: Callable[[Row], bool]
    figure: Figure
    geometric_mean: float | None = None
    worst: float | None = None


def large(family: str, **wanted: Sequence[str]) -> Callable[[Row], bool]:
    def selects(row: Row) -> bool:
        fits = all(row.cell[field] in values for field, values in wanted.items())
        return row.family == family and row.is_large and fits

    return selects


def eager(variant: str, *layouts: str) -> Callable[[Row], bool]:
    return lambda row: (
        row.family == "eager_calls"
        and row.cell["variant"] == variant
        and row.cell["layout"] in layouts
    )


_forward = large("gather_forward")
_other_layouts = ("middle axis", "last axis", "batch_dims 1", "batch_dims 2")
_FAMILIES_WITH_OTHERS = (
    "gather_forward",
    "gather_gradient",
    "gather_sparse_gradient",
    "stitch_forward",
    "stitch_gradient",
)

TARGETS = (
    Target("gather forward", _forward, over_stock, 2.5, 0.97),
    Target(
        "gather forward, rows <= 16 B",
        lambda row: _forward(row) and row.row_bytes <= 16,
        over_stock,
        4,
        2,
    ),
    Target(
        "gather forward, rows >= 4 KiB: share of copy bandwidth",
        lambda row: _forward(row) and row.row_bytes >= 4 << 10,
        Row.copy_share,
        0.85,
    ),
    Target(
        "gather forward, 1 and 100 indices, raw op",
        lambda row: row.family == "gather_forward" and row.indices in (1, 100),
        over_stock,
        worst=0.95,
    ),
    Target(
        "dense gradient, axis 0", large("gather_gradient", layout=("axis 0",)), over_stock, 6, 1
    ),
    Target(
        "dense gradient, other axes and batch_dims",
        large("gather_gradient", layout=_other_layouts),
        over_stock,
        8,
        1.5,
    ),
    Target(
        "stitch, permutation and duplicates",
        large("stitch_forward", order=("permutation", "duplicates")),
        over_stock,
        2.5,
        1,
    ),
    Target(
        "eager call, tiny",
        eager("call", "axis 0", "middle axis", "batch_dims 1"),
        over_stock,
        2,
    ),
    Target(
        "eager forward and gradient, tiny, axis 1 and batch_dims 1",
        eager("call and gradient", "middle axis", "batch_dims 1"),
        over_stock,
        4,
    ),
    Target(
        "compiled by XLA, gather and gradient, upper end of the interval",
        lambda row: row.family == "compiled" and row.cell["variant"] != "stitch",
        over_stock_at_most,
        worst=0.95,
    ),
    Target(
        "compiled by XLA, stitch at indices that change",
        lambda row: row.family == "compiled" and row.cell["variant"] == "stitch",
        over_stock,
        worst=0.95,
    ),
    *(
        Target(
            f"{family.replace('_', ' ')}: best of NumPy, PyTorch and JAX",
            large(family),
            over_others,
            1.2,
            0.9,
        )
        for family in _FAMILIES_WITH_OTHERS
    ),
    Target(
        "threads: gain over the lesser of 1.7 and 90% of a copy's gain",
        lambda row: row.family not in ("eager_calls", "compiled"),
        second_thread,
        worst=1,
    ),
    Target(
        "dense gradient: memory allowed (output + 16 bytes an index) over used",
        lambda row: row.family == "gather_gradient",
        memory(lambda row: 16 * row.indices),
        worst=1,
    ),
    Target(
        "stitch: memory allowed (output + 8 bytes a row) over used",
        lambda row: row.family == "stitch_forward",
        memory(lambda row: 8 * (row.output_bytes // row.row_bytes)),
        worst=1,
    ),
)


@dataclasses.dataclass(frozen=True)
class Verdict:
    holds: bool | None  # None: not measured.
    text: str


def judge(target: Target, rows: Sequence[Row]) -> Verdict:
    figures = [
        (figure, row)
        for row in rows
        if target.selects(row) and (figure := target.figure(row)) is not None
    ]
    if not figures:
        return Verdict(None, f"not measured  {target.name}")
    holds = True
    parts = []
    if target.geometric_mean is not None:
        mean = geometric_mean([figure for figure, _ in figures])
        holds &= mean >= target.geometric_mean
        parts.append(f"geometric mean {mean:.2f} (>= {target.geometric_mean})")
    if target.worst is not None:
        worst, row = min(figures, key=lambda pair: pair[0])
        failing = sum(figure < target.worst for figure, _ in figures)
        holds &= not failing
        parts.append(f"worst {worst:.2f} (>= {target.worst}) at {row.label}")
        if failing:
            parts.append(f"{failing} below")
    word = "holds       " if holds else "DOES NOT HOLD"
    return Verdict(holds, f"{word}  {target.name}: {', '.join(parts)}; {len(figures)} cells")


def cost_per_row(rows: Sequence[Row]) -> Verdict:
    """Whether a row of many costs what a row of few does, but for caches.

    Compares 10^4 and 10^6 indices into a table that fits the L2 cache; what a copy of the same
    bytes loses by the longer output is the caches' part.
    """
    by_count: dict[tuple, dict[int, Row]] = {}
    for row in rows:
        if row.family in ("gather_forward", "gather_gradient") and row.cell["table"] == "in L2":
            key = (row.family, row.row_bytes, row.cell["layout"], row.cell["order"])
            by_count.setdefault(key, {})[row.indices] = row
    growths = []
    for pair in by_count.values():
        if {10**4, 10**6} <= pair.keys():
            few, many = pair[10**4], pair[10**6]
            cost = {
                peer: (many.us(peer) / many.moved_bytes) / (few.us(peer) / few.moved_bytes)
                for peer in (OURS, COPY)
            }
            growths.append((cost[OURS] / max(1.0, cost[COPY]), many))
    name = "cost per row, 10^6 indices over 10^4, less a copy's growth (<= 1.25)"
    if not growths:
        return Verdict(None, f"not measured  {name}")
    worst, row = max(growths, key=lambda pair: pair[0])
    word = "holds       " if worst <= 1.25 else "DOES NOT HOLD"
    return Verdict(worst <= 1.25, f"{word}  {name}: worst {worst:.2f} at {row.family} {row.label}")


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    return [*(judge(target, rows) for target in TARGETS), cost_per_row(rows)]
