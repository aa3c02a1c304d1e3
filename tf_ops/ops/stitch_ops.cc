// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tf_ops/core/error_words.h"
#include "tf_ops/core/stitch.h"
#include "tf_ops/core/stitch_geometry.h"
#include "tf_ops/ops/shape_functions.h"

namespace gather_stitch {
namespace {

using tensorflow::Tensor;
using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// Input m of the lists `indices` and `data` is input m and num_inputs + m.
absl::Status SetMergedShape(InferenceContext* c, int num_inputs,
                            DimensionHandle merged_rows) {
  std::vector<StaticShape> shapes;
  for (int i = 0; i < 2 * num_inputs; ++i) shapes.emplace_back(c, c->input(i));
  std::vector<ShapeView> views;
  for (const StaticShape& shape : shapes) views.push_back(shape.view());
  const StitchShapes stitch =
      InferStitchShapes(views.data(), views.data() + num_inputs, num_inputs);
  TF_RETURN_IF_ERROR(RuleStatus(stitch.error));
  ShapeHandle merged;
  TF_RETURN_IF_ERROR(c->Concatenate(c->Vector(merged_rows),
                                    MakeShape(c, stitch.constant()), &merged));
  c->set_output(0, merged);
  return absl::OkStatus();
}

// The number of merged rows where every list of indices is a constant.
absl::Status ConstantMergedRows(InferenceContext* c, int num_inputs,
                                DimensionHandle* merged_rows) {
  *merged_rows = c->UnknownDim();
  bool all_constant = true;
  int64_t rows = 0;
  for (int m = 0; m < num_inputs; ++m) {
    const Tensor* indices = c->input_tensor(m);
    if (indices == nullptr) {
      // Ask for the others all the same: TensorFlow evaluates those that were
      // asked for before it calls this function again.
      all_constant = false;
      continue;
    }
    const IndexType index_type = indices->dtype() == tensorflow::DT_INT32
                                     ? IndexType::kInt32
                                     : IndexType::kInt64;
    const StitchInput input{indices->data(), indices->NumElements(), nullptr};
    int64_t input_rows;
    Outcome outcome =
        StitchMergedRows(&input, 1, index_type, SerialFor(), &input_rows);
    if (!outcome.ok()) {
      outcome.input = m;
      const auto dims = indices->shape().dim_sizes();
      const ShapeView shape{dims.data(), indices->dims()};
      return RuleStatus(StitchIndexError(outcome, shape, INT64_MAX));
    }
    rows = std::max(rows, input_rows);
  }
  if (all_constant) *merged_rows = c->MakeDim(rows);
  return absl::OkStatus();
}

absl::Status ParallelDynamicStitchShape(InferenceContext* c) {
  int num_inputs;
  TF_RETURN_IF_ERROR(c->GetAttr("N", &num_inputs));
  DimensionHandle merged_rows;
  TF_RETURN_IF_ERROR(ConstantMergedRows(c, num_inputs, &merged_rows));
  return SetMergedShape(c, num_inputs, merged_rows);
}

absl::Status ParallelDynamicStitchV2Shape(InferenceContext* c) {
  int num_inputs;
  TF_RETURN_IF_ERROR(c->GetAttr("N", &num_inputs));
  std::optional<int64_t> merged_rows;
  TF_RETURN_IF_ERROR(
      ConstantScalar(c, 2 * num_inputs, "merged_rows", &merged_rows));
  TF_RETURN_IF_ERROR(
      RuleStatus(NegativeCountError("merged_rows", merged_rows.value_or(0))));
  return SetMergedShape(
      c, num_inputs,
      merged_rows.has_value() ? c->MakeDim(*merged_rows) : c->UnknownDim());
}

absl::Status ParallelDynamicStitchGradShape(InferenceContext* c) {
  int num_inputs;
  TF_RETURN_IF_ERROR(c->GetAttr("N", &num_inputs));
  const ShapeHandle grad = c->input(0);
  ShapeHandle constant = c->UnknownShape();
  if (c->RankKnown(grad)) {
    if (c->Rank(grad) < 1) {
      return RuleStatus("grad must be at least 1 dimensional");
    }
    TF_RETURN_IF_ERROR(c->Subshape(grad, 1, &constant));
  }
  for (int m = 0; m < num_inputs; ++m) {
    ShapeHandle data_grad;
    TF_RETURN_IF_ERROR(c->Concatenate(c->input(1 + m), constant, &data_grad));
    c->set_output(m, data_grad);
  }
  return absl::OkStatus();
}

REGISTER_OP("GatherStitch>ParallelDynamicStitch")
    .Input("indices: N * Tindices")
    .Input("data: N * T")
    .Output("merged: T")
    .Attr("N: int >= 1")
    .Attr("T: type")
    .Attr("Tindices: {int32, int64}")
    .SetShapeFn(ParallelDynamicStitchShape)
    .Doc(R"doc(
Interleaves the rows of the `data` tensors into one tensor by `indices`.

    merged[indices[m][i, ..., j], ...] = data[m][i, ..., j, ...]

merged.shape = [max(indices) + 1] + constant. Where an index occurs more than
once the last in the order (m, i, ..., j) wins, and rows are whole. Rows that no
index names are zeros.

indices: Lists of row numbers, none of them negative.
data: data[m].shape = indices[m].shape + constant.
merged: The merged rows; [0] + constant where there is no index.
)doc");

REGISTER_OP("GatherStitch>ParallelDynamicStitchV2")
    .Input("indices: N * Tindices")
    .Input("data: N * T")
    .Input("merged_rows: Tsize")
    .Output("merged: T")
    .Attr("bad_indices_policy: {'DEFAULT', 'ERROR', 'IGNORE'} = 'DEFAULT'")
    .Attr("N: int >= 1")
    .Attr("T: type")
    .Attr("Tindices: {int32, int64}")
    .Attr("Tsize: {int32, int64}")
    .SetShapeFn(ParallelDynamicStitchV2Shape)
    .Doc(R"doc(
GatherStitch>ParallelDynamicStitch into a given number of rows.

merged.shape = [merged_rows] + constant.

indices: Lists of row numbers.
data: data[m].shape = indices[m].shape + constant.
merged_rows: Scalar, the number of rows of the output; not negative.
merged: The merged rows; zeros where no index names a row.
bad_indices_policy: What an index outside [0, merged_rows) gives. DEFAULT: an
  error on a CPU; on a GPU and under XLA its row is dropped. ERROR: an error.
  IGNORE: its row is dropped.
)doc");

REGISTER_OP("GatherStitch>ParallelDynamicStitchGrad")
    .Input("grad: T")
    .Input("indices: N * Tindices")
    .Output("data_grad: N * T")
    .Attr("N: int >= 1")
    .Attr("T: type")
    .Attr("Tindices: {int32, int64}")
    .SetShapeFn(ParallelDynamicStitchGradShape)
    .Doc(R"doc(
The gradient of GatherStitch>ParallelDynamicStitch and of its V2.

data_grad[m][i, ..., j, ...] = grad[indices[m][i, ..., j], ...] where that row of
the merged tensor was written by (m, i, ..., j); zeros where a later one overwrote
it or the index is outside of grad.

grad: The gradient of the merged tensor, at least 1-D.
indices: The indices of the forward op.
data_grad: data_grad[m].shape = indices[m].shape + grad.shape[1:].
)doc");

}  // namespace
}  // namespace gather_stitch
