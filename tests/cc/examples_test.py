# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""The examples in C++, built against an installed package, beside Python's results.

`make cc-test` builds them, and says in the environment where they and those in Python are.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys

import documented_examples
import gather_stitch as gs
import mixture_of_experts
import numpy as np
import pytest
import side_by_side
import tensorflow as tf

EXAMPLES = pathlib.Path(os.environ["GATHER_STITCH_CC_EXAMPLES"])
SITE = pathlib.Path(os.environ["GATHER_STITCH_CC_SITE"])
PACKAGE = SITE / "gather_stitch"
TENSORFLOW_LIBRARIES = ("libtensorflow_cc.so.2", "libtensorflow_framework.so.2")
TRAINING_STEPS = 60
PICTURES = 40
SHOWN_LINES = 15


def run(example, *arguments, stdin="", libraries=None, returncode=0):
    """Runs an example; returns what it printed, and what it complained about.

    `libraries` is a folder in which `_cc_ops.so` is found before that of the package.
    """
    environment = dict(os.environ)
    if libraries is not None:
        environment["LD_LIBRARY_PATH"] = str(libraries)
    done = subprocess.run(
        [EXAMPLES / example, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment,
    )
    assert done.returncode == returncode, done.stderr
    return done.stdout, done.stderr


def show(command, printed):
    """For whoever reads along: the first lines of what an example printed."""
    lines = printed.splitlines()
    print(f"\n$ {command}", *lines[:SHOWN_LINES], sep="\n")
    if len(lines) > SHOWN_LINES:
        print(f"... {len(lines) - SHOWN_LINES} lines more")


def copy_libraries(folder, *names):
    """Makes the folder one for a machine without Python: some of our libraries, TensorFlow's."""
    for name in names:
        shutil.copy(PACKAGE / name, folder)
    for name in TENSORFLOW_LIBRARIES:
        (folder / name).symlink_to(SITE / "tensorflow" / name)
    return folder


# ---- gather.cc ---------------------------------------------------------------


def test_the_documented_examples_give_what_they_give_in_python():
    printed, _ = run("gather")
    show("gather", printed)
    values = {
        name: json.loads(value)
        for name, value in (line.split(": ", 1) for line in printed.splitlines())
    }
    expected = {
        example.__name__: example(side_by_side.OURS).numpy()
        for example, _ in documented_examples.EXAMPLES
    }
    for policy in ("IGNORE", "CLIP", "WRAP"):
        gathered = gs.gather([10, 20, 30], [2, -1, 7], bad_indices_policy=policy)
        expected[f"gather_{policy.lower()}"] = gathered.numpy()
    expected["stitch_size"] = gs.parallel_dynamic_stitch(
        [[0, 2], [2]], [[10, 20], [30]], size=4
    ).numpy()
    assert values.keys() == expected.keys()
    for name, value in expected.items():
        if value.dtype == object:
            assert values[name] == value.astype(str).tolist(), name
        else:
            np.testing.assert_array_equal(np.array(values[name], value.dtype), value, name)


# ---- train.cc ----------------------------------------------------------------


def slope(rows, columns, row_step, column_step):
    i, j = np.indices((rows, columns))
    return (row_step * i + column_step * j).astype(np.float32)


def test_training_gives_the_losses_and_the_table_of_python():
    printed, _ = run("train")
    show("train", printed)
    lines = [line.replace(":", "").split() for line in printed.splitlines()]
    losses = [float(words[3]) for words in lines if words[0] == "step"]
    learnt = [[float(word) for word in words[2:]] for words in lines if words[0] == "row"]

    table = tf.Variable(slope(6, 4, 0.25, -0.125))
    ids, targets = [4, 1, -1, 4, 0, 5, 1, 4], slope(8, 4, -0.0625, 0.5)
    expected_losses = []
    for _ in range(5):
        with tf.GradientTape() as tape:
            rows = gs.gather(table, ids, bad_indices_policy="IGNORE", gradient="dense")
            loss = tf.reduce_mean(tf.square(rows - targets))
        table.assign_sub(0.5 * tape.gradient(loss, table))
        expected_losses.append(loss.numpy())
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-6)
    np.testing.assert_allclose(learnt, table.numpy(), rtol=1e-6)
    assert losses[-1] < 0.75 * losses[0]


