# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Unchanged programs on accelerated ops, and what the drop-in layer of Keras saves.

    python -m benchmarks.acceleration --quick

What is accelerated stays so, so each kind of kernels is a process of its own. Those that are
compared take turns, visit by visit, and sleep in between; a ratio is the median over the rounds.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from .harness import machine
from .harness.names import OURS, is_stock
from .harness.progress import Progress
from .harness.rows import geometric_mean
from .harness.timing import median_interval, race
from .harness.workers import ROOT

RESULTS = pathlib.Path(__file__).parent / "results"
STOCK_KERNELS, ACCELERATED, DROP_IN = "stock", "accelerated", "drop-in"
GRID_FAMILIES = ("gather_forward", "gather_gradient", "stitch_forward")
BATCH, COLUMNS = 4096, 64
# Rows of each of the two tables: 1 GiB together, and a small model.
LARGE_ROWS, SMALL_ROWS = 1 << 21, 10**5


@dataclasses.dataclass(frozen=True)
class Race:
    """A program whose seat has to be `wanted` times as fast as the same on stock kernels."""

    name: str
    program: str
    seat: str
    wanted: float


RACES = (
    Race("a step of the recommender, 1 GiB of tables", "large step", DROP_IN, 5),
    Race("its inference", "large inference", DROP_IN, 10),
    Race("a step with tables of 10^5 x 64", "small step", ACCELERATED, 1.15),
    Race("the demo's graph network", "karate_club", ACCELERATED, 0.97),
    Race("the demo's mixture of experts", "mixture_of_experts", ACCELERATED, 0.97),
)
GRID_WANTED = 0.95


# ---- In the processes that measure ---------------------------------------------------------------


def recommender(seat: str, rows: int, inference: bool) -> Callable[[], Any]:
    """Two embeddings, dense layers, SGD: a step, or the predictions, for the next batch."""
    import keras
    import numpy as np
    import tensorflow as tf

    if seat == DROP_IN:
        from gather_stitch.keras import Embedding
    else:
        from keras.layers import Embedding

    keras.utils.set_random_seed(0)
    users, items = (keras.Input((), dtype="int32") for _ in range(2))
    hidden = keras.layers.Concatenate()(
        [Embedding(rows, COLUMNS)(users), Embedding(rows, COLUMNS)(items)]
    )
    for units in (64, 32):
        hidden = keras.layers.Dense(units, activation="relu")(hidden)
    model = keras.Model([users, items], keras.layers.Dense(1)(hidden))
    optimizer = keras.optimizers.SGD(0.01)
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(users, items, labels):
        with tf.GradientTape() as tape:
            errors = model([users, items], training=True)[:, 0] - labels
            loss = tf.reduce_mean(errors**2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        return loss

    predict = tf.function(lambda users, items: model([users, items], training=False))
    random = np.random.default_rng(0)
    batches = [
        (
            tf.constant(random.integers(0, rows, BATCH, np.int32)),
            tf.constant(random.integers(0, rows, BATCH, np.int32)),
            tf.constant(random.standard_normal(BATCH).astype(np.float32)),
        )
        for _ in range(16)
    ]
    # A table that has been trained is one that is copied when it is read.
    step(*batches[0])
    turn = iter(range(1 << 60))

    def call():
        users, items, labels = batches[next(turn) % len(batches)]
        return (predict(users, items) if inference else step(users, items, labels)).numpy()

    return call


def example(name: str) -> Callable[[], Any]:
    """A step of an example of the demo, written for stock ops."""
    sys.path.insert(0, str(ROOT / "examples"))
    import side_by_side

    module = importlib.import_module(name)
    if name == "karate_club":
        training, batches = module.make_training(side_by_side.STOCK, 0), [()]
    else:
        training = module.make_training(side_by_side.STOCK, 0, module.EXPERTS)
        batches = module.make_batches(8, 0)
    turn = iter(range(1 << 60))
    return lambda: training.step(*batches[next(turn) % len(batches)]).numpy()


def program(name: str, seat: str) -> Callable[[], Any]:
    if name.startswith(("large", "small")):
        rows = LARGE_ROWS if name.startswith("large") else SMALL_ROWS
        return recommender(seat, rows, inference=name.endswith("inference"))
    return example(name)


def serve(name: str, seat: str, answers: Any) -> None:
    """Calls the program as often as each line says, and answers with the seconds of a call."""
    if seat == ACCELERATED:
        import gather_stitch

        gather_stitch.accelerate()
    call = program(name, seat)
    for _ in range(3):
        call()
    print(json.dumps("ready"), file=answers, flush=True)
    for line in sys.stdin:
        seconds = []
        for _ in range(int(line)):
            start = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - start)
        print(json.dumps(statistics.median(seconds)), file=answers, flush=True)


def race_grid(full: bool, budget: float, answers: Any) -> None:
    """Answers, for each cell of the grid, how accelerated stock ops stand beside our own."""
    import gather_stitch

    from .harness import frameworks, jobs

    frameworks.torch = frameworks.jax = None  # No peers here.
    frameworks.set_threads(machine.cores())
    gather_stitch.accelerate()
    families = [importlib.import_module(f"benchmarks.{name}") for name in GRID_FAMILIES]
    cells = [(family, cell) for family in families for cell in dict.fromkeys(family.cells(full))]
    # Elsewhere stock's gradient is no single op.
    cells = [(f, c) for f, c in cells if c.family != "gather_gradient" or c.layout == "axis 0"]
    print(json.dumps(len(cells)), file=answers, flush=True)
    for family, cell in cells:
        job: jobs.Job = family.prepare(cell)
        peers = [p for p in job.peers if p.name == OURS or is_stock(p.name)]
        for peer in peers:
            assert peer.is_right(frameworks.to_numpy(peer.call())), (peer.name, cell.label)
        calls = {peer.name: peer.call for peer in peers}
        samples = race(calls, calls.keys(), budget)
        ratios = {
            name: median_interval(
                [o / s for o, s in zip(samples[OURS].wall, samples[name].wall, strict=True)]
            )
            for name in calls
            if name != OURS
        }
        label = f"{cell.family} {cell.label}"
        microseconds = 1e6 * statistics.median(samples[OURS].wall)
        # Of two stock ops for one job the faster counts, as in the table of the family.
        ratio = max(ratios.values())
        print(json.dumps([label, microseconds, *ratio]), file=answers, flush=True)
        machine.give_back_memory()


