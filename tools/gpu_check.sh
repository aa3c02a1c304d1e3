#!/usr/bin/env bash
# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Compiles the GPU kernels of the core for the GPU that is found, tests them
# there, and times them: `make gpu-check` calls it. It needs nvcc and a C++
# compiler, no TensorFlow; PyTorch is timed beside them where `python3` has it.
# Without a GPU it compiles the same, tests the kernels on the host, and says
# what did not run.
#
#   tools/gpu_check.sh NVCC BUILD

set -euo pipefail
cd "$(dirname "$0")/.."

readonly nvcc=$1
readonly build=$2
readonly results=$build/gpu_check.json

if [[ -z $nvcc ]]; then
  echo 'gpu-check: nvcc was not found: install CUDA 12 or later, or add CUDA_HOME=FOLDER' >&2
  exit 1
fi

step() {
  echo
  echo "==== $* (after ${SECONDS} s)"
  "$@"
}

# "90" for compute capability 9.0; nothing where there is no GPU.
capability() {
  { nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null || true; } |
    sed -n '1s/^\([0-9]*\)\.\([0-9]\)$/\1\2/p'
}

found=$(capability)
readonly found
step ${MAKE:-make} gpu_check BUILD="$build" ${found:+CUDA_ARCHS="$found"}
# The kernels and whatever else implements their contracts.
step "$build/core_tests" Gpu Gather Grad Slices Stitch

if [[ -z $found ]]; then
  echo
  echo 'gpu-check: there is no GPU here. The kernels, their tests and the benchmark compile, and'
  echo 'the kernels pass their tests on the host. The device part DID NOT RUN.'
  exit
fi

step "$build/device_tests" Gather Grad Slices Stitch
sanitizer=$(command -v compute-sanitizer || echo "$(dirname "$nvcc")/compute-sanitizer")
if [[ -x $sanitizer ]]; then
  # Minutes for all, so the tests that have every kernel in them.
  for tool in memcheck racecheck; do
    step "$sanitizer" --tool="$tool" --error-exitcode=9 \
      "$build/device_tests" GradEvery GatherEvery StitchEvery SlicesOfEvery
  done
else
  echo 'gpu-check: there is no compute-sanitizer, so nothing looked for stray reads and writes.'
fi
step "$build/gpu_benchmark" "$results"
if python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
  step python3 -m benchmarks.core.gpu_peers "$results"
else
  echo 'gpu-check: there is no PyTorch with CUDA to compare with.'
fi
echo
echo "gpu-check: done after ${SECONDS} s; the numbers are in $results"
