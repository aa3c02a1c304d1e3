// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/types.h"
#include "tf_ops/core/error_words.h"
#include "tf_ops/core/gather_geometry.h"
#include "tf_ops/ops/shape_functions.h"
#include "tf_ops/ops/sum_dtypes.h"

namespace gather_stitch {
namespace {

using tensorflow::Tensor;
using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// The shape of a gather of `params` at `indices` by the attr batch_dims and the
// axis in input `axis_input`.
absl::Status InferGather(InferenceContext* c, const StaticShape& params,
                         const StaticShape& indices, int axis_input,
                         GatherShapes* shapes) {
  std::optional<int64_t> axis;
  TF_RETURN_IF_ERROR(ConstantScalar(c, axis_input, "axis", &axis));
  int64_t batch_dims;
  TF_RETURN_IF_ERROR(c->GetAttr("batch_dims", &batch_dims));
  *shapes = InferGatherShapes(params.view(), indices.view(), axis, batch_dims);
  return RuleStatus(shapes->error);
}

absl::Status GatherV2Shape(InferenceContext* c) {
  const StaticShape params(c, c->input(0));
  const StaticShape indices(c, c->input(1));
  GatherShapes shapes;
  TF_RETURN_IF_ERROR(InferGather(c, params, indices, 2, &shapes));
  c->set_output(0, MakeShape(c, shapes.output()));
  return absl::OkStatus();
}

// What a handle may say about its variable, in its first entry.
using HandleData = std::vector<tensorflow::shape_inference::ShapeAndType>;

absl::Status ResourceGatherShape(InferenceContext* c) {
  ShapeHandle resource;
  if (!c->WithRank(c->input(0), 0, &resource).ok()) {
    return RuleStatus("resource must be scalar");
  }
  tensorflow::DataType dtype;
  TF_RETURN_IF_ERROR(c->GetAttr("dtype", &dtype));
  ShapeHandle params_handle = c->UnknownShape();
  const HandleData* data = c->input_handle_shapes_and_types(0);
  if (data != nullptr && !data->empty() &&
      data->front().dtype != tensorflow::DT_INVALID) {
    if (data->front().dtype != dtype) {
      return RuleStatus(
          absl::StrCat("Trying to read variable with wrong dtype. Expected ",
                       tensorflow::DataTypeString(dtype), " got ",
                       tensorflow::DataTypeString(data->front().dtype)));
    }
    params_handle = data->front().shape;
    // What a variable of variants knows about them.
    if (dtype == tensorflow::DT_VARIANT && data->size() > 1) {
      c->set_output_handle_shapes_and_types(
          0, HandleData(data->begin() + 1, data->end()));
    }
  }
  const StaticShape params(c, params_handle);
  const StaticShape indices(c, c->input(1));
  GatherShapes shapes;
  TF_RETURN_IF_ERROR(InferGather(c, params, indices, 2, &shapes));
  c->set_output(0, MakeShape(c, shapes.output()));
  return absl::OkStatus();
}

absl::Status CheckHasSum(InferenceContext* c) {
  tensorflow::DataType dtype;
  TF_RETURN_IF_ERROR(c->GetAttr("T", &dtype));
  Sum sum;
  return SumOf(dtype, &sum);
}

absl::Status GatherV2GradShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(CheckHasSum(c));
  ShapeHandle params_shape_vector = c->input(2);
  if (c->RankKnown(params_shape_vector) && c->Rank(params_shape_vector) != 1) {
    return RuleStatus("params_shape must be a vector");
  }
  // In a constant, -1 is a mistake; in a shape computed from tensors whose
  // shape is partly known it stands for what is unknown.
  if (const Tensor* constant = c->input_tensor(2)) {
    const ShapeView dims{static_cast<const int64_t*>(constant->data()),
                         static_cast<int>(constant->NumElements())};
    TF_RETURN_IF_ERROR(RuleStatus(ParamsShapeError(dims)));
  }
  ShapeHandle params_handle;
  TF_RETURN_IF_ERROR(c->MakeShapeFromShapeTensor(2, &params_handle));
  const StaticShape grad(c, c->input(0));
  const StaticShape indices(c, c->input(1));
  const StaticShape params(c, params_handle);
  GatherShapes shapes;
  TF_RETURN_IF_ERROR(InferGather(c, params, indices, 3, &shapes));
  TF_RETURN_IF_ERROR(
      RuleStatus(GatherGradShapeError(grad.view(), shapes.output())));
  c->set_output(0, params_handle);
  return absl::OkStatus();
}

absl::Status GatherV2SparseGradShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(CheckHasSum(c));
  const StaticShape grad(c, c->input(0));
  const StaticShape indices(c, c->input(1));
  std::optional<int64_t> params_rows;
  TF_RETURN_IF_ERROR(ConstantScalar(c, 2, "params_rows", &params_rows));
  TF_RETURN_IF_ERROR(
      RuleStatus(NegativeCountError("params_rows", params_rows.value_or(0))));
  TF_RETURN_IF_ERROR(
      RuleStatus(SparseGradShapeError(grad.view(), indices.view())));

