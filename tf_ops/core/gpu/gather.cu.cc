// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tf_ops/core/gpu/gather.h"

#include "tf_ops/core/gpu/check_indices_kernel.h"
#include "tf_ops/core/gpu/gather_kernel.h"
#include "tf_ops/core/gpu/index_list.h"
#include "tf_ops/core/gpu/move_rows_kernel.h"

namespace gather_stitch {
namespace gpu {
namespace {

template <typename Offset, typename Indices>
GpuStatus GatherTyped(const GatherGeometry& geometry, int64_t row_bytes,
                      const void* params, const Indices& indices,
                      BadIndexAction action, Report* report, void* output,
                      GpuStream stream) {
  const GatherPlan<Indices, Offset> plan{
      static_cast<const char*>(params),
      indices,
      static_cast<char*>(output),
      row_bytes,
      geometry.rows,
      FastDivider<Offset>(static_cast<Offset>(geometry.indices_per_batch)),
      FastDivider<Offset>(static_cast<Offset>(geometry.outer)),
      action,
      report};
  const int64_t output_rows =
      geometry.batches * geometry.outer * geometry.indices_per_batch;
  return MoveRows(plan, output_rows, row_bytes,
                  AddressBits(params) | AddressBits(output), stream);
}

}  // namespace

GpuStatus GatherRows(const GatherGeometry& geometry, int64_t row_bytes,
                     const void* params, const void* indices,
                     IndexType index_type, BadIndexAction action,
                     Report* report, void* output, GpuStream stream) {
  if (!geometry.has_indices()) return GpuStatus();
  const int64_t num_indices = geometry.batches * geometry.indices_per_batch;
  if (!geometry.has_output()) {
    return LaunchCheckIndices(indices, index_type, num_indices, geometry.rows,
                              action, report, stream);
  }
  return VisitIndexList(indices, index_type, [&](const auto& list) {
    GATHER_STITCH_RETURN_IF_GPU_ERROR(
        FitsUint32(geometry.outer * num_indices, row_bytes)
            ? GatherTyped<uint32_t>(geometry, row_bytes, params, list, action,
                                    report, output, stream)
            : GatherTyped<uint64_t>(geometry, row_bytes, params, list, action,
                                    report, output, stream));
    return LaunchReportBadValue(list, report, stream);
  });
}

}  // namespace gpu
}  // namespace gather_stitch
