# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel: make compiles, this file takes the libraries that it made.

The libraries are dlopened by TensorFlow and touch no CPython interface, so one
wheel serves every Python: its tag is py3-none-PLATFORM.
"""

import os
import pathlib
import shutil
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext

ROOT = pathlib.Path(__file__).resolve().parent
PACKAGE = "gather_stitch"
# What `make package` leaves beside the sources of the package: always, and where TensorFlow has
# what it takes, or where there is a CUDA compiler.
BUILT_FILES = [
    "_ops.so",
    "_stock_kernels.so",
    "_build_info.py",
    # The C++ client, and what finds it.
    "_cc_ops.so",
    "cmake/GatherStitchConfig.cmake",
    "cmake/GatherStitchConfigVersion.cmake",
    "pkgconfig/gather_stitch.pc",
    *(f"include/tf_ops/cc/{name}.h" for name in ("gather_ops", "loader", "session", "stitch_ops")),
]
OPTIONAL_FILES = ["_xla_kernels.so", "_gpu_kernels.so"]


def build_folder() -> str:
    """The folder of `make build` if this is its interpreter, else one of its own."""
    return "build/opt" if pathlib.Path(sys.prefix) == ROOT / ".venv" else "build/pip"


class MakeBuild(build):
    def run(self) -> None:
        # A file that a build of another revision left must not enter the wheel.
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


class MakeExtensions(build_ext):
    """Calls make once and places what it built."""

    def run(self) -> None:
        for tool, package in (("make", "make"), (os.environ.get("CXX", "g++"), "g++")):
            if shutil.which(tool.split()[0]) is None:
                raise SystemExit(
                    f"{PACKAGE} is compiled while it is installed, and {tool!r} was not found: "
                    f"install the package {package} (Debian, Ubuntu: apt-get install {package})"
                )
        folder = build_folder()
        # A make that called us has told its own number of jobs to somebody else.
        environment = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS")}
        jobs = len(os.sched_getaffinity(0))
        command = ["make", "package", f"-j{jobs}", f"BUILD={folder}", f"TF_PYTHON={sys.executable}"]
        subprocess.run(command, cwd=ROOT, env=environment, check=True)
        for source, target in self.get_output_mapping_of(folder).items():
            target.parent.mkdir(parents=True, exist_ok=True)
            replacement = target.with_name(target.name + ".new")
            shutil.copyfile(source, replacement)
            replacement.replace(target)

    def get_output_mapping_of(self, folder: str) -> dict[pathlib.Path, pathlib.Path]:
        base = ROOT / "python" if self.inplace else pathlib.Path(self.build_lib)
        built = ROOT / folder / "package"
        files = BUILT_FILES + [f for f in OPTIONAL_FILES if (built / f).exists()]
        return {built / f: base / PACKAGE / f for f in files}

    def get_outputs(self) -> list[str]:
        return [str(target) for target in self.get_output_mapping_of(build_folder()).values()]

    def get_output_mapping(self) -> dict[str, str]:
        return {}


class AnyPythonWheel(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


setup(
    ext_modules=[Extension(f"{PACKAGE}._ops", sources=[])],
    cmdclass={"build": MakeBuild, "build_ext": MakeExtensions, "bdist_wheel": AnyPythonWheel},
    options={"build": {"build_base": "build/setuptools"}},
)
