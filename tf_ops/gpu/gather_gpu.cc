// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include <cstdint>
#include <memory>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/platform/mutex.h"
#include "tensorflow/core/util/determinism.h"
#include "tf_ops/core/error_words.h"
#include "tf_ops/core/gather_geometry.h"
#include "tf_ops/core/gpu/gather.h"
#include "tf_ops/core/gpu/gather_grad.h"
#include "tf_ops/gpu/device_stream.h"
#include "tf_ops/gpu/gpu_adapter.h"
#include "tf_ops/kernels/gather_inputs.h"
#include "tf_ops/ops/sum_dtypes.h"

namespace gather_stitch {
namespace {

using tensorflow::DEVICE_GPU;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::tf_shared_lock;
using tensorflow::Var;
using tensorflow::core::RefCountPtr;

// The words of a bad index of input 1.
absl::Status IndexStatus(OpKernelContext* ctx, const Outcome& outcome,
                         int64_t rows) {
  if (outcome.ok()) return absl::OkStatus();
  const Tensor& indices = ctx->input(1);
  return RuleStatus(GatherIndexError(outcome,
                                     TensorDims(indices.shape()).view(),
                                     IndexTypeOf(indices.dtype()), rows));
}

PendingReport::Then IndexStatusLater(OpKernelContext* ctx, int64_t rows) {
  return [ctx, rows](const gpu::Report& report) {
    return IndexStatus(ctx, report.outcome(), rows);
  };
}

absl::Status CheckHasRows(OpKernelContext* ctx, BadIndexAction action,
                          int64_t rows) {
  const TensorDims dims(ctx->input(1).shape());
  return RuleStatus(NoRowsError(action, dims.view(), rows));
}

// Gathers from `params` at input 1 along the axis in input 2, into output 0.
absl::Status RunGather(OpKernelContext* ctx, const Tensor& params,
                       int64_t batch_dims, BadIndexAction action,
                       PendingReport* report) {
  GpuStream stream;
  TF_RETURN_IF_ERROR(GetDeviceStream(ctx, &stream));
  GatherGeometry geometry;
  Tensor* output = nullptr;
  TF_RETURN_IF_ERROR(
      PrepareGather(ctx, params, batch_dims, &geometry, &output));
  if (!geometry.has_indices()) return absl::OkStatus();
  TF_RETURN_IF_ERROR(CheckHasRows(ctx, action, geometry.rows));
  if (report != nullptr) TF_RETURN_IF_ERROR(report->Prepare(ctx, stream));
  const Tensor& indices = ctx->input(1);
  TF_RETURN_IF_ERROR(DeviceStatus(gpu::GatherRows(
      geometry, RowBytes(geometry, params.dtype()), params.data(),
      indices.data(), IndexTypeOf(indices.dtype()), action,
      report == nullptr ? nullptr : report->on_device(), output->data(),
      stream)));
  if (report == nullptr) return absl::OkStatus();
  return report->Fetch(stream, IndexStatusLater(ctx, geometry.rows));
}

class GatherV2Gpu {
 public:
  explicit GatherV2Gpu(OpKernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("batch_dims", &batch_dims_));
    OP_REQUIRES_OK(ctx, GetGpuBadIndexAction(ctx, &action_));
  }

  absl::Status Run(OpKernelContext* ctx, PendingReport* report) const {
    return RunGather(ctx, ctx->input(0), batch_dims_, action_, report);
  }

 private:
  int64_t batch_dims_;
  BadIndexAction action_;
};

class ResourceGatherGpu {
 public:
  explicit ResourceGatherGpu(OpKernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("batch_dims", &batch_dims_));
    OP_REQUIRES_OK(ctx, GetGpuBadIndexAction(ctx, &action_));
  }

  absl::Status Run(OpKernelContext* ctx, PendingReport* report) const {
    RefCountPtr<Var> variable;
    TF_RETURN_IF_ERROR(LookupVariable(ctx, ctx->input(0), &variable));
    // Whoever assigns to the variable waits until the kernel is on the stream,
    // and what they do to its memory comes after it there.
    const tf_shared_lock lock(*variable->mu());
    TF_RETURN_IF_ERROR(CheckReadable(ctx, *variable));
    return RunGather(ctx, *variable->tensor(), batch_dims_, action_, report);
  }

