# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes how to compile against the TensorFlow of the running interpreter.

Into the folder given as --out:
  tensorflow.cflags      compiler options, TensorFlow's headers as system ones
  tensorflow.ldflags     linker options
  build_info.cflags      the versions, as macros for one source file
  package/_build_info.py the same versions for Python, which reads them before
                         it loads a library
  package/cmake/...      the C++ client for CMake, from the templates in tf_ops/cc
  package/pkgconfig/...  the same for pkg-config
A file is left as old as it is when nothing changed, so that make rebuilds only
for another TensorFlow. TensorFlow is imported only then.
"""

import argparse
import importlib.util
import json
import pathlib
import re
import subprocess
import sys
from typing import Any

QUESTION = """
import json, tensorflow as tf
print(json.dumps({
    "version": tf.__version__,
    "compile_flags": tf.sysconfig.get_compile_flags(),
    "link_flags": tf.sysconfig.get_link_flags(),
}))
"""

ROOT = pathlib.Path(__file__).resolve().parent.parent


def package_version() -> str:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    match = re.search(r'^version = "([^"]+)"$', text, re.MULTILINE)
    if match is None:
        sys.exit('pyproject.toml has no line: version = "..."')
    return match.group(1)


def compiler_version(compiler: str) -> str:
    output = subprocess.run(
        [*compiler.split(), "--version"], check=True, capture_output=True, text=True
    ).stdout
    return output.splitlines()[0].strip()


def ask_tensorflow() -> dict[str, Any]:
    """Version and flags, from a process whose start-up messages only an error shows."""
    answer = subprocess.run([sys.executable, "-c", QUESTION], capture_output=True, text=True)
    if answer.returncode:
        sys.exit(f"TensorFlow can not be imported by {sys.executable}:\n{answer.stderr}")
    return json.loads(answer.stdout)


def quoted(option: str) -> str:
    """One option in the quoting of a compiler's response file."""
    return re.sub(r'([\s"\'\\])', r"\\\1", option)


def write(path: pathlib.Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def write_if_changed(path: pathlib.Path, text: str) -> None:
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        write(path, text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--compiler", required=True)
    args = parser.parse_args()

    spec = importlib.util.find_spec("tensorflow")
    if spec is None or spec.origin is None:
        sys.exit(f"{sys.executable} has no TensorFlow: run 'make build', which installs it")
    origin = pathlib.Path(spec.origin)
    key = json.dumps(
        [str(origin), origin.stat().st_mtime_ns, pathlib.Path(__file__).stat().st_mtime_ns]
    )
    found = args.out / "tensorflow.json"
    state = json.loads(found.read_text(encoding="utf-8")) if found.exists() else {}

    if state.get("key") != key:
        print(f"  TF       {origin.parent}", flush=True)
        answer = ask_tensorflow()
        cflags = []
        for flag in answer["compile_flags"]:
            if flag.startswith("-I"):
                cflags += ["-isystem", flag[2:]]
            elif not flag.lstrip("-").startswith("std="):
                cflags.append(flag)
        defines = [flag for flag in cflags if flag.startswith("-D")]
        state = {"key": key, "version": answer["version"], "defines": defines}
        write(args.out / "tensorflow.cflags", "\n".join(map(quoted, cflags)) + "\n")
        write(
            args.out / "tensorflow.ldflags",
            "\n".join(map(quoted, answer["link_flags"])) + "\n",
        )
        write(found, json.dumps(state))

    info = {
        "VERSION": package_version(),
        "TF_VERSION": state["version"],
        "COMPILER": compiler_version(args.compiler),
    }
    macros = {
        "GATHER_STITCH_VERSION": info["VERSION"],
        "GATHER_STITCH_TF_VERSION": info["TF_VERSION"],
    }
    write_if_changed(
        args.out / "build_info.cflags",
        "".join(quoted(f'-D{name}="{value}"') + "\n" for name, value in macros.items()),
    )
    write_if_changed(
        args.out / "package" / "_build_info.py",
        "# Copyright The gather_stitch Authors.\n"
        "# SPDX-License-Identifier: Apache-2.0\n"
        '"""What the libraries beside this file were built from. Written by make."""\n\n'
        + "".join(f"{name} = {json.dumps(value)}\n" for name, value in info.items()),
    )

    values = {
        "VERSION": info["VERSION"],
        "TF_VERSION": info["TF_VERSION"],
        "DEFINES": " ".join(state["defines"]),
        "DEFINITIONS": ";".join(flag.removeprefix("-D") for flag in state["defines"]),
    }
    for template in sorted((ROOT / "tf_ops" / "cc").glob("*.in")):
        folder = "cmake" if ".cmake" in template.name else "pkgconfig"
        text = template.read_text(encoding="utf-8")
        for name, value in values.items():
            text = text.replace(f"@{name}@", value)
        write_if_changed(args.out / "package" / folder / template.stem, text)


if __name__ == "__main__":
    main()
