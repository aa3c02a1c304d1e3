// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// What the kernels under stock names have in common. They check what stock's
// kernels check, in that order and in those words, and reject nothing that
// those accept, so that nobody can tell them from stock's but by a clock.

#ifndef GATHER_STITCH_STOCK_STOCK_KERNEL_H_
#define GATHER_STITCH_STOCK_STOCK_KERNEL_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/framework/types.h"

namespace gather_stitch {

// Counts its calls, for who wants proof that they arrive here.
class StockKernel : public tensorflow::OpKernel {
 public:
  explicit StockKernel(tensorflow::OpKernelConstruction* ctx)
      : OpKernel(ctx), calls_(CallsOf(type_string())) {}

  void Compute(tensorflow::OpKernelContext* ctx) final {
    calls_.fetch_add(1, std::memory_order_relaxed);
    OP_REQUIRES_OK(ctx, Run(ctx));
  }

 private:
  virtual absl::Status Run(tensorflow::OpKernelContext* ctx) const = 0;

  static std::atomic<int64_t>& CallsOf(const std::string& op);

  std::atomic<int64_t>& calls_;
};

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

// Appends from.dims[begin, end).
absl::Status AppendDims(const tensorflow::TensorShape& from, int begin, int end,
                        tensorflow::TensorShape* to);

// Stock counts rows in the type of the indices.
absl::Status CheckRowsFitIndices(const tensorflow::Tensor& params, int axis,
                                 tensorflow::DataType index_dtype);

// The largest number of an index dtype of stock: int16, int32, int64.
int64_t LargestIndex(tensorflow::DataType index_dtype);

// The variable of input 0. A handle in a tensor of any shape is taken, as by
// stock; that of no variable, or of one that was never set, is an error.
absl::Status LookupVariable(
    tensorflow::OpKernelContext* ctx,
    tensorflow::core::RefCountPtr<tensorflow::Var>* variable);

// Where stock ends the process: a kernel for another dtype than the variable's.
// The variable's mutex is held.
absl::Status CheckVariableDtype(tensorflow::OpKernelContext* ctx,
                                tensorflow::Var& variable,
                                tensorflow::DataType expected);

}  // namespace gather_stitch

#endif  // GATHER_STITCH_STOCK_STOCK_KERNEL_H_
