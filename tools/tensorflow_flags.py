# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes how to compile against the TensorFlow of the running interpreter.

With --has-xla it prints 1 or 0: whether there is what the XLA kernels need. Else it
writes into the folder given as --out:
  tensorflow.cflags      compiler options, TensorFlow's headers as system ones
  tensorflow.ldflags     linker options
  xla.cflags             further compiler options of the XLA kernels
  xla.ldflags            further linker options of the XLA kernels
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

XLA_LIBRARY = "libtensorflow_cc.so.2"
# Below TensorFlow's headers: what XLA's headers include by a name of its own.
XLA_INCLUDES = ("external/highwayhash", "external/farmhash_archive/src")

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


def tensorflow_folder() -> pathlib.Path | None:
    spec = importlib.util.find_spec("tensorflow")
    return None if spec is None or spec.origin is None else pathlib.Path(spec.origin).parent


def has_xla(folder: pathlib.Path) -> bool:
    """Whether a TensorFlow has the headers and the library that XLA kernels are built against."""
    header = folder / "include" / "tensorflow" / "compiler" / "tf2xla" / "xla_op_kernel.h"
    return header.is_file() and (folder / XLA_LIBRARY).is_file()


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
    parser.add_argument("--has-xla", action="store_true")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--compiler")
    args = parser.parse_args()

    folder = tensorflow_folder()
    if args.has_xla:
        print(int(folder is not None and has_xla(folder)))
        return
    if args.out is None or args.compiler is None:
        parser.error("--out and --compiler are required")
    if folder is None:
        sys.exit(f"{sys.executable} has no TensorFlow: run 'make build', which installs it")
    origin = folder / "__init__.py"
    key = json.dumps(
        [str(origin), origin.stat().st_mtime_ns, pathlib.Path(__file__).stat().st_mtime_ns]
    )
    found = args.out / "tensorflow.json"
    state = json.loads(found.read_text(encoding="utf-8")) if found.exists() else {}

    if state.get("key") != key:
        print(f"  TF       {folder}", flush=True)
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
        xla_cflags = []
        for name in XLA_INCLUDES:
            xla_cflags += ["-isystem", str(folder / "include" / name)]
        write(args.out / "xla.cflags", "\n".join(map(quoted, xla_cflags)) + "\n")
        write(args.out / "xla.ldflags", f"-l:{XLA_LIBRARY}\n")
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
