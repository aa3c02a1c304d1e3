// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// The shapes of a gather, computed and validated once, by a pure function.
//
// With P = params.shape, I = indices.shape, a = axis and b = batch_dims after
// adding rank(P) and rank(I) to negatives:
//
//   output.shape == P[:a] + I[b:] + P[a+1:]
//
// The rules, in the order in which they are checked:
//
//   1 <= rank(P)
//   -rank(P) <= axis < rank(P)
//   -rank(I) <= batch_dims <= rank(I)
//   b < rank(P)
//   b <= a
//   P[:b] == I[:b]
//   params has less than 2^63 elements
//   rank(output) <= kMaxRank, and output has less than 2^63 elements
//
// axis and batch_dims may be any int64. Ranks, dimensions and the axis may be
// unknown: then whatever follows from the known part is checked and inferred,
// dimension by dimension.

#ifndef GATHER_STITCH_CORE_GATHER_GEOMETRY_H_
#define GATHER_STITCH_CORE_GATHER_GEOMETRY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tf_ops/core/shape_view.h"

namespace gather_stitch {

enum class GatherRule {
  kOk,
  kParamsScalar,
  kAxisRange,
  kBatchDimsRange,
  kBatchDimsBelowParamsRank,
  kBatchDimsNotAboveAxis,
  kBatchSizes,
  kParamsSize,
  kOutputRank,
  kOutputSize,
};

// A gather as loops: row-major
//   params  [batches, outer, rows, inner]
//   indices [batches, indices_per_batch]
//   output  [batches, outer, indices_per_batch, inner]
// Where the output is not empty none of the products saturates, nor does the
// number of elements of params or output. Where it is empty, products may be
// INT64_MAX beside a zero.
struct GatherGeometry {
  int64_t batches = 0;
  int64_t outer = 0;
  int64_t rows = 0;
  int64_t inner = 0;  // elements of a row
  int64_t indices_per_batch = 0;

  bool has_indices() const { return batches != 0 && indices_per_batch != 0; }
  bool has_output() const { return has_indices() && outer != 0 && inner != 0; }
};

struct GatherShapes {
  GatherRule rule = GatherRule::kOk;
  std::string error;  // the failed rule in words; empty where rule is kOk

  std::optional<int64_t> axis;        // a, where it can be known
  std::optional<int64_t> batch_dims;  // b, where it can be known
  int output_rank = kUnknownRank;
  std::vector<int64_t> output_dims;  // [output_rank]

  // Set where both shapes and the axis are fully known.
  bool is_known = false;
  GatherGeometry geometry;

  bool ok() const { return rule == GatherRule::kOk; }
  ShapeView output() const { return {output_dims.data(), output_rank}; }
};

GatherShapes InferGatherShapes(ShapeView params, ShapeView indices,
                               std::optional<int64_t> axis, int64_t batch_dims);

}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_GATHER_GEOMETRY_H_
