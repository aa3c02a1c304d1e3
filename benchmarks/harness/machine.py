# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""The machine: its caches, whether it is quiet, what a copy costs, memory of this process."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import os
import pathlib
import platform
import time
from collections.abc import Callable

import numpy as np

LIBRARY = pathlib.Path(__file__).resolve().parents[2] / "build/opt/benchmarks/machine.so"
# Quiet machines give every thread a core: two threads get twice the arithmetic done.
MIN_SCALING = 0.93
# Processors' time that may go to other processes, or to other guests of the host.
MAX_FOREIGN_SHARE = 0.05


@functools.cache
def _library() -> ctypes.CDLL:
    if not LIBRARY.exists():
        raise SystemExit(f"{LIBRARY} is missing: run this by `make bench`, which builds it")
    library = ctypes.CDLL(str(LIBRARY))
    library.ArithmeticSeconds.argtypes = [ctypes.c_int, ctypes.c_int64]
    library.ArithmeticSeconds.restype = ctypes.c_double
    library.PlainCopy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int]
    library.PlainCopy.restype = None
    return library


def cores() -> int:
    return len(os.sched_getaffinity(0))


@functools.cache
def cache_bytes() -> dict[str, int]:
    """Bytes of the L2 cache of a core and of the last-level cache."""
    found: dict[int, int] = {}
    for cache in pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        text = (cache / "size").read_text().strip()
        number = int(text[:-1]) << {"K": 10, "M": 20, "G": 30}[text[-1]]
        found[int((cache / "level").read_text())] = number
    return {"L2": found.get(2, 1 << 20), "LLC": found[max(found)] if found else 32 << 20}


def processor() -> str:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def copy_call(number_of_bytes: int, threads: int) -> Callable[[], None]:
    """A call that copies so many bytes from one buffer of its own to another."""
    source = np.ones(max(1, number_of_bytes), np.uint8)
    target = np.zeros_like(source)
    arguments = target.ctypes.data, source.ctypes.data, number_of_bytes, threads
    copy = _library().PlainCopy

    def call(keep_alive: tuple[np.ndarray, np.ndarray] = (source, target)) -> None:
        copy(*arguments)

    return call


# ---- Is it quiet? ------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Quiet:
    """What a probe of an idle moment found."""

    scaling: float  # of all cores, as a share of their number
    foreign_share: float  # of the processors' time, used by others

    @property
    def is_quiet(self) -> bool:
        return self.scaling >= MIN_SCALING and self.foreign_share <= MAX_FOREIGN_SHARE

    def __str__(self) -> str:
        return (
            f"{cores()} threads do {self.scaling * cores():.2f}x the arithmetic of one, "
            f"others use {self.foreign_share:.1%} of the processors"
        )


def probe() -> Quiet:
    """Takes about two seconds; the caller's own processes must be idle."""
    others = ForeignTime()
    time.sleep(1)
    foreign_share = others.share(own_seconds=0)
    seconds_of, steps = _library().ArithmeticSeconds, 20_000_000
    scaling = []
    for _ in range(7):
        alone = seconds_of(1, steps)
        scaling.append(alone / seconds_of(cores(), steps))
    return Quiet(float(np.median(scaling)), foreign_share)


class ForeignTime:
    """Processors' time since it was made that went to processes other than ours."""

    def __init__(self) -> None:
        self._start = time.monotonic(), self._busy_seconds()

    def share(self, own_seconds: float) -> float:
        wall = time.monotonic() - self._start[0]
        busy = self._busy_seconds() - self._start[1]
        return max(0.0, busy - own_seconds) / (wall * (os.cpu_count() or 1))

    @staticmethod
    def _busy_seconds() -> float:
        with open("/proc/stat") as stat:
            ticks = [int(word) for word in stat.readline().split()[1:]]
        user, nice, system, _idle, _iowait, irq, softirq, steal = ticks[:8]
        return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


# ---- Memory of this process --------------------------------------------------


def give_back_memory() -> None:
    """Returns what the allocator keeps of freed memory to the system."""
    ctypes.CDLL(None).malloc_trim(0)


def peak_bytes(call: Callable[[], object]) -> int:
    """The most memory that a call holds at once beyond what was there before it."""
    give_back_memory()
    with open("/proc/self/clear_refs", "w") as clear_refs:
        clear_refs.write("5")  # The peak starts anew.
    before = _status_bytes("VmRSS")
    call()
    return max(0, _status_bytes("VmHWM") - before)


def huge_page_bytes() -> int:
    """Memory of this process that lies in huge pages: none is wanted, for all peers alike."""
    with open("/proc/self/smaps_rollup") as rollup:
        for line in rollup:
            if line.startswith("AnonHugePages:"):
                return int(line.split()[1]) << 10
    return 0


def _status_bytes(field: str) -> int:
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(field + ":"):
                return int(line.split()[1]) << 10
    raise KeyError(field)
