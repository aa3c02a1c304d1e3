// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tf_ops/core/stitch_geometry.h"

#include <utility>

namespace gather_stitch {
namespace {

bool MayBeEqual(int64_t a, int64_t b) {
  return a == kUnknownDim || b == kUnknownDim || a == b;
}

bool MayBeEqual(ShapeView a, ShapeView b) {
  if (!a.has_rank() || !b.has_rank()) return true;
  if (a.rank != b.rank) return false;
  for (int i = 0; i < a.rank; ++i) {
    if (!MayBeEqual(a[i], b[i])) return false;
  }
  return true;
}

bool MayStartWith(ShapeView data, ShapeView indices) {
  if (!data.has_rank() || !indices.has_rank()) return true;
  return data.rank >= indices.rank &&
         MayBeEqual(ShapeView{data.dims, indices.rank}, indices);
}

// data.shape[rank(indices):], of unknown rank where either rank is unknown.
ShapeView Constant(ShapeView data, ShapeView indices) {
  if (!data.has_rank() || !indices.has_rank()) return ShapeView();
  return {data.dims + indices.rank, data.rank - indices.rank};
}

std::string Subscript(int m) { return "[" + std::to_string(m) + "]"; }

std::string Named(const char* name, int m, ShapeView shape) {
  return name + Subscript(m) + ".shape = " + ShapeString(shape);
}

std::string Tail(int m, ShapeView indices) {
  return "data" + Subscript(m) + ".shape[" + std::to_string(indices.rank) +
         ":]";
}

StitchShapes Failed(StitchRule rule, std::string error) {
  StitchShapes shapes;
  shapes.rule = rule;
  shapes.error = std::move(error);
  return shapes;
}

}  // namespace

StitchShapes InferStitchShapes(const ShapeView* indices, const ShapeView* data,
                               int inputs) {
  StitchShapes shapes;
  for (int m = 0; m < inputs; ++m) {
    if (!MayStartWith(data[m], indices[m])) {
      return Failed(StitchRule::kDataStartsWithIndices,
                    Named("data", m, data[m]) + " does not start with " +
                        Named("indices", m, indices[m]));
    }
    const ShapeView constant = Constant(data[m], indices[m]);
    if (!constant.has_rank()) continue;
    if (shapes.constant_rank == kUnknownRank) {
      shapes.constant_rank = constant.rank;
      shapes.constant_dims.assign(constant.dims, constant.dims + constant.rank);
      continue;
    }
    if (!MayBeEqual(constant, shapes.constant())) {
      // What is known so far may come from several inputs; name the first that
      // disagrees.
      int other = 0;
      while (MayBeEqual(constant, Constant(data[other], indices[other]))) {
        ++other;
      }
      return Failed(StitchRule::kSameConstant,
                    "Need " + Tail(other, indices[other]) + " = " +
                        Tail(m, indices[m]) + ", got " +
                        Named("data", other, data[other]) + ", " +
                        Named("data", m, data[m]) + ", " +
                        Named("indices", other, indices[other]) + ", " +
                        Named("indices", m, indices[m]));
    }
    for (int i = 0; i < constant.rank; ++i) {
      if (constant[i] != kUnknownDim) shapes.constant_dims[i] = constant[i];
    }
  }
  if (shapes.constant_rank >= kMaxRank) {
    return Failed(StitchRule::kMergedRank,
                  "rank(merged) = " + std::to_string(shapes.constant_rank + 1) +
                      " must be at most " + std::to_string(kMaxRank));
  }
  return shapes;
}

}  // namespace gather_stitch
