// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/platform/stream_executor.h"
#include "tf_ops/gpu/device_stream.h"

namespace gather_stitch {

absl::Status GetDeviceStream(tensorflow::OpKernelContext* ctx,
                             GpuStream* stream) {
  stream->handle =
      ctx->op_device_context()->stream()->platform_specific_handle().stream;
  if (stream->handle != nullptr) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      ctx->op_kernel().type_string(), ": the device ", ctx->device()->name(),
      " has no CUDA stream, and gather_stitch has kernels for CUDA and for the "
      "CPU only"));
}

}  // namespace gather_stitch
