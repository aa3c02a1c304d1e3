// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/platform/logging.h"
#include "tf_ops/core/stitch.h"
#include "tf_ops/kernels/adapter.h"
#include "tf_ops/kernels/stitch_tensors.h"

namespace gather_stitch {
namespace {

using tensorflow::DEVICE_CPU;
using tensorflow::OpInputList;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

absl::Status OutcomeStatus(const Outcome& outcome, const OpInputList& indices,
                           int64_t merged_rows, const TensorScratch& scratch) {
  return outcome.code == Outcome::kOutOfMemory
             ? scratch.status()
             : StitchStatus(outcome, indices, merged_rows);
}

// ParallelDynamicStitch, and with an input for merged_rows its V2.
template <bool has_merged_rows>
class ParallelDynamicStitchOp final : public OpKernel {
 public:
  explicit ParallelDynamicStitchOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    if constexpr (has_merged_rows) {
      OP_REQUIRES_OK(ctx, GetBadIndexAction(ctx, &action_));
    }
  }

  void Compute(OpKernelContext* ctx) override {
    OpInputList indices, data;
    OP_REQUIRES_OK(ctx, ctx->input_list("indices", &indices));
    OP_REQUIRES_OK(ctx, ctx->input_list("data", &data));
    TensorShape constant;
    OP_REQUIRES_OK(ctx, StitchConstant(indices, data, &constant));
    const std::vector<StitchInput> inputs = StitchInputs(indices, data);
    const IndexType index_type = IndexTypeOf(indices[0].dtype());
    const WorkerThreads workers(ctx);
    TensorScratch scratch(ctx);
    int64_t merged_rows;
    OP_REQUIRES_OK(ctx, GetMergedRows(ctx, indices, inputs, index_type, workers,
                                      scratch, &merged_rows));
    Tensor* merged = nullptr;
    OP_REQUIRES_OK(ctx, AllocateMerged(ctx, merged_rows, constant, &merged));

    const Outcome outcome =
        StitchTensors(ctx, inputs, index_type, constant.num_elements(), action_,
                      workers, scratch, merged);
    OP_REQUIRES_OK(ctx, OutcomeStatus(outcome, indices, merged_rows, scratch));
  }

 private:
  static absl::Status GetMergedRows(OpKernelContext* ctx,
                                    const OpInputList& indices,
                                    const std::vector<StitchInput>& inputs,
                                    IndexType index_type,
                                    const ParallelFor& parallel,
                                    const TensorScratch& scratch,
                                    int64_t* merged_rows) {
    if constexpr (has_merged_rows) {
      return GivenMergedRows(ctx, indices, merged_rows);
    } else {
      const Outcome outcome = StitchMergedRows(
          inputs.data(), indices.size(), index_type, parallel, merged_rows);
      return OutcomeStatus(outcome, indices, INT64_MAX, scratch);
    }
  }

  BadIndexAction action_ = BadIndexAction::kFail;
};

// StitchGradRows for elements that are copied as objects.
template <typename Element>
Outcome StitchGradObjects(const std::vector<StitchInput>& inputs,
                          IndexType index_type, int64_t inner,
                          int64_t grad_rows, const Tensor& grad,
                          const ParallelFor& parallel, Scratch& scratch,
                          const std::vector<void*>& data_grads) {
  int64_t* winners;
  const Outcome outcome =
      MakeWinners(inputs, index_type, grad_rows, BadIndexAction::kZero,
                  parallel, scratch, &winners);
  if (!outcome.ok()) return outcome;
  const auto* source = static_cast<const Element*>(grad.data());
  parallel.Run(
      grad_rows, std::max<int64_t>(1, kObjectsPerThread / inner),
      [&](int64_t begin, int64_t end) {
        ForEachWinner(
            inputs, winners, begin, end,
            [&](int64_t row, int m, int64_t slice) {
              const Element* from = source + row * inner;
              std::copy(from, from + inner,
                        static_cast<Element*>(data_grads[m]) + slice * inner);
            });
      });
  return outcome;
}

class ParallelDynamicStitchGradOp final : public OpKernel {
 public:
  explicit ParallelDynamicStitchGradOp(OpKernelConstruction* ctx)
      : OpKernel(ctx) {}

  void Compute(OpKernelContext* ctx) override {
    const Tensor& grad = ctx->input(0);
    OpInputList indices;
    OP_REQUIRES_OK(ctx, ctx->input_list("indices", &indices));
    TensorShape constant;
    std::vector<void*> data_grads;
    OP_REQUIRES_OK(ctx,
                   PrepareStitchGrad(ctx, indices, &constant, &data_grads));

    const std::vector<StitchInput> inputs = StitchInputs(indices);
    const IndexType index_type = IndexTypeOf(indices[0].dtype());
    const int64_t inner = constant.num_elements();
    const WorkerThreads workers(ctx);
    TensorScratch scratch(ctx);
    Outcome outcome;
    const bool are_objects =
        inner > 0 && VisitObjectType(grad.dtype(), [&](auto element) {
          outcome = StitchGradObjects<decltype(element)>(
              inputs, index_type, inner, grad.dim_size(0), grad, workers,
              scratch, data_grads);
        });
    if (!are_objects) {
      outcome = StitchGradRows(
          inputs.data(), indices.size(), index_type,
          SaturatingMultiply(inner, tensorflow::DataTypeSize(grad.dtype())),
          grad.dim_size(0), grad.data(), workers, scratch, data_grads.data());
    }
    VLOG(1) << name() << ": " << (are_objects ? "objects, " : "bytes, ")
            << grad.dim_size(0) << " rows of " << inner << " elements into "
            << indices.size() << " inputs, " << workers.max_threads()
            << " threads";
    OP_REQUIRES_OK(ctx,
                   OutcomeStatus(outcome, indices, grad.dim_size(0), scratch));
  }
};

REGISTER_KERNEL_BUILDER(
    Name("GatherStitch>ParallelDynamicStitch").Device(DEVICE_CPU),
    ParallelDynamicStitchOp</*has_merged_rows=*/false>);
REGISTER_KERNEL_BUILDER(
    Name("GatherStitch>ParallelDynamicStitchV2").Device(DEVICE_CPU),
    ParallelDynamicStitchOp</*has_merged_rows=*/true>);
REGISTER_KERNEL_BUILDER(
    Name("GatherStitch>ParallelDynamicStitchGrad").Device(DEVICE_CPU),
    ParallelDynamicStitchGradOp);

}  // namespace
}  // namespace gather_stitch
