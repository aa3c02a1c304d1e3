// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tf_ops/gpu/gpu_adapter.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/common_runtime/device/device_event_mgr.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/platform/stream_executor.h"
#include "tf_ops/ops/sum_dtypes.h"

namespace gather_stitch {

using tensorflow::DataType;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::TensorShape;

absl::Status GetGpuBadIndexAction(OpKernelConstruction* ctx,
                                  BadIndexAction* action) {
  TF_RETURN_IF_ERROR(GetBadIndexAction(ctx, action));
  std::string policy;
  TF_RETURN_IF_ERROR(ctx->GetAttr("bad_indices_policy", &policy));
  if (policy == "DEFAULT") *action = BadIndexAction::kZero;
  return absl::OkStatus();
}

std::string PolicyWithReport() { return "ERROR"; }

absl::Span<const std::string> PoliciesWithoutReport() {
  static const std::vector<std::string>& policies =
      *new std::vector<std::string>{"DEFAULT", "IGNORE", "CLIP", "WRAP"};
  return policies;
}

absl::Status DeviceStatus(const GpuStatus& status,
                          const TensorScratch& scratch) {
  return status.code == GpuStatus::kOutOfMemory ? scratch.status()
                                                : DeviceStatus(status);
}

absl::Status DeviceStatus(const GpuStatus& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("CUDA error ", status.error, ": ", status.words));
}

void ThenOnHost(OpKernelContext* ctx, std::function<void()> then) {
  stream_executor::Stream* const stream = ctx->op_device_context()->stream();
  ctx->device()->tensorflow_accelerator_device_info()->event_mgr->ThenExecute(
      stream, [stream, then = std::move(then)] {
        const std::unique_ptr<stream_executor::ActivateContext> is_current =
            stream->parent()->Activate();
        then();
      });
}

absl::Status PendingReport::Prepare(OpKernelContext* ctx, GpuStream stream) {
  constexpr int64_t kBytes = sizeof(gpu::Report);
  TF_RETURN_IF_ERROR(ctx->allocate_temp(tensorflow::DT_UINT8,
                                        TensorShape({kBytes}), &device_));
  tensorflow::AllocatorAttributes pinned;
  pinned.set_on_host(true);
  pinned.set_gpu_compatible(true);
  TF_RETURN_IF_ERROR(ctx->allocate_temp(tensorflow::DT_UINT8,
                                        TensorShape({kBytes}), &host_, pinned));
  return DeviceStatus(gpu::ClearReport(on_device(), stream));
}

gpu::Report* PendingReport::on_device() {
  return static_cast<gpu::Report*>(device_.data());
}

absl::Status PendingReport::Fetch(GpuStream stream, Then then) {
  then_ = std::move(then);
  return DeviceStatus(gpu::CopyReport(static_cast<gpu::Report*>(host_.data()),
                                      on_device(), stream));
}

absl::Status PendingReport::Finish() const {
  return then_(*static_cast<const gpu::Report*>(host_.data()));
}

namespace {

template <typename Predicate>
std::vector<DataType> DtypesWhere(const Predicate& predicate) {
  std::vector<DataType> dtypes;
  for (int i = 1; i < tensorflow::kDataTypeRefOffset; ++i) {
    if (!tensorflow::DataType_IsValid(i)) continue;
    const DataType dtype = static_cast<DataType>(i);
    if (predicate(dtype)) dtypes.push_back(dtype);
  }
  return dtypes;
}

}  // namespace

const std::vector<DataType>& FixedSizeDtypes() {
  static const std::vector<DataType>& dtypes =
      *new std::vector<DataType>(DtypesWhere(
          [](DataType dtype) { return tensorflow::DataTypeSize(dtype) > 0; }));
  return dtypes;
}

const std::vector<DataType>& SumDtypes() {
  static const std::vector<DataType>& dtypes =
      *new std::vector<DataType>(DtypesWhere([](DataType dtype) {
        Sum sum;
        return SumOf(dtype, &sum).ok();
      }));
  return dtypes;
}

}  // namespace gather_stitch
