// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// A tensor shape as plain numbers, parts of which may be unknown while a graph
// is built.

#ifndef GATHER_STITCH_CORE_SHAPE_VIEW_H_
#define GATHER_STITCH_CORE_SHAPE_VIEW_H_

#include <cstdint>
#include <string>

namespace gather_stitch {

inline constexpr int kUnknownRank = -1;
inline constexpr int64_t kUnknownDim = -1;
// The most dimensions that a TensorFlow tensor can have.
inline constexpr int kMaxRank = 254;

struct ShapeView {
  const int64_t* dims = nullptr;  // [rank], each >= 0 or kUnknownDim
  int rank = kUnknownRank;        // >= 0 or kUnknownRank

  bool has_rank() const { return rank != kUnknownRank; }
  int64_t operator[](int i) const { return dims[i]; }
};

// "[2,3]"; an unknown dimension is "?", an unknown rank "<unknown>".
std::string ShapeString(ShapeView shape);

// The product of dims[begin, end): 0 where a dimension is 0, INT64_MAX where it
// does not fit into int64. All dimensions known.
int64_t SaturatingProduct(ShapeView shape, int begin, int end);

// a * b for a, b >= 0: INT64_MAX where it does not fit.
int64_t SaturatingMultiply(int64_t a, int64_t b);

// "[2,1]", the multi-index of flat `position` in `shape`; "" for a scalar.
std::string PositionString(ShapeView shape, int64_t position);

}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_SHAPE_VIEW_H_
