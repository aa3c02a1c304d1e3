# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""A process with all frameworks in it and a fixed number of threads: measures what it is told.

It reads the number of a cell a line, writes a record as a line of JSON, and sleeps in between.
The first line that it writes lists its cells.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import importlib
import json
import os
import sys
import time
import types
from typing import Any

from . import frameworks, jobs, machine
from .cells import Cell

FAMILIES = (
    "gather_forward",
    "gather_gradient",
    "gather_sparse_gradient",
    "stitch_forward",
    "stitch_gradient",
    "eager_calls",
    "function_steps",
    "compiled",
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=FAMILIES)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--budget", type=float, required=True)
    options = parser.parse_args()
    # Whatever a framework prints goes to the log.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if options.threads < machine.cores():
        # Not the first processors: they serve most interrupts.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-options.threads :])
    frameworks.set_threads(options.threads)

    families = {}
    cells = []
    for name in options.families:
        family = importlib.import_module(f"benchmarks.{name}")
        families[name] = family
        cells += dict.fromkeys(family.cells(options.full))

    gc.freeze()  # What was imported stays: it need not be looked through for each cell.

    def answer(value: Any) -> None:
        print(json.dumps(value), file=answers, flush=True)

    answer({"cells": [cell.label for cell in cells], "versions": frameworks.versions()})
    for line in sys.stdin:
        cell = cells[int(line)]
        before = time.process_time()
        record = measured(cell, families[cell.family], options)
        # The next process to have its turn needs the room, and both processors.
        gc.collect()
        machine.give_back_memory()
        answer(record | {"own_seconds": round(time.process_time() - before, 2)})


def measured(cell: Cell, family: types.ModuleType, options: argparse.Namespace) -> dict[str, Any]:
    return {
        "family": cell.family,
        "label": cell.label,
        "cell": dataclasses.asdict(cell) | {"dtype": cell.element.name},
        "threads": options.threads,
        **jobs.measure(family.prepare(cell), options.threads, options.budget),
        "huge_page_bytes": machine.huge_page_bytes(),
    }


if __name__ == "__main__":
    main()
