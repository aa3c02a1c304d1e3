# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs the benchmark: `make bench`, or `python -m benchmarks --quick` (or --full)."""

from __future__ import annotations

import argparse
import collections
import pathlib
import random
import sys
import time
from typing import Any

from .harness import machine, report
from .harness.progress import Progress
from .harness.workers import Worker

RESULTS = pathlib.Path(__file__).parent / "results"
# Seconds for which the peers of a cell race, and no longer than they need if they are slow.
BUDGET = {"quick": 0.1, "full": 0.4}
# A cell during which others used the machine is measured again at the end, so often.
TRIES = 4


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--quick", action="store_true", help="a small grid, under two minutes")
    mode.add_argument("--full", action="store_true", help="the whole grid (default)")
    parser.add_argument("--families", nargs="+", metavar="NAME", help="some families only")
    parser.add_argument("--cells", metavar="TEXT", help="only cells whose label has this text")
    parser.add_argument(
        "--threads", type=int, nargs="+", help="numbers of threads (default: 1 and all cores)"
    )
    parser.add_argument("--budget", type=float, help="seconds of racing a cell")
    parser.add_argument(
        "--malloc",
        choices=("recycle", "default"),
        default="recycle",
        help="whether outputs lie in recycled memory (default) or where malloc puts them",
    )
    parser.add_argument("--force", action="store_true", help="run on a disturbed machine too")
    parser.add_argument("--out", type=pathlib.Path, help="folder of the results")
    options = parser.parse_args()
    mode_name = "quick" if options.quick else "full"
    is_part = bool(options.families or options.cells or options.threads)

    before = machine.probe()
    print(f"Before: {before}", file=sys.stderr)
    if not before.is_quiet and not options.force:
        print("The machine is disturbed: times would say little. --force runs all the same.")
        return 2

    results = run(options, mode_name)
    after = machine.probe()
    print(f"After: {after}", file=sys.stderr)
    worst = max(record["foreign_share"] for record in results["records"])
    was_quiet = before.is_quiet and after.is_quiet and worst <= machine.MAX_FOREIGN_SHARE
    results["machine"] |= {
        "before": str(before),
        "after": str(after),
        "foreign_share": worst,
        "was_quiet": was_quiet,
    }
    if not was_quiet and not options.force:
        print(
            f"The machine was disturbed (up to {worst:.0%} of it went to others during a cell): "
            "the times are thrown away. --force keeps them."
        )
        return 2

    folder = options.out or (RESULTS if not is_part else RESULTS / "parts")
    folder.mkdir(parents=True, exist_ok=True)
    json_path = folder / f"{mode_name}.json"
    json_path.write_text(report.to_json(results))
    return report.publish(json_path)


def run(options: argparse.Namespace, mode_name: str) -> dict:
    threads = options.threads or sorted({1, machine.cores()})
    arguments = [f"--budget={options.budget or BUDGET[mode_name]}"]
    if mode_name == "full":
        arguments.append("--full")
    if options.families:
        arguments += ["--families", *options.families]
    workers = [Worker(number, options.malloc, arguments) for number in threads]
    hello, *_ = [worker.hello() for worker in workers]
    wanted = [i for i, label in enumerate(hello["cells"]) if (options.cells or "") in label]
    # In no order, so that what drifts in the machine drifts over all families alike.
    random.Random(0).shuffle(wanted)
    records, repeated = [], 0
    queue = collections.deque((cell, TRIES) for cell in wanted)
    progress = Progress()
    while queue:
        cell, tries = queue.popleft()
        found = [_measure(worker, cell) for worker in workers]
        disturbed = max(record["foreign_share"] for record in found) > machine.MAX_FOREIGN_SHARE
        if disturbed and tries > 1 and not options.force:
            queue.append((cell, tries - 1))
            repeated += 1
        else:
            records += found
        progress.show(len(records) // len(workers), len(wanted), found[0]["label"])
    progress.close()
    for worker in workers:
        worker.close()
    return {
        "mode": mode_name,
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "malloc": options.malloc,
        "versions": hello["versions"],
        "machine": {
            "processor": machine.processor(),
            "cores": machine.cores(),
            "cache_bytes": machine.cache_bytes(),
        },
        "repeated": repeated,
        "records": records,
    }


def _measure(worker: Worker, cell: int) -> dict[str, Any]:
    others = machine.ForeignTime()
    record = worker.measure(cell)
    return record | {"foreign_share": round(others.share(record["own_seconds"]), 3)}


if __name__ == "__main__":
    sys.exit(main())
