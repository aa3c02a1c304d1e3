// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// Between TensorFlow and the core's GPU functions: what kernels/adapter.h is on
// a CPU. Nothing here knows an op.

#ifndef GATHER_STITCH_GPU_GPU_ADAPTER_H_
#define GATHER_STITCH_GPU_GPU_ADAPTER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/types.pb.h"
#include "tf_ops/core/gpu/report.h"
#include "tf_ops/core/gpu/stream.h"
#include "tf_ops/core/indices.h"
#include "tf_ops/kernels/adapter.h"

namespace gather_stitch {

// The action of attr bad_indices_policy on a GPU: DEFAULT gives zeros.
absl::Status GetGpuBadIndexAction(tensorflow::OpKernelConstruction* ctx,
                                  BadIndexAction* action);

// The policy for AsyncGpuKernel, where a report has to come back before the op
// is done, and those for GpuKernel.
std::string PolicyWithReport();
absl::Span<const std::string> PoliciesWithoutReport();

// OK, the reason why `scratch` had no memory, or Internal with CUDA's words.
absl::Status DeviceStatus(const GpuStatus& status,
                          const TensorScratch& scratch);
absl::Status DeviceStatus(const GpuStatus& status);

// What an op does after its kernels have reported: a report in device memory,
// the host memory that it is copied to, and what then becomes of it.
class PendingReport {
 public:
  // Allocates both and clears the device's.
  absl::Status Prepare(tensorflow::OpKernelContext* ctx, GpuStream stream);

  gpu::Report* on_device();

  // Adds the copy to the stream. `then` gets the report when the copy is done,
  // on another host thread, with the op's device current; its status is the
  // op's.
  using Then = std::function<absl::Status(const gpu::Report&)>;
  absl::Status Fetch(GpuStream stream, Then then);

  // Whether there was a Fetch.
  bool is_fetched() const { return then_ != nullptr; }

  absl::Status Finish() const;

 private:
  tensorflow::Tensor device_;
  tensorflow::Tensor host_;
  Then then_;
};

// An op is a class whose constructor reads the attrs and with
//
//   absl::Status Run(OpKernelContext* ctx, PendingReport* report) const
//
// which checks, allocates and adds kernels to the stream. It is done then, or,
// in an AsyncGpuKernel, when a report that it fetched has been dealt with.
// Neither holds up the host thread. `report` is null in a GpuKernel.
template <typename Op>
class GpuKernel final : public tensorflow::OpKernel {
 public:
  explicit GpuKernel(tensorflow::OpKernelConstruction* ctx)
      : OpKernel(ctx), op_(ctx) {}

  void Compute(tensorflow::OpKernelContext* ctx) override {
    OP_REQUIRES_OK(ctx, op_.Run(ctx, nullptr));
  }

 private:
  const Op op_;
};

// Calls `then` on a host thread, with the device of `ctx` current, when its
// stream has done what it was given until now.
void ThenOnHost(tensorflow::OpKernelContext* ctx, std::function<void()> then);

template <typename Op>
class AsyncGpuKernel final : public tensorflow::AsyncOpKernel {
 public:
  explicit AsyncGpuKernel(tensorflow::OpKernelConstruction* ctx)
      : AsyncOpKernel(ctx), op_(ctx) {}

  void ComputeAsync(tensorflow::OpKernelContext* ctx,
                    DoneCallback done) override {
    const auto report = std::make_shared<PendingReport>();
    OP_REQUIRES_OK_ASYNC(ctx, op_.Run(ctx, report.get()), done);
    if (!report->is_fetched()) {
      done();
      return;
    }
    ThenOnHost(ctx, [ctx, report, done] {
      OP_REQUIRES_OK_ASYNC(ctx, report->Finish(), done);
      done();
    });
  }

 private:
  const Op op_;
};

// The dtypes of plain bytes, and those that have a sum.
const std::vector<tensorflow::DataType>& FixedSizeDtypes();
const std::vector<tensorflow::DataType>& SumDtypes();

}  // namespace gather_stitch

#endif  // GATHER_STITCH_GPU_GPU_ADAPTER_H_
