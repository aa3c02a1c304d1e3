// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tf_ops/core/cpu_features.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#ifdef __x86_64__
#include <cpuid.h>
#endif

namespace gather_stitch {
namespace {

CpuFeatures WidestCpuFeatures() {
#ifdef __x86_64__
  // These ask the operating system, too, whether it saves wide registers.
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) {
    return CpuFeatures::kAvx2;
  }
#endif
  return CpuFeatures::kBaseline;
}

CpuFeatures ChosenCpuFeatures() {
  const CpuFeatures widest = WidestCpuFeatures();
  const char* const wanted = std::getenv("GATHER_STITCH_CPU_FEATURES");
  if (wanted == nullptr) return widest;
  for (const CpuFeatures features :
       {CpuFeatures::kBaseline, CpuFeatures::kAvx2}) {
    if (std::strcmp(wanted, CpuFeaturesName(features)) == 0) {
      return std::min(features, widest);
    }
  }
  return widest;
}

// What the processor says, for the C library tells the caches of a whole socket
// where each group of cores has its own.
int64_t CacheBytesFromProcessor() {
  int64_t largest = 0;
#ifdef __x86_64__
  for (const unsigned leaf : {0x4u, 0x8000001du}) {
    for (unsigned i = 0; i < 8; ++i) {
      unsigned a, b, c, d;
      if (!__get_cpuid_count(leaf, i, &a, &b, &c, &d)) break;
      if ((a & 0x1f) == 0) break;  // no more caches
      const int64_t ways = (b >> 22) + 1;
      const int64_t partitions = (b >> 12 & 0x3ff) + 1;
      const int64_t line_bytes = (b & 0xfff) + 1;
      largest = std::max(largest, ways * partitions * line_bytes *
                                      (static_cast<int64_t>(c) + 1));
    }
  }
#endif
  return largest;
}

}  // namespace

CpuFeatures CpuFeaturesInUse() {
  static const CpuFeatures features = ChosenCpuFeatures();
  return features;
}

const char* CpuFeaturesName(CpuFeatures features) {
  return features == CpuFeatures::kAvx2 ? "avx2" : "baseline";
}

int64_t LastLevelCacheBytes() {
  constexpr int64_t kUsualBytes = 32 << 20;
  static const int64_t bytes = CacheBytesFromProcessor();
  return bytes > 0 ? bytes : kUsualBytes;
}

}  // namespace gather_stitch
