// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/platform/mutex.h"
#include "tf_ops/core/cost.h"
#include "tf_ops/core/error_words.h"
#include "tf_ops/core/scatter_add.h"
#include "tf_ops/kernels/adapter.h"
#include "tf_ops/kernels/gather_tensor.h"
#include "tf_ops/ops/sum_dtypes.h"
#include "tf_ops/stock/stock_dtypes.h"
#include "tf_ops/stock/stock_kernel.h"

namespace gather_stitch {
namespace {

using tensorflow::AllocatorAttributes;
using tensorflow::DataTypeString;
using tensorflow::DEVICE_CPU;
using tensorflow::mutex_lock;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShapeUtils;
using tensorflow::tf_shared_lock;
using tensorflow::Var;
using tensorflow::core::RefCountPtr;

// Whoever has read the variable keeps what was read, and the variable gets a
// copy of its own. Its mutex is held exclusively.
absl::Status LeaveToReaders(OpKernelContext* ctx, Tensor* table) {
  AllocatorAttributes attributes;
  attributes.set_gpu_compatible(true);
  attributes.set_nic_compatible(true);
  Tensor copy;
  TF_RETURN_IF_ERROR(
      ctx->allocate_temp(table->dtype(), table->shape(), &copy, attributes));
  const auto* const from = static_cast<const char*>(table->data());
  auto* const to = static_cast<char*>(copy.data());
  WorkerThreads(ctx).Run(static_cast<int64_t>(table->TotalBytes()),
                         GrainOf(kNanosecondsPerByte),
                         [from, to](int64_t begin, int64_t end) {
                           std::memcpy(to + begin, from + begin, end - begin);
                         });
  *table = copy;
  return absl::OkStatus();
}

// ResourceScatterAdd and ResourceScatterSub.
template <bool subtract>
class ResourceScatterOp final : public StockKernel {
 public:
  explicit ResourceScatterOp(OpKernelConstruction* ctx) : StockKernel(ctx) {
    OP_REQUIRES_OK(ctx, SumOf(ctx->input_type(2), &sum_));
  }

 private:
  absl::Status Run(OpKernelContext* ctx) const override {
    RefCountPtr<Var> variable;
    TF_RETURN_IF_ERROR(LookupVariable(ctx, &variable));
    if (variable->copy_on_read_mode.load()) {
      // Shared, as in stock: writers of rows do not wait for each other.
      const tf_shared_lock lock(*variable->mu());
      if (variable->copy_on_read_mode.load()) return Update(ctx, *variable);
    }
    // Stock turns that mode on here: to write to rows under a shared lock it
    // makes every later read of the variable a copy. Under an exclusive lock
    // the variable stays free to read, and there are at most as many copies:
    // each read is the reason of one at most, and of none if what was read is
    // gone by now.
    const mutex_lock lock(*variable->mu());
    return Update(ctx, *variable);
  }

  // The variable's mutex is held, exclusively if it is not in the mode in which
  // no reader shares its memory.
  absl::Status Update(OpKernelContext* ctx, Var& variable) const {
    TF_RETURN_IF_ERROR(CheckVariableDtype(ctx, variable, ctx->input_dtype(2)));
    Tensor& table = *variable.tensor();
    const Tensor& indices = ctx->input(1);
    const Tensor& updates = ctx->input(2);
    TF_RETURN_IF_ERROR(CheckShapes(table, indices, updates));

    ScatterAddJob job;
    job.count = indices.NumElements();
    if (job.count == 0) return absl::OkStatus();
    job.subtract = subtract;
    job.rows = table.dims() == 0 ? 1 : table.dim_size(0);
    const TensorDims dims(table.shape());
    job.inner = SaturatingMultiply(
        SaturatingProduct(dims.view(), std::min(1, table.dims()), table.dims()),
        sum_.lanes);
    if (updates.dims() == 0) {
      job.scalar_lanes = sum_.lanes;
    } else {
      TF_RETURN_IF_ERROR(CheckUpdates(indices, updates));
      // A longer row than the table's is cut off.
      job.update_stride = updates.NumElements() / job.count * sum_.lanes;
      if (job.update_stride < job.inner) {
        // Stock reads on in the memory behind the updates.
        return ShapeError(table, indices, updates);
      }
    }
    if (!variable.copy_on_read_mode.load() && !table.RefCountIsOne() &&
        job.inner > 0) {
      TF_RETURN_IF_ERROR(LeaveToReaders(ctx, &table));
    }
    const WorkerThreads workers(ctx);
    TensorScratch scratch(ctx);
    const Outcome outcome = ScatterAdd(
        job, sum_.type, updates.data(), indices.data(),
        IndexTypeOf(indices.dtype()), workers, scratch, table.data());
    return GatherStatus(outcome, indices, job.rows, scratch);
  }

  static absl::Status ShapeError(const Tensor& table, const Tensor& indices,
                                 const Tensor& updates) {
    return Invalid(
        "Must have updates.shape = indices.shape + params.shape[1:] or "
        "updates.shape = [], got updates.shape ",
        updates.shape().DebugString(), ", indices.shape ",
        indices.shape().DebugString(), ", params.shape ",
        table.shape().DebugString());
  }

  static absl::Status CheckShapes(const Tensor& table, const Tensor& indices,
                                  const Tensor& updates) {
    if (updates.dims() != 0 &&
        updates.dims() != indices.dims() + table.dims() - 1) {
      return ShapeError(table, indices, updates);
    }
    const int64_t largest = LargestIndex(indices.dtype());
    if (indices.NumElements() > largest) {
      return Invalid("indices has too many elements for ",
                     DataTypeString(indices.dtype()),
                     " indexing: ", indices.NumElements(), " > ", largest);
    }
    if (table.dims() == 0) return absl::OkStatus();
    return CheckRowsFitIndices(table, 0, indices.dtype());
  }

  static absl::Status CheckUpdates(const Tensor& indices,
                                   const Tensor& updates) {
    if (TensorShapeUtils::StartsWith(updates.shape(), indices.shape())) {
      return absl::OkStatus();
    }
    return Invalid("The shape of indices (", indices.shape().DebugString(),
                   ") must be a prefix of the shape of updates (",
                   updates.shape().DebugString(), ")");
  }

  Sum sum_;
};

REGISTER_KERNEL_BUILDER(Name("ResourceScatterAdd")
                            .Device(DEVICE_CPU)
                            .HostMemory("resource")
                            .TypeConstraint("dtype", StockSumDtypes())
                            .Priority(1),
                        ResourceScatterOp</*subtract=*/false>);
REGISTER_KERNEL_BUILDER(Name("ResourceScatterSub")
                            .Device(DEVICE_CPU)
                            .HostMemory("resource")
                            .TypeConstraint("dtype", StockSumDtypes())
                            .Priority(1),
                        ResourceScatterOp</*subtract=*/true>);

}  // namespace
}  // namespace gather_stitch
