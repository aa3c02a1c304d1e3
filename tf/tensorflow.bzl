# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""The TensorFlow that is installed for an interpreter, as a repository.

The interpreter is that of the environment variable PYTHON, or .venv/bin/python
of the checkout. Nothing is downloaded: headers and library are symlinks.
"""

_BUILD = """# Written by tf/tensorflow.bzl.
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "headers",
    hdrs = glob(
        ["include/**"],
        exclude = ["include/**/*.py"],
    ),
    defines = {defines},
    includes = ["include"],
)

cc_import(
    name = "framework",
    shared_library = "libtensorflow_framework.so.2",
)
"""

# The lines are: version, then the compile flags.
_QUESTION = """
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
print(tf.__version__, tf.sysconfig.get_include(), tf.sysconfig.get_lib(),
      *tf.sysconfig.get_compile_flags(), sep="\\n")
"""

def _package_version(repository_ctx, root):
    for line in repository_ctx.read(root.get_child("pyproject.toml")).splitlines():
        if line.startswith("version = \""):
            return line.split("\"")[1]
    fail("pyproject.toml has no line: version = \"...\"")

def _installed_tensorflow_impl(repository_ctx):
    root = repository_ctx.path(Label("//:pyproject.toml")).dirname
    python = repository_ctx.os.environ.get("PYTHON", "") or str(root.get_child(".venv/bin/python"))
    answer = repository_ctx.execute([python, "-c", _QUESTION])
    if answer.return_code:
        fail("%s has no TensorFlow that can be imported: run 'make build', or set PYTHON.\n%s" %
             (python, answer.stderr))
    lines = answer.stdout.strip().splitlines()
    tf_version, include, library = lines[0], lines[1], lines[2]
    repository_ctx.symlink(include, "include")
    repository_ctx.symlink(
        library + "/libtensorflow_framework.so.2",
        "libtensorflow_framework.so.2",
    )
    defines = [flag[2:] for flag in lines[3:] if flag.startswith("-D")]
    repository_ctx.file("BUILD", _BUILD.format(defines = repr(defines)))
    repository_ctx.file("versions.bzl", "TF_VERSION = %r\nVERSION = %r\n" % (
        tf_version,
        _package_version(repository_ctx, root),
    ))

installed_tensorflow = repository_rule(
    implementation = _installed_tensorflow_impl,
    environ = ["PYTHON"],
    local = True,
)
