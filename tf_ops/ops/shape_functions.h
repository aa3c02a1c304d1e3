// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// What the shape functions of both op families share.

#ifndef GATHER_STITCH_OPS_SHAPE_FUNCTIONS_H_
#define GATHER_STITCH_OPS_SHAPE_FUNCTIONS_H_

#include <optional>
#include <vector>

#include "tensorflow/core/framework/shape_inference.h"
#include "tf_ops/core/shape_view.h"
#include "tf_ops/ops/rule_status.h"

namespace gather_stitch {

// A static shape as the numbers that the core reasons about.
class StaticShape {
 public:
  StaticShape(tensorflow::shape_inference::InferenceContext* c,
              tensorflow::shape_inference::ShapeHandle shape);
  ShapeView view() const { return {dims_.data(), rank_}; }

 private:
  int rank_ = kUnknownRank;
  std::vector<int64_t> dims_;
};

// The way back: an unknown dimension of `shape` becomes an unknown dimension.
tensorflow::shape_inference::ShapeHandle MakeShape(
    tensorflow::shape_inference::InferenceContext* c, ShapeView shape);

// The value of scalar input `i`, int32 or int64, where it is a constant; an
// error in the kernel's words where the input is not a scalar.
absl::Status ConstantScalar(tensorflow::shape_inference::InferenceContext* c,
                            int i, const char* input_name,
                            std::optional<int64_t>* value);

}  // namespace gather_stitch

#endif  // GATHER_STITCH_OPS_SHAPE_FUNCTIONS_H_
