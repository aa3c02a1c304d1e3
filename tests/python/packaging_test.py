# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""The package: how it is found and loaded, what it says when it is not, what a call costs."""

from __future__ import annotations

import doctest
import inspect
import os
import pathlib
import shutil
import subprocess
import sys

import gather_stitch as gs
import numpy as np
import pytest
import tensorflow as tf
from gather_stitch import _loader

PACKAGE = pathlib.Path(gs.__file__).resolve().parent


def run_child(*arguments):
    """Runs a new interpreter outside the checkout's folder; returns what it printed."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def copy_package(folder, without=()):
    copy = folder / "gather_stitch"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", *without))
    return copy


# Imports the package from each folder in turn, as if for the first time.
IMPORT_FROM_EACH = """
import sys
import tensorflow as tf

for folder in sys.argv[1:]:
    sys.path.insert(0, folder)
    try:
        import gather_stitch
        print("imported", gather_stitch.__file__)
    except ImportError as error:
        print(f"<{folder}>", error, "</>", sep="\\n")
    sys.path.remove(folder)
    for name in [n for n in sys.modules if n.split(".")[0] == "gather_stitch"]:
        del sys.modules[name]
"""


@pytest.fixture(scope="module")
def import_errors(tmp_path_factory):
    """{name: text of the ImportError} for copies of the package that can not be loaded."""
    folders = {
        name: tmp_path_factory.mktemp(name)
        for name in ("unbuilt", "checkout", "another", "another_patch", "broken")
    }
    copy_package(folders["unbuilt"], without=("_ops.so", "_build_info.py"))

    checkout = folders["checkout"]
    (checkout / "tf_ops").mkdir()
    (checkout / "Makefile").touch()
    folders["checkout"] = checkout / "python"
    copy_package(folders["checkout"], without=("_ops.so",))

    for name, version in (("another", "2.20.3"), ("another_patch", "3.21.0")):
        info = copy_package(folders[name]) / "_build_info.py"
        text = info.read_text()
        assert f'"{tf.__version__}"' in text
        info.write_text(text.replace(f'"{tf.__version__}"', f'"{version}"'))

    (copy_package(folders["broken"], without=("_ops.so",)) / "_ops.so").write_bytes(b"no library")

    output = run_child("-c", IMPORT_FROM_EACH, *folders.values())
    assert "imported" not in output
    errors = {}
    for name, folder in folders.items():
        _, _, rest = output.partition(f"<{folder}>\n")
        errors[name], _, _ = rest.partition("\n</>")
        assert errors[name], output
    return errors, folders


def test_an_unbuilt_package_says_how_to_get_one(import_errors):
    errors, folders = import_errors
    text = errors["unbuilt"]
    assert f"no _ops.so in {folders['unbuilt'] / 'gather_stitch'}" in text
    assert f"built for TensorFlow {tf.__version__}" in text
    assert "pip install --force-reinstall tf-gather-stitch" in text


def test_an_unbuilt_checkout_says_how_to_build_it(import_errors):
    errors, folders = import_errors
    text = errors["checkout"]
    assert f"no _ops.so in {folders['checkout'] / 'gather_stitch'}" in text
    assert f"make -C {folders['checkout'].parent} build" in text
    assert "pip install" not in text


@pytest.mark.parametrize(("name", "version"), [("another", "2.20.3"), ("another_patch", "3.21.0")])
def test_a_library_for_another_tensorflow_names_both_versions(import_errors, name, version):
    text = import_errors[0][name]
    assert f"_ops.so, built for TensorFlow {version}" in text
    assert f"a library built for TensorFlow {tf.__version__}, which is running" in text
    assert "pip install --force-reinstall tf-gather-stitch" in text


def test_a_library_that_does_not_load_is_an_import_error(import_errors):
    text = import_errors[0]["broken"]
    assert "which does not load" in text
    assert "pip install --force-reinstall tf-gather-stitch" in text


WITHOUT_GPU_KERNELS = """
import sys
import tensorflow as tf
import gather_stitch as gs
from gather_stitch import _loader

print("gpu library", _loader.load().gpu_library_path)
print(gs.gather([[1, 2], [3, 4]], [1], bad_indices_policy="CLIP").numpy().tolist())
print(gs.dynamic_stitch([[1], [0]], [[5], [6]]).numpy().tolist())
x = tf.Variable([[1.0, 2.0], [3.0, 4.0]])
with tf.GradientTape() as tape:
    rows = gs.gather(x, [1, 1], gradient="dense")
print(tape.gradient(rows, x).numpy().tolist())
"""


@pytest.mark.parametrize("library", ["absent", "broken"])
def test_the_package_is_the_same_without_its_gpu_library(tmp_path, library):
    copy = copy_package(tmp_path, without=("_gpu_kernels.so",))
    if library == "broken":
        (copy / "_gpu_kernels.so").write_bytes(b"no library")
    output = run_child(
        "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n" + WITHOUT_GPU_KERNELS
    )
    assert output.splitlines() == [
        "gpu library None",
        "[[3, 4]]",
        "[6, 5]",
        "[[0.0, 0.0], [2.0, 2.0]]",
    ]


# Every copy must serve a call, a function, and a gradient that is not registered twice.
TRY_EVERY_WAY = """
import importlib
import sys
import tensorflow as tf

