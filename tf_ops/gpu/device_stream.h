// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// The stream of an OpKernel as the core takes it. The one function of the GPU
// library that its test build replaces.

#ifndef GATHER_STITCH_GPU_DEVICE_STREAM_H_
#define GATHER_STITCH_GPU_DEVICE_STREAM_H_

#include "absl/status/status.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tf_ops/core/gpu/stream.h"

namespace gather_stitch {

// Unimplemented where the device of type GPU is one that has no CUDA stream:
// another vendor's.
absl::Status GetDeviceStream(tensorflow::OpKernelContext* ctx,
                             GpuStream* stream);

}  // namespace gather_stitch

#endif  // GATHER_STITCH_GPU_DEVICE_STREAM_H_
