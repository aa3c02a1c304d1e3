// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tf_ops/kernels/gather_inputs.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/resource_handle.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/types.h"
#include "tf_ops/core/error_words.h"
#include "tf_ops/kernels/adapter.h"

namespace gather_stitch {

using tensorflow::DataType;
using tensorflow::DataTypeString;
using tensorflow::OpKernelContext;
using tensorflow::ResourceHandle;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::Var;
using tensorflow::core::RefCountPtr;

absl::Status PrepareGather(OpKernelContext* ctx, const Tensor& params,
                           int64_t batch_dims, GatherGeometry* geometry,
                           Tensor** output) {
  int64_t axis;
  TF_RETURN_IF_ERROR(ScalarValue(ctx->input(2), "axis", &axis));
  const TensorDims params_dims(params.shape());
  const TensorDims indices_dims(ctx->input(1).shape());
  const GatherShapes shapes = InferGatherShapes(
      params_dims.view(), indices_dims.view(), axis, batch_dims);
  TF_RETURN_IF_ERROR(RuleStatus(shapes.error));
  *geometry = shapes.geometry;
  TensorShape output_shape;
  TF_RETURN_IF_ERROR(MakeTensorShape(shapes.output(), &output_shape));
  return ctx->allocate_output(0, output_shape, output);
}

int64_t RowBytes(const GatherGeometry& geometry, DataType dtype) {
  return geometry.has_output()
             ? geometry.inner * tensorflow::DataTypeSize(dtype)
             : 0;
}

absl::Status LookupVariable(OpKernelContext* ctx, const Tensor& resource,
                            RefCountPtr<Var>* variable) {
  if (resource.dims() != 0) {
    return absl::InvalidArgumentError("resource must be scalar");
  }
  const ResourceHandle& handle = resource.scalar<ResourceHandle>()();
  const absl::Status status = tensorflow::LookupResource(ctx, handle, variable);
  if (!absl::IsNotFound(status)) return status;
  return absl::FailedPreconditionError(absl::StrCat(
      "Could not find variable ", handle.name(), " in container ",
      handle.container(), ": it is not initialized, or it was deleted"));
}

absl::Status CheckReadable(OpKernelContext* ctx, Var& variable) {
  const std::string& name = ctx->input(0).scalar<ResourceHandle>()().name();
  if (!variable.is_initialized) {
    return absl::FailedPreconditionError(
        absl::StrCat("variable ", name, " is not initialized"));
  }
  const DataType expected = ctx->expected_output_dtype(0);
  const DataType found = variable.tensor()->dtype();
  if (found != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("Trying to read variable with wrong dtype. Expected ",
                     DataTypeString(expected), " got ", DataTypeString(found),
                     ", the dtype of variable ", name));
  }
  return absl::OkStatus();
}

absl::Status PrepareGatherGrad(OpKernelContext* ctx, int64_t batch_dims,
                               int64_t lanes, GatherGeometry* geometry,
                               Tensor** params_grad) {
  const Tensor& params_shape = ctx->input(2);
  if (params_shape.dims() != 1) {
    return absl::InvalidArgumentError("params_shape must be a vector");
  }
  if (params_shape.NumElements() > kMaxRank) {
    return absl::InvalidArgumentError(
        absl::StrCat("params_shape has ", params_shape.NumElements(),
                     " elements, more than ", kMaxRank, " dimensions"));
  }
  int64_t axis;
  TF_RETURN_IF_ERROR(ScalarValue(ctx->input(3), "axis", &axis));
  const ShapeView params{static_cast<const int64_t*>(params_shape.data()),
                         static_cast<int>(params_shape.NumElements())};
  TF_RETURN_IF_ERROR(RuleStatus(ParamsShapeError(params)));
  TensorShape params_grad_shape;
  TF_RETURN_IF_ERROR(MakeTensorShape(params, &params_grad_shape));
  const TensorDims indices_dims(ctx->input(1).shape());
  const TensorDims grad_dims(ctx->input(0).shape());
  const GatherShapes shapes =
      InferGatherShapes(params, indices_dims.view(), axis, batch_dims);
  TF_RETURN_IF_ERROR(RuleStatus(shapes.error));
  TF_RETURN_IF_ERROR(
      RuleStatus(GatherGradShapeError(grad_dims.view(), shapes.output())));
  *geometry = shapes.geometry;
  geometry->inner = SaturatingMultiply(geometry->inner, lanes);
  return ctx->allocate_output(0, params_grad_shape, params_grad);
}

absl::Status PrepareSparseGrad(OpKernelContext* ctx, int64_t* params_rows,
                               Tensor** slots) {
  TF_RETURN_IF_ERROR(ScalarValue(ctx->input(2), "params_rows", params_rows));
  TF_RETURN_IF_ERROR(
      RuleStatus(NegativeCountError("params_rows", *params_rows)));
  const TensorDims grad_dims(ctx->input(0).shape());
  const TensorDims indices_dims(ctx->input(1).shape());
  TF_RETURN_IF_ERROR(
      RuleStatus(SparseGradShapeError(grad_dims.view(), indices_dims.view())));
  return ctx->allocate_output(2, ctx->input(1).shape(), slots);
}

absl::Status SparseValuesShape(OpKernelContext* ctx, int64_t slices,
                               TensorShape* shape) {
  const TensorShape& grad = ctx->input(0).shape();
  *shape = TensorShape({slices});
  for (int i = ctx->input(1).dims(); i < grad.dims(); ++i) {
    TF_RETURN_IF_ERROR(shape->AddDimWithStatus(grad.dim_size(i)));
  }
  return absl::OkStatus();
}

}  // namespace gather_stitch
