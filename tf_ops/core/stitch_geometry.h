// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// The shapes of a stitch, computed and validated once, by a pure function.
//
//   data[m].shape == indices[m].shape + constant, the same constant for all m
//   merged.shape  == [merged_rows] + constant, of rank <= kMaxRank
//
// Ranks and dimensions may be unknown: then whatever follows from the known
// part is checked and inferred.

#ifndef GATHER_STITCH_CORE_STITCH_GEOMETRY_H_
#define GATHER_STITCH_CORE_STITCH_GEOMETRY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tf_ops/core/shape_view.h"

namespace gather_stitch {

enum class StitchRule {
  kOk,
  kDataStartsWithIndices,
  kSameConstant,
  kMergedRank,
};

struct StitchShapes {
  StitchRule rule = StitchRule::kOk;
  std::string error;  // the failed rule in words; empty where rule is kOk

  int constant_rank = kUnknownRank;
  std::vector<int64_t> constant_dims;  // [constant_rank]

  bool ok() const { return rule == StitchRule::kOk; }
  ShapeView constant() const { return {constant_dims.data(), constant_rank}; }
};

// `indices` and `data` have `inputs` >= 1 shapes each.
StitchShapes InferStitchShapes(const ShapeView* indices, const ShapeView* data,
                               int inputs);

}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_STITCH_GEOMETRY_H_
