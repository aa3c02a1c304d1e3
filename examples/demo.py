# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Shows what gather_stitch does: every example, on stock TensorFlow's ops and on ours.

Prints the documented examples, trains two models on both sides, writes their curves as a picture,
and exits with a status other than 0 if a value differs from stock's by more than rounding.

    python examples/demo.py
    python examples/demo.py --steps 50 --plot curves.png
"""

import argparse
import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path

# TensorFlow reads it while it is imported: warnings are hidden, errors are not.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

DEFAULT_PLOT = Path(__file__).resolve().parent.parent / "build" / "demo" / "curves.png"


@contextlib.contextmanager
def start_up_noise_held_back():
    """Keeps what native code writes to stderr, and shows it only if something fails.

    On a machine without GPU TensorFlow's start says so several times, before and whatever its log
    level says.
    """
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        except BaseException:
            held.seek(0)
            os.write(stderr, held.read())
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)


def heading(text):
    bold, plain = ("\x1b[1m", "\x1b[0m") if sys.stdout.isatty() else ("", "")
    print(f"\n{bold}{text}{plain}", flush=True)


def print_summary(comparisons):
    print(f"    {'':<20}{'training loss':>18}{'held-out accuracy':>21}", end="")
    print(f"{'largest':>13}{'ms a step':>16}")
    titles = ("", "stock", "ours", "stock", "ours", "difference", "stock", "ours")
    rows = [
        (
            comparison.title,
            *(f"{losses[-1]:.5f}" for losses in comparison.losses),
            *(f"{accuracies[-1]:.1%}" for accuracies in comparison.accuracies),
            f"{comparison.largest_difference:.2g}",
            *(f"{milliseconds:.2f}" for milliseconds in comparison.step_ms),
        )
        for comparison in comparisons
    ]
    widths = (9, 9, 12, 9, 13, 9, 7)
    for title, *cells in (titles, *rows):
        padded = (f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        print(f"    {title:<20}" + "".join(padded))


def short(path):
    """Gives the path as seen from here, where that is shorter."""
    return min(str(path), os.path.relpath(path), key=len)


def main():
    parser = argparse.ArgumentParser(description="Examples on stock TensorFlow's ops and on ours.")
    parser.add_argument("--steps", type=int, help="of each training (default: 200 and 400)")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument(
        "--plot", type=Path, default=DEFAULT_PLOT, metavar="FILE", help="where the curves go"
    )
    arguments = parser.parse_args()
    if arguments.steps is not None and arguments.steps < 1:
        parser.error(f"--steps {arguments.steps} is not a positive number")
    start = time.perf_counter()

    # Only now, so that --help is quick and the wait has a line that says what is waited for.
    print("Loading TensorFlow ...", end=" ", flush=True)
    with start_up_noise_held_back():
        import documented_examples
        import gather_stitch
        import karate_club
        import mixture_of_experts
        import side_by_side
        import tensorflow as tf

        tf.config.list_logical_devices()  # Devices are looked for, and missed, here.
    print(f"{time.perf_counter() - start:.1f} s")
    print(
        f"gather_stitch {gather_stitch.__version__} beside TensorFlow {tf.__version__},"
        f" Python {sys.version.split()[0]}, {os.cpu_count()} cores"
    )

    heading("1. The documented examples")
    total, equal = documented_examples.run()
    print(f"\n    {equal} of {total} examples equal to stock")

    steps = {} if arguments.steps is None else {"steps": arguments.steps}
    comparisons = []
    for title, example in (
        ("2. A graph convolution on Zachary's karate club", karate_club),
        ("3. A mixture of experts on digits", mixture_of_experts),
    ):
        heading(title)
        comparison = example.run(seed=arguments.seed, **steps)
        side_by_side.print_comparison(comparison)
        comparisons.append(comparison)

    heading("Stock and ours side by side")
    print_summary(comparisons)
    print("    (In models this small a step is mostly TensorFlow's own overhead.)")
    side_by_side.plot(comparisons, arguments.plot)
    print(f"\n    curves: {short(arguments.plot)}")

    failed = [comparison.title for comparison in comparisons if not comparison.equal]
    if equal != total:
        failed.insert(0, "documented examples")
    outcome = f"NOT equal to stock: {', '.join(failed)}" if failed else "Everything equals stock"
    print(f"    {outcome}; {time.perf_counter() - start:.0f} s in all.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
