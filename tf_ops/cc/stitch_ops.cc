// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tf_ops/cc/stitch_ops.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensorflow/cc/framework/gradients.h"
#include "tensorflow/cc/ops/array_ops.h"
#include "tf_ops/cc/gather_ops.h"
#include "tf_ops/cc/op_adder.h"

namespace gather_stitch {
namespace ops {

using ::tensorflow::InputList;
using ::tensorflow::NoGradient;
using ::tensorflow::Operation;
using ::tensorflow::Output;
using ::tensorflow::OutputList;
using ::tensorflow::Scope;

namespace {

// Refuses what the op's N would report in other words, or not at all.
const Scope& CheckLists(const Scope& scope, const InputList& indices,
                        const InputList& data) {
  const auto indices_count = indices.end() - indices.begin();
  const auto data_count = data.end() - data.begin();
  if (indices_count != data_count) {
    scope.UpdateStatus(absl::InvalidArgumentError(absl::StrCat(
        "indices and data must be lists of the same length, but have ",
        indices_count, " and ", data_count, " tensors")));
  } else if (indices_count == 0) {
    scope.UpdateStatus(absl::InvalidArgumentError(
        "indices and data must hold at least one tensor each"));
  }
  return scope;
}

}  // namespace

ParallelDynamicStitch::ParallelDynamicStitch(const Scope& scope,
                                             InputList indices,
                                             InputList data) {
  operation = OpAdder(CheckLists(scope, indices, data), "ParallelDynamicStitch")
                  .Input(indices)
                  .Input(data)
                  .Add(&merged);
}

ParallelDynamicStitchV2::ParallelDynamicStitchV2(
    const Scope& scope, InputList indices, InputList data,
    ::tensorflow::Input merged_rows)
    : ParallelDynamicStitchV2(scope, indices, data, merged_rows, Attrs()) {}

ParallelDynamicStitchV2::ParallelDynamicStitchV2(
    const Scope& scope, InputList indices, InputList data,
    ::tensorflow::Input merged_rows, const Attrs& attrs) {
  operation =
      OpAdder(CheckLists(scope, indices, data), "ParallelDynamicStitchV2")
          .Input(indices)
          .Input(data)
          .Input(merged_rows)
          .Attr("bad_indices_policy", attrs.bad_indices_policy_)
          .Add(&merged);
}

ParallelDynamicStitchGrad::ParallelDynamicStitchGrad(const Scope& scope,
                                                     ::tensorflow::Input grad,
                                                     InputList indices) {
  operation = OpAdder(scope, "ParallelDynamicStitchGrad")
                  .Input(grad)
                  .Input(indices)
                  .Add();
  if (operation.node() == nullptr) return;
  for (int m = 0; m < operation.num_outputs(); ++m) {
    data_grad.push_back(Output(operation, m));
  }
}

// ---- Gradients --------------------------------------------------------------

namespace {

OutputList Inputs(const Operation& op, int first, int count) {
  OutputList inputs;
  for (int i = first; i < first + count; ++i) inputs.push_back(op.input(i));
  return inputs;
}

// Of both stitches: the list of indices, the list of data and, in V2, the
// number of rows.
absl::Status StitchGradient(const Scope& scope, const Operation& op,
                            const std::vector<Output>& grads,
                            std::vector<Output>* input_grads) {
  const int stitched_inputs = op.num_inputs() / 2;
  input_grads->assign(op.num_inputs(), NoGradient());
  const ParallelDynamicStitchGrad grad(scope, grads[0],
                                       Inputs(op, 0, stitched_inputs));
  TF_RETURN_IF_ERROR(scope.status());
  for (int m = 0; m < stitched_inputs; ++m) {
    (*input_grads)[stitched_inputs + m] = grad[m];
  }
  return absl::OkStatus();
}

absl::Status StitchGradGradient(const Scope& scope, const Operation& op,
                                const std::vector<Output>& grads,
                                std::vector<Output>* input_grads) {
  const Output shape = ::tensorflow::ops::Shape(
      scope, op.input(0),
      ::tensorflow::ops::Shape::OutType(::tensorflow::DT_INT64));
  const Output merged_rows = GatherV2(scope, shape, 0, 0);
  input_grads->assign(op.num_inputs(), NoGradient());
  (*input_grads)[0] = ParallelDynamicStitchV2(
      scope, Inputs(op, 1, op.num_inputs() - 1), grads, merged_rows,
      ParallelDynamicStitchV2::BadIndicesPolicy("IGNORE"));
  return scope.status();
}

const bool registered[] = {
    RegisterGradient("GatherStitch>ParallelDynamicStitch", StitchGradient),
    RegisterGradient("GatherStitch>ParallelDynamicStitchV2", StitchGradient),
    RegisterGradient("GatherStitch>ParallelDynamicStitchGrad",
                     StitchGradGradient),
};

}  // namespace
}  // namespace ops
}  // namespace gather_stitch
