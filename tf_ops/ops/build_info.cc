// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// What this library was built for, readable with dlsym before any op is called.

#include "tf_ops/core/cpu_features.h"

#ifndef GATHER_STITCH_TF_VERSION
#error "GATHER_STITCH_TF_VERSION is the TensorFlow version of the headers"
#endif

extern "C" __attribute__((visibility("default"))) const char*
gather_stitch_tf_version() {
  return GATHER_STITCH_TF_VERSION;
}

extern "C" __attribute__((visibility("default"))) const char*
gather_stitch_cpu_features() {
  return gather_stitch::CpuFeaturesName(gather_stitch::CpuFeaturesInUse());
}
