// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tf_ops/ops/shape_functions.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/tensor.h"

namespace gather_stitch {

using tensorflow::Tensor;
using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

static_assert(kUnknownDim == InferenceContext::kUnknownDim &&
                  kUnknownRank == InferenceContext::kUnknownRank,
              "static shapes are handed over as they are");

StaticShape::StaticShape(InferenceContext* c, ShapeHandle shape) {
  if (!c->RankKnown(shape)) return;
  rank_ = c->Rank(shape);
  dims_.resize(rank_);
  for (int i = 0; i < rank_; ++i) dims_[i] = c->Value(c->Dim(shape, i));
}

ShapeHandle MakeShape(InferenceContext* c, ShapeView shape) {
  if (!shape.has_rank()) return c->UnknownShape();
  std::vector<DimensionHandle> dims(shape.rank);
  for (int i = 0; i < shape.rank; ++i) dims[i] = c->MakeDim(shape[i]);
  return c->MakeShape(dims);
}

absl::Status ConstantScalar(InferenceContext* c, int i, const char* input_name,
                            std::optional<int64_t>* value) {
  value->reset();
  const ShapeHandle shape = c->input(i);
  const Tensor* tensor = c->input_tensor(i);
  const bool is_other_rank = tensor != nullptr
                                 ? tensor->dims() != 0
                                 : c->RankKnown(shape) && c->Rank(shape) != 0;
  if (is_other_rank) {
    return absl::InvalidArgumentError(
        absl::StrCat(input_name, " must be scalar"));
  }
  if (tensor == nullptr) return absl::OkStatus();
  if (tensor->dtype() == tensorflow::DT_INT32) {
    *value = *static_cast<const int32_t*>(tensor->data());
  } else if (tensor->dtype() == tensorflow::DT_INT64) {
    *value = *static_cast<const int64_t*>(tensor->data());
  }
  return absl::OkStatus();
}

}  // namespace gather_stitch
