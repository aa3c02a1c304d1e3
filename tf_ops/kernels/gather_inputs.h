// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// The inputs of the gather ops, checked, and their outputs, allocated: what is
// the same on every device.

#ifndef GATHER_STITCH_KERNELS_GATHER_INPUTS_H_
#define GATHER_STITCH_KERNELS_GATHER_INPUTS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/platform/refcount.h"
#include "tf_ops/core/gather_geometry.h"

namespace gather_stitch {

// GatherV2 and ResourceGather: of `params` at input 1 along the axis in input
// 2, into output 0.
absl::Status PrepareGather(tensorflow::OpKernelContext* ctx,
                           const tensorflow::Tensor& params, int64_t batch_dims,
                           GatherGeometry* geometry,
                           tensorflow::Tensor** output);

// The bytes of a row of plain bytes; 0 where there is no output.
int64_t RowBytes(const GatherGeometry& geometry, tensorflow::DataType dtype);

// ResourceGather: the variable that a scalar handle points to, or an error that
// names it.
absl::Status LookupVariable(
    tensorflow::OpKernelContext* ctx, const tensorflow::Tensor& resource,
    tensorflow::core::RefCountPtr<tensorflow::Var>* variable);

// Whether it has a value of the dtype of output 0. The variable's mutex is
// held.
absl::Status CheckReadable(tensorflow::OpKernelContext* ctx,
                           tensorflow::Var& variable);

// GatherV2Grad, into output 0. `geometry` counts elements of `lanes` sums each.
absl::Status PrepareGatherGrad(tensorflow::OpKernelContext* ctx,
                               int64_t batch_dims, int64_t lanes,
                               GatherGeometry* geometry,
                               tensorflow::Tensor** params_grad);

// GatherV2SparseGrad: params_rows of input 2, and output 2.
absl::Status PrepareSparseGrad(tensorflow::OpKernelContext* ctx,
                               int64_t* params_rows,
                               tensorflow::Tensor** slots);

// The shape of its values: `slices` rows of grad.
absl::Status SparseValuesShape(tensorflow::OpKernelContext* ctx, int64_t slices,
                               tensorflow::TensorShape* shape);

}  // namespace gather_stitch

#endif  // GATHER_STITCH_KERNELS_GATHER_INPUTS_H_
