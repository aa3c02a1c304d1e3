# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Trains a model twice, on stock ops and on ours, and compares the two runs.

The examples write their model once, as a function of `ops`: an object that has the functions
`gather` and `parallel_dynamic_stitch`. `STOCK` and `OURS` are the two such objects. `train` runs
both seats step by step in turn, so that whatever else the machine does slows them alike, and
returns a `Comparison`, which can be printed and plotted.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import shutil
import statistics
import sys
import time
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gather_stitch
import numpy as np
import tensorflow as tf

STOCK = types.SimpleNamespace(
    name="stock",
    gather=tf.gather,
    parallel_dynamic_stitch=tf.dynamic_stitch,
)
OURS = types.SimpleNamespace(
    name="ours",
    gather=gather_stitch.gather,
    parallel_dynamic_stitch=gather_stitch.parallel_dynamic_stitch,
)
SEATS = (STOCK, OURS)

# Both seats run on the CPU: there sums keep their order, and equal means equal.
tf.config.set_visible_devices([], "GPU")

# Values that differ by more than this, relative to their size once that is above 1, differ by
# more than rounding. Where only data moves and sums keep their order the difference is 0.
ROUNDING = 1e-5

# The first steps trace, allocate and warm caches: they say nothing about the time of a step.
WARM_UP_STEPS = 10


@dataclasses.dataclass
class Training:
    """What `train` needs of one seat: made by the example from `ops` and a seed."""

    step: Callable[..., tf.Tensor]  # one batch -> its loss, after one update of the variables
    accuracy: Callable[[], tf.Tensor]  # on the held-out data, between 0 and 1
    variables: Sequence[tf.Variable]


@dataclasses.dataclass
class Comparison:
    """Two runs side by side. Pairs are in the order of `SEATS`."""

    title: str
    losses: tuple[list[float], list[float]]  # one per step
    evaluated_steps: list[int]
    accuracies: tuple[list[float], list[float]]  # one per evaluated step
    step_ms: tuple[float, float]  # medians
    timed_steps: int
    our_ops: dict[str, int]  # our ops in the graph of a step, each with its number of nodes
    differences: dict[str, float]  # what was compared -> largest absolute difference
    equal: bool  # to rounding, and it was our ops that ran

    @property
    def largest_difference(self) -> float:
        return max(self.differences.values())


