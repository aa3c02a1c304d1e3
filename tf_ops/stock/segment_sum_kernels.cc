// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// A segment sum is the gradient of a gather along axis 0.

#include <cstdint>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tf_ops/core/gather_grad.h"
#include "tf_ops/kernels/adapter.h"
#include "tf_ops/ops/sum_dtypes.h"
#include "tf_ops/stock/stock_dtypes.h"
#include "tf_ops/stock/stock_kernel.h"

namespace gather_stitch {
namespace {

using tensorflow::DEVICE_CPU;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::TensorShapeUtils;

class UnsortedSegmentSumOp final : public StockKernel {
 public:
  explicit UnsortedSegmentSumOp(OpKernelConstruction* ctx) : StockKernel(ctx) {
    OP_REQUIRES_OK(ctx, SumOf(ctx->input_type(0), &sum_));
  }

 private:
  absl::Status Run(OpKernelContext* ctx) const override {
    const Tensor& data = ctx->input(0);
    const Tensor& segment_ids = ctx->input(1);
    int64_t num_segments;
    TF_RETURN_IF_ERROR(CheckInputs(ctx, &num_segments));
    TensorShape output_shape;
    TF_RETURN_IF_ERROR(output_shape.AddDimWithStatus(num_segments));
    TF_RETURN_IF_ERROR(AppendDims(data.shape(), segment_ids.dims(), data.dims(),
                                  &output_shape));
    Tensor* output = nullptr;
    TF_RETURN_IF_ERROR(ctx->allocate_output(0, output_shape, &output));

    const TensorDims data_dims(data.shape());
    GatherGeometry geometry;
    geometry.batches = 1;
    geometry.outer = 1;
    geometry.rows = num_segments;
    geometry.inner = SaturatingMultiply(
        SaturatingProduct(data_dims.view(), segment_ids.dims(), data.dims()),
        sum_.lanes);
    geometry.indices_per_batch = segment_ids.NumElements();
    // Stock does not look at ids of empty rows.
    if (geometry.inner == 0) return absl::OkStatus();

    const WorkerThreads workers(ctx);
    TensorScratch scratch(ctx);
    const Outcome outcome = GatherGrad(
        geometry, sum_.type, data.data(), segment_ids.data(),
        IndexTypeOf(segment_ids.dtype()), BadIndexAction::kZeroNegative,
        workers, scratch, output->data());
    if (outcome.code == Outcome::kOutOfMemory) return scratch.status();
    if (outcome.ok()) return absl::OkStatus();
    const TensorDims ids_dims(segment_ids.shape());
    return Invalid("segment_ids",
                   PositionString(ids_dims.view(), outcome.position), " = ",
                   outcome.value, " is out of range [0, ", num_segments, ")");
  }

  static absl::Status CheckInputs(OpKernelContext* ctx, int64_t* num_segments) {
    const Tensor& data = ctx->input(0);
    const Tensor& segment_ids = ctx->input(1);
    const Tensor& segments = ctx->input(2);
    if (segments.dims() != 0) {
      return Invalid("num_segments should be a scalar, not shape ",
                     segments.shape().DebugString());
    }
    if (!TensorShapeUtils::StartsWith(data.shape(), segment_ids.shape())) {
      return Invalid("data.shape = ", data.shape().DebugString(),
                     " does not start with segment_ids.shape = ",
                     segment_ids.shape().DebugString());
    }
    TF_RETURN_IF_ERROR(ScalarValue(segments, "num_segments", num_segments));
    // Stock counts segments in the type of the ids.
    if (segment_ids.dtype() == tensorflow::DT_INT16) {
      *num_segments = static_cast<int16_t>(*num_segments);
    } else if (segment_ids.dtype() == tensorflow::DT_INT32) {
      *num_segments = static_cast<int32_t>(*num_segments);
    }
    if (*num_segments < 0) {
      return Invalid("Input num_segments == ", *num_segments,
                     " must not be negative.");
    }
    return absl::OkStatus();
  }

  Sum sum_;
};

REGISTER_KERNEL_BUILDER(Name("UnsortedSegmentSum")
                            .Device(DEVICE_CPU)
                            .TypeConstraint("T", StockSumDtypes())
                            .Priority(1),
                        UnsortedSegmentSumOp);

}  // namespace
}  // namespace gather_stitch