# ---- serve.cc ----------------------------------------------------------------


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder with the SavedModels `ours` and `stock`."""
    folder = tmp_path_factory.mktemp("models")
    comparison = mixture_of_experts.run(steps=TRAINING_STEPS, save_to=folder)
    assert comparison.equal
    return folder


@pytest.fixture(scope="module")
def questions():
    """Pictures that no training saw, and the same as text."""
    pictures, digits = mixture_of_experts.load_digits()
    pictures = pictures[-PICTURES:]
    text = "".join(" ".join(map(repr, row)) + "\n" for row in pictures.astype(float).tolist())
    return pictures, digits[-PICTURES:], text


def assert_answers(printed, model, questions):
    """The answers are those of the SavedModel in Python, and most of them are right."""
    pictures, digits, _ = questions
    answers = np.array([line.split() for line in printed.splitlines()], np.float64)
    recognize = tf.saved_model.load(str(model)).signatures["serving_default"]
    expected = recognize(pictures=tf.constant(pictures))
    np.testing.assert_array_equal(answers[:, 0], expected["digits"].numpy())
    largest = expected["probabilities"].numpy().max(axis=1)
    np.testing.assert_allclose(answers[:, 1], largest, rtol=1e-5)
    assert np.mean(answers[:, 0] == digits) > 0.7


def op_types(model):
    loaded = tf.compat.v1.saved_model.load_v2(str(model))
    graph = loaded.signatures["serving_default"].graph.as_graph_def()
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    return {node.op for node in nodes}


def test_serving_a_model_of_our_ops(models, questions):
    assert "GatherStitch>ParallelDynamicStitch" in op_types(models / "ours")
    printed, _ = run("serve", models / "ours", stdin=questions[2])
    show("serve models/ours < pictures", printed)
    assert_answers(printed, models / "ours", questions)


def test_serving_a_model_of_stock_ops(models, questions):
    assert not any(op.startswith("GatherStitch>") for op in op_types(models / "stock"))
    printed, _ = run("serve", models / "stock", stdin=questions[2])
    assert_answers(printed, models / "stock", questions)


def test_serving_a_model_of_stock_ops_accelerated(models, questions):
    if (PACKAGE / "_stock_kernels.so").exists():
        printed, _ = run("serve", models / "stock", "--accelerate", stdin=questions[2])
        show("serve models/stock --accelerate < pictures", printed)
        assert_answers(printed, models / "stock", questions)
    else:
        _, complaint = run("serve", models / "stock", "--accelerate", returncode=1)
        assert f"there is no _stock_kernels.so in {PACKAGE}" in complaint


def test_serving_says_what_it_can_not_read(models, questions):
    picture = questions[2].splitlines()[0]
    lines = ["1 2 3", picture, picture + " 0.5", "a" + picture]
    printed, complaint = run("serve", models / "ours", stdin="\n".join(lines), returncode=1)
    assert len(printed.splitlines()) == 1
    for number in (1, 3, 4):
        assert f"line {number}: is not 64 numbers" in complaint
    assert "line 2" not in complaint


def test_serving_a_folder_without_a_model_says_so(tmp_path):
    _, complaint = run("serve", tmp_path, returncode=1)
    assert "NOT_FOUND" in complaint
    assert str(tmp_path) in complaint
    _, complaint = run("serve", returncode=2)
    assert "usage" in complaint


# ---- Libraries that are not there, or wrong ----------------------------------


def test_libraries_work_wherever_they_are_copied_to(tmp_path):
    expected, _ = run("gather")
    folder = copy_libraries(tmp_path, "_cc_ops.so", "_ops.so")
    assert run("gather", libraries=folder)[0] == expected


def test_without_the_op_library_the_first_op_says_what_is_missing(tmp_path):
    folder = copy_libraries(tmp_path, "_cc_ops.so")
    for arguments in (["gather"], ["train"], ["serve", "model"]):
        _, complaint = run(*arguments, libraries=folder, returncode=1)
        assert f"NOT_FOUND: there is no _ops.so in {folder}" in complaint
        assert "to mend: keep it beside _cc_ops.so" in complaint


def test_an_op_library_that_does_not_load_is_named(tmp_path):
    folder = copy_libraries(tmp_path, "_cc_ops.so")
    (folder / "_ops.so").write_bytes(b"no library")
    _, complaint = run("gather", libraries=folder, returncode=1)
    assert f"FAILED_PRECONDITION: {folder}/_ops.so does not load into TensorFlow" in complaint
    assert tf.__version__ in complaint


def test_without_stock_kernels_accelerating_says_so(tmp_path, models):
    folder = copy_libraries(tmp_path, "_cc_ops.so", "_ops.so")
    _, complaint = run("serve", models / "stock", "--accelerate", libraries=folder, returncode=1)
    assert f"NOT_FOUND: there is no _stock_kernels.so in {folder}" in complaint


def test_two_copies_of_the_client_live_in_one_process(tmp_path):
    """Each registers the gradients, and TensorFlow's registry ends a process at the second."""
    copies = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        copies.append(str(copy_libraries(tmp_path / name, "_cc_ops.so") / "_cc_ops.so"))
    load_both = (
        "import ctypes, sys, tensorflow; print([ctypes.CDLL(p)._name for p in sys.argv[1:]])"
    )
    done = subprocess.run(
        [sys.executable, "-c", load_both, *copies], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(copies)


# ---- Finding the client ------------------------------------------------------


def pkg_config(*options):
    environment = {**os.environ, "PKG_CONFIG_PATH": str(PACKAGE / "pkgconfig")}
    return subprocess.run(
        ["pkg-config", *options, "gather_stitch"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()


def folders_resolved(flags):
    """Flags in one spelling: their folders as they are on the disk."""
    resolved = set()
    for flag in flags:
        head, slash, path = flag.partition("/")
        head = {"--std=c++17": "-std=c++17", "-isystem": "", "-I": ""}.get(head, head)
        resolved.add(head + (os.path.realpath(slash + path) if slash else ""))
    return resolved - {""}


def test_pkg_config_and_sysconfig_say_the_same():
    ask = "import json, gather_stitch.sysconfig as s;"
    ask += "print(json.dumps([s.get_compile_flags(), s.get_link_flags(), s.get_include()]))"
    done = subprocess.run(
        [sys.executable, "-c", ask],
        env={**os.environ, "PYTHONPATH": str(SITE)},
        capture_output=True,
        text=True,
        check=True,
    )
    compile_flags, link_flags, include = json.loads(done.stdout)
    assert include == str(PACKAGE / "include")
    assert folders_resolved(pkg_config("--libs")) == folders_resolved(link_flags)
    assert folders_resolved(pkg_config("--cflags")) == folders_resolved(compile_flags)
    assert pkg_config("--modversion") == [gs.__version__]


def configure(tmp_path, text, *options):
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(finding LANGUAGES NONE)\n" + text
    )
    done = subprocess.run(
        ["cmake", "-S", tmp_path, "-B", tmp_path / "build", *options],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def test_cmake_knows_versions(tmp_path):
    place = f"-DGatherStitch_DIR={PACKAGE / 'cmake'}"
    asks = f"find_package(GatherStitch {gs.__version__} EXACT REQUIRED)\n"
    asks += 'message("version ${GatherStitch_VERSION} for ${GatherStitch_TENSORFLOW_VERSION}")'
    returncode, output = configure(tmp_path, asks, place)
    assert returncode == 0, output
    assert f"version {gs.__version__} for {tf.__version__}" in output
    returncode, output = configure(tmp_path, "find_package(GatherStitch 99 REQUIRED)", place)
    assert returncode != 0
    assert gs.__version__ in output


def test_cmake_says_which_tensorflow_it_misses(tmp_path):
    place = f"-DGatherStitch_DIR={PACKAGE / 'cmake'}"
    asks = "find_package(GatherStitch REQUIRED)"
    missing = tmp_path / "nowhere"
    returncode, output = configure(
        tmp_path, asks, place, f"-DGatherStitch_TENSORFLOW_DIR={missing}"
    )
    assert returncode != 0
    assert f"in {missing}" in output

    another = tmp_path / "another"
    (another / "tensorflow").mkdir(parents=True)
    for name in ("include", *TENSORFLOW_LIBRARIES):
        (another / "tensorflow" / name).symlink_to(SITE / "tensorflow" / name)
    (another / "tensorflow-2.20.3.dist-info").mkdir()
    returncode, output = configure(
        tmp_path, asks, place, f"-DGatherStitch_TENSORFLOW_DIR={another / 'tensorflow'}"
    )
    assert returncode != 0
    assert f"built for TensorFlow {tf.__version__}" in output
    assert "is TensorFlow 2.20.3" in output
