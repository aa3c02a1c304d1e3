# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""The one timing loop: peers in turn, in random order, medians with confidence intervals."""

from __future__ import annotations

import dataclasses
import gc
import itertools
import math
import random
import statistics
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

# A visit repeats a call until the clock's own cost and steps do not count.
VISIT_SECONDS = 4e-3
# The extremes of six or more samples enclose the median with 97% confidence or more.
MIN_ROUNDS, MAX_ROUNDS = 6, 61
# A call so long that it does not matter what the last peer left in the caches.
LONG_CALL_SECONDS = 20e-3
# Of the peers that need not stay, those twice as slow as their fastest decide nothing: they leave
# after some rounds.
SLOW, ROUNDS_OF_SLOW = 2, 3


@dataclasses.dataclass
class Samples:
    """Seconds a call, a number for each round that the peer took part in."""

    calls: int  # of a visit
    is_long: bool
    wall: list[float] = dataclasses.field(default_factory=list)
    cpu: list[float] = dataclasses.field(default_factory=list)  # of all threads


def race(
    calls: dict[str, Callable[[], Any]], kept: Collection[str], budget_seconds: float
) -> dict[str, Samples]:
    """Times the calls against each other; `kept` ones take part to the end, slow or not."""
    samples = {name: _new_samples(call) for name, call in calls.items()}
    racing = list(calls)
    # In any order, each round: else a peer would mostly come after the same one, in its caches.
    random_order = random.Random(0)
    gc.collect()
    gc.disable()
    try:
        started = time.perf_counter()
        for round_number in range(MAX_ROUNDS):
            spent = time.perf_counter() - started
            if round_number >= MIN_ROUNDS and spent > budget_seconds:
                break
            if round_number == ROUNDS_OF_SLOW:
                racing = _without_slow(racing, kept, samples)
            random_order.shuffle(racing)
            for name in racing:
                _visit(calls[name], samples[name])
    finally:
        gc.enable()
    return samples


def _new_samples(call: Callable[[], Any]) -> Samples:
    seconds = math.inf
    for _ in range(3):  # The first ones may set things up.
        start = time.perf_counter()
        call()
        seconds = min(seconds, time.perf_counter() - start)
        if seconds > LONG_CALL_SECONDS:
            break
    calls = max(1, math.ceil(VISIT_SECONDS / max(seconds, 1e-7)))
    return Samples(calls, is_long=seconds > LONG_CALL_SECONDS)


def _visit(call: Callable[[], Any], samples: Samples) -> None:
    _settle()
    if not samples.is_long:
        call()  # Its code and data are in the caches again.
    repeats = itertools.repeat(None, samples.calls)
    cpu = time.process_time()
    wall = time.perf_counter()
    for _ in repeats:
        call()
    wall = time.perf_counter() - wall
    cpu = time.process_time() - cpu
    samples.wall.append(wall / samples.calls)
    samples.cpu.append(cpu / samples.calls)


def _settle() -> None:
    """Waits until the threads of the last peer have stopped spinning for more work."""
    for _ in range(40):
        cpu = time.process_time()
        time.sleep(5e-4)
        if time.process_time() - cpu < 1e-4:
            return


def _without_slow(
    racing: Sequence[str], kept: Collection[str], samples: dict[str, Samples]
) -> list[str]:
    medians = {name: statistics.median(samples[name].wall) for name in racing if name not in kept}
    limit = SLOW * min(medians.values(), default=0.0)
    return [name for name in racing if name in kept or medians[name] <= limit]


def median_interval(samples: Sequence[float]) -> tuple[float, float, float]:
    """The median and the ends of an interval that encloses it with 95% confidence.

    The ends are two of the samples, chosen by the binomial distribution of how many samples lie
    below the median: no assumption on how the samples scatter. Of fewer than six samples they
    are the extremes, and enclose it less surely.
    """
    ordered = sorted(samples)
    number = len(ordered)
    below, outside = 0, 0.5**number
    while below < (number - 1) // 2:
        outside_next = outside + math.comb(number, below + 1) * 0.5**number
        if outside_next > 0.025:
            break
        below, outside = below + 1, outside_next
    return statistics.median(ordered), ordered[below], ordered[number - 1 - below]


def summary(samples: Samples, ours: Samples | None) -> dict[str, Any]:
    """Microseconds, and how many times slower than ours, round by round."""
    result = {
        "wall_us": [_short(1e6 * seconds) for seconds in median_interval(samples.wall)],
        "cpu_us": _short(1e6 * statistics.median(samples.cpu)),
        "rounds": len(samples.wall),
        "calls": samples.calls,
    }
    if ours is not None:
        ratios = [theirs / our for theirs, our in zip(samples.wall, ours.wall, strict=False)]
        result["over_ours"] = [_short(ratio) for ratio in median_interval(ratios)]
    return result


def _short(number: float) -> float:
    return float(f"{number:.5g}")
