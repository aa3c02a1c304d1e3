// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// How much work a thread of its own is worth.

#ifndef GATHER_STITCH_CORE_COST_H_
#define GATHER_STITCH_CORE_COST_H_

#include <algorithm>
#include <cstdint>

namespace gather_stitch {

// To wake a thread of a pool takes some tens of microseconds.
inline constexpr double kRangeNanoseconds = 60000;

// Streaming through memory, one thread.
inline constexpr double kNanosecondsPerByte = 0.1;

// A thread's share of a row is at least a cache line.
inline constexpr int64_t kMinStripeBytes = 64;

// The grain of a loop whose items take this long.
inline int64_t GrainOf(double item_nanoseconds) {
  return std::max<int64_t>(
      1, static_cast<int64_t>(kRangeNanoseconds / item_nanoseconds));
}

}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_COST_H_