def use(gs):
    x = tf.Variable([[1.0, 2.0], [3.0, 4.0]])
    with tf.GradientTape() as tape:
        rows = gs.gather(x, [1, 1, 5], bad_indices_policy="IGNORE", gradient="dense")
        merged = gs.dynamic_stitch([[0, 0]], [x])
        loss = tf.reduce_sum(rows) + tf.reduce_sum(merged)
    assert rows.numpy().tolist() == [[3, 4], [3, 4], [0, 0]]
    assert tape.gradient(loss, x).numpy().tolist() == [[0, 0], [3, 3]]
    assert tf.function(gs.gather)(x, [0]).numpy().tolist() == [[1, 2]]
    assert gs.raw_ops.GatherV2(params=[5, 6], indices=[1], axis=0).numpy().tolist() == [6]

def forget():
    for name in [n for n in sys.modules if n.split(".")[0] == "gather_stitch"]:
        del sys.modules[name]

copy, loaded_first = sys.argv[1:]
if loaded_first == "library":
    tf.load_op_library(copy + "/gather_stitch/_ops.so")
import gather_stitch as first
use(first)
import gather_stitch as again
assert again is first
forget()
import gather_stitch as anew
assert anew is not first
use(anew)
use(importlib.reload(anew))
forget()
sys.path.insert(0, copy)
import gather_stitch as other
assert other.__file__.startswith(copy), other.__file__
use(other)
use(importlib.reload(other.gather_ops) and other)
use(first)
use(anew)
print("all work")
"""


@pytest.mark.parametrize("loaded_first", ["package", "library"])
def test_importing_twice_from_two_paths_and_after_a_reload(tmp_path, loaded_first):
    copy_package(tmp_path)
    output = run_child("-c", TRY_EVERY_WAY, tmp_path, loaded_first)
    assert output.strip() == "all work"


def test_running_the_package_prints_a_diagnosis():
    output = run_child("-m", "gather_stitch")
    ops = [line.split()[0] for line in output.splitlines() if line.strip().startswith("GatherS")]
    assert sorted(ops) == [
        "GatherStitch>GatherV2",
        "GatherStitch>GatherV2Grad",
        "GatherStitch>GatherV2SparseGrad",
        "GatherStitch>ParallelDynamicStitch",
        "GatherStitch>ParallelDynamicStitchGrad",
        "GatherStitch>ParallelDynamicStitchV2",
        "GatherStitch>ResourceGather",
    ]
    for line in output.splitlines():
        if line.strip().startswith("GatherS"):
            assert "CPU: 1" in line
    for fact in (
        gs.__version__,
        tf.__version__,
        np.__version__,
        sys.executable,
        f"{_loader.OP_LIBRARY}: loaded",
        "cpu features in use",
    ):
        assert fact in output
    assert "unknown" not in output


def test_an_instruction_set_that_is_not_there_is_warned_of():
    done = subprocess.run(
        [sys.executable, "-m", "gather_stitch"],
        env=os.environ | {"GATHER_STITCH_CPU_FEATURES": "abacus"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "GATHER_STITCH_CPU_FEATURES=abacus" in done.stderr
    assert "cpu features in use" in done.stdout


def test_the_version_is_that_of_the_distribution():
    import importlib.metadata

    assert gs.__version__ == importlib.metadata.version("tf-gather-stitch")
    assert _loader.build_info()["TF_VERSION"] == tf.__version__


def test_the_package_is_typed():
    assert (PACKAGE / "py.typed").is_file()
    for function in (gs.gather, gs.batch_gather, gs.dynamic_stitch, gs.parallel_dynamic_stitch):
        hints = inspect.get_annotations(function)
        assert hints.keys() == {*inspect.signature(function).parameters, "return"}


def test_what_sysconfig_names_is_there():
    include = pathlib.Path(gs.sysconfig.get_include())
    for name in ("gather_ops", "loader", "session", "stitch_ops"):
        assert (include / "tf_ops" / "cc" / f"{name}.h").is_file()
    assert (pathlib.Path(gs.sysconfig.get_lib()) / "_cc_ops.so").is_file()
    assert (pathlib.Path(gs.sysconfig.get_cmake_dir()) / "GatherStitchConfig.cmake").is_file()
    assert (pathlib.Path(gs.sysconfig.get_pkgconfig_dir()) / "gather_stitch.pc").is_file()
    assert {*tf.sysconfig.get_compile_flags()} < {*gs.sysconfig.get_compile_flags()}
    assert {*tf.sysconfig.get_link_flags()} < {*gs.sysconfig.get_link_flags()}


# ---- Signatures and docstrings -----------------------------------------------


def positional(function):
    return [
        (parameter.name, parameter.default)
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is not parameter.KEYWORD_ONLY
    ]


def keywords(function):
    return {
        parameter.name: parameter.default
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    }


@pytest.mark.parametrize(
    ("ours", "stock", "options"),
    [
        (gs.gather, tf.gather, {"bad_indices_policy": "DEFAULT", "gradient": "auto"}),
        (gs.batch_gather, tf.compat.v1.batch_gather, {}),
        (gs.dynamic_stitch, tf.dynamic_stitch, {"size": None, "bad_indices_policy": "DEFAULT"}),
        (
            gs.parallel_dynamic_stitch,
            tf.dynamic_stitch,
            {"size": None, "bad_indices_policy": "DEFAULT"},
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_positional_signatures_equal_those_of_stock(ours, stock, options):
    assert positional(ours) == positional(stock)
    assert keywords(ours) == options


def test_public_names():
    assert set(gs.__all__) == {
        "__version__",
        "accelerate",
        "batch_gather",
        "dynamic_stitch",
        "gather",
        "is_accelerated",
        "parallel_dynamic_stitch",
        "raw_ops",
        "sysconfig",
        "use_stock_ops",
    }
    assert all(hasattr(gs, name) for name in gs.__all__)
    assert set(gs.raw_ops.__all__) == {
        name.removeprefix("GatherStitch>") for name in _loader.OP_NAMES
    }


@pytest.mark.parametrize(
    "documented",
    [
        gs,
        gs.gather,
        gs.batch_gather,
        gs.dynamic_stitch,
        gs.parallel_dynamic_stitch,
        gs.use_stock_ops,
        gs.raw_ops,
        gs.sysconfig,
    ],
    ids=lambda documented: documented.__name__,
)
def test_examples_of_docstrings_run(documented):
    finder = doctest.DocTestFinder(recurse=False)
    names = {"tf": tf, "np": np, "gather_stitch": gs}
    (examples,) = finder.find(documented, documented.__name__, module=False, globs=names)
    report = []
    result = doctest.DocTestRunner().run(examples, out=report.append)
    assert result.attempted > 0
    assert result.failed == 0, "".join(report)


@pytest.mark.parametrize(
    "documented", [gs.gather, gs.batch_gather, gs.dynamic_stitch, gs.parallel_dynamic_stitch]
)
def test_public_docstrings_say_where_the_definition_comes_from(documented):
    assert "https://www.tensorflow.org/api_docs/python/tf/" in inspect.cleandoc(documented.__doc__)


# ---- What a call costs -------------------------------------------------------


def calls_during(function, *args, **options):
    """Names of the Python functions, and of the C functions, called by a call."""
    python_calls, c_calls = [], []

    def profile(frame, event, argument):
        if event == "call":
            python_calls.append(frame.f_code.co_name)
        elif event == "c_call":
            c_calls.append(argument.__name__)

    function(*args, **options)  # What a first call does is not of interest.
    sys.setprofile(profile)
    try:
        function(*args, **options)
    finally:
        sys.setprofile(None)
    return python_calls, c_calls


TABLE, IDS = tf.constant([[1.0, 2.0], [3.0, 4.0]]), tf.constant([1, 0])
GENERATED = _loader.load()


@pytest.mark.parametrize(
    ("public", "generated", "most_calls"),
    [
        (
            lambda: gs.gather(TABLE, IDS),
            lambda: GENERATED.gather_stitch_gather_v2(TABLE, IDS, 0),
            1,
        ),
        (
            lambda: gs.gather(TABLE, IDS, axis=1, batch_dims=1, bad_indices_policy="CLIP"),
            lambda: GENERATED.gather_stitch_gather_v2(
                TABLE, IDS, 1, batch_dims=1, bad_indices_policy="CLIP"
            ),
            2,
        ),
        (
            lambda: gs.dynamic_stitch([IDS], [TABLE]),
            lambda: GENERATED.gather_stitch_parallel_dynamic_stitch([IDS], [TABLE]),
            3,
        ),
        (
            lambda: gs.parallel_dynamic_stitch([IDS], [TABLE], size=4),
            lambda: GENERATED.gather_stitch_parallel_dynamic_stitch_v2([IDS], [TABLE], 4),
            3,
        ),
    ],
    ids=["gather", "gather with options", "stitch", "stitch with size"],
)
def test_an_eager_call_takes_the_fast_path_and_little_python(public, generated, most_calls):
    python_calls, c_calls = calls_during(public)
    expected_calls, _ = calls_during(generated)
    assert len(python_calls) <= len(expected_calls) + most_calls, python_calls
    assert c_calls.count("TFE_Py_FastPathExecute") == 1
    assert "TFE_Py_Execute" not in c_calls


def test_a_call_costs_less_python_than_that_of_stock():
    ours, _ = calls_during(gs.gather, TABLE, IDS)
    stock, _ = calls_during(tf.gather, TABLE, IDS)
    assert len(ours) < len(stock)
