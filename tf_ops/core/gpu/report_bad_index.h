// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef GATHER_STITCH_CORE_GPU_REPORT_BAD_INDEX_H_
#define GATHER_STITCH_CORE_GPU_REPORT_BAD_INDEX_H_

#include <cstdint>

#include "tf_ops/core/gpu/device.h"
#include "tf_ops/core/gpu/report.h"

namespace gather_stitch {
namespace gpu {

// From any thread of a kernel. Few indices are bad, so what matters is that the
// others pay nothing, and that a tensor full of bad ones costs no atomic each.
GATHER_STITCH_DEVICE inline void ReportBadIndex(Report* report,
                                                uint64_t position) {
  if (LoadRelaxed(&report->first_bad) > position) {
    AtomicMin(&report->first_bad, position);
  }
}

}  // namespace gpu
}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_GPU_REPORT_BAD_INDEX_H_
