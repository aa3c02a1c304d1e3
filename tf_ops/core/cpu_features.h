// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// What the loops of the core know about the processor that they run on.

#ifndef GATHER_STITCH_CORE_CPU_FEATURES_H_
#define GATHER_STITCH_CORE_CPU_FEATURES_H_

#include <cstdint>

namespace gather_stitch {

// Instruction sets, each one with all of those before it. Results are bitwise
// the same for each.
enum class CpuFeatures {
  kBaseline,  // what every processor of this architecture has
  kAvx2,      // AVX2 and F16C
};

// The widest that this processor has and this library was built for, or the one
// that the environment variable GATHER_STITCH_CPU_FEATURES names, if that is
// narrower. Chosen once for the process.
CpuFeatures CpuFeaturesInUse();

// "baseline", "avx2"
const char* CpuFeaturesName(CpuFeatures features);

// The cache that the cores share, as far as one of them can use it.
int64_t LastLevelCacheBytes();

}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_CPU_FEATURES_H_