 private:
  int64_t batch_dims_;
  BadIndexAction action_;
};

class GatherV2GradGpu {
 public:
  explicit GatherV2GradGpu(OpKernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("batch_dims", &batch_dims_));
    OP_REQUIRES_OK(ctx, GetGpuBadIndexAction(ctx, &action_));
    OP_REQUIRES_OK(ctx, SumOf(ctx->input_type(0), &sum_));
  }

  absl::Status Run(OpKernelContext* ctx, PendingReport* report) const {
    GpuStream stream;
    TF_RETURN_IF_ERROR(GetDeviceStream(ctx, &stream));
    GatherGeometry geometry;
    Tensor* params_grad = nullptr;
    TF_RETURN_IF_ERROR(PrepareGatherGrad(ctx, batch_dims_, sum_.lanes,
                                         &geometry, &params_grad));
    TF_RETURN_IF_ERROR(CheckHasRows(ctx, action_, geometry.rows));
    if (!geometry.has_indices()) report = nullptr;
    if (report != nullptr) TF_RETURN_IF_ERROR(report->Prepare(ctx, stream));
    const Tensor& indices = ctx->input(1);
    TensorScratch scratch(ctx);
    const GpuStatus status = gpu::GatherGrad(
        geometry, sum_.type, ctx->input(0).data(), indices.data(),
        IndexTypeOf(indices.dtype()), action_,
        tensorflow::OpDeterminismRequired() ? gpu::SumOrder::kFixed
                                            : gpu::SumOrder::kAny,
        scratch, report == nullptr ? nullptr : report->on_device(),
        params_grad->data(), stream);
    TF_RETURN_IF_ERROR(DeviceStatus(status, scratch));
    if (report == nullptr) return absl::OkStatus();
    return report->Fetch(stream, IndexStatusLater(ctx, geometry.rows));
  }

 private:
  int64_t batch_dims_;
  BadIndexAction action_;
  Sum sum_;
};

class GatherV2SparseGradGpu {
 public:
  explicit GatherV2SparseGradGpu(OpKernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, GetGpuBadIndexAction(ctx, &action_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("unique", &unique_));
    OP_REQUIRES_OK(ctx, SumOf(ctx->input_type(0), &sum_));
  }

  absl::Status Run(OpKernelContext* ctx, PendingReport* report) const {
    GpuStream stream;
    TF_RETURN_IF_ERROR(GetDeviceStream(ctx, &stream));
    int64_t params_rows;
    Tensor* slots = nullptr;
    TF_RETURN_IF_ERROR(PrepareSparseGrad(ctx, &params_rows, &slots));
    TF_RETURN_IF_ERROR(CheckHasRows(ctx, action_, params_rows));
    const Tensor& indices = ctx->input(1);
    if (indices.NumElements() == 0) {
      return AllocateSlices(ctx, 0, nullptr, nullptr);
    }
    TF_RETURN_IF_ERROR(report->Prepare(ctx, stream));
    // Both live until the slices are filled.
    const auto scratch = std::make_shared<TensorScratch>(ctx);
    const auto plan = std::make_shared<gpu::SparseGradPlan>();
    const GpuStatus status =
        gpu::PlanSparseGrad(indices.NumElements(), params_rows, indices.data(),
                            IndexTypeOf(indices.dtype()), action_, unique_,
                            *scratch, report->on_device(), plan.get(),
                            static_cast<int64_t*>(slots->data()), stream);
    TF_RETURN_IF_ERROR(DeviceStatus(status, *scratch));
    return report->Fetch(stream, [=, sum = sum_](const gpu::Report& found) {
      TF_RETURN_IF_ERROR(IndexStatus(ctx, found.outcome(), params_rows));
      return FillSlices(ctx, sum, found.number + 1, *plan, *scratch, stream);
    });
  }