# ---- In the process that reports -----------------------------------------------------------------


class Child:
    """A process of this module."""

    def __init__(self, *arguments: str) -> None:
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        environment = {
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "CUDA_VISIBLE_DEVICES": "",
            "GATHER_STITCH_ACCELERATE": "0",
            "KERAS_BACKEND": "tensorflow",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.acceleration", *arguments],
            cwd=ROOT,
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def tell(self, line: object) -> None:
        print(line, file=self._process.stdin, flush=True)

    def answer(self) -> Any:
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            raise SystemExit(f"{self._log.read()[-4000:]}\nA process of the benchmark has ended")
        return json.loads(line)

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()


def run_race(wanted: Race, rounds: int, seconds: float) -> dict[str, Any]:
    seats = {seat: Child("--seat", seat, wanted.program) for seat in (STOCK_KERNELS, wanted.seat)}
    for child in seats.values():
        child.answer()
    calls = {}
    for seat, child in seats.items():
        child.tell(3)
        calls[seat] = max(1, round(seconds / child.answer()))
    times: dict[str, list[float]] = {seat: [] for seat in seats}
    for number in range(rounds):
        # Who goes first alternates.
        for seat in list(seats)[:: 1 if number % 2 else -1]:
            seats[seat].tell(calls[seat])
            times[seat].append(seats[seat].answer())
    for child in seats.values():
        child.close()
    ratios = [s / o for s, o in zip(times[STOCK_KERNELS], times[wanted.seat], strict=True)]
    return {
        "name": wanted.name,
        "seat": wanted.seat,
        "ms": {seat: 1e3 * statistics.median(values) for seat, values in times.items()},
        "ratio": median_interval(ratios),
        "wanted": wanted.wanted,
    }


def run_grid(full: bool, budget: float) -> dict[str, Any]:
    child = Child("--grid", *(["--full"] if full else []), f"--budget={budget}")
    number = child.answer()
    progress = Progress()
    cells = []
    for _ in range(number):
        cells.append(child.answer())
        progress.show(len(cells), number, cells[-1][0])
    progress.close()
    child.close()
    return {"cells": cells, "wanted": GRID_WANTED}


def print_grid(grid: dict[str, Any]) -> None:
    cells = sorted(grid["cells"], key=lambda cell: cell[2])
    print(f"\n{'accelerated stock op over our own':60}{'us':>10}  ratio")
    for label, microseconds, ratio, low, high in cells[:10]:
        print(f"  {label:58}{microseconds:>10.1f}  {ratio:.2f} [{low:.2f}, {high:.2f}]")
    mean = geometric_mean([cell[2] for cell in cells])
    # A cell is below where its interval is.
    below = [cell for cell in cells if cell[4] < grid["wanted"]]
    word = "holds       " if not below else "DOES NOT HOLD"
    print(
        f"    {word}  accelerated stock ops over our own: geometric mean {mean:.2f}, worst "
        f"{cells[0][2]:.2f} (>= {grid['wanted']}) at {cells[0][0]}; {len(below)} of {len(cells)} "
        "cells below"
    )


def print_race(result: dict[str, Any]) -> None:
    ratio, low, high = result["ratio"]
    holds = ratio >= result["wanted"]
    word = "holds       " if holds else "DOES NOT HOLD"
    times = ", ".join(f"{seat} {ms:.2f} ms" for seat, ms in result["ms"].items())
    print(
        f"    {word}  {result['name']}: {ratio:.2f} [{low:.2f}, {high:.2f}] times as fast "
        f"(>= {result['wanted']}); {times}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.acceleration", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small grid, few rounds")
    parser.add_argument("--full", action="store_true", help="the whole grid (default)")
    parser.add_argument("--only", metavar="TEXT", help="only races whose name has this text")
    parser.add_argument("--out", type=pathlib.Path, help="folder of the results")
    parser.add_argument("--budget", type=float, default=0.15, help="seconds of racing a cell")
    parser.add_argument("--grid", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--seat", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.grid or options.seat:
        # Whatever a framework prints goes to the log.
        answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        if options.grid:
            race_grid(options.full, options.budget, answers)
        else:
            seat, name = options.seat
            serve(name, seat, answers)
        return 0

    rounds, seconds = (7, 0.5) if options.quick else (15, 2.0)
    before = machine.probe()
    races = [r for r in RACES if (options.only or "") in r.name]
    results: dict[str, Any] = {"races": []}
    for wanted in races:
        results["races"].append(run_race(wanted, rounds, seconds))
        print_race(results["races"][-1])
    if not options.only:
        results["grid"] = run_grid(not options.quick, options.budget)
    results |= {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "processor": machine.processor(),
        "cores": machine.cores(),
        "before": str(before),
        "after": str(machine.probe()),
    }
    if not options.only:
        folder = options.out or RESULTS
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"acceleration_{'quick' if options.quick else 'full'}.json"
        path.write_text(json.dumps(results, indent=1) + "\n")
    print(f"{results['processor']}, {results['cores']} cores. Before: {before}")
    if "grid" in results:
        print_grid(results["grid"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
