# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Counts the instructions of some jobs of the core and compares them with the kept counts.

Times differ from run to run, counts do not: a loop that got longer shows on any machine, busy or
not. Counts hold for one compiler, C library and instruction set; for another there is nothing to
compare with, and the counts are only shown.

    make instruction-counts                      compares
    make instruction-counts BENCH_FLAGS=--keep   keeps the new counts
"""

from __future__ import annotations

import argparse
import json
import pathlib
import platform
import re
import shutil
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
BUILD = FOLDER.parents[1] / "build/opt"
PROGRAM = BUILD / "benchmarks/counted_jobs"
KEPT = FOLDER / "instruction_counts.json"
# Another version of the C library's memcpy or of the compiler's inlining stays below this.
TOLERANCE = 0.02


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", action="store_true", help="write the counts down as the new ones")
    options = parser.parse_args()
    if shutil.which("valgrind") is None:
        print("Instructions are not counted: valgrind is not installed")
        return 0
    jobs = subprocess.run([PROGRAM], capture_output=True, text=True, check=True).stdout.split()
    counts: dict[str, int] = {}
    instruction_set = ""
    for job in jobs:
        counts[job], instruction_set = count(job)
    compiler = (BUILD / "compiler").read_text().strip()
    circumstances = f"{compiler}, {' '.join(platform.libc_ver())}, {instruction_set}"

    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    if options.keep:
        kept[circumstances] = counts
        KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
        print(f"Kept {len(counts)} counts for {circumstances}")
        return 0
    expected = kept.get(circumstances)
    print(f"{circumstances}: " + ("" if expected else "no counts are kept, so these only show"))
    changed = False
    for job, number in counts.items():
        verdict = ""
        if expected is not None:
            change = number / expected[job] - 1 if job in expected else 1.0
            within = abs(change) <= TOLERANCE
            changed |= not within
            verdict = f"{change:+7.1%}" + ("" if within else "  changed")
        print(f"  {job:28} {number:>13,} {verdict}")
    if changed:
        print("If the change is meant: make instruction-counts BENCH_FLAGS=--keep")
    return int(changed)


def count(job: str) -> tuple[int, str]:
    """Instructions of a job, and the instruction set that it ran on."""
    tool = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    only = ["--collect-atstart=no", "--toggle-collect=CountedRun"]
    run = subprocess.run([*tool, *only, PROGRAM, job], capture_output=True, text=True)
    collected = re.search(r"Collected : (\d+)", run.stderr)
    if run.returncode != 0 or collected is None:
        sys.exit(f"{job}: {run.stderr}")
    return int(collected[1]), run.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
