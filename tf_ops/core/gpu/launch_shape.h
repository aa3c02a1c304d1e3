// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// The grid of a launch, and the place of a thread in it.

#ifndef GATHER_STITCH_CORE_GPU_LAUNCH_SHAPE_H_
#define GATHER_STITCH_CORE_GPU_LAUNCH_SHAPE_H_

#include <algorithm>
#include <cstdint>

#include "tf_ops/core/host_device.h"

namespace gather_stitch {

// Where a thread stands in its grid: all numbers are below 2^31.
struct ThreadPosition {
  uint32_t block;    // in [0, blocks)
  uint32_t blocks;   // > 0
  uint32_t thread;   // in [0, threads)
  uint32_t threads;  // of a block, > 0

  GATHER_STITCH_HOST_DEVICE uint64_t First() const {
    return uint64_t{block} * threads + thread;
  }
  GATHER_STITCH_HOST_DEVICE uint64_t Stride() const {
    return uint64_t{blocks} * threads;
  }
};

inline constexpr uint32_t kThreadsPerBlock = 256;

struct LaunchShape {
  uint32_t blocks = 0;
  uint32_t threads = kThreadsPerBlock;
};

// A thread for each of `items` >= 0 items, up to a number of threads that any
// device is busy with; the loops of the body do the rest.
inline LaunchShape ShapeFor(int64_t items) {
  constexpr int64_t kMostBlocks = int64_t{1} << 20;
  const int64_t blocks =
      items / kThreadsPerBlock + (items % kThreadsPerBlock != 0);
  return {static_cast<uint32_t>(std::min(blocks, kMostBlocks))};
}

}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_GPU_LAUNCH_SHAPE_H_