def train(
    title: str,
    make_training: Callable[[Any, int], Training],
    batches: Sequence[tuple],
    *,
    seed: int = 0,
    evaluations: int = 20,
) -> Comparison:
    """Trains both seats from the same seed on the same batches, in turn, with progress shown."""
    trainings = [make_training(ops, seed) for ops in SEATS]
    losses: tuple[list[float], list[float]] = ([], [])
    accuracies: tuple[list[float], list[float]] = ([], [])
    milliseconds: tuple[list[float], list[float]] = ([], [])
    evaluate_every = max(1, len(batches) // evaluations)
    evaluated_steps = []

    with Progress(len(batches)) as progress:
        for i, batch in enumerate(batches):
            # Who goes first alternates: the second finds the batch in the caches.
            for seat in (0, 1) if i % 2 == 0 else (1, 0):
                start = time.perf_counter()
                loss = trainings[seat].step(*batch).numpy()
                milliseconds[seat].append(1e3 * (time.perf_counter() - start))
                losses[seat].append(float(loss))
            if i % evaluate_every == 0 or i == len(batches) - 1:
                evaluated_steps.append(i + 1)
                for seat in (0, 1):
                    accuracies[seat].append(float(trainings[seat].accuracy()))
            progress.show(i + 1, f"loss {losses[0][-1]:.4f} | {losses[1][-1]:.4f}")

    op_counts = [_our_ops(training.step, batches[0]) for training in trainings]
    weights = [
        np.concatenate([variable.numpy().ravel() for variable in training.variables])
        for training in trainings
    ]
    pairs = {"losses": losses, "accuracies": accuracies, "weights": weights}
    warm = WARM_UP_STEPS if len(batches) > 2 * WARM_UP_STEPS else 0
    return Comparison(
        title=title,
        losses=losses,
        evaluated_steps=evaluated_steps,
        accuracies=accuracies,
        step_ms=tuple(statistics.median(times[warm:]) for times in milliseconds),
        timed_steps=len(batches) - warm,
        our_ops=dict(op_counts[1]),
        differences={name: float(np.max(np.abs(np.subtract(*p)))) for name, p in pairs.items()},
        # Two stock runs would agree as well: that ours ran on our ops is part of the claim.
        equal=all(equal_to_rounding(*p) for p in pairs.values())
        and not op_counts[0]
        and bool(op_counts[1]),
    )


def equal_to_rounding(stock: Any, ours: Any) -> bool:
    """True where no pair of values differs by more than rounding. NaN equals nothing."""
    stock, ours = np.asarray(stock), np.asarray(ours)
    bound = ROUNDING * np.maximum(1.0, np.abs(stock))
    return stock.shape == ours.shape and bool(np.all(np.abs(stock - ours) <= bound))


def _our_ops(step: Any, batch: tuple) -> collections.Counter:
    graph = step.get_concrete_function(*batch).graph.as_graph_def()
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    return collections.Counter(n.op for n in nodes if n.op.startswith("GatherStitch>"))


def print_comparison(comparison: Comparison) -> None:
    """Prints losses and accuracies side by side, the largest differences and the times."""
    print(f"\n    {'':>6}{'training loss':>20}{'held-out accuracy':>26}")
    print(f"    {'step':>6}{'stock':>12}{'ours':>10}{'stock':>14}{'ours':>10}")
    evaluations = len(comparison.evaluated_steps)
    for row in sorted({round(r) for r in np.linspace(0, evaluations - 1, 6)}):
        step = comparison.evaluated_steps[row]
        stock_loss, our_loss = (losses[step - 1] for losses in comparison.losses)
        stock_accuracy, our_accuracy = (values[row] for values in comparison.accuracies)
        print(
            f"    {step:>6}{stock_loss:>12.5f}{our_loss:>10.5f}"
            f"{stock_accuracy:>14.1%}{our_accuracy:>10.1%}"
        )
    differences = ", ".join(f"{name} {d:.2g}" for name, d in comparison.differences.items())
    stock_ms, our_ms = comparison.step_ms
    print(f"\n    largest difference   {differences}")
    print(f"    time per step        stock {stock_ms:.2f} ms, ours {our_ms:.2f} ms", end="")
    print(f"  (medians of {comparison.timed_steps} steps, taken in turn)")
    ops = [f"{count} {op}" for op, count in sorted(comparison.our_ops.items())]
    ops = ops or ["NONE: this was stock twice"]
    print("    our ops in a step    " + f"\n{'':25}".join(ops))
    print(f"    outcome              {'' if comparison.equal else 'NOT '}equal to stock")


def plot(comparisons: Sequence[Comparison], path: Path) -> None:
    """Writes the curves of all comparisons, one row of panels each, as a picture."""
    import matplotlib

    matplotlib.use("Agg")  # A picture file is all that is asked for: no display is needed.
    from matplotlib import pyplot

    # The curves lie on each other: stock is the broad pale line under our thin dark one.
    styles = (
        {"color": "#f5b26b", "linewidth": 6.0, "solid_capstyle": "round"},
        {"color": "#1f4e79", "linewidth": 1.5},
    )
    figure, axes = pyplot.subplots(
        len(comparisons), 2, figsize=(11, 3.9 * len(comparisons)), squeeze=False
    )
    for (loss_panel, accuracy_panel), comparison in zip(axes, comparisons, strict=True):
        for seat, style in enumerate(styles):
            label = f"{SEATS[seat].name}, {comparison.step_ms[seat]:.2f} ms a step"
            losses = comparison.losses[seat]
            loss_panel.plot(range(1, len(losses) + 1), losses, label=label, **style)
            accuracy_panel.plot(
                comparison.evaluated_steps,
                [100 * accuracy for accuracy in comparison.accuracies[seat]],
                label=SEATS[seat].name,
                **style,
            )
        loss_panel.set_title(comparison.title, loc="left", fontweight="bold")
        loss_panel.set_ylabel("training loss")
        loss_panel.legend(frameon=False)
        accuracy_panel.set_title(
            f"largest difference {comparison.largest_difference:.2g}", loc="right", fontsize=10
        )
        accuracy_panel.set_ylabel("held-out accuracy, %")
        accuracy_panel.set_ylim(top=102)
        for panel in (loss_panel, accuracy_panel):
            panel.set_xlabel("step")
            panel.grid(alpha=0.25)
            panel.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def argument_parser(description: str, *, steps: int) -> argparse.ArgumentParser:
    """Gives a parser of the options that every training example has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--steps", type=positive, default=steps, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write the curves as a picture")
    return parser


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not a positive number")
    return number


def finish(comparison: Comparison, plot_path: Path | None) -> int:
    """Ends an example that runs alone: prints, plots if asked to, and gives the exit status."""
    print_comparison(comparison)
    if plot_path is not None:
        plot([comparison], plot_path)
        print(f"    curves               {plot_path}")
    return 0 if comparison.equal else 1


class Progress:
    """A bar that redraws itself on a terminal, and a few plain lines anywhere else."""

    _BAR_COLUMNS = 24
    _PLAIN_LINES = 4

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._live = sys.stdout.isatty()
        # A terminal need not speak Unicode.
        utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
        self._full, self._empty = ("█", "░") if utf8 else ("#", ".")
        self._start = self._drawn = 0.0

    def __enter__(self) -> Progress:
        self._start = time.perf_counter()
        self.show(0, "tracing")
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            print()  # Leaves the last state standing, also where an exception passes through.

    def show(self, step: int, text: str) -> None:
        now = time.perf_counter()
        if self._live:
            # Drawing at every step would be a part of what is timed.
            if now - self._drawn < 0.05 and 0 < step < self._steps:
                return
            full = self._BAR_COLUMNS * step // self._steps
            bar = self._full * full + self._empty * (self._BAR_COLUMNS - full)
        elif step == 0 or step * self._PLAIN_LINES // self._steps == (
            (step - 1) * self._PLAIN_LINES // self._steps
        ):
            return
        self._drawn = now
        line = f"step {step:>4}/{self._steps}  {now - self._start:5.1f} s  {text}"
        if self._live:
            columns = shutil.get_terminal_size().columns
            # A line that wraps can not be redrawn.
            print("\r\x1b[K" + f"    {bar}  {line}"[: columns - 1], end="", flush=True)
        else:
            print(f"    {line}", flush=True)
