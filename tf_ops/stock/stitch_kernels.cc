// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include <cstdint>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tf_ops/kernels/adapter.h"
#include "tf_ops/kernels/stitch_tensors.h"
#include "tf_ops/stock/stock_kernel.h"

namespace gather_stitch {
namespace {

using tensorflow::DEVICE_CPU;
using tensorflow::OpInputList;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

absl::Status OutcomeStatus(const Outcome& outcome,
                           const TensorScratch& scratch) {
  if (outcome.code == Outcome::kOutOfMemory) return scratch.status();
  if (outcome.ok()) return absl::OkStatus();
  return Invalid("indices[", outcome.position, "] is out of range");
}

// DynamicStitch and ParallelDynamicStitch: ours needs no choice between the
// two.
class DynamicStitchOp final : public StockKernel {
 public:
  using StockKernel::StockKernel;

 private:
  absl::Status Run(OpKernelContext* ctx) const override {
    OpInputList indices, data;
    TF_RETURN_IF_ERROR(ctx->input_list("indices", &indices));
    TF_RETURN_IF_ERROR(ctx->input_list("data", &data));
    const std::vector<StitchInput> inputs = StitchInputs(indices, data);
    const IndexType index_type = IndexTypeOf(indices[0].dtype());
    const WorkerThreads workers(ctx);
    TensorScratch scratch(ctx);
    int64_t merged_rows;
    TF_RETURN_IF_ERROR(
        OutcomeStatus(StitchMergedRows(inputs.data(), indices.size(),
                                       index_type, workers, &merged_rows),
                      scratch));
    const StitchShapes shapes = InferStitchShapes(indices, data);
    // Stock learns that there are too many dimensions when it adds them.
    if (shapes.rule != StitchRule::kMergedRank) {
      TF_RETURN_IF_ERROR(RuleStatus(shapes.error));
    }
    TensorShape merged_shape;
    // Stock counts rows in 32 bits.
    TF_RETURN_IF_ERROR(
        merged_shape.AddDimWithStatus(static_cast<int32_t>(merged_rows)));
    TF_RETURN_IF_ERROR(AppendDims(data[0].shape(), indices[0].dims(),
                                  data[0].dims(), &merged_shape));
    Tensor* merged = nullptr;
    TF_RETURN_IF_ERROR(ctx->allocate_output(0, merged_shape, &merged));
    if (merged_rows == 0) return absl::OkStatus();
    const int64_t inner = merged->NumElements() / merged_rows;
    return OutcomeStatus(
        StitchTensors(ctx, inputs, index_type, inner, BadIndexAction::kFail,
                      workers, scratch, merged),
        scratch);
  }
};

REGISTER_KERNEL_BUILDER(
    Name("DynamicStitch").Device(DEVICE_CPU).HostMemory("indices").Priority(1),
    DynamicStitchOp);
REGISTER_KERNEL_BUILDER(Name("ParallelDynamicStitch")
                            .Device(DEVICE_CPU)
                            .HostMemory("indices")
                            .Priority(1),
                        DynamicStitchOp);

}  // namespace
}  // namespace gather_stitch
