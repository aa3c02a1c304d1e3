#!/usr/bin/env bash
# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs the GPU OpKernels on the emulated GPU, in .venv-cpu. `make emulated-gpu-test`
# calls it; words after the compiler go to pytest.
#
#   tools/emulated_gpu_test.sh MAKE CXX [...]

set -euo pipefail
cd "$(dirname "$0")/.."

readonly make=$1
export CXX=$2
shift 2
# Of tests/emulated_gpu/emulated.py.
readonly plain=build/opt
readonly asan=build/emulated_gpu_asan
export TF_CPP_MIN_LOG_LEVEL=${TF_CPP_MIN_LOG_LEVEL:-2}

readonly python=${TF_PYTHON:-.venv/bin/python}
$make emulated_gpu BUILD=$plain TF_PYTHON="$python"
# The macro would make Abseil lay out its tables in another way than TensorFlow's
# libraries do.
readonly flags='-O1 -g1 -fno-omit-frame-pointer'
$make emulated_gpu BUILD=$asan TF_PYTHON="$python" EMULATED_GPU_SHARED=$plain \
  CXXFLAGS=-fsanitize=address OPTIMIZE="$flags" \
  PLUGIN_OPTIMIZE="$flags -DNDEBUG -U__SANITIZE_ADDRESS__"

# The package as it would be installed, but for the library of the GPU kernels.
for build in $plain $asan; do
  package=$build/emulated_gpu/site/gather_stitch
  rm -rf "$package"
  mkdir -p "$package"
  cp python/gather_stitch/*.py python/gather_stitch/_ops.so \
    $build/emulated_gpu/_gpu_kernels.so "$package"
done

.venv-cpu/bin/python -m pytest "$@" tests/emulated_gpu
