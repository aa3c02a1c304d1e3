// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tf_ops/core/shape_view.h"

#include <algorithm>
#include <limits>

namespace gather_stitch {
namespace {

std::string Bracketed(const std::string& joined) { return "[" + joined + "]"; }

}  // namespace

std::string ShapeString(ShapeView shape) {
  if (!shape.has_rank()) return "<unknown>";
  std::string joined;
  for (int i = 0; i < shape.rank; ++i) {
    if (i > 0) joined += ",";
    joined += shape[i] == kUnknownDim ? "?" : std::to_string(shape[i]);
  }
  return Bracketed(joined);
}

int64_t SaturatingMultiply(int64_t a, int64_t b) {
  int64_t product;
  if (__builtin_mul_overflow(a, b, &product)) {
    return std::numeric_limits<int64_t>::max();
  }
  return product;
}

int64_t SaturatingProduct(ShapeView shape, int begin, int end) {
  // A zero counts wherever it stands, also behind factors that saturate.
  if (std::find(shape.dims + begin, shape.dims + end, 0) != shape.dims + end) {
    return 0;
  }
  int64_t product = 1;
  for (int i = begin; i < end; ++i) {
    product = SaturatingMultiply(product, shape[i]);
  }
  return product;
}

std::string PositionString(ShapeView shape, int64_t position) {
  if (shape.rank <= 0) return "";
  std::string joined;
  for (int i = shape.rank - 1; i >= 0; --i) {
    const std::string coordinate = std::to_string(position % shape[i]);
    joined = joined.empty() ? coordinate : coordinate + "," + joined;
    position /= shape[i];
  }
  return Bracketed(joined);
}

}  // namespace gather_stitch
