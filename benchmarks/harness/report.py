# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Prints a run: tables with the losing cells first, and what holds of the targets.

`python -m benchmarks.harness.report benchmarks/results/full.json` prints a kept run again.
"""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from . import plots, targets
from .rows import Row, geometric_mean, rows_of

TITLES = {
    "gather_forward": "Gather, forward",
    "gather_gradient": "Gather, dense gradient",
    "gather_sparse_gradient": "Gather, gradient as unique slices",
    "stitch_forward": "Stitch, forward",
    "stitch_gradient": "Stitch, gradient",
    "eager_calls": "Eager calls of tiny tensors",
    "function_steps": "Forward and gradient in a tf.function",
    "compiled": "Compiled by XLA",
}
# A terminal shows every losing cell, and of the others the nearest to losing up to this.
SHOWN = 12
COLUMNS = (
    "cell",
    "us",
    "CPU us",
    "x stock [95%]",
    "x best other",
    "GB/s",
    "of copy",
    "1 thread: x stock",
    "gain (copy's)",
)


def to_json(results: dict[str, Any]) -> str:
    """One record a line, so that two runs can be compared line by line."""
    records = ",\n".join(json.dumps(record) for record in results["records"])
    head = json.dumps({k: v for k, v in results.items() if k != "records"}, indent=1)
    return f'{head[:-2]},\n "records": [\n{records}\n]\n}}\n'


def publish(json_path: pathlib.Path) -> int:
    """Prints the report and writes it whole, with plots, beside the JSON; returns a status."""
    results = json.loads(json_path.read_text())
    rows = [row for row in rows_of(results["records"]) if row.is_measured]
    wrong = sorted(
        {
            f"{record['family']} {record['label']}: {record['excluded']['gather_stitch']}"
            for record in results["records"]
            if "gather_stitch" in record["excluded"]
        }
    )
    print(_report(results, rows, SHOWN))
    json_path.with_suffix(".md").write_text(_report(results, rows, None))
    plots.draw(rows, json_path)
    print(f"\nWritten: {json_path}, the whole tables as .md, plots as .svg beside it")
    if wrong:
        print("\nNOT TIMED, since the result is wrong or an error:\n  " + "\n  ".join(wrong))
    return 1 if wrong else 0


def _report(results: dict[str, Any], rows: Sequence[Row], shown: int | None) -> str:
    parts = [_heading(results)]
    for family, title in TITLES.items():
        of_family = [row for row in rows if row.family == family]
        if of_family:
            parts.append(f"## {title}\n\n{_summary(of_family)}\n\n{_table(of_family, shown)}")
    lines = "\n".join(f"    {verdict.text}" for verdict in targets.verdicts(rows))
    parts.append(f"## What it must reach\n\n{lines}")
    return "\n\n".join(parts) + "\n"


def _heading(results: dict[str, Any]) -> str:
    machine = results["machine"]
    versions = ", ".join(f"{name} {number}" for name, number in results["versions"].items())
    threads = sorted({record["threads"] for record in results["records"]})
    huge = max(record["huge_page_bytes"] for record in results["records"])
    lines = [
        f"# Benchmark, {results['mode']}, {results['date']}",
        "",
        f"{machine['processor']}, {machine['cores']} cores; {threads} threads; {versions}.",
        f"Memory: malloc {results['malloc']}, {huge >> 20} MiB in huge pages.",
        f"Before: {machine['before']}. After: {machine['after']}.",
        f"During: others used at most {machine['foreign_share']:.1%} of the processors in a cell; "
        f"measured again for being disturbed: {results['repeated']}.",
    ]
    if not machine["was_quiet"]:
        lines.append("\n**The machine was disturbed: these times say little.**")
    return "\n".join(lines)


def _summary(rows: Sequence[Row]) -> str:
    lines = []
    for name, chosen in (
        (f"{rows[0].threads} thread(s)", rows),
        ("1 thread", [row.one_thread for row in rows if row.one_thread]),
    ):
        ratios = [(row.stock.value, row.label) for row in chosen if row.stock]
        if ratios:
            mean = geometric_mean([ratio for ratio, _ in ratios])
            worst, label = min(ratios)
            losing = sum(ratio < 1 for ratio, _ in ratios)
            lines.append(
                f"{name}, against stock: geometric mean {mean:.2f}x, worst {worst:.2f}x ({label}), "
                f"{losing / len(ratios):.0%} of {len(ratios)} cells below 1.0"
            )
    excluded = sorted({f"{peer}: {why}" for row in rows for peer, why in row.excluded.items()})
    return "  \n".join(lines + [f"Not timed in some cells: {text}" for text in excluded])


def _table(rows: Sequence[Row], shown: int | None) -> str:
    ordered = sorted(rows, key=lambda row: (not row.loses, _nearness(row)))
    if shown is not None:
        losing = sum(row.loses for row in rows)
        ordered = ordered[: max(losing, shown)]
    lines = [COLUMNS, *map(_cells, ordered)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
    lines.insert(1, ["-" * width for width in widths])

    def text(line: Sequence[str]) -> str:
        first, *others = line
        padded = [first.ljust(widths[0])]
        padded += [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        return f"| {' | '.join(padded)} |"

    table = "\n".join(map(text, lines))
    hidden = len(rows) - len(ordered)
    return table + (f"\n\n... and {hidden} cells that win by more" if hidden else "")


def _nearness(row: Row) -> float:
    return row.stock.value if row.stock else float("inf")


def _cells(row: Row) -> list[str]:
    single = row.one_thread
    return [
        row.label,
        _short(row.us()),
        _short(row.cpu_us),
        str(row.stock) if row.stock else "-",
        f"{row.other.value:.2f} {row.other.peer}" if row.other else "-",
        f"{row.gigabytes_per_second:.2f}",
        f"{row.copy_share():.0%}",
        f"{single.stock.value:.2f}" if single and single.stock else "-",
        f"{row.gain():.2f} ({row.gain('copy'):.2f})" if single else "-",
    ]


def _short(microseconds: float) -> str:
    return f"{microseconds:.1f}" if microseconds < 100 else f"{microseconds:.0f}"


if __name__ == "__main__":
    sys.exit(publish(pathlib.Path(sys.argv[1])))
