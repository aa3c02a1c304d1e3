// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// What this library was built for, readable with dlsym.

#ifndef GATHER_STITCH_CUDA_ARCHITECTURES
#error \
    "GATHER_STITCH_CUDA_ARCHITECTURES lists what the kernels are compiled for"
#endif

extern "C" __attribute__((visibility("default"))) const char*
gather_stitch_cuda_architectures() {
  return GATHER_STITCH_CUDA_ARCHITECTURES;
}
