// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// What the constructors of gather_stitch::ops share.

#ifndef GATHER_STITCH_CC_OP_ADDER_H_
#define GATHER_STITCH_CC_OP_ADDER_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "tensorflow/cc/framework/grad_op_registry.h"
#include "tensorflow/cc/framework/ops.h"
#include "tensorflow/cc/framework/scope.h"
#include "tensorflow/cc/ops/const_op.h"
#include "tensorflow/core/graph/node_builder.h"
#include "tf_ops/cc/loader.h"

namespace gather_stitch {
namespace ops {

// Adds the op GatherStitch>NAME to the graph of a scope: inputs, then attrs,
// then Add. From the first mistake on nothing more is done.
class OpAdder {
 public:
  OpAdder(const ::tensorflow::Scope& scope, const char* name)
      : scope_(Loaded(scope)),
        builder_(scope.ok() ? scope.GetUniqueNameForOp(name) : name,
                 std::string("GatherStitch>") + name) {}

  OpAdder& Input(const ::tensorflow::Input& input) {
    if (scope_.ok()) scope_.UpdateStatus(CheckHasValue(input));
    if (!scope_.ok()) return *this;
    auto converted = ::tensorflow::ops::AsNodeOut(scope_, input);
    if (scope_.ok()) builder_.Input(std::move(converted));
    return *this;
  }

  OpAdder& Input(const ::tensorflow::InputList& inputs) {
    for (const ::tensorflow::Input& input : inputs) {
      if (scope_.ok()) scope_.UpdateStatus(CheckHasValue(input));
    }
    if (!scope_.ok()) return *this;
    auto converted = ::tensorflow::ops::AsNodeOutList(scope_, inputs);
    if (scope_.ok()) builder_.Input(converted);
    return *this;
  }

  template <typename Value>
  OpAdder& Attr(const char* name, const Value& value) {
    if (scope_.ok()) builder_.Attr(name, value);
    return *this;
  }

  // An operation without a node where the scope has an error.
  ::tensorflow::Operation Add() {
    if (!scope_.ok()) return ::tensorflow::Operation();
    scope_.UpdateBuilder(&builder_);
    ::tensorflow::Node* node = nullptr;
    scope_.UpdateStatus(builder_.Finalize(scope_.graph(), &node));
    if (!scope_.ok()) return ::tensorflow::Operation();
    scope_.UpdateStatus(scope_.DoShapeInference(node));
    return scope_.ok() ? ::tensorflow::Operation(node)
                       : ::tensorflow::Operation();
  }

  // The same, where the op has one output.
  ::tensorflow::Operation Add(::tensorflow::Output* output) {
    const ::tensorflow::Operation operation = Add();
    if (operation.node() != nullptr) {
      *output = ::tensorflow::Output(operation, 0);
    }
    return operation;
  }

 private:
  // A NodeBuilder asks for the op where it is made, so the library comes first.
  static const ::tensorflow::Scope& Loaded(const ::tensorflow::Scope& scope) {
    if (scope.ok()) scope.UpdateStatus(LoadLibrary());
    return scope;
  }

  // An empty Output, and a nested list that is no rectangle, become an Input
  // that holds what a Tensor is by default; TensorFlow would take that for a
  // constant.
  static absl::Status CheckHasValue(const ::tensorflow::Input& input) {
    const ::tensorflow::Tensor& tensor = input.tensor();
    const bool is_default = tensor.dtype() == ::tensorflow::DT_FLOAT &&
                            tensor.dims() == 1 && tensor.NumElements() == 0;
    if (!input.status().ok() || input.node() != nullptr ||
        !input.node_name().empty() || !is_default) {
      return input.status();
    }
    return absl::InvalidArgumentError(
        "an input has no value: it is an empty Output or a nested list that is "
        "no rectangle. (An empty vector of float32 is passed as ops::Const.)");
  }

  const ::tensorflow::Scope& scope_;
  ::tensorflow::NodeBuilder builder_;
};

// REGISTER_GRADIENT_OP would end a process that has two copies of this library.
// The first entry stays: it serves the same ops.
inline bool RegisterGradient(const char* op,
                             ::tensorflow::ops::GradFunc gradient) {
  auto* registry = ::tensorflow::ops::GradOpRegistry::Global();
  ::tensorflow::ops::GradFunc registered;
  return registry->Lookup(op, &registered).ok() ||
         registry->Register(op, gradient);
}

}  // namespace ops
}  // namespace gather_stitch

#endif  // GATHER_STITCH_CC_OP_ADDER_H_
