// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tf_ops/core/cpu_features.h"

namespace gather_stitch {

const char* CpuFeaturesInUse() { return "baseline"; }

}  // namespace gather_stitch
