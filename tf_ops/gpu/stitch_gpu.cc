// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include <cstdint>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/types.h"
#include "tf_ops/core/gpu/stitch.h"
#include "tf_ops/gpu/device_stream.h"
#include "tf_ops/gpu/gpu_adapter.h"
#include "tf_ops/kernels/stitch_tensors.h"

namespace gather_stitch {
namespace {

using tensorflow::DEVICE_GPU;
using tensorflow::OpInputList;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// The inputs of a stitch; valid as long as the op runs.
struct StitchCall {
  OpInputList indices;
  OpInputList data;
  TensorShape constant;
  GpuStream stream;

  absl::Status Prepare(OpKernelContext* ctx) {
    TF_RETURN_IF_ERROR(GetDeviceStream(ctx, &stream));
    TF_RETURN_IF_ERROR(ctx->input_list("indices", &indices));
    TF_RETURN_IF_ERROR(ctx->input_list("data", &data));
    return StitchConstant(indices, data, &constant);
  }

  bool has_indices() const {
    for (const Tensor& tensor : indices) {
      if (tensor.NumElements() > 0) return true;
    }
    return false;
  }

  IndexType index_type() const { return IndexTypeOf(indices[0].dtype()); }

  // A bad index in words.
  absl::Status StatusOf(const gpu::Report& report, int64_t merged_rows) const {
    const Outcome outcome = gpu::StitchOutcome(
        report, StitchInputs(indices).data(), indices.size());
    return StitchStatus(outcome, indices, merged_rows);
  }

  // Adds the whole stitch to the stream.
  absl::Status Stitch(OpKernelContext* ctx, int64_t merged_rows,
                      BadIndexAction action, gpu::Report* report) const {
    Tensor* merged = nullptr;
    TF_RETURN_IF_ERROR(AllocateMerged(ctx, merged_rows, constant, &merged));
    const int64_t row_bytes = SaturatingMultiply(
        constant.num_elements(), tensorflow::DataTypeSize(merged->dtype()));
    TensorScratch scratch(ctx);
    const GpuStatus status =
        gpu::StitchRows(StitchInputs(indices, data).data(), indices.size(),
                        index_type(), row_bytes, merged_rows, action, scratch,
                        report, merged->data(), stream);
    return DeviceStatus(status, scratch);
  }
};

class ParallelDynamicStitchGpu {
 public:
  explicit ParallelDynamicStitchGpu(OpKernelConstruction* /*ctx*/) {}

  absl::Status Run(OpKernelContext* ctx, PendingReport* report) const {
    StitchCall call;
    TF_RETURN_IF_ERROR(call.Prepare(ctx));
    if (!call.has_indices()) {
      return call.Stitch(ctx, 0, BadIndexAction::kZero, nullptr);
    }
    TF_RETURN_IF_ERROR(report->Prepare(ctx, call.stream));
    TF_RETURN_IF_ERROR(DeviceStatus(gpu::FindLargestIndex(
        StitchInputs(call.indices).data(), call.indices.size(),
        call.index_type(), report->on_device(), call.stream)));
    return report->Fetch(call.stream, [ctx, call](const gpu::Report& found) {
      TF_RETURN_IF_ERROR(call.StatusOf(found, INT64_MAX));
      // All are in range now; those that changed meanwhile name no row.
      return call.Stitch(ctx, found.number + 1, BadIndexAction::kZero, nullptr);
    });
  }
};

class ParallelDynamicStitchV2Gpu {
 public:
  explicit ParallelDynamicStitchV2Gpu(OpKernelConstruction* ctx) {
    OP_REQUIRES_OK(ctx, GetGpuBadIndexAction(ctx, &action_));
  }

  absl::Status Run(OpKernelContext* ctx, PendingReport* report) const {
    StitchCall call;
    TF_RETURN_IF_ERROR(call.Prepare(ctx));
    int64_t merged_rows;
    TF_RETURN_IF_ERROR(GivenMergedRows(ctx, call.indices, &merged_rows));
    if (report == nullptr || !call.has_indices()) {
      return call.Stitch(ctx, merged_rows, action_, nullptr);
    }
    TF_RETURN_IF_ERROR(report->Prepare(ctx, call.stream));
    TF_RETURN_IF_ERROR(
        call.Stitch(ctx, merged_rows, action_, report->on_device()));
    return report->Fetch(call.stream,
                         [call, merged_rows](const gpu::Report& found) {
                           return call.StatusOf(found, merged_rows);
                         });
  }

 private:
  BadIndexAction action_;
};

class ParallelDynamicStitchGradGpu {
 public:
  explicit ParallelDynamicStitchGradGpu(OpKernelConstruction* /*ctx*/) {}

  absl::Status Run(OpKernelContext* ctx, PendingReport* /*report*/) const {
    GpuStream stream;
    TF_RETURN_IF_ERROR(GetDeviceStream(ctx, &stream));
    OpInputList indices;
    TF_RETURN_IF_ERROR(ctx->input_list("indices", &indices));
    TensorShape constant;
    std::vector<void*> data_grads;
    TF_RETURN_IF_ERROR(PrepareStitchGrad(ctx, indices, &constant, &data_grads));
    const Tensor& grad = ctx->input(0);
    TensorScratch scratch(ctx);
    const GpuStatus status = gpu::StitchGradRows(
        StitchInputs(indices).data(), indices.size(),
        IndexTypeOf(indices[0].dtype()),
        SaturatingMultiply(constant.num_elements(),
                           tensorflow::DataTypeSize(grad.dtype())),
        grad.dim_size(0), grad.data(), scratch, data_grads.data(), stream);
    return DeviceStatus(status, scratch);
  }
};

// The host has to learn the number of rows.
REGISTER_KERNEL_BUILDER(Name("GatherStitch>ParallelDynamicStitch")
                            .Device(DEVICE_GPU)
                            .TypeConstraint("T", FixedSizeDtypes()),
                        AsyncGpuKernel<ParallelDynamicStitchGpu>);

REGISTER_KERNEL_BUILDER(Name("GatherStitch>ParallelDynamicStitchV2")
                            .Device(DEVICE_GPU)
                            .HostMemory("merged_rows")
                            .TypeConstraint("T", FixedSizeDtypes())
                            .AttrConstraint("bad_indices_policy",
                                            PolicyWithReport()),
                        AsyncGpuKernel<ParallelDynamicStitchV2Gpu>);
REGISTER_KERNEL_BUILDER(Name("GatherStitch>ParallelDynamicStitchV2")
                            .Device(DEVICE_GPU)
                            .HostMemory("merged_rows")
                            .TypeConstraint("T", FixedSizeDtypes())
                            .AttrConstraint("bad_indices_policy",
                                            PoliciesWithoutReport()),
                        GpuKernel<ParallelDynamicStitchV2Gpu>);

REGISTER_KERNEL_BUILDER(Name("GatherStitch>ParallelDynamicStitchGrad")
                            .Device(DEVICE_GPU)
                            .TypeConstraint("T", FixedSizeDtypes()),
                        GpuKernel<ParallelDynamicStitchGradGpu>);

}  // namespace
}  // namespace gather_stitch
