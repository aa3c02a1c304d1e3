# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""The plots that the README shows: ratio over row size, and share of copy bandwidth."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from .names import OURS, STOCK
from .rows import Row, geometric_mean

FAMILIES = {
    "gather_forward": "gather",
    "gather_gradient": "dense gradient",
    "gather_sparse_gradient": "gradient as unique slices",
    "stitch_forward": "stitch",
}
PEERS = {
    OURS: "gather_stitch",
    STOCK: "TensorFlow",
    "numpy": "NumPy",
    "pytorch": "PyTorch",
    "jax": "JAX",
}


def draw(rows: Sequence[Row], json_path: pathlib.Path) -> None:
    try:
        import matplotlib
    except ImportError:
        print("No plots: matplotlib is not installed")
        return
    matplotlib.use("Agg")
    # The same run gives the same file.
    matplotlib.rcParams["svg.hashsalt"] = "gather_stitch"
    matplotlib.rcParams["font.size"] = 11
    chosen = [row for row in rows if row.is_large]
    _draw_ratios(chosen, json_path.with_name(f"{json_path.stem}_ratio.svg"))
    _draw_copy_shares(chosen, json_path.with_name(f"{json_path.stem}_copy_share.svg"))


def _draw_ratios(rows: Sequence[Row], path: pathlib.Path) -> None:
    figure, axes = _new_axes("Times as fast as stock TensorFlow (band: all cells of a row size)")
    for family, name in FAMILIES.items():
        of_family = [row for row in rows if row.family == family and row.stock]
        sizes, ratios = _by_row_size(of_family, lambda row: row.stock.value)
        if sizes:
            (line,) = axes.plot(sizes, [geometric_mean(r) for r in ratios], "o-", label=name)
            low, high = list(map(min, ratios)), list(map(max, ratios))
            axes.fill_between(sizes, low, high, color=line.get_color(), alpha=0.12, linewidth=0)
    axes.axhline(1, color="black", linewidth=1)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}x")
    _save(figure, axes, path)


def _draw_copy_shares(rows: Sequence[Row], path: pathlib.Path) -> None:
    figure, axes = _new_axes("Gather of uniform rows: bandwidth as a share of a plain copy's")
    gathers = [
        row
        for row in rows
        if row.family == "gather_forward"
        and (row.cell["order"], row.cell["layout"], row.cell["table"])
        == ("uniform", "axis 0", "4x LLC")
    ]
    for peer, name in PEERS.items():
        with_peer = [row for row in gathers if row.copy_share(peer) is not None]
        sizes, shares = _by_row_size(with_peer, lambda row, peer=peer: row.copy_share(peer))
        if sizes:
            width = 2.5 if peer == OURS else 1.2
            means = [100 * geometric_mean(share) for share in shares]
            axes.plot(sizes, means, "o-", label=name, linewidth=width)
    axes.axhline(100, color="black", linewidth=1)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}%")
    axes.set_ylim(bottom=0)
    _save(figure, axes, path)


def _by_row_size(
    rows: Sequence[Row], figure: Callable[[Row], float]
) -> tuple[list[int], list[list[float]]]:
    by_size: dict[int, list[float]] = {}
    for row in rows:
        by_size.setdefault(row.row_bytes, []).append(figure(row))
    sizes = sorted(by_size)
    return sizes, [by_size[row_bytes] for row_bytes in sizes]


def _new_axes(title: str) -> tuple[Any, Any]:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.2))
    axes.set_title(title, fontsize=12)
    axes.set_xscale("log", base=2)
    axes.set_xlabel("bytes of a row")
    axes.xaxis.set_major_formatter(
        lambda value, _: f"{value / 1024:g}K" if value >= 1024 else f"{value:g}"
    )
    axes.grid(alpha=0.3)
    return figure, axes


def _save(figure: Any, axes: Any, path: pathlib.Path) -> None:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
