// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_handle.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/platform/logging.h"
#include "tensorflow/core/platform/mutex.h"
#include "tf_ops/core/error_words.h"
#include "tf_ops/core/gather_geometry.h"
#include "tf_ops/core/gather_grad.h"
#include "tf_ops/kernels/adapter.h"
#include "tf_ops/kernels/gather_tensor.h"
#include "tf_ops/ops/sum_dtypes.h"

namespace gather_stitch {
namespace {

using tensorflow::DataTypeString;
using tensorflow::DEVICE_CPU;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::ResourceHandle;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::tf_shared_lock;
using tensorflow::Var;
using tensorflow::core::RefCountPtr;

// Gathers from `params` at input 1 along the axis in input 2, into output 0.
absl::Status GatherIntoOutput(OpKernelContext* ctx, const Tensor& params,
                              int64_t batch_dims, BadIndexAction action) {
  const Tensor& indices = ctx->input(1);
  int64_t axis;
  TF_RETURN_IF_ERROR(ScalarValue(ctx->input(2), "axis", &axis));
  const TensorDims params_dims(params.shape());
  const TensorDims indices_dims(indices.shape());
  const GatherShapes shapes = InferGatherShapes(
      params_dims.view(), indices_dims.view(), axis, batch_dims);
  TF_RETURN_IF_ERROR(RuleStatus(shapes.error));
  TensorShape output_shape;
  TF_RETURN_IF_ERROR(MakeTensorShape(shapes.output(), &output_shape));
  Tensor* output = nullptr;
  TF_RETURN_IF_ERROR(ctx->allocate_output(0, output_shape, &output));
  return GatherTensor(ctx, shapes.geometry, params, indices, action, output);
}

class GatherV2Op final : public OpKernel {
 public:
  explicit GatherV2Op(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("batch_dims", &batch_dims_));
    OP_REQUIRES_OK(ctx, GetBadIndexAction(ctx, &action_));
  }

  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_OK(ctx,
                   GatherIntoOutput(ctx, ctx->input(0), batch_dims_, action_));
  }

 private:
  int64_t batch_dims_;
  BadIndexAction action_;
};

// The variable that a scalar handle points to, or an error that names it.
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

class ResourceGatherOp final : public OpKernel {
 public:
  explicit ResourceGatherOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("batch_dims", &batch_dims_));
    OP_REQUIRES_OK(ctx, GetBadIndexAction(ctx, &action_));
  }

  void Compute(OpKernelContext* ctx) override {
    RefCountPtr<Var> variable;
    OP_REQUIRES_OK(ctx, LookupVariable(ctx, ctx->input(0), &variable));
    // Whoever assigns to the variable waits until the rows are copied. A second
    // reference to the tensor in place of the lock would make the next sparse
    // update copy the table; a lock needs no mode of the variable, since
    // nothing outlives it that shares the table's memory.
    const tf_shared_lock lock(*variable->mu());
    OP_REQUIRES_OK(ctx, CheckReadable(ctx, *variable));
    OP_REQUIRES_OK(
        ctx, GatherIntoOutput(ctx, *variable->tensor(), batch_dims_, action_));
  }

 private:
  static absl::Status CheckReadable(OpKernelContext* ctx, Var& variable) {
    const std::string& name = ctx->input(0).scalar<ResourceHandle>()().name();
    if (!variable.is_initialized) {
      return absl::FailedPreconditionError(
          absl::StrCat("variable ", name, " is not initialized"));
    }
    const tensorflow::DataType expected = ctx->expected_output_dtype(0);
    const tensorflow::DataType found = variable.tensor()->dtype();
    if (found != expected) {
      return absl::InvalidArgumentError(
          absl::StrCat("Trying to read variable with wrong dtype. Expected ",
                       DataTypeString(expected), " got ", DataTypeString(found),
                       ", the dtype of variable ", name));
    }
    return absl::OkStatus();
  }

  int64_t batch_dims_;
  BadIndexAction action_;
};

