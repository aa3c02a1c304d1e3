// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tf_ops/cc/gather_ops.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensorflow/cc/framework/gradients.h"
#include "tensorflow/cc/ops/array_ops.h"
#include "tensorflow/cc/ops/resource_variable_ops.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tf_ops/cc/op_adder.h"

namespace gather_stitch {
namespace ops {

using ::tensorflow::NoGradient;
using ::tensorflow::Operation;
using ::tensorflow::Output;
using ::tensorflow::Scope;

GatherV2::GatherV2(const Scope& scope, ::tensorflow::Input params,
                   ::tensorflow::Input indices, ::tensorflow::Input axis)
    : GatherV2(scope, params, indices, axis, Attrs()) {}

GatherV2::GatherV2(const Scope& scope, ::tensorflow::Input params,
                   ::tensorflow::Input indices, ::tensorflow::Input axis,
                   const Attrs& attrs) {
  operation = OpAdder(scope, "GatherV2")
                  .Input(params)
                  .Input(indices)
                  .Input(axis)
                  .Attr("batch_dims", attrs.batch_dims_)
                  .Attr("bad_indices_policy", attrs.bad_indices_policy_)
                  .Attr("gradient", attrs.gradient_)
                  .Add(&output);
}

ResourceGather::ResourceGather(const Scope& scope, ::tensorflow::Input resource,
                               ::tensorflow::Input indices,
                               ::tensorflow::Input axis,
                               ::tensorflow::DataType dtype)
    : ResourceGather(scope, resource, indices, axis, dtype, Attrs()) {}

ResourceGather::ResourceGather(const Scope& scope, ::tensorflow::Input resource,
                               ::tensorflow::Input indices,
                               ::tensorflow::Input axis,
                               ::tensorflow::DataType dtype,
                               const Attrs& attrs) {
  operation = OpAdder(scope, "ResourceGather")
                  .Input(resource)
                  .Input(indices)
                  .Input(axis)
                  .Attr("dtype", dtype)
                  .Attr("batch_dims", attrs.batch_dims_)
                  .Attr("bad_indices_policy", attrs.bad_indices_policy_)
                  .Attr("gradient", attrs.gradient_)
                  .Add(&output);
}

GatherV2Grad::GatherV2Grad(const Scope& scope, ::tensorflow::Input grad,
                           ::tensorflow::Input indices,
                           ::tensorflow::Input params_shape,
                           ::tensorflow::Input axis)
    : GatherV2Grad(scope, grad, indices, params_shape, axis, Attrs()) {}

GatherV2Grad::GatherV2Grad(const Scope& scope, ::tensorflow::Input grad,
                           ::tensorflow::Input indices,
                           ::tensorflow::Input params_shape,
                           ::tensorflow::Input axis, const Attrs& attrs) {
  operation = OpAdder(scope, "GatherV2Grad")
                  .Input(grad)
                  .Input(indices)
                  .Input(params_shape)
                  .Input(axis)
                  .Attr("batch_dims", attrs.batch_dims_)
                  .Attr("bad_indices_policy", attrs.bad_indices_policy_)
                  .Add(&params_grad);
}

GatherV2SparseGrad::GatherV2SparseGrad(const Scope& scope,
                                       ::tensorflow::Input grad,
                                       ::tensorflow::Input indices,
                                       ::tensorflow::Input params_rows)
    : GatherV2SparseGrad(scope, grad, indices, params_rows, Attrs()) {}

GatherV2SparseGrad::GatherV2SparseGrad(const Scope& scope,
                                       ::tensorflow::Input grad,
                                       ::tensorflow::Input indices,
                                       ::tensorflow::Input params_rows,
                                       const Attrs& attrs) {
  operation = OpAdder(scope, "GatherV2SparseGrad")
                  .Input(grad)
                  .Input(indices)
                  .Input(params_rows)
                  .Attr("bad_indices_policy", attrs.bad_indices_policy_)
                  .Attr("unique", attrs.unique_)
                  .Add();
  if (operation.node() == nullptr) return;
  values = Output(operation, 0);
  rows = Output(operation, 1);
  slots = Output(operation, 2);
}

// ---- Gradients --------------------------------------------------------------

namespace {

struct ForwardAttrs {
  int64_t batch_dims;
  std::string bad_indices_policy;
  std::string gradient;
};

absl::Status GetForwardAttrs(const Operation& op, ForwardAttrs* attrs) {
  const auto& given = op.node()->attrs();
  TF_RETURN_IF_ERROR(
      ::tensorflow::GetNodeAttr(given, "batch_dims", &attrs->batch_dims));
  TF_RETURN_IF_ERROR(::tensorflow::GetNodeAttr(given, "bad_indices_policy",
                                               &attrs->bad_indices_policy));
  return ::tensorflow::GetNodeAttr(given, "gradient", &attrs->gradient);
}

// Whether `axis` is a constant 0.
bool IsConstantZero(const Output& axis) {
  ::tensorflow::Tensor value;
  if (!axis.node()->IsConstant() ||
      !::tensorflow::GetNodeAttr(axis.node()->attrs(), "value", &value).ok() ||
      value.NumElements() != 1) {
    return false;
  }
  return value.dtype() == ::tensorflow::DT_INT64
             ? value.flat<int64_t>()(0) == 0
             : value.dtype() == ::tensorflow::DT_INT32 &&
                   value.flat<int32_t>()(0) == 0;
}

// The dense gradient of a gather from params of `params_shape`.
absl::Status ParamsGradient(const Scope& scope, const Operation& op,
                            const Output& grad, const Output& params_shape,
                            std::vector<Output>* input_grads) {
  ForwardAttrs attrs;
  TF_RETURN_IF_ERROR(GetForwardAttrs(op, &attrs));
  const Output indices = op.input(1);
  const Output axis = op.input(2);
  if (attrs.gradient == "SPARSE" &&
      !(attrs.batch_dims == 0 && IsConstantZero(axis))) {
    return absl::InvalidArgumentError(absl::StrCat(
        op.node()->name(),
        ": gradient SPARSE needs a gather along a constant axis 0 without "
        "batch_dims, but batch_dims is ",
        attrs.batch_dims, " and axis is ", axis.name()));
  }
  *input_grads = {GatherV2Grad(scope, grad, indices, params_shape, axis,
                               GatherV2Grad::BatchDims(attrs.batch_dims)
                                   .BadIndicesPolicy(attrs.bad_indices_policy)),
                  NoGradient(), NoGradient()};
  return scope.status();
}

absl::Status GatherV2Gradient(const Scope& scope, const Operation& op,
                              const std::vector<Output>& grads,
                              std::vector<Output>* input_grads) {
  const Output params = op.input(0);
  // params may be large and far away: its shape is taken where it is.
  const Output params_shape = ::tensorflow::ops::Shape(
      scope.ColocateWith(params), params,
      ::tensorflow::ops::Shape::OutType(::tensorflow::DT_INT64));
  return ParamsGradient(scope, op, grads[0], params_shape, input_grads);
}

absl::Status ResourceGatherGradient(const Scope& scope, const Operation& op,
                                    const std::vector<Output>& grads,
                                    std::vector<Output>* input_grads) {
  const Output variable_shape = ::tensorflow::ops::VariableShape(
      scope, op.input(0),
      ::tensorflow::ops::VariableShape::OutType(::tensorflow::DT_INT64));
  return ParamsGradient(scope, op, grads[0], variable_shape, input_grads);
}

absl::Status GatherV2GradGradient(const Scope& scope, const Operation& op,
                                  const std::vector<Output>& grads,
                                  std::vector<Output>* input_grads) {
  const auto& given = op.node()->attrs();
  int64_t batch_dims;
  TF_RETURN_IF_ERROR(
      ::tensorflow::GetNodeAttr(given, "batch_dims", &batch_dims));
  std::string policy;
  TF_RETURN_IF_ERROR(
      ::tensorflow::GetNodeAttr(given, "bad_indices_policy", &policy));
  // What is differentiated is no table but a gradient, so its own gradient is
  // dense, in Python as well.
  *input_grads = {GatherV2(scope, grads[0], op.input(1), op.input(3),
                           GatherV2::BatchDims(batch_dims)
                               .BadIndicesPolicy(policy)
                               .Gradient("DENSE")),
                  NoGradient(), NoGradient(), NoGradient()};
  return scope.status();
}

absl::Status GatherV2SparseGradGradient(const Scope& scope, const Operation& op,
                                        const std::vector<Output>& grads,
                                        std::vector<Output>* input_grads) {
  const Output slots = op.output(2);
  *input_grads = {
      GatherV2(scope, grads[0], slots, 0,
               GatherV2::BadIndicesPolicy("IGNORE").Gradient("DENSE")),
      NoGradient(), NoGradient()};
  return scope.status();
}

const bool registered[] = {
    RegisterGradient("GatherStitch>GatherV2", GatherV2Gradient),
    RegisterGradient("GatherStitch>ResourceGather", ResourceGatherGradient),
    RegisterGradient("GatherStitch>GatherV2Grad", GatherV2GradGradient),
    RegisterGradient("GatherStitch>GatherV2SparseGrad",
                     GatherV2SparseGradGradient),
};

}  // namespace
}  // namespace ops
}  // namespace gather_stitch
