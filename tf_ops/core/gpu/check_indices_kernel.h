// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// The kernels that say which index is bad.

#ifndef GATHER_STITCH_CORE_GPU_CHECK_INDICES_KERNEL_H_
#define GATHER_STITCH_CORE_GPU_CHECK_INDICES_KERNEL_H_

#include <cstdint>

#include "tf_ops/core/gpu/device.h"
#include "tf_ops/core/gpu/index_list.h"
#include "tf_ops/core/gpu/report.h"
#include "tf_ops/core/gpu/report_bad_index.h"
#include "tf_ops/core/indices.h"

namespace gather_stitch {
namespace gpu {

// Reports what is bad among `count` indices, where no row moves.
template <typename Indices>
struct CheckIndices {
  Indices indices;
  uint64_t count;
  int64_t rows;
  BadIndexAction action;
  Report* report;

  GATHER_STITCH_DEVICE void operator()(const ThreadPosition& at) const {
    for (uint64_t i = at.First(); i < count; i += at.Stride()) {
      if (indices.Resolve(i, rows, action) == kBadRow) {
        ReportBadIndex(report, i);
      }
    }
  }
};

// One thread: the value beside the position of the first bad index.
template <typename Indices>
struct ReportBadValue {
  Indices indices;
  Report* report;

  GATHER_STITCH_DEVICE void operator()(const ThreadPosition& at) const {
    if (at.First() == 0 && report->has_bad_index()) {
      report->bad_value = indices.Value(report->first_bad);
    }
  }
};

// After a kernel that reports bad positions. Nothing where `report` is null.
template <typename Indices>
GpuStatus LaunchReportBadValue(const Indices& indices, Report* report,
                               GpuStream stream) {
  if (report == nullptr) return GpuStatus();
  return Launch({1, 1}, ReportBadValue<Indices>{indices, report}, stream);
}

// Position and value of the first bad index. Nothing where `report` is null.
inline GpuStatus LaunchCheckIndices(const void* indices, IndexType index_type,
                                    int64_t count, int64_t rows,
                                    BadIndexAction action, Report* report,
                                    GpuStream stream) {
  if (report == nullptr) return GpuStatus();
  return VisitIndexList(indices, index_type, [&](const auto& list) {
    GATHER_STITCH_RETURN_IF_GPU_ERROR(
        Launch(ShapeFor(count),
               CheckIndices<std::decay_t<decltype(list)>>{
                   list, static_cast<uint64_t>(count), rows, action, report},
               stream));
    return LaunchReportBadValue(list, report, stream);
  });
}

}  // namespace gpu
}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_GPU_CHECK_INDICES_KERNEL_H_
