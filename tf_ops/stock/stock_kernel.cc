// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tf_ops/stock/stock_kernel.h"

#include <limits>
#include <string_view>

#include "tensorflow/core/framework/resource_handle.h"
#include "tensorflow/core/framework/resource_mgr.h"

namespace gather_stitch {

using tensorflow::DataType;
using tensorflow::DataTypeString;
using tensorflow::OpKernelContext;
using tensorflow::ResourceHandle;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::Var;
using tensorflow::core::RefCountPtr;

namespace {

constexpr std::string_view kOps[] = {
    "Gather",
    "GatherV2",
    "ResourceGather",
    "DynamicStitch",
    "ParallelDynamicStitch",
    "UnsortedSegmentSum",
    "ResourceScatterAdd",
    "ResourceScatterSub",
};
constexpr int kNumOps = sizeof(kOps) / sizeof(kOps[0]);

std::atomic<int64_t> calls[kNumOps];

int OpNumber(std::string_view op) {
  int number = 0;
  while (number < kNumOps - 1 && kOps[number] != op) ++number;
  return number;
}

}  // namespace

std::atomic<int64_t>& StockKernel::CallsOf(const std::string& op) {
  return calls[OpNumber(op)];
}

absl::Status AppendDims(const TensorShape& from, int begin, int end,
                        TensorShape* to) {
  for (int i = begin; i < end; ++i) {
    TF_RETURN_IF_ERROR(to->AddDimWithStatus(from.dim_size(i)));
  }
  return absl::OkStatus();
}

int64_t LargestIndex(DataType index_dtype) {
  switch (index_dtype) {
    case tensorflow::DT_INT16:
      return std::numeric_limits<int16_t>::max();
    case tensorflow::DT_INT32:
      return std::numeric_limits<int32_t>::max();
    default:
      return std::numeric_limits<int64_t>::max();
  }
}

absl::Status CheckRowsFitIndices(const Tensor& params, int axis,
                                 DataType index_dtype) {
  const int64_t rows = params.dim_size(axis);
  const int64_t largest = LargestIndex(index_dtype);
  if (rows <= largest) return absl::OkStatus();
  return Invalid("params.shape[", axis, "] too large for ",
                 DataTypeString(index_dtype), " indexing: ", rows, " > ",
                 largest);
}

absl::Status LookupVariable(OpKernelContext* ctx, RefCountPtr<Var>* variable) {
  ResourceHandle handle;
  TF_RETURN_IF_ERROR(tensorflow::HandleFromInput(ctx, 0, &handle));
  return tensorflow::LookupResource(ctx, handle, variable);
}

absl::Status CheckVariableDtype(OpKernelContext* ctx, Var& variable,
                                DataType expected) {
  const DataType found = variable.tensor()->dtype();
  if (found == expected) return absl::OkStatus();
  return Invalid("Trying to access variable with wrong dtype. Expected ",
                 DataTypeString(expected), " got ", DataTypeString(found),
                 ", the dtype of the variable of ", ctx->op_kernel().name());
}

}  // namespace gather_stitch

// How often a kernel of this library has run since it was loaded, for an op of
// the list above.
extern "C" __attribute__((visibility("default"))) int64_t
gather_stitch_stock_calls(const char* op) {
  return gather_stitch::calls[gather_stitch::OpNumber(op)].load(
      std::memory_order_relaxed);
}
