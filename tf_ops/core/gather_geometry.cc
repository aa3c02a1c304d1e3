// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tf_ops/core/gather_geometry.h"

#include <utility>

namespace gather_stitch {
namespace {

bool AllKnown(ShapeView shape) {
  if (!shape.has_rank()) return false;
  for (int i = 0; i < shape.rank; ++i) {
    if (shape[i] == kUnknownDim) return false;
  }
  return true;
}

// 2^63 or more.
bool HasTooManyElements(ShapeView shape) {
  if (!AllKnown(shape)) return false;
  if (SaturatingProduct(shape, 0, shape.rank) == 0) return false;
  int64_t elements = 1;
  for (int i = 0; i < shape.rank; ++i) {
    if (__builtin_mul_overflow(elements, shape[i], &elements)) return true;
  }
  return false;
}

std::string InParentheses(int64_t value) {
  return "(" + std::to_string(value) + ")";
}

std::string AxisError(int64_t axis, int rank) {
  // Unsigned: for the lowest and the highest int64 it is 2^63.
  const uint64_t needed_rank = axis >= 0 ? static_cast<uint64_t>(axis) + 1
                                         : -static_cast<uint64_t>(axis);
  return "Shape must be at least rank " + std::to_string(needed_rank) +
         " but is rank " + std::to_string(rank) +
         ": axis = " + std::to_string(axis) + " is not in [-" +
         std::to_string(rank) + ", " + std::to_string(rank) + ")";
}

std::string BatchDimsError(int64_t batch_dims, int rank) {
  return "Expected batch_dims in the range [-" + std::to_string(rank) + ", " +
         std::to_string(rank) + "], but got " + std::to_string(batch_dims);
}

std::string SizeError(const char* name, ShapeView shape) {
  return std::string(name) + ".shape = " + ShapeString(shape) +
         " must have less than 2^63 elements";
}

// The number of dimensions of I[b:], or kUnknownRank. A negative batch_dims
// counts them, whatever the rank of the indices is.
int IndicesTailRank(ShapeView indices, int64_t batch_dims) {
  if (indices.has_rank()) {
    return batch_dims < 0 ? static_cast<int>(-batch_dims)
                          : static_cast<int>(indices.rank - batch_dims);
  }
  if (batch_dims < 0 && batch_dims >= -kMaxRank) {
    return static_cast<int>(-batch_dims);
  }
  return kUnknownRank;
}

// P[:a] + I[b:] + P[a+1:], with P[:b] merged with I[:b]. I[b:] is unknown where
// the rank of the indices is.
std::vector<int64_t> OutputDims(ShapeView params, ShapeView indices,
                                int tail_rank, int axis) {
  const int batch_dims = indices.has_rank() ? indices.rank - tail_rank : 0;
  std::vector<int64_t> dims;
  dims.reserve(params.rank - 1 + tail_rank);
  for (int i = 0; i < axis; ++i) {
    const bool is_in_indices = params[i] == kUnknownDim && i < batch_dims;
    dims.push_back(is_in_indices ? indices[i] : params[i]);
  }
  for (int i = 0; i < tail_rank; ++i) {
    dims.push_back(indices.has_rank() ? indices[batch_dims + i] : kUnknownDim);
  }
  for (int i = axis + 1; i < params.rank; ++i) dims.push_back(params[i]);
  return dims;
}

GatherShapes Failed(GatherRule rule, std::string error) {
  GatherShapes shapes;
  shapes.rule = rule;
  shapes.error = std::move(error);
  return shapes;
}

}  // namespace

GatherShapes InferGatherShapes(ShapeView params, ShapeView indices,
                               std::optional<int64_t> axis,
                               int64_t batch_dims) {
  GatherShapes shapes;

  if (params.rank == 0) {
    return Failed(GatherRule::kParamsScalar,
                  "params must be at least 1 dimensional");
  }

  if (axis.has_value() && params.has_rank()) {
    if (*axis < -params.rank || *axis >= params.rank) {
      return Failed(GatherRule::kAxisRange, AxisError(*axis, params.rank));
    }
    shapes.axis = *axis < 0 ? *axis + params.rank : *axis;
  } else if (axis.has_value() && *axis >= 0) {
    shapes.axis = *axis;
  }

  if (indices.has_rank()) {
    if (batch_dims < -indices.rank || batch_dims > indices.rank) {
      return Failed(GatherRule::kBatchDimsRange,
                    BatchDimsError(batch_dims, indices.rank));
    }
    shapes.batch_dims = batch_dims < 0 ? batch_dims + indices.rank : batch_dims;
  } else if (batch_dims >= 0) {
    shapes.batch_dims = batch_dims;
  }

  if (shapes.batch_dims.has_value() && params.has_rank() &&
      *shapes.batch_dims >= params.rank) {
    return Failed(GatherRule::kBatchDimsBelowParamsRank,
                  "batch_dims " + InParentheses(*shapes.batch_dims) +
                      " must be less than rank(params) " +
                      InParentheses(params.rank) + ".");
  }

  if (shapes.batch_dims.has_value() && shapes.axis.has_value() &&
      *shapes.batch_dims > *shapes.axis) {
    return Failed(GatherRule::kBatchDimsNotAboveAxis,
                  "batch_dims " + InParentheses(*shapes.batch_dims) +
                      " must be less than or equal to axis " +
                      InParentheses(*shapes.axis) + ".");
  }

  if (params.has_rank() && indices.has_rank()) {
    for (int i = 0; i < *shapes.batch_dims; ++i) {
      if (params[i] == kUnknownDim || indices[i] == kUnknownDim) continue;
      if (params[i] == indices[i]) continue;
      const std::string dim = ".shape[" + std::to_string(i) + "]: ";
      return Failed(GatherRule::kBatchSizes,
                    "params" + dim + std::to_string(params[i]) +
                        " should be equal to indices" + dim +
                        std::to_string(indices[i]));
    }
  }

  if (HasTooManyElements(params)) {
    return Failed(GatherRule::kParamsSize, SizeError("params", params));
  }

  const int tail_rank = IndicesTailRank(indices, batch_dims);
  if (!params.has_rank() || tail_rank == kUnknownRank) return shapes;

  shapes.output_rank = params.rank - 1 + tail_rank;
  if (shapes.output_rank > kMaxRank) {
    return Failed(GatherRule::kOutputRank,
                  "rank(output) = " + std::to_string(shapes.output_rank) +
                      " must be at most " + std::to_string(kMaxRank));
  }

  // Of an unknown axis this much is known, and a dimension is known where it is
  // the same for each.
  const int first_axis = static_cast<int>(
      shapes.axis.value_or(shapes.batch_dims.value_or(int64_t{0})));
  const int last_axis = shapes.axis.has_value() ? first_axis : params.rank - 1;
  shapes.output_dims = OutputDims(params, indices, tail_rank, first_axis);
  for (int a = first_axis + 1; a <= last_axis; ++a) {
    const std::vector<int64_t> dims = OutputDims(params, indices, tail_rank, a);
    for (int i = 0; i < shapes.output_rank; ++i) {
      if (shapes.output_dims[i] != dims[i]) shapes.output_dims[i] = kUnknownDim;
    }
  }
  if (HasTooManyElements(shapes.output())) {
    return Failed(GatherRule::kOutputSize,
                  SizeError("output", shapes.output()));
  }

  if (axis.has_value() && AllKnown(params) && AllKnown(indices)) {
    const int a = first_axis;
    const int b = static_cast<int>(*shapes.batch_dims);
    shapes.is_known = true;
    shapes.geometry.batches = SaturatingProduct(params, 0, b);
    shapes.geometry.outer = SaturatingProduct(params, b, a);
    shapes.geometry.rows = params[a];
    shapes.geometry.inner = SaturatingProduct(params, a + 1, params.rank);
    shapes.geometry.indices_per_batch =
        SaturatingProduct(indices, b, indices.rank);
  }
  return shapes;
}

}  // namespace gather_stitch
