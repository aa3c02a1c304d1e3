// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// The instruction set that the loops of the core run on.

#ifndef GATHER_STITCH_CORE_CPU_FEATURES_H_
#define GATHER_STITCH_CORE_CPU_FEATURES_H_

namespace gather_stitch {

// A name such as "baseline" or "avx2", chosen once for the process: the widest
// that this processor has and this library was built for. Results are bitwise
// the same for each.
const char* CpuFeaturesInUse();

}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_CPU_FEATURES_H_
