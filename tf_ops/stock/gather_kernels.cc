// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/platform/mutex.h"
#include "tf_ops/core/error_words.h"
#include "tf_ops/core/gather_geometry.h"
#include "tf_ops/kernels/adapter.h"
#include "tf_ops/kernels/gather_tensor.h"
#include "tf_ops/stock/stock_kernel.h"

namespace gather_stitch {
namespace {

using tensorflow::DEVICE_CPU;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::tf_shared_lock;
using tensorflow::Var;
using tensorflow::core::RefCountPtr;

// The loops along `axis`, behind `batch_dims` <= axis dimensions that params
// and indices share.
GatherGeometry MakeGeometry(const Tensor& params, const Tensor& indices,
                            int axis, int batch_dims) {
  const TensorDims params_dims(params.shape());
  const TensorDims indices_dims(indices.shape());
  GatherGeometry geometry;
  geometry.batches = SaturatingProduct(params_dims.view(), 0, batch_dims);
  geometry.outer = SaturatingProduct(params_dims.view(), batch_dims, axis);
  geometry.rows = params.dim_size(axis);
  geometry.inner =
      SaturatingProduct(params_dims.view(), axis + 1, params.dims());
  geometry.indices_per_batch =
      SaturatingProduct(indices_dims.view(), batch_dims, indices.dims());
  return geometry;
}

// Gather, and with an input for the axis GatherV2.
class GatherOp final : public StockKernel {
 public:
  explicit GatherOp(OpKernelConstruction* ctx) : StockKernel(ctx) {
    if (ctx->HasAttr("batch_dims")) {
      OP_REQUIRES_OK(ctx, ctx->GetAttr("batch_dims", &batch_dims_));
    }
  }

 private:
  absl::Status Run(OpKernelContext* ctx) const override {
    const Tensor& params = ctx->input(0);
    const Tensor& indices = ctx->input(1);
    if (params.dims() < 1) {
      return Invalid("params must be at least 1 dimensional");
    }
    int64_t axis = 0;
    if (ctx->num_inputs() == 3) {
      TF_RETURN_IF_ERROR(ScalarValue(ctx->input(2), "axis", &axis));
    }
    int64_t batch_dims = batch_dims_;
    TF_RETURN_IF_ERROR(CheckAxis(params, indices, &axis, &batch_dims));
    TF_RETURN_IF_ERROR(CheckRowsFitIndices(params, axis, indices.dtype()));

    TensorShape output_shape;
    TF_RETURN_IF_ERROR(AppendDims(params.shape(), 0, axis, &output_shape));
    TF_RETURN_IF_ERROR(
        AppendDims(indices.shape(), batch_dims, indices.dims(), &output_shape));
    TF_RETURN_IF_ERROR(
        AppendDims(params.shape(), axis + 1, params.dims(), &output_shape));
    Tensor* output = nullptr;
    TF_RETURN_IF_ERROR(ctx->allocate_output(0, output_shape, &output));
    const GatherGeometry geometry =
        MakeGeometry(params, indices, axis, batch_dims);
    // Stock does not look at indices where there is nothing to copy.
    if (!geometry.has_output()) return absl::OkStatus();
    return GatherTensor(ctx, geometry, params, indices, BadIndexAction::kFail,
                        output);
  }

  // Makes axis and batch_dims count from the front.
  static absl::Status CheckAxis(const Tensor& params, const Tensor& indices,
                                int64_t* axis, int64_t* batch_dims) {
    if (*axis < -params.dims() || *axis >= params.dims()) {
      // Unsigned: of the lowest and the highest int64 it is 2^63.
      const uint64_t rank = *axis >= 0 ? static_cast<uint64_t>(*axis) + 1
                                       : -static_cast<uint64_t>(*axis);
      return Invalid("Shape must be at least rank ", rank, " but is rank ",
                     params.dims());
    }
    if (*axis < 0) *axis += params.dims();
    if (*batch_dims == 0) return absl::OkStatus();

    if (*batch_dims < -indices.dims() || *batch_dims > indices.dims()) {
      return Invalid("Expected batch_dims in the range [", -indices.dims(),
                     ", ", indices.dims(), "], but got ", *batch_dims);
    }
    if (*batch_dims < 0) *batch_dims += indices.dims();
    if (*batch_dims >= params.dims()) {
      return Invalid("batch_dims (", *batch_dims,
                     ") must be less than rank(params) (", params.dims(), ").");
    }
    if (*axis < *batch_dims) {
      return Invalid("batch_dims (", *batch_dims,
                     ") must be less than or equal to axis (", *axis, ").");
    }
    for (int i = 0; i < *batch_dims; ++i) {
      if (params.dim_size(i) != indices.dim_size(i)) {
        return Invalid("params.shape[", i, "]: ", params.dim_size(i),
                       " should be equal to indices.shape[", i,
                       "]: ", indices.dim_size(i));
      }
    }
    return absl::OkStatus();
  }

  int64_t batch_dims_ = 0;
};

// With batch_dims stock moves the indices of a batch behind the rows of the
// batches before it, in the type of the indices, and gathers from all rows
// alike: an index may reach into another batch.
template <typename Index>
void AddBatchOffsets(int64_t batches, int64_t rows, const Tensor& indices,
                     Tensor* moved) {
  using Unsigned = std::make_unsigned_t<Index>;
  const auto* const from = static_cast<const Index*>(indices.data());
  auto* const to = static_cast<Index*>(moved->data());
  const int64_t per_batch = indices.NumElements() / batches;
  for (int64_t batch = 0; batch < batches; ++batch) {
    const Unsigned offset = static_cast<Unsigned>(batch * rows);
    for (int64_t i = batch * per_batch; i < (batch + 1) * per_batch; ++i) {
      to[i] = static_cast<Index>(static_cast<Unsigned>(from[i]) + offset);
    }
  }
}

class ResourceGatherOp final : public StockKernel {
 public:
  explicit ResourceGatherOp(OpKernelConstruction* ctx) : StockKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("batch_dims", &batch_dims_));
  }

