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
#include "tf_ops/core/error_words.h"
#include "tf_ops/core/stitch.h"
#include "tf_ops/core/stitch_geometry.h"
#include "tf_ops/kernels/adapter.h"
#include "tf_ops/kernels/stitch_tensors.h"

namespace gather_stitch {
namespace {

using tensorflow::DEVICE_CPU;
using tensorflow::OpInputList;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::OpOutputList;
using tensorflow::Tensor;
using tensorflow::TensorShape;

absl::Status OutcomeStatus(const Outcome& outcome, const OpInputList& indices,
                           int64_t merged_rows, const TensorScratch& scratch) {
  if (outcome.code == Outcome::kOutOfMemory) return scratch.status();
  if (outcome.ok()) return absl::OkStatus();
  const TensorDims dims(indices[outcome.input].shape());
  return RuleStatus(StitchIndexError(outcome, dims.view(), merged_rows));
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
    const StitchShapes shapes = InferStitchShapes(indices, data);
    OP_REQUIRES_OK(ctx, RuleStatus(shapes.error));
    OP_REQUIRES_OK(ctx, MakeTensorShape(shapes.constant(), &constant));
    const std::vector<StitchInput> inputs = StitchInputs(indices, data);
    const IndexType index_type = IndexTypeOf(indices[0].dtype());
    const WorkerThreads workers(ctx);
    TensorScratch scratch(ctx);
    int64_t merged_rows;
    OP_REQUIRES_OK(ctx, GetMergedRows(ctx, indices, inputs, index_type, workers,
                                      scratch, &merged_rows));
    TensorShape merged_shape({merged_rows});
    OP_REQUIRES_OK(ctx, merged_shape.AppendShapeWithStatus(constant));
    Tensor* merged = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, merged_shape, &merged));

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
      TF_RETURN_IF_ERROR(ScalarValue(ctx->input(2 * indices.size()),
                                     "merged_rows", merged_rows));
      return RuleStatus(NegativeCountError("merged_rows", *merged_rows));
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
    OP_REQUIRES(
        ctx, grad.dims() >= 1,
        absl::InvalidArgumentError("grad must be at least 1 dimensional"));
    TensorShape constant = grad.shape();
    constant.RemoveDim(0);
    std::vector<void*> data_grads;
    OP_REQUIRES_OK(ctx, AllocateDataGrads(ctx, indices, constant, &data_grads));

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

 private:
  static absl::Status AllocateDataGrads(OpKernelContext* ctx,
                                        const OpInputList& indices,
                                        const TensorShape& constant,
                                        std::vector<void*>* data_grads) {
    for (int m = 0; m < indices.size(); ++m) {
      TensorShape shape = indices[m].shape();
      TF_RETURN_IF_ERROR(shape.AppendShapeWithStatus(constant));
      Tensor* data_grad = nullptr;
      TF_RETURN_IF_ERROR(ctx->allocate_output(m, shape, &data_grad));
      data_grads->push_back(data_grad->data());
    }
    return absl::OkStatus();
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