  // The number of slices is the number of indices where no index is merged with
  // another nor, on any device, dropped.
  bool unique;
  TF_RETURN_IF_ERROR(c->GetAttr("unique", &unique));
  std::string policy;
  TF_RETURN_IF_ERROR(c->GetAttr("bad_indices_policy", &policy));
  DimensionHandle slices = c->UnknownDim();
  if (!unique && (policy == "ERROR" || policy == "CLIP" || policy == "WRAP")) {
    slices = c->NumElements(c->input(1));
  }
  ShapeHandle values = c->UnknownShape();
  if (c->RankKnown(c->input(0)) && c->RankKnown(c->input(1))) {
    ShapeHandle inner;
    TF_RETURN_IF_ERROR(c->Subshape(c->input(0), c->Rank(c->input(1)), &inner));
    TF_RETURN_IF_ERROR(c->Concatenate(c->Vector(slices), inner, &values));
  }
  c->set_output(0, values);
  c->set_output(1, c->Vector(slices));
  c->set_output(2, c->input(1));
  return absl::OkStatus();
}

#define GATHER_STITCH_INDEX_TYPES \
  "{int8, uint8, int16, uint16, int32, uint32, int64, uint64}"
#define GATHER_STITCH_POLICIES                      \
  "{'DEFAULT', 'ERROR', 'IGNORE', 'CLIP', 'WRAP'} " \
  "= 'DEFAULT'"

REGISTER_OP("GatherStitch>GatherV2")
    .Input("params: Tparams")
    .Input("indices: Tindices")
    .Input("axis: Taxis")
    .Output("output: Tparams")
    .Attr("batch_dims: int = 0")
    .Attr("bad_indices_policy: " GATHER_STITCH_POLICIES)
    .Attr("gradient: {'AUTO', 'DENSE', 'SPARSE'} = 'AUTO'")
    .Attr("Tparams: type")
    .Attr("Tindices: " GATHER_STITCH_INDEX_TYPES)
    .Attr("Taxis: {int32, int64}")
    .SetShapeFn(GatherV2Shape)
    .Doc(R"doc(
Gathers slices of `params` along `axis` at `indices`.

With P = params.shape, I = indices.shape and axis and batch_dims counted from the
front, output.shape = P[:axis] + I[batch_dims:] + P[axis + 1:] and

    output[batch, outer, i, inner] = params[batch, outer, indices[batch, i], inner]

where batch runs over the first batch_dims dimensions, outer over the dimensions
of params up to axis, and inner over those after it.

params: At least 1-D, of any dtype.
indices: Any shape whose first `batch_dims` dimensions are those of `params`.
axis: Scalar in [-rank(params), rank(params)), not below batch_dims.
output: The gathered slices.
batch_dims: In [-rank(indices), rank(indices)].
bad_indices_policy: What an index outside [0, params.shape[axis]) gives. DEFAULT:
  an error on a CPU, zeros on a GPU and under XLA. ERROR: an error. IGNORE: zeros.
  CLIP: the nearest slice. WRAP: the slice at the index modulo the size of the
  axis, so that -1 is the last one.
gradient: What the registered gradient of params is. AUTO: slices for axis 0
  without batch_dims, else dense. DENSE: dense. SPARSE: slices with sorted, unique
  rows, for axis 0 without batch_dims.
)doc");

