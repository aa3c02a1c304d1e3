// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstdint>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/platform/logging.h"
#include "tensorflow/core/platform/mutex.h"
#include "tf_ops/core/gather_geometry.h"
#include "tf_ops/core/gather_grad.h"
#include "tf_ops/kernels/adapter.h"
#include "tf_ops/kernels/gather_inputs.h"
#include "tf_ops/kernels/gather_tensor.h"
#include "tf_ops/ops/sum_dtypes.h"

namespace gather_stitch {
namespace {

using tensorflow::DEVICE_CPU;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::tf_shared_lock;
using tensorflow::Var;
using tensorflow::core::RefCountPtr;

absl::Status GatherIntoOutput(OpKernelContext* ctx, const Tensor& params,
                              int64_t batch_dims, BadIndexAction action) {
  GatherGeometry geometry;
  Tensor* output = nullptr;
  TF_RETURN_IF_ERROR(
      PrepareGather(ctx, params, batch_dims, &geometry, &output));
  return GatherTensor(ctx, geometry, params, ctx->input(1), action, output);
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
    GatherGeometry geometry;
    Tensor* params_grad = nullptr;
    OP_REQUIRES_OK(ctx, PrepareGatherGrad(ctx, batch_dims_, sum_.lanes,
                                          &geometry, &params_grad));
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
    Tensor* slots = nullptr;
    OP_REQUIRES_OK(ctx, PrepareSparseGrad(ctx, &params_rows, &slots));
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
    OP_REQUIRES_OK(ctx, SetValues(ctx, grad, plan, workers));
    VLOG(1) << name() << ": " << indices.NumElements() << " indices into "
            << plan.slices << " slices" << (plan.is_identity ? ", shared" : "");
  }

 private:
  absl::Status SetValues(OpKernelContext* ctx, const Tensor& grad,
                         const SparseGradPlan& plan,
                         const ParallelFor& parallel) {
    TensorShape values_shape;
    TF_RETURN_IF_ERROR(SparseValuesShape(ctx, plan.slices, &values_shape));
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