class GatherV2GradOp final : public OpKernel {
 public:
  explicit GatherV2GradOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("batch_dims", &batch_dims_));
    OP_REQUIRES_OK(ctx, GetBadIndexAction(ctx, &action_));
    OP_REQUIRES_OK(ctx, SumOf(ctx->input_type(0), &sum_));
  }

  void Compute(OpKernelContext* ctx) override {
    const Tensor& grad = ctx->input(0);
    const Tensor& indices = ctx->input(1);
    const Tensor& params_shape = ctx->input(2);
    OP_REQUIRES(ctx, params_shape.dims() == 1,
                absl::InvalidArgumentError("params_shape must be a vector"));
    OP_REQUIRES(ctx, params_shape.NumElements() <= kMaxRank,
                absl::InvalidArgumentError(absl::StrCat(
                    "params_shape has ", params_shape.NumElements(),
                    " elements, more than ", kMaxRank, " dimensions")));
    int64_t axis;
    OP_REQUIRES_OK(ctx, ScalarValue(ctx->input(3), "axis", &axis));
    const ShapeView params{static_cast<const int64_t*>(params_shape.data()),
                           static_cast<int>(params_shape.NumElements())};
    OP_REQUIRES_OK(ctx, RuleStatus(ParamsShapeError(params)));
    TensorShape params_grad_shape;
    OP_REQUIRES_OK(ctx, MakeTensorShape(params, &params_grad_shape));
    const TensorDims indices_dims(indices.shape());
    const TensorDims grad_dims(grad.shape());
    const GatherShapes shapes =
        InferGatherShapes(params, indices_dims.view(), axis, batch_dims_);
    OP_REQUIRES_OK(ctx, RuleStatus(shapes.error));
    OP_REQUIRES_OK(ctx, RuleStatus(GatherGradShapeError(grad_dims.view(),
                                                        shapes.output())));
    Tensor* params_grad = nullptr;
    OP_REQUIRES_OK(ctx,
                   ctx->allocate_output(0, params_grad_shape, &params_grad));

    GatherGeometry geometry = shapes.geometry;
    geometry.inner = SaturatingMultiply(geometry.inner, sum_.lanes);
    const WorkerThreads workers(ctx);
    TensorScratch scratch(ctx);
    const Outcome outcome =
        GatherGrad(geometry, sum_.type, grad.data(), indices.data(),
                   IndexTypeOf(indices.dtype()), action_, workers, scratch,
                   params_grad->data());
    VLOG(1) << name() << ": " << geometry.batches << " x " << geometry.outer
            << " x " << geometry.indices_per_batch << " rows of "
            << geometry.inner << " sums into " << geometry.rows << " rows, "
            << workers.max_threads() << " threads";
    OP_REQUIRES_OK(ctx, GatherStatus(outcome, indices, geometry.rows, scratch));
  }

 private:
  int64_t batch_dims_;
  BadIndexAction action_;
  Sum sum_;
};

class GatherV2SparseGradOp final : public OpKernel {
 public:
  explicit GatherV2SparseGradOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, GetBadIndexAction(ctx, &action_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("unique", &unique_));
    OP_REQUIRES_OK(ctx, SumOf(ctx->input_type(0), &sum_));
  }

  void Compute(OpKernelContext* ctx) override {
    const Tensor& grad = ctx->input(0);
    const Tensor& indices = ctx->input(1);
    int64_t params_rows;
    OP_REQUIRES_OK(ctx,
                   ScalarValue(ctx->input(2), "params_rows", &params_rows));
    OP_REQUIRES_OK(ctx,
                   RuleStatus(NegativeCountError("params_rows", params_rows)));
    const TensorDims grad_dims(grad.shape());
    const TensorDims indices_dims(indices.shape());
    OP_REQUIRES_OK(ctx, RuleStatus(SparseGradShapeError(grad_dims.view(),
                                                        indices_dims.view())));
    Tensor* slots = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(2, indices.shape(), &slots));

    const WorkerThreads workers(ctx);
    TensorScratch scratch(ctx);
    SparseGradPlan plan;
    const Outcome outcome =
        PlanSparseGrad(indices.NumElements(), params_rows, indices.data(),
                       IndexTypeOf(indices.dtype()), action_, unique_, workers,
                       scratch, &plan, static_cast<int64_t*>(slots->data()));
    OP_REQUIRES_OK(ctx, GatherStatus(outcome, indices, params_rows, scratch));

    Tensor* rows = nullptr;
    OP_REQUIRES_OK(ctx,
                   ctx->allocate_output(1, TensorShape({plan.slices}), &rows));
    std::copy(plan.rows, plan.rows + plan.slices,
              static_cast<int64_t*>(rows->data()));
    OP_REQUIRES_OK(ctx, SetValues(ctx, grad, indices.dims(), plan, workers));
    VLOG(1) << name() << ": " << indices.NumElements() << " indices into "
            << plan.slices << " slices" << (plan.is_identity ? ", shared" : "");
  }

 private:
  absl::Status SetValues(OpKernelContext* ctx, const Tensor& grad,
                         int indices_rank, const SparseGradPlan& plan,
                         const ParallelFor& parallel) {
    TensorShape values_shape({plan.slices});
    for (int i = indices_rank; i < grad.dims(); ++i) {
      TF_RETURN_IF_ERROR(values_shape.AddDimWithStatus(grad.dim_size(i)));
    }
    if (plan.is_identity) {
      Tensor values;
      if (!values.CopyFrom(grad, values_shape)) {
        return absl::InternalError("values has another size than grad");
      }
      ctx->set_output(0, values);
      return absl::OkStatus();
    }
    Tensor* values = nullptr;
    TF_RETURN_IF_ERROR(ctx->allocate_output(0, values_shape, &values));
    if (values->NumElements() > 0) {
      const int64_t inner = values->NumElements() / plan.slices * sum_.lanes;
      FillSparseGradValues(plan, inner, sum_.type, grad.data(), parallel,
                           values->data());
    }
    return absl::OkStatus();
  }

  BadIndexAction action_;
  bool unique_;
  Sum sum_;
};

REGISTER_KERNEL_BUILDER(Name("GatherStitch>GatherV2").Device(DEVICE_CPU),
                        GatherV2Op);
REGISTER_KERNEL_BUILDER(Name("GatherStitch>ResourceGather").Device(DEVICE_CPU),
                        ResourceGatherOp);
REGISTER_KERNEL_BUILDER(Name("GatherStitch>GatherV2Grad").Device(DEVICE_CPU),
                        GatherV2GradOp);
REGISTER_KERNEL_BUILDER(
    Name("GatherStitch>GatherV2SparseGrad").Device(DEVICE_CPU),
    GatherV2SparseGradOp);

}  // namespace
}  // namespace gather_stitch
