# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Checks what nvcc made of the GPU kernels, without a GPU.

    python3 tools/cuda_test.py NVCC BUILD ARCH...

- Every kernel of ours was compiled for every architecture.
- None spills registers or keeps anything on a stack.
- The kernels that move rows by chunks of 16 bytes load and store 16 bytes at once, as often as
  they mean to have chunks in flight.

make has compiled the objects below BUILD, with what ptxas said beside them. What CUB's kernels do
is left to CUB.
"""

from __future__ import annotations

import collections
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = ROOT / "tf_ops" / "core" / "gpu"
# Kernels of ours are instances of one function template.
OURS = "RunBody"
COMPILED = re.compile(r"Compiling entry function '(\w+)' for 'sm_(\d+)'")
MEMORY = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
ENTRY = re.compile(r"^\s*(?:\.\w+\s+)*\.entry\s+(\w+)\(", re.MULTILINE)
WIDE_LOAD = re.compile(r"\bld\.global(?:\.\w+)*\.v4\.\w32\b")
WIDE_STORE = re.compile(r"\bst\.global(?:\.\w+)*\.v4\.\w32\b")


def chunks_in_flight() -> int:
    text = (SOURCES / "move_rows_kernel.h").read_text(encoding="utf-8")
    match = re.search(r"kChunksInFlight = (\d+);", text)
    if match is None:
        sys.exit("move_rows_kernel.h has no kChunksInFlight")
    return int(match[1])


def kernels_of(log: str) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Name, architecture, and bytes of stack, spill stores and spill loads of each kernel."""
    compiled = None
    for line in log.splitlines():
        if match := COMPILED.search(line):
            compiled = match.groups()
        elif (match := MEMORY.search(line)) and compiled is not None:
            yield (*compiled, tuple(map(int, match.groups())))
            compiled = None


def check_resources(build: pathlib.Path, archs: list[str]) -> Iterator[str]:
    for source in sorted(SOURCES.glob("*.cu.cc")):
        name = source.name.removesuffix(".cu.cc")
        log = build / "tf_ops" / "core" / "gpu" / f"{name}.cuda.ptxas"
        archs_of = collections.defaultdict(set)
        for kernel, arch, memory in kernels_of(log.read_text(encoding="utf-8")):
            archs_of[kernel].add(arch)
            if OURS in kernel and any(memory):
                yield f"{source.name}: {kernel} for sm_{arch}: {memory} bytes of stack and spills"
        ours = [kernel for kernel in archs_of if OURS in kernel]
        if not ours and "Launch(" in source.read_text(encoding="utf-8"):
            yield f"{source.name}: {log} names no kernel"
        for kernel in archs_of:
            missing = set(archs) - archs_of[kernel]
            # CUB has kernels for some architectures only.
            if OURS in kernel and missing:
                yield f"{source.name}: {kernel} is not compiled for {sorted(missing)}"
        print(f"  {source.name}: {len(ours)} kernels for {', '.join(archs)}")


def check_wide_moves(nvcc: str, build: pathlib.Path, arch: str) -> Iterator[str]:
    wanted = chunks_in_flight()
    for name in ("gather", "stitch"):
        ptx = build / f"{name}.ptx"
        options = ["-std=c++17", "-O3", "-I.", f"-arch=compute_{arch}", "-ptx", "-x", "cu"]
        source = SOURCES / f"{name}.cu.cc"
        subprocess.run([nvcc, *options, str(source), "-o", str(ptx)], check=True, cwd=ROOT)
        text = ptx.read_text(encoding="utf-8")
        starts = [(match[1], match.start()) for match in ENTRY.finditer(text)]
        ends = [start for _, start in starts[1:]] + [len(text)]
        wide = 0
        for (kernel, start), end in zip(starts, ends, strict=True):
            if "Chunk16" not in kernel:
                continue
            wide += 1
            body = text[start:end]
            for what, found in (("loads", WIDE_LOAD), ("stores", WIDE_STORE)):
                count = len(found.findall(body))
                if count < wanted:
                    yield f"{kernel} has {count} {what} of 16 bytes, not {wanted}"
        if wide == 0:
            yield f"{name}.cu.cc has no kernel for chunks of 16 bytes"
        print(f"  {name}.cu.cc: {wide} kernels with {wanted} moves of 16 bytes in flight")


def main() -> None:
    nvcc, build, *archs = sys.argv[1:]
    folder = (ROOT / build).resolve()
    complaints = list(check_resources(folder, archs))
    complaints += check_wide_moves(nvcc, folder, archs[-1])
    if complaints:
        sys.exit("\n".join(complaints))


if __name__ == "__main__":
    main()
