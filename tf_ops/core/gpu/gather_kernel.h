// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// The plan of a gather for move_rows_kernel.h.

#ifndef GATHER_STITCH_CORE_GPU_GATHER_KERNEL_H_
#define GATHER_STITCH_CORE_GPU_GATHER_KERNEL_H_

#include <cstdint>

#include "tf_ops/core/gpu/device.h"
#include "tf_ops/core/gpu/fast_divider.h"
#include "tf_ops/core/gpu/move_rows_kernel.h"
#include "tf_ops/core/gpu/report.h"
#include "tf_ops/core/gpu/report_bad_index.h"
#include "tf_ops/core/indices.h"

namespace gather_stitch {
namespace gpu {

// Rows of output, numbered, come from rows of params: lines are the pairs
// (batch, outer).
template <typename Indices, typename OffsetType>
struct GatherPlan {
  using Offset = OffsetType;

  const char* params;
  Indices indices;
  char* output;
  int64_t row_bytes;
  int64_t rows;
  FastDivider<Offset> indices_per_line;
  FastDivider<Offset> lines_per_batch;
  BadIndexAction action;
  Report* report;

  GATHER_STITCH_DEVICE RowMove At(Offset output_row) const {
    const Offset line = indices_per_line.Divide(output_row);
    const Offset batch = lines_per_batch.Divide(line);
    const uint64_t position =
        output_row - uint64_t{line - batch} * indices_per_line.divisor();
    char* const to = output + uint64_t{output_row} * row_bytes;
    const int64_t row = indices.Resolve(position, rows, action);
    if (row < 0) {
      if (row == kBadRow) ReportBadIndex(report, position);
      return {nullptr, to};
    }
    const uint64_t params_row = uint64_t{line} * rows + row;
    return {params + params_row * row_bytes, to};
  }
};

}  // namespace gpu
}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_GPU_GATHER_KERNEL_H_
