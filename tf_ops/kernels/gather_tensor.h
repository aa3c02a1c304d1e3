// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// The gather of one tensor, of any dtype, once its shapes are known to be
// right.

#ifndef GATHER_STITCH_KERNELS_GATHER_TENSOR_H_
#define GATHER_STITCH_KERNELS_GATHER_TENSOR_H_

#include <cstdint>

#include "absl/status/status.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tf_ops/core/gather_geometry.h"
#include "tf_ops/core/indices.h"
#include "tf_ops/core/outcome.h"
#include "tf_ops/kernels/adapter.h"

namespace gather_stitch {

// Fills `output`, a new tensor of the shape that `geometry` was made for, on
// the worker threads of the op's device. Returns any Outcome.
Outcome GatherElements(tensorflow::OpKernelContext* ctx,
                       const GatherGeometry& geometry,
                       const tensorflow::Tensor& params,
                       const tensorflow::Tensor& indices, BadIndexAction action,
                       Scratch& scratch, tensorflow::Tensor* output);

// The same; InvalidArgument names a bad index.
absl::Status GatherTensor(tensorflow::OpKernelContext* ctx,
                          const GatherGeometry& geometry,
                          const tensorflow::Tensor& params,
                          const tensorflow::Tensor& indices,
                          BadIndexAction action, tensorflow::Tensor* output);

// The outcome of a function of core/gather.h or core/gather_grad.h.
absl::Status GatherStatus(const Outcome& outcome,
                          const tensorflow::Tensor& indices, int64_t rows,
                          const TensorScratch& scratch);

}  // namespace gather_stitch

#endif  // GATHER_STITCH_KERNELS_GATHER_TENSOR_H_
