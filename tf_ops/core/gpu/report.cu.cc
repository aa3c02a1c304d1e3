// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tf_ops/core/gpu/report.h"

#include "tf_ops/core/gpu/device.h"

namespace gather_stitch {
namespace gpu {

GpuStatus ClearReport(Report* report, GpuStream stream) {
  return FillBytes(report, 0xff, sizeof(Report), stream);
}

GpuStatus CopyReport(Report* host, const Report* report, GpuStream stream) {
  return CopyToHost(host, report, sizeof(Report), stream);
}

}  // namespace gpu
}  // namespace gather_stitch
