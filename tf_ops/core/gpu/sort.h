// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// Sorts and sums on a device: CUB's, and on the host twin the standard
// library's.

#ifndef GATHER_STITCH_CORE_GPU_SORT_H_
#define GATHER_STITCH_CORE_GPU_SORT_H_

#include <cstdint>

#include "tf_ops/core/gpu/stream.h"
#include "tf_ops/core/scratch.h"

namespace gather_stitch {
namespace gpu {

// Sorts `count` > 0 pairs by their lowest `key_bits` bits, the others being
// zero; equal keys keep their order. The pairs are in keys[0] and values[0],
// and then in keys[*result] and values[*result]: both pairs of arrays are
// overwritten. Number is uint32_t or uint64_t. The scratch is the device's.
template <typename Number>
GpuStatus SortPairs(int64_t count, int key_bits, Number* const keys[2],
                    Number* const values[2], int* result, Scratch& scratch,
                    GpuStream stream);

// sums[i] = sums[0] + ... + sums[i] for `count` > 0 numbers.
GpuStatus SumPrefixes(int64_t count, int64_t* sums, Scratch& scratch,
                      GpuStream stream);

}  // namespace gpu
}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_GPU_SORT_H_