 private:
  static absl::Status AllocateSlices(OpKernelContext* ctx, int64_t slices,
                                     Tensor** rows, Tensor** values) {
    Tensor* unused = nullptr;
    TF_RETURN_IF_ERROR(ctx->allocate_output(1, TensorShape({slices}),
                                            rows == nullptr ? &unused : rows));
    TensorShape values_shape;
    TF_RETURN_IF_ERROR(SparseValuesShape(ctx, slices, &values_shape));
    return ctx->allocate_output(0, values_shape,
                                values == nullptr ? &unused : values);
  }

  static absl::Status FillSlices(OpKernelContext* ctx, const Sum& sum,
                                 int64_t slices,
                                 const gpu::SparseGradPlan& plan,
                                 TensorScratch& scratch, GpuStream stream) {
    Tensor* rows = nullptr;
    Tensor* values = nullptr;
    TF_RETURN_IF_ERROR(AllocateSlices(ctx, slices, &rows, &values));
    if (slices == 0) return absl::OkStatus();
    const int64_t inner = values->NumElements() / slices * sum.lanes;
    return DeviceStatus(
        gpu::FillSparseGrad(plan, inner, sum.type, ctx->input(0).data(),
                            scratch, static_cast<int64_t*>(rows->data()),
                            values->data(), stream),
        scratch);
  }

  BadIndexAction action_;
  bool unique_;
  Sum sum_;
};

REGISTER_KERNEL_BUILDER(Name("GatherStitch>GatherV2")
                            .Device(DEVICE_GPU)
                            .HostMemory("axis")
                            .TypeConstraint("Tparams", FixedSizeDtypes())
                            .AttrConstraint("bad_indices_policy",
                                            PolicyWithReport()),
                        AsyncGpuKernel<GatherV2Gpu>);
REGISTER_KERNEL_BUILDER(Name("GatherStitch>GatherV2")
                            .Device(DEVICE_GPU)
                            .HostMemory("axis")
                            .TypeConstraint("Tparams", FixedSizeDtypes())
                            .AttrConstraint("bad_indices_policy",
                                            PoliciesWithoutReport()),
                        GpuKernel<GatherV2Gpu>);

REGISTER_KERNEL_BUILDER(Name("GatherStitch>ResourceGather")
                            .Device(DEVICE_GPU)
                            .HostMemory("resource")
                            .HostMemory("axis")
                            .TypeConstraint("dtype", FixedSizeDtypes())
                            .AttrConstraint("bad_indices_policy",
                                            PolicyWithReport()),
                        AsyncGpuKernel<ResourceGatherGpu>);
REGISTER_KERNEL_BUILDER(Name("GatherStitch>ResourceGather")
                            .Device(DEVICE_GPU)
                            .HostMemory("resource")
                            .HostMemory("axis")
                            .TypeConstraint("dtype", FixedSizeDtypes())
                            .AttrConstraint("bad_indices_policy",
                                            PoliciesWithoutReport()),
                        GpuKernel<ResourceGatherGpu>);

REGISTER_KERNEL_BUILDER(Name("GatherStitch>GatherV2Grad")
                            .Device(DEVICE_GPU)
                            .HostMemory("params_shape")
                            .HostMemory("axis")
                            .TypeConstraint("T", SumDtypes())
                            .AttrConstraint("bad_indices_policy",
                                            PolicyWithReport()),
                        AsyncGpuKernel<GatherV2GradGpu>);
REGISTER_KERNEL_BUILDER(Name("GatherStitch>GatherV2Grad")
                            .Device(DEVICE_GPU)
                            .HostMemory("params_shape")
                            .HostMemory("axis")
                            .TypeConstraint("T", SumDtypes())
                            .AttrConstraint("bad_indices_policy",
                                            PoliciesWithoutReport()),
                        GpuKernel<GatherV2GradGpu>);

// The host has to learn the number of slices.
REGISTER_KERNEL_BUILDER(Name("GatherStitch>GatherV2SparseGrad")
                            .Device(DEVICE_GPU)
                            .HostMemory("params_rows")
                            .TypeConstraint("T", SumDtypes()),
                        AsyncGpuKernel<GatherV2SparseGradGpu>);

}  // namespace
}  // namespace gather_stitch
