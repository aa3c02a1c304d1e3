// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tf_ops/core/gather_grad.h"

#include <algorithm>

#include "tf_ops/core/floating_point_mode.h"
#include "tf_ops/core/gather.h"
#include "tf_ops/core/grad_by_buckets.h"
#include "tf_ops/core/grad_by_scan.h"
#include "tf_ops/core/grad_tile.h"
#include "tf_ops/core/move_rows.h"
#include "tf_ops/core/row_partition.h"
#include "tf_ops/core/sum_rows.h"

namespace gather_stitch {
namespace {

// Half of the scratch that an index may take.
constexpr int64_t kScanBytesPerIndex = 8;

template <typename Index>
Outcome GatherGradTyped(const GradJob& job, const Index* indices,
                        BadIndexAction action, const ParallelFor& parallel,
                        Scratch& scratch) {
  const GatherGeometry& geometry = job.geometry;
  const int threads = parallel.max_threads();
  ScanParts parts;
  if (ChooseScanParts(job, threads, indices, action, &parts)) {
    const int64_t memory_bytes = ScanMemoryBytes(job, parts);
    if (memory_bytes <= kTileBytes ||
        memory_bytes * threads <= kScanBytesPerIndex * job.all_indices()) {
      return SumByScan(job, parts, indices, action, parallel, scratch);
    }
  }
  // With many batches of few indices the buckets must not outnumber the
  // indices.
  const int64_t most_buckets = RowPartition<uint32_t>::kMaxBuckets;
  const int64_t max_buckets =
      geometry.batches == 1
          ? most_buckets
          : std::clamp<int64_t>(geometry.indices_per_batch / 2, 1,
                                most_buckets);
  const int row_shift = BucketShift(job, threads, max_buckets);
  return SumByBuckets(job, row_shift, indices, action, parallel, scratch);
}

}  // namespace

Outcome GatherGrad(const GatherGeometry& geometry, SumType sum_type,
                   const void* grad, const void* indices, IndexType index_type,
                   BadIndexAction action, const ParallelFor& parallel,
                   Scratch& scratch, void* params_grad) {
  const GradJob job{
      geometry, SumFunctionsOf(sum_type), static_cast<const char*>(grad),
      static_cast<char*>(params_grad), FloatingPointMode::OfThisThread()};
  if (!geometry.has_output() || geometry.rows == 0) {
    // Nothing is added: indices are checked, and the table, if there is one, is
    // all zeros.
    if (geometry.has_indices()) {
      GatherGeometry rowless = geometry;
      rowless.inner = 0;
      return GatherRows(rowless, 0, nullptr, indices, index_type, action,
                        parallel, nullptr);
    }
    if (geometry.batches == 0 || geometry.outer == 0 || geometry.rows == 0 ||
        geometry.inner == 0) {
      return Outcome();
    }
    FillZeros(parallel, job.lines() * geometry.rows * job.row_bytes(),
              params_grad);
    return Outcome();
  }
  return VisitIndexType(index_type, [&](auto index) {
    return GatherGradTyped(job, static_cast<const decltype(index)*>(indices),
                           action, parallel, scratch);
  });
}

}  // namespace gather_stitch
