// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tf_ops/kernels/stitch_tensors.h"

#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/platform/logging.h"
#include "tf_ops/core/error_words.h"
#include "tf_ops/core/shape_view.h"
#include "tf_ops/kernels/adapter.h"

namespace gather_stitch {

using tensorflow::OpInputList;
using tensorflow::OpKernelContext;
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

StitchShapes InferStitchShapes(const OpInputList& indices,
                               const OpInputList& data) {
  std::vector<TensorDims> dims;
  dims.reserve(2 * indices.size());
  for (const Tensor& tensor : indices) dims.emplace_back(tensor.shape());
  for (const Tensor& tensor : data) dims.emplace_back(tensor.shape());
  std::vector<ShapeView> views;
  views.reserve(dims.size());
  for (const TensorDims& shape : dims) views.push_back(shape.view());
  return InferStitchShapes(views.data(), views.data() + indices.size(),
                           indices.size());
}

absl::Status StitchConstant(const OpInputList& indices, const OpInputList& data,
                            TensorShape* constant) {
  const StitchShapes shapes = InferStitchShapes(indices, data);
  TF_RETURN_IF_ERROR(RuleStatus(shapes.error));
  return MakeTensorShape(shapes.constant(), constant);
}

absl::Status GivenMergedRows(OpKernelContext* ctx, const OpInputList& indices,
                             int64_t* merged_rows) {
  TF_RETURN_IF_ERROR(
      ScalarValue(ctx->input(2 * indices.size()), "merged_rows", merged_rows));
  return RuleStatus(NegativeCountError("merged_rows", *merged_rows));
}

absl::Status AllocateMerged(OpKernelContext* ctx, int64_t merged_rows,
                            const TensorShape& constant, Tensor** merged) {
  TensorShape shape({merged_rows});
  TF_RETURN_IF_ERROR(shape.AppendShapeWithStatus(constant));
  return ctx->allocate_output(0, shape, merged);
}

absl::Status PrepareStitchGrad(OpKernelContext* ctx, const OpInputList& indices,
                               TensorShape* constant,
                               std::vector<void*>* data_grads) {
  const Tensor& grad = ctx->input(0);
  if (grad.dims() < 1) {
    return absl::InvalidArgumentError("grad must be at least 1 dimensional");
  }
  *constant = grad.shape();
  constant->RemoveDim(0);
  for (int m = 0; m < indices.size(); ++m) {
    TensorShape shape = indices[m].shape();
    TF_RETURN_IF_ERROR(shape.AppendShapeWithStatus(*constant));
    Tensor* data_grad = nullptr;
    TF_RETURN_IF_ERROR(ctx->allocate_output(m, shape, &data_grad));
    data_grads->push_back(data_grad->data());
  }
  return absl::OkStatus();
}

absl::Status StitchStatus(const Outcome& outcome, const OpInputList& indices,
                          int64_t merged_rows) {
  if (outcome.ok()) return absl::OkStatus();
  const TensorDims dims(indices[outcome.input].shape());
  return RuleStatus(StitchIndexError(outcome, dims.view(), merged_rows));
}

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

namespace {

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

}  // namespace

Outcome StitchTensors(OpKernelContext* ctx,
                      const std::vector<StitchInput>& inputs,
                      IndexType index_type, int64_t inner,
                      BadIndexAction action, const ParallelFor& parallel,
                      Scratch& scratch, Tensor* merged) {
  const int64_t merged_rows = merged->dim_size(0);
  Outcome outcome;
  // Where slices are empty there is no object to copy, only indices to check.
  const bool are_objects =
      inner > 0 && VisitObjectType(merged->dtype(), [&](auto element) {
        outcome = StitchObjects<decltype(element)>(inputs, index_type, inner,
                                                   merged_rows, action,
                                                   parallel, scratch, merged);
      });
  if (!are_objects) {
    outcome = StitchRows(
        inputs.data(), static_cast<int>(inputs.size()), index_type,
        SaturatingMultiply(inner, tensorflow::DataTypeSize(merged->dtype())),
        merged_rows, action, parallel, scratch, merged->data());
  }
  VLOG(1) << ctx->op_kernel().name() << ": "
          << (are_objects ? "objects, " : "bytes, ") << inputs.size()
          << " inputs into " << merged_rows << " rows of " << inner
          << " elements, " << parallel.max_threads() << " threads";
  return outcome;
}

}  // namespace gather_stitch
