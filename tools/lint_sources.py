# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Checks the rules of the C++ sources that no formatter knows.

- The core and its tests include nothing of TensorFlow and nothing of Abseil;
  of Eigen, core/numeric_types.h alone includes its half and bfloat16.
- CUDA sources include nothing of TensorFlow.
- What compilers other than nvcc compile into the GPU library does not include the
  launch layer: it would bring the host twin of it.
- A header's guard spells its path, and closes with it.
- Every source opens with the two lines of copyright and licence.
"""

import pathlib
import re
import sys
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
CPP_FOLDERS = ("tf_ops", "tests", "benchmarks", "examples")
CPP_SUFFIXES = (".h", ".cc", ".cu")
OTHER_FOLDERS = ("tf_ops", "python", "tests", "benchmarks", "examples", "tools", "tf", ".ci")
OTHER_SUFFIXES = (".py", ".sh", ".bzl", ".in")
OTHER_NAMES = ("BUILD", "WORKSPACE", "CMakeLists.txt", "run")
LICENCE = ("Copyright The gather_stitch Authors.", "SPDX-License-Identifier: Apache-2.0")

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
OF_TENSORFLOW = re.compile(r"^(tensorflow|tsl|xla|third_party)/")
OF_ABSEIL = re.compile(r"^absl/")
LAUNCH_LAYER = re.compile(r"^tf_ops/core/gpu/(device|report_bad_index|\w+_kernel\b)")
OF_EIGEN = re.compile(r"^(Eigen|unsupported|ml_dtypes)/")


def files(
    folders: tuple[str, ...], suffixes: tuple[str, ...], names: tuple[str, ...] = ()
) -> Iterator[pathlib.Path]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and (path.suffix in suffixes or path.name in names):
                yield path


def forbidden_include(path: pathlib.PurePath, included: str) -> str | None:
    """Why `path` may not include `included`, or None if it may."""
    name = path.as_posix()
    in_core = name.startswith(("tf_ops/core/", "tests/core/", "benchmarks/core/"))
    if in_core and OF_TENSORFLOW.match(included):
        return "the core knows no TensorFlow"
    if in_core and OF_ABSEIL.match(included):
        return "the core knows no Abseil"
    if in_core and OF_EIGEN.match(included) and path.name != "numeric_types.h":
        return "in the core only numeric_types.h includes Eigen"
    if name.endswith((".cu.cc", ".cu.h")) and OF_TENSORFLOW.match(included):
        return "CUDA sources include no TensorFlow"
    if name.startswith("tf_ops/gpu/") and LAUNCH_LAYER.match(included):
        return "only .cu.cc files know the launch layer"
    return None


def guard_of(path: pathlib.PurePath) -> str:
    parts = path.parts[1:] if path.parts[0] == "tf_ops" else path.parts
    return re.sub(r"\W", "_", "/".join(("gather_stitch", *parts))).upper() + "_"


def check_cpp(path: pathlib.PurePath, lines: list[str]) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        reason = match and forbidden_include(path, match[1])
        if match and reason:
            yield number, f"includes {match[1]}: {reason}"
    if path.suffix == ".h":
        guard = guard_of(path)
        directives = [(n, line) for n, line in enumerate(lines, 1) if line.startswith("#")]
        wanted = [f"#ifndef {guard}", f"#define {guard}", f"#endif  // {guard}"]
        found = [*directives[:2], *directives[-1:]]
        for (number, line), want in zip(found, wanted, strict=False):
            if line != want:
                yield number, f"header guard: {line!r} should be {want!r}"
        if len(found) < len(wanted):
            yield 1, f"no header guard {guard}"


def check_licence(path: pathlib.PurePath, lines: list[str]) -> Iterator[tuple[int, str]]:
    comment = "// " if path.suffix in CPP_SUFFIXES else "# "
    first = 1 if lines and lines[0].startswith("#!") else 0
    if lines[first : first + 2] != [comment + text for text in LICENCE]:
        yield first + 1, "does not open with the two lines of copyright and licence"


def main() -> None:
    complaints = []
    cpp = list(files(CPP_FOLDERS, CPP_SUFFIXES))
    for path in cpp + list(files(OTHER_FOLDERS, OTHER_SUFFIXES, OTHER_NAMES)):
        name = path.relative_to(ROOT)
        lines = path.read_text(encoding="utf-8").splitlines()
        found = list(check_licence(name, lines))
        if path.suffix in CPP_SUFFIXES:
            found += check_cpp(name, lines)
        complaints += [f"{name}:{number}: {what}" for number, what in found]
    print("\n".join(complaints), end="\n" if complaints else "")
    if complaints:
        sys.exit(1)


if __name__ == "__main__":
    main()