REGISTER_OP("GatherStitch>ResourceGather")
    .Input("resource: resource")
    .Input("indices: Tindices")
    .Input("axis: Taxis")
    .Output("output: dtype")
    .Attr("batch_dims: int = 0")
    .Attr("bad_indices_policy: " GATHER_STITCH_POLICIES)
    .Attr("gradient: {'AUTO', 'DENSE', 'SPARSE'} = 'AUTO'")
    .Attr("dtype: type")
    .Attr("Tindices: " GATHER_STITCH_INDEX_TYPES)
    .Attr("Taxis: {int32, int64}")
    .SetIsStateful()
    .SetShapeFn(ResourceGatherShape)
    .Doc(R"doc(
Gathers slices of a variable along `axis` at `indices`, copying nothing else.

The output is that of GatherStitch>GatherV2 whose params are the variable's value.
The variable is locked against assignments until the slices are copied; updates
of single slices under a shared lock of their own may be seen in part.

resource: Scalar, the handle of a variable of at least one dimension.
indices: Any shape whose first `batch_dims` dimensions are those of the variable.
axis: Scalar in [-rank(variable), rank(variable)), not below batch_dims.
output: The gathered slices.
batch_dims: In [-rank(indices), rank(indices)].
bad_indices_policy: As in GatherStitch>GatherV2.
gradient: As in GatherStitch>GatherV2, of the variable.
dtype: The dtype of the variable.
)doc");

REGISTER_OP("GatherStitch>GatherV2Grad")
    .Input("grad: T")
    .Input("indices: Tindices")
    .Input("params_shape: int64")
    .Input("axis: Taxis")
    .Output("params_grad: T")
    .Attr("batch_dims: int = 0")
    .Attr("bad_indices_policy: " GATHER_STITCH_POLICIES)
    .Attr("T: type")
    .Attr("Tindices: " GATHER_STITCH_INDEX_TYPES)
    .Attr("Taxis: {int32, int64}")
    .SetShapeFn(GatherV2GradShape)
    .Doc(R"doc(
The dense gradient of GatherStitch>GatherV2: sums of the rows of `grad`.

    params_grad[batch, outer, r, inner] =
        sum over i with indices[batch, i] == r of grad[batch, outer, i, inner]

A bad index is what it was in the forward op: CLIP and WRAP add to the row that
they read, the other policies add nowhere. half, bfloat16 and float8 accumulate in
float32 and are rounded once.

T is a numeric dtype, complex, quantised (qint8, quint8, qint32) or float8.

grad: Has the shape of the forward op's output.
indices: The indices of the forward op.
params_shape: 1-D, the shape of the forward op's params.
axis: The axis of the forward op.
params_grad: Has the shape `params_shape`.
batch_dims: As in the forward op.
bad_indices_policy: As in the forward op.
)doc");

REGISTER_OP("GatherStitch>GatherV2SparseGrad")
    .Input("grad: T")
    .Input("indices: Tindices")
    .Input("params_rows: int64")
    .Output("values: T")
    .Output("rows: int64")
    .Output("slots: int64")
    .Attr("bad_indices_policy: " GATHER_STITCH_POLICIES)
    .Attr("unique: bool = true")
    .Attr("T: type")
    .Attr("Tindices: " GATHER_STITCH_INDEX_TYPES)
    .SetShapeFn(GatherV2SparseGradShape)
    .Doc(R"doc(
The gradient of a GatherStitch>GatherV2 along axis 0, as slices of the table.

    values[k] = sum over i with slots[i] == k of grad[i]

T is as in GatherStitch>GatherV2Grad.

grad: indices.shape + inner, the shape of the forward op's output.
indices: The indices of the forward op.
params_rows: Scalar, the number of rows of the forward op's params.
values: [k] + inner, a slice for each of `rows`.
rows: [k], rows of the table after the policy: clipped or wrapped; where an index
  has no gradient it is left out.
slots: indices.shape, the slice that each index went to, -1 where it was left out.
bad_indices_policy: As in the forward op.
unique: If true, rows are sorted and distinct; else there is a row for each index,
  in the order of indices.
)doc");

#undef GATHER_STITCH_INDEX_TYPES
#undef GATHER_STITCH_POLICIES

}  // namespace
}  // namespace gather_stitch
