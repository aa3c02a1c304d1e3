# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Stock ops on our kernels, beside stock ops on stock's, each in processes of their own.

What has been accelerated stays so: this process is never.
"""

from __future__ import annotations

import json
import os
import pathlib
import pickle
import re
import shutil
import subprocess
import sys

import gather_stitch as gs
import numpy as np
import pytest
import tensorflow as tf
from acceleration_battery import NO_STOCK_KERNEL, WIDER_SUMS
from gather_stitch import _acceleration, _loader

HERE = pathlib.Path(__file__).parent
KINDS = ("stock", "accelerated")
BATTERY_CALLS = 2000


def run_child(script, *arguments, **environment):
    done = subprocess.run(
        [sys.executable, str(HERE / script), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return done.stdout


def last_line(output):
    return json.loads(output.splitlines()[-1])


@pytest.fixture(autouse=True, scope="module")
def this_process_stays_on_stock_kernels():
    yield
    assert not gs.is_accelerated()
    assert not any(map(_acceleration.replacing_kernels, _acceleration.STOCK_OP_NAMES))


# ---- Programs that know TensorFlow alone -------------------------------------

# Which of our kernels each program has to have run on.
KERNELS_OF_PROGRAMS = {
    "eager": {"GatherV2", "DynamicStitch", "ParallelDynamicStitch", "UnsortedSegmentSum"},
    "function": {"ResourceGather", "ResourceScatterSub"},
    "saved_model": {"GatherV2", "ResourceGather", "DynamicStitch", "ResourceScatterSub"},
    "v1_session": {"GatherV2", "DynamicStitch", "UnsortedSegmentSum"},
    "data_map": {"GatherV2"},
    "keras": {"GatherV2", "ResourceScatterSub"},
    "constant_folding": {"GatherV2"},
    "mirrored": {"GatherV2", "ResourceScatterSub"},
    "jit_compile": set(),  # XLA has its own.
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """The folder of the results, and the calls of our kernels in each program."""
    folder = tmp_path_factory.mktemp("programs")
    run_child("acceleration_child.py", "stock", folder, GATHER_STITCH_ACCELERATE="0")
    output = run_child("acceleration_child.py", "accelerated", folder, GATHER_STITCH_ACCELERATE="1")
    return folder, last_line(output)


@pytest.mark.parametrize("name", KERNELS_OF_PROGRAMS)
def test_a_program_that_knows_tensorflow_alone(programs, name):
    folder, calls = programs
    assert set(calls[name]) == KERNELS_OF_PROGRAMS[name]
    stock, accelerated = (np.load(folder / f"{kind}-{name}.npz") for kind in KINDS)
    assert stock.files == accelerated.files
    assert stock.files
    for key in stock.files:
        assert stock[key].dtype == accelerated[key].dtype
        assert stock[key].shape == accelerated[key].shape
        assert stock[key].tobytes() == accelerated[key].tobytes(), key


def test_constants_are_folded_by_our_kernel(programs):
    # Once, though the function ran twice.
    assert programs[1]["constant_folding"] == {"GatherV2": 1}


# ---- The battery -------------------------------------------------------------


@pytest.fixture(scope="module")
def battery(tmp_path_factory, seed):
    folder = tmp_path_factory.mktemp("battery")
    for kind in KINDS:
        run_child("acceleration_battery.py", kind, seed, BATTERY_CALLS, folder / kind)
    (stock, no_calls), (accelerated, calls) = (
        pickle.loads((folder / kind).read_bytes()) for kind in KINDS
    )
    assert not any(no_calls.values())
    return list(zip(stock, accelerated, strict=True)), calls


def test_the_battery_covers_every_op_and_both_outcomes(battery):
    pairs, calls = battery
    assert len(pairs) >= BATTERY_CALLS
    assert all(calls[name] > 20 for name in _acceleration.STOCK_OP_NAMES), calls
    for name in _acceleration.STOCK_OP_NAMES:
        outcomes = {s["outcome"][0] for s, _ in pairs if s["what"].split()[0] == name}
        assert outcomes == {"value", "error"}, name


def test_values_and_errors_of_the_battery_are_stocks(battery):
    differences = [
        (number, stock, accelerated)
        for number, (stock, accelerated) in enumerate(battery[0])
        if stock["exception"] is None and stock != accelerated
    ]
    assert not differences, f"{len(differences)} differ, the first: {differences[0]}"


def test_half_and_bfloat16_are_summed_in_float32(battery):
    sums = [(s, a) for s, a in battery[0] if s["exception"] == WIDER_SUMS]
    assert len(sums) > 10
    for stock, accelerated in sums:
        if accelerated["expected"] is None:
            assert stock["outcome"] == accelerated["outcome"]
            assert stock["outcome"][0] == "error"
        else:
            assert accelerated["outcome"] == ("value", [accelerated["expected"]])


def test_dtypes_without_a_stock_kernel_work(battery):
    pairs = [(s, a) for s, a in battery[0] if s["exception"] == NO_STOCK_KERNEL]
    assert len(pairs) > 50
    for stock, accelerated in pairs:
        (outcome, _, text), ours = stock["outcome"], accelerated["outcome"]
        assert outcome == "error"
        if not re.search("Could not find device for node|No OpKernel was registered", text):
            # Refused before a kernel is looked for.
            assert ours == stock["outcome"]
        elif ours[0] == "error":
            # What a kernel finds.
            assert ours[1] == "InvalidArgumentError"
            assert "OpKernel" not in ours[2]
    assert sum(a["outcome"][0] == "value" for _, a in pairs) > len(pairs) / 2


# ---- A process that accelerates late -----------------------------------------


@pytest.fixture(scope="module")
def late(tmp_path_factory):
    copy = tmp_path_factory.mktemp("copy")
    shutil.copytree(_loader.PACKAGE_FOLDER, copy / "gather_stitch")
    environment = {"GATHER_STITCH_ACCELERATE": "", "TF_CPP_MIN_LOG_LEVEL": "2"}
    return last_line(run_child("acceleration_late_child.py", copy, **environment))


def test_what_ran_before_runs_on_our_kernels_afterwards(late):
    assert not any(late["calls before"].values())
    assert late["eager"] == {"GatherV2": 1}
    assert late["function"] == {"GatherV2": 1}


def test_accelerating_is_idempotent_and_says_so_once(late):
    path = _acceleration.STOCK_LIBRARY
    assert late["log"] == [
        ["INFO", f"stock TensorFlow ops run on the kernels of gather_stitch: {path}"]
    ]


def test_a_second_copy_of_the_package_finds_it_done(late):
    assert late["by a copy"] == {"GatherV2": 1}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("lowest axis", f"Shape must be at least rank {2**63} but is rank 3"),
        ("highest axis", f"Shape must be at least rank {2**63} but is rank 3"),
        ("lowest axis in a function", f"Shape must be at least rank {2**63} but is rank 3"),
        ("wrong dtype", "wrong dtype. Expected half got float"),
        ("wrong dtype of a scatter", "wrong dtype. Expected half got float"),
        ("batch_dims of the rank", "batch_dims (3) must be less than rank(params) (3)."),
        ("negative batch_dims", "batch_dims (-1) must not be negative."),
        ("batches that do not fit", "does not fit params.shape = [2,3,4] with batch_dims = 1"),
        ("more batch_dims than indices", "does not fit params.shape = [2,3,4]"),
        ("no batches", "indices.shape = [1]"),
        ("updates too short", "Must have updates.shape = indices.shape + params.shape[1:]"),
        ("no handle", "resource handle"),
    ],
)
def test_what_ends_the_process_on_stock_kernels_is_an_error(late, name, words):
    assert late["killers"][name] is not None
    error, text = late["killers"][name]
    assert error in ("InvalidArgumentError", "InternalError")
    assert words in text


def test_the_two_exceptions(late):
    assert late["sum of half"] == 5000.0
    assert late["int4"] == [[7, 1], [-8, 0, 1]]


def test_output_that_stock_leaves_unset_is_zeros(late):
    assert late["without indices"] == [[0.0] * 3] * 2


def test_a_variable_stays_free_to_read(late):
    report = late["variables"]
    assert report["shared before"]
    assert report["shared after a gather"]
    assert report["shared after a scatter"]


def test_a_variable_in_the_mode_of_stocks_sparse_ops(late):
    report = late["variables"]
    assert not report["shared after a stock op"]
    assert report["in the variable afterwards"] == -16.0


def test_a_variable_is_added_to_itself(late):
    assert late["variables"]["added to itself"] == [2.0 * k for k in range(12)]


def test_writers_and_readers_at_once(late):
    assert late["at once"] == [True, True]


def test_a_scatter_is_not_seen_by_who_has_read_before(late):
    assert late["variables"]["seen by a reader"] == 0.0
    assert late["variables"]["in the variable"] == 16.0


def test_the_docstring_example_runs(late):
    failed, attempted = late["doctest"][:2]
    assert (failed, attempted > 0) == (0, True)


def test_the_diagnosis_says_it_per_op(late):
    before, after = late["diagnosis before"], late["diagnosis after"]
    assert "stock models accelerated: no" in before
    assert "stock models accelerated: yes" in after
    assert f"{_acceleration.STOCK_LIBRARY}: found, not loaded" in before
    assert f"{_acceleration.STOCK_LIBRARY}: loaded" in after
    for name in _acceleration.STOCK_OP_NAMES:
        (line_before,) = (x for x in before.splitlines() if x.split()[:1] == [name])
        (line_after,) = (x for x in after.splitlines() if x.split()[:1] == [name])
        assert line_before.split()[1:] == ["tensorflow"]
        assert line_after.split()[1] == "gather_stitch"


# ---- Refusals ----------------------------------------------------------------


def refused():
    with pytest.raises(ImportError, match="does not accelerate stock ops: ") as caught:
        gs.accelerate()
    assert not gs.is_accelerated()
    assert not any(_acceleration.kernel_calls().values())
    return str(caught.value)


def test_refused_without_the_library(monkeypatch, tmp_path):
    monkeypatch.setattr(_acceleration, "STOCK_LIBRARY", tmp_path / "_stock_kernels.so")
    assert f"there is no {tmp_path / '_stock_kernels.so'}; to mend: " in refused()


def test_refused_for_another_tensorflow(monkeypatch):
    info = _loader.build_info() | {"TF_VERSION": "2.20.3"}
    monkeypatch.setattr(_loader, "build_info", lambda: info)
    text = refused()
    assert f"was built for TensorFlow 2.20.3, and {tf.__version__} is running" in text
    assert "to mend: " in text


def test_refused_where_it_does_not_load(monkeypatch, tmp_path):
    library = tmp_path / "_stock_kernels.so"
    library.write_bytes(b"no library")
    monkeypatch.setattr(_acceleration, "STOCK_LIBRARY", library)
    assert f"{library} does not load: " in refused()


def test_refused_after_somebody_else(monkeypatch):
    kernels = {"DynamicStitch": ["a kernel"]}
    monkeypatch.setattr(_acceleration, "replacing_kernels", lambda name: kernels.get(name))
    assert "something else in this process has replaced the CPU kernels of DynamicStitch" in (
        refused()
    )


def test_refused_where_there_are_other_devices(monkeypatch):
    devices = [*tf.config.get_visible_devices(), tf.config.PhysicalDevice("GPU:0", "GPU")]
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda: devices)
    assert "TensorFlow sees GPU:0, and would run ops there on the CPU" in refused()


def test_the_environment_variable_warns_where_it_is_refused(monkeypatch, tmp_path, caplog):
    monkeypatch.setattr(_acceleration, "STOCK_LIBRARY", tmp_path / "none")
    monkeypatch.setenv("GATHER_STITCH_ACCELERATE", "1")
    _acceleration.accelerate_if_asked()
    assert "GATHER_STITCH_ACCELERATE=1: gather_stitch does not accelerate" in caplog.text
    assert not gs.is_accelerated()


@pytest.mark.parametrize("value", ["", "0", "yes"])
def test_other_values_of_the_environment_variable_do_nothing(monkeypatch, caplog, value):
    monkeypatch.setenv("GATHER_STITCH_ACCELERATE", value)
    _acceleration.accelerate_if_asked()
    assert not gs.is_accelerated()
    assert ("is neither 0 nor 1" in caplog.text) == (value == "yes")
