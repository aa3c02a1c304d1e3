// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// What the test build of _gpu_kernels.so has in place of CUDA: a stream is that
// of the emulated device, and a launch is a host callback on it, so that
// kernels run in stream order with all else that the device does.
//
//   void gather_stitch_set_block_order_seed(uint64_t seed)
//
// found with dlsym, draws another order in which the blocks of a grid run.

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/platform/stream_executor.h"
#include "tf_ops/core/gpu/device.h"
#include "tf_ops/gpu/device_stream.h"

namespace gather_stitch {
namespace {

std::atomic<uint64_t> block_order_seed{0};

}  // namespace

absl::Status GetDeviceStream(tensorflow::OpKernelContext* ctx,
                             GpuStream* stream) {
  stream->handle = ctx->op_device_context()->stream();
  return absl::OkStatus();
}

GpuStatus EnqueueHostTask(GpuStream stream, std::function<void()> task) {
  auto* const emulated = static_cast<stream_executor::Stream*>(stream.handle);
  if (emulated->DoHostCallback(std::move(task)).ok()) return GpuStatus();
  return GpuStatus::DeviceError(1, "the emulated stream takes no callback");
}

HostLaunch CurrentHostLaunch() { return {block_order_seed, 1}; }

}  // namespace gather_stitch

extern "C" __attribute__((visibility("default"))) void
gather_stitch_set_block_order_seed(uint64_t seed) {
  gather_stitch::block_order_seed = seed;
}
