// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tf_ops/core/error_words.h"

namespace gather_stitch {

std::string GatherIndexError(const Outcome& bad_index, ShapeView indices,
                             IndexType index_type, int64_t rows) {
  const std::string value =
      index_type == IndexType::kUint64
          ? std::to_string(static_cast<uint64_t>(bad_index.value))
          : std::to_string(bad_index.value);
  return "indices" + PositionString(indices, bad_index.position) + " = " +
         value + " is not in [0, " + std::to_string(rows) + ")";
}

std::string NoRowsError(BadIndexAction action, ShapeView indices,
                        int64_t rows) {
  const bool needs_rows =
      action == BadIndexAction::kClip || action == BadIndexAction::kWrap;
  if (!needs_rows || rows > 0 ||
      SaturatingProduct(indices, 0, indices.rank) == 0) {
    return "";
  }
  return "indices" + PositionString(indices, 0) + " is not in [0, 0)";
}

std::string StitchIndexError(const Outcome& bad_index, ShapeView indices,
                             int64_t merged_rows) {
  return "indices[" + std::to_string(bad_index.input) + "]" +
         PositionString(indices, bad_index.position) + " = " +
         std::to_string(bad_index.value) + " is not in [0, " +
         std::to_string(merged_rows) + ")";
}

namespace {

// False where shape[:count] and expected[:count] differ in a known dimension.
bool MayAgree(ShapeView shape, ShapeView expected, int count) {
  for (int i = 0; i < count; ++i) {
    if (shape[i] != kUnknownDim && expected[i] != kUnknownDim &&
        shape[i] != expected[i]) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::string GatherGradShapeError(ShapeView grad, ShapeView gathered) {
  if (!grad.has_rank() || !gathered.has_rank()) return "";
  if (grad.rank == gathered.rank && MayAgree(grad, gathered, grad.rank)) {
    return "";
  }
  return "grad.shape = " + ShapeString(grad) + " should be equal to " +
         ShapeString(gathered) + ", the shape of the gathered rows";
}

std::string SparseGradShapeError(ShapeView grad, ShapeView indices) {
  if (!grad.has_rank() || !indices.has_rank()) return "";
  if (grad.rank >= indices.rank && MayAgree(grad, indices, indices.rank)) {
    return "";
  }
  return "grad.shape = " + ShapeString(grad) +
         " does not start with indices.shape = " + ShapeString(indices);
}

std::string NegativeCountError(const char* input_name, int64_t count) {
  if (count >= 0) return "";
  return std::string(input_name) + " = " + std::to_string(count) +
         " must not be negative";
}

std::string ParamsShapeError(ShapeView params_shape) {
  for (int i = 0; i < params_shape.rank; ++i) {
    const std::string name = "params_shape[" + std::to_string(i) + "]";
    const std::string error = NegativeCountError(name.c_str(), params_shape[i]);
    if (!error.empty()) return error;
  }
  return "";
}

}  // namespace gather_stitch
