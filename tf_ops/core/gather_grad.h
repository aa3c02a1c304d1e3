// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// The gradient of a gather: rows summed where they came from.
//
//   params_grad[batch, outer, r, k] ==
//     sum of grad[batch, outer, i, k] over i in [0, indices_per_batch)
//     with ResolveIndex(indices[batch, i]) == r, in ascending i
//
// An empty sum is zero. Sums of integers are modulo 2^bits. half, bfloat16 and
// float8 are summed in float32 and rounded once. Other floats are summed in
// their own type, one addition after the other in ascending i, starting from
// zero, so the result does not depend on threads or instruction set.

#ifndef GATHER_STITCH_CORE_GATHER_GRAD_H_
#define GATHER_STITCH_CORE_GATHER_GRAD_H_

#include <cstdint>

#include "tf_ops/core/gather_geometry.h"
#include "tf_ops/core/indices.h"
#include "tf_ops/core/outcome.h"
#include "tf_ops/core/parallel_for.h"
#include "tf_ops/core/scratch.h"

namespace gather_stitch {

// Signed and unsigned integers of a width share their sum. A complex number is
// two floats: the adapter doubles `inner`.
enum class SumType : uint8_t {
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFloat32,
  kFloat64,
  kHalf,
  kBfloat16,
  kFloat8E5m2,
  kFloat8E4m3fn,
  kFloat8E4m3fnuz,
  kFloat8E4m3b11fnuz,
  kFloat8E5m2fnuz,
};

int64_t SumTypeBytes(SumType type);

// `grad` has the shape of the gather's output, `params_grad` that of its
// params; both aligned to their type. geometry.inner counts elements of
// `sum_type`. All of `params_grad` is written. Takes at most 16 bytes of
// scratch an index (plus a constant for each thread). Returns any Outcome.
Outcome GatherGrad(const GatherGeometry& geometry, SumType sum_type,
                   const void* grad, const void* indices, IndexType index_type,
                   BadIndexAction action, const ParallelFor& parallel,
                   Scratch& scratch, void* params_grad);

// The same gradient as slices, for a gather along axis 0: `count` indices into
// a table of `params_rows` rows. Two steps, for the number of slices is known
// only after the first.
struct SparseGradPlan {
  int64_t slices = 0;  // k
  // True where slot i is i for every i: the slices are grad itself, reshaped.
  bool is_identity = false;
  // For the second step; memory of `scratch`.
  const int64_t* rows = nullptr;          // [k], rows of the table
  const int64_t* slice_starts = nullptr;  // [k + 1], into `positions`
  const int64_t* positions = nullptr;     // in slice order
};

// With unique: the slices are the distinct rows named by indices, ascending;
// else one slice for each index that names a row, in order.
//   slots[i]: the slice that index i went to, -1 where it has no row.
// Returns any Outcome.
Outcome PlanSparseGrad(int64_t count, int64_t params_rows, const void* indices,
                       IndexType index_type, BadIndexAction action, bool unique,
                       const ParallelFor& parallel, Scratch& scratch,
                       SparseGradPlan* plan, int64_t* slots);

// values[slice, j] == sum of grad[i, j] over i with slots[i] == slice, in
// ascending i and starting from the first; values is [k, inner]. Indices are
// not read again.
void FillSparseGradValues(const SparseGradPlan& plan, int64_t inner,
                          SumType sum_type, const void* grad,
                          const ParallelFor& parallel, void* values);

}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_GATHER_GRAD_H_
