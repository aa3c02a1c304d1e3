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

std::vector<StitchInput> StitchInputs(const OpInputList& indices) {
  std::vector<StitchInput> inputs;
  inputs.reserve(indices.size());
  for (const Tensor& tensor : indices) {
    inputs.push_back({tensor.data(), tensor.NumElements(), nullptr});
  }
  return inputs;
}

std::vector<StitchInput> StitchInputs(const OpInputList& indices,
                                      const OpInputList& data) {
  std::vector<StitchInput> inputs = StitchInputs(indices);
  for (int m = 0; m < data.size(); ++m) inputs[m].data = data[m].data();
  return inputs;
}

absl::Status OutcomeStatus(const Outcome& outcome, const OpInputList& indices,
                           int64_t merged_rows, const TensorScratch& scratch) {
  if (outcome.code == Outcome::kOutOfMemory) return scratch.status();
  if (outcome.ok()) return absl::OkStatus();
  const TensorDims dims(indices[outcome.input].shape());
  return RuleStatus(StitchIndexError(outcome, dims.view(), merged_rows));
}

// The constant part of the shapes of data.
absl::Status GetConstantShape(const OpInputList& indices,
                              const OpInputList& data, TensorShape* constant) {
  std::vector<TensorDims> dims;
  dims.reserve(2 * indices.size());
  for (const Tensor& tensor : indices) dims.emplace_back(tensor.shape());
  for (const Tensor& tensor : data) dims.emplace_back(tensor.shape());
  std::vector<ShapeView> views;
  views.reserve(dims.size());
  for (const TensorDims& shape : dims) views.push_back(shape.view());
  const StitchShapes shapes = InferStitchShapes(
      views.data(), views.data() + indices.size(), indices.size());
  TF_RETURN_IF_ERROR(RuleStatus(shapes.error));
  return MakeTensorShape(shapes.constant(), constant);
}

// Calls f(row, input, slice) for each of winners [begin, end) that is one: the
// slice of that input won the row.
template <typename F>
void ForEachWinner(const std::vector<StitchInput>& inputs,
                   const int64_t* winners, int64_t begin, int64_t end, F&& f) {
  std::vector<int64_t> starts;  // the position of each input's first index
  int64_t start = 0;
  for (const StitchInput& input : inputs) {
    starts.push_back(start);
    start += input.count;
  }
  for (int64_t row = begin; row < end; ++row) {
    const int64_t winner = winners[row];
    if (winner == kNoWinner) continue;
    // The last input that starts at or before the winner: inputs without
    // indices start where the next one does.
    const int m = static_cast<int>(
        std::upper_bound(starts.begin(), starts.end(), winner) -
        starts.begin() - 1);
    f(row, m, winner - starts[m]);
  }
}

// The winner map in scratch memory; *winners is nullptr where there are no
// rows.
Outcome MakeWinners(const std::vector<StitchInput>& inputs,
                    IndexType index_type, int64_t rows, BadIndexAction action,
                    const ParallelFor& parallel, Scratch& scratch,
                    int64_t** winners) {
  *winners = nullptr;
  if (rows > 0) {
    const int64_t bytes =
        SaturatingMultiply(rows, static_cast<int64_t>(sizeof(int64_t)));
    *winners = static_cast<int64_t*>(scratch.Allocate(bytes));
    if (*winners == nullptr) return Outcome::OutOfMemory();
  }
  return StitchWinners(inputs.data(), static_cast<int>(inputs.size()),
                       index_type, rows, action, parallel, *winners);
}

// StitchRows for elements that are copied as objects. The elements of a new
// tensor are empty ones, so a hole needs no write.
template <typename Element>
Outcome StitchObjects(const std::vector<StitchInput>& inputs,
                      IndexType index_type, int64_t inner, int64_t merged_rows,
                      BadIndexAction action, const ParallelFor& parallel,
                      Scratch& scratch, Tensor* merged) {
  int64_t* winners;
  const Outcome outcome = MakeWinners(inputs, index_type, merged_rows, action,
                                      parallel, scratch, &winners);
  if (!outcome.ok()) return outcome;
  auto* target = static_cast<Element*>(merged->data());
  parallel.Run(merged_rows, std::max<int64_t>(1, kObjectsPerThread / inner),
               [&](int64_t begin, int64_t end) {
                 ForEachWinner(
                     inputs, winners, begin, end,
                     [&](int64_t row, int m, int64_t slice) {
                       const auto* from =
                           static_cast<const Element*>(inputs[m].data) +
                           slice * inner;
                       std::copy(from, from + inner, target + row * inner);
                     });
               });
  return outcome;
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
    OP_REQUIRES_OK(ctx, GetConstantShape(indices, data, &constant));
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

    const int64_t inner = constant.num_elements();
    Outcome outcome;
    // Where slices are empty there is no object to copy, only indices to check.
    const bool are_objects =
        inner > 0 && VisitObjectType(merged->dtype(), [&](auto element) {
          outcome = StitchObjects<decltype(element)>(inputs, index_type, inner,
                                                     merged_rows, action_,
                                                     workers, scratch, merged);
        });
    if (!are_objects) {
      outcome = StitchRows(
          inputs.data(), indices.size(), index_type,
          SaturatingMultiply(inner, tensorflow::DataTypeSize(merged->dtype())),
          merged_rows, action_, workers, scratch, merged->data());
    }
    VLOG(1) << name() << ": " << (are_objects ? "objects, " : "bytes, ")
            << indices.size() << " inputs into " << merged_rows << " rows of "
            << inner << " elements, " << workers.max_threads() << " threads";
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
