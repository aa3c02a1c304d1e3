# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Times PyTorch on the cells that gpu_benchmark timed, and prints both.

python3 -m benchmarks.core.gpu_peers RESULTS.json

The file gets the times of the peers as well. Numbers above 1 are for gather_stitch.
"""

from __future__ import annotations

import json
import pathlib
import statistics
import sys
from collections.abc import Callable
from typing import Any

import torch

REPEATS = 9


def seconds(call: Callable[[], Any]) -> float:
    call()
    times = []
    for _ in range(REPEATS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e-3)
    return statistics.median(times)


def indices_of(cell: dict[str, Any]) -> torch.Tensor:
    count, rows = cell["count"], cell["rows"]
    generator = torch.Generator("cuda").manual_seed(count * 31 + rows)
    if cell["indices"] == "equal":
        return torch.full((count,), rows // 2, device="cuda")
    u = torch.rand(count, device="cuda", dtype=torch.float64, generator=generator)
    if cell["indices"] == "zipf":
        return ((rows + 1) ** u - 1).long().clamp(max=rows - 1)
    return (u * rows).long().clamp(max=rows - 1)


def peers_of(cell: dict[str, Any]) -> dict[str, float]:
    """Seconds of what PyTorch has for a cell's work."""
    width = cell["row_bytes"] // 4
    indices = indices_of(cell)
    if cell["work"] == "gather":
        table = torch.zeros(cell["rows"], width, device="cuda")
        return {"index_select": seconds(lambda: torch.index_select(table, 0, indices))}
    if not cell["work"].startswith("gradient"):
        return {}
    grad = torch.ones(cell["count"], width, device="cuda")

    def index_add() -> None:
        torch.zeros(cell["rows"], width, device="cuda").index_add_(0, indices, grad)

    def embedding_backward() -> None:
        torch.ops.aten.embedding_dense_backward(grad, indices, cell["rows"], -1, False)

    if cell["work"] == "gradient":
        return {
            "index_add_": seconds(index_add),
            "embedding backward": seconds(embedding_backward),
        }
    torch.use_deterministic_algorithms(True)
    try:
        return {"index_add_, deterministic": seconds(index_add)}
    finally:
        torch.use_deterministic_algorithms(False)


def main() -> None:
    path = pathlib.Path(sys.argv[1])
    results = json.loads(path.read_text(encoding="utf-8"))
    results["torch"] = torch.__version__
    print(f"{'work':22} {'row bytes':>9} {'indices':8} {'of a copy':>9}  PyTorch / gather_stitch")
    for cell in results["cells"]:
        cell["peers"] = peers_of(cell)
        ratios = [f"{name} {time / cell['seconds']:.2f}" for name, time in cell["peers"].items()]
        print(
            f"{cell['work']:22} {cell['row_bytes']:9} {cell['indices']:8}"
            f" {cell['of_copy']:9.0%}  {', '.join(ratios)}"
        )
        torch.cuda.empty_cache()
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
