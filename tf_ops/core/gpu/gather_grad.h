// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// core/gather_grad.h on a device:
//
//   params_grad[batch, outer, r, k] ==
//     sum of grad[batch, outer, i, k] over i in [0, indices_per_batch)
//     with ResolveIndex(indices[batch, i]) == r
//
// The order of a sum of floats is one of these:
//   kFixed  a tree that depends on the indices alone: the same bits in every
//           run and on every device, and those of the sum in ascending i for up
//           to kTileIndices equal indices that stand in one tile
//   kAny    whatever is fast
// half, bfloat16 and float8 are summed in float32 and rounded once, in both.

#ifndef GATHER_STITCH_CORE_GPU_GATHER_GRAD_H_
#define GATHER_STITCH_CORE_GPU_GATHER_GRAD_H_

#include <cstdint>

#include "tf_ops/core/gather_geometry.h"
#include "tf_ops/core/gather_grad.h"
#include "tf_ops/core/gpu/report.h"
#include "tf_ops/core/gpu/stream.h"
#include "tf_ops/core/indices.h"
#include "tf_ops/core/scratch.h"

namespace gather_stitch {
namespace gpu {

enum class SumOrder { kAny, kFixed };

// Sizes and alignment are those of gather_stitch::GatherGrad; all pointers are
// of the device, and so is what `scratch` lends, until the stream has passed.
// A kBadRow is reported and adds nothing. `report` may be null where `action`
// makes none. All of `params_grad` is written. Where it sorts it takes 16 bytes
// of scratch an index, 32 from 2^32 rows or indices on, what CUB needs, and a
// thirtieth of what grad takes in the type of the sums.
GpuStatus GatherGrad(const GatherGeometry& geometry, SumType sum_type,
                     const void* grad, const void* indices,
                     IndexType index_type, BadIndexAction action,
                     SumOrder order, Scratch& scratch, Report* report,
                     void* params_grad, GpuStream stream);

// The same gradient as slices, for a gather along axis 0, in two steps: the
// host has to learn their number in between.
struct SparseGradPlan {
  int64_t count = 0;
  bool is_unique = false;
  bool are_wide = false;             // keys and positions: uint64, else uint32
  const void* keys = nullptr;        // [count], the rows
  const void* positions = nullptr;   // [count], or null: term j is index j
  uint64_t end_key = 0;              // terms from this key on are dropped
  const int64_t* numbers = nullptr;  // of the slice of each term, from 1 on
};

// report->number == k - 1, where k is the number of slices. `slots`, [count],
// is as in gather_stitch::PlanSparseGrad. The plan is in memory of `scratch`,
// which has to live until FillSparseGrad's work is done.
GpuStatus PlanSparseGrad(int64_t count, int64_t params_rows,
                         const void* indices, IndexType index_type,
                         BadIndexAction action, bool unique, Scratch& scratch,
                         Report* report, SparseGradPlan* plan, int64_t* slots,
                         GpuStream stream);

// Fills rows [k] and values [k, inner], summed in kFixed order and starting
// from the first. Where k == count and not unique, `values` may be `grad`
// itself.
GpuStatus FillSparseGrad(const SparseGradPlan& plan, int64_t inner,
                         SumType sum_type, const void* grad, Scratch& scratch,
                         int64_t* rows, void* values, GpuStream stream);

}  // namespace gpu
}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_GPU_GATHER_GRAD_H_