 private:
  absl::Status Run(OpKernelContext* ctx) const override {
    RefCountPtr<Var> variable;
    TF_RETURN_IF_ERROR(LookupVariable(ctx, &variable));
    // As in our own op: the lock alone keeps the table as it is, without a
    // second reference to it, for which stock makes the variable copy itself at
    // each later read.
    const tf_shared_lock lock(*variable->mu());
    TF_RETURN_IF_ERROR(
        CheckVariableDtype(ctx, *variable, ctx->expected_output_dtype(0)));
    const Tensor& params = *variable->tensor();
    const Tensor& indices = ctx->input(1);
    TF_RETURN_IF_ERROR(CheckShapes(params));
    TF_RETURN_IF_ERROR(CheckRowsFitIndices(params, 0, indices.dtype()));

    const int batch_dims = static_cast<int>(batch_dims_);
    TensorShape output_shape;
    TF_RETURN_IF_ERROR(
        AppendDims(params.shape(), 0, batch_dims, &output_shape));
    TF_RETURN_IF_ERROR(
        AppendDims(indices.shape(), batch_dims, indices.dims(), &output_shape));
    TF_RETURN_IF_ERROR(AppendDims(params.shape(), batch_dims + 1, params.dims(),
                                  &output_shape));
    Tensor* output = nullptr;
    TF_RETURN_IF_ERROR(ctx->allocate_output(0, output_shape, &output));

    GatherGeometry geometry =
        MakeGeometry(params, indices, batch_dims, batch_dims);
    const int64_t num_indices = indices.NumElements();
    if (output->NumElements() != num_indices * geometry.inner) {
      if (num_indices == 0) return ZeroOut(output);
      return Invalid(
          "indices.shape = ", indices.shape().DebugString(),
          " does not fit params.shape = ", params.shape().DebugString(),
          " with batch_dims = ", batch_dims);
    }
    if (num_indices == 0) return absl::OkStatus();
    if (batch_dims == 0) {
      return GatherTensor(ctx, geometry, params, indices, BadIndexAction::kFail,
                          output);
    }
    return GatherAcrossBatches(ctx, geometry, params, output);
  }

  absl::Status CheckShapes(const Tensor& params) const {
    if (params.dims() < 1) {
      return Invalid("params must be at least 1 dimensional");
    }
    if (params.dims() < batch_dims_) {
      return Invalid("params must have at least ", batch_dims_,
                     " (batch_dims) dimensions but it has shape ",
                     params.shape().DebugString());
    }
    // What follows ends the process in stock.
    if (batch_dims_ < 0) {
      return Invalid("batch_dims (", batch_dims_, ") must not be negative.");
    }
    if (params.dims() == batch_dims_) {
      return Invalid("batch_dims (", batch_dims_,
                     ") must be less than rank(params) (", params.dims(), ").");
    }
    return absl::OkStatus();
  }

  // Where indices are missing stock leaves old memory in the output.
  static absl::Status ZeroOut(Tensor* output) {
    if (tensorflow::DataTypeCanUseMemcpy(output->dtype())) {
      std::memset(output->data(), 0, output->TotalBytes());
    }
    return absl::OkStatus();
  }

  static absl::Status GatherAcrossBatches(OpKernelContext* ctx,
                                          GatherGeometry geometry,
                                          const Tensor& params,
                                          Tensor* output) {
    const Tensor& indices = ctx->input(1);
    Tensor moved;
    TF_RETURN_IF_ERROR(
        ctx->allocate_temp(indices.dtype(), indices.shape(), &moved));
    const int64_t batches = geometry.batches;
    if (batches == 0) {
      return Invalid("indices.shape = ", indices.shape().DebugString(),
                     " has more batches than params.shape = ",
                     params.shape().DebugString());
    }
    if (indices.dtype() == tensorflow::DT_INT32) {
      AddBatchOffsets<int32_t>(batches, geometry.rows, indices, &moved);
    } else {
      AddBatchOffsets<int64_t>(batches, geometry.rows, indices, &moved);
    }
    geometry.rows *= batches;
    geometry.batches = 1;
    geometry.indices_per_batch = indices.NumElements();
    TensorScratch scratch(ctx);
    const Outcome outcome = GatherElements(
        ctx, geometry, params, moved, BadIndexAction::kFail, scratch, output);
    return GatherStatus(outcome, indices, params.dim_size(0), scratch);
  }

  int64_t batch_dims_;
};

REGISTER_KERNEL_BUILDER(Name("Gather").Device(DEVICE_CPU).Priority(1),
                        GatherOp);
REGISTER_KERNEL_BUILDER(
    Name("GatherV2").Device(DEVICE_CPU).HostMemory("axis").Priority(1),
    GatherOp);
REGISTER_KERNEL_BUILDER(Name("ResourceGather")
                            .Device(DEVICE_CPU)
                            .HostMemory("resource")
                            .Priority(1),
                        ResourceGatherOp);

}  // namespace
}  // namespace gather_stitch
