// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tests/cc/graph.h"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "tensorflow/cc/framework/gradients.h"
#include "tensorflow/cc/framework/scope_internal.h"
#include "tensorflow/cc/ops/array_ops.h"
#include "tensorflow/cc/ops/const_op.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tf_ops/cc/loader.h"

namespace gather_stitch {
namespace testing {

using tensorflow::Node;
using tensorflow::Output;
using tensorflow::Scope;
using tensorflow::Tensor;

std::string PackageFolder() {
  const char* folder = std::getenv("GATHER_STITCH_PACKAGE");
  return folder == nullptr ? LibraryFolder() : folder;
}

Scope NewGraph() {
  const Scope scope = Scope::NewRootScope();
  scope.UpdateStatus(LoadLibrary(PackageFolder()));
  EXPECT_EQ(scope.status().ToString(), "OK");
  return scope;
}

ShapedGraph::ShapedGraph()
    : graph_(tensorflow::OpRegistry::Global()),
      refiner_(graph_.versions(), graph_.op_registry()),
      scope_(tensorflow::NewInternalScope(&graph_, &status_, &refiner_)) {
  EXPECT_EQ(LoadLibrary(PackageFolder()).ToString(), "OK");
}

Output ShapedGraph::Input(const std::vector<int64_t>& shape,
                          tensorflow::DataType dtype) const {
  using tensorflow::ops::Placeholder;
  return Placeholder(scope_, dtype,
                     Placeholder::Shape(tensorflow::PartialTensorShape(shape)));
}

Output ShapedGraph::InputOfUnknownRank(tensorflow::DataType dtype) const {
  return tensorflow::ops::Placeholder(scope_, dtype);
}

std::string ShapedGraph::ShapeOf(const Output& output) const {
  if (!status_.ok()) return status_.ToString();
  auto* context = refiner_.GetContext(output.node());
  return context->DebugString(context->output(output.index()));
}

std::vector<Tensor> ValuesOf(Session* session, const Session::FeedType& feeds,
                             const std::vector<Output>& fetches) {
  std::vector<Tensor> values;
  EXPECT_EQ(session->Run(feeds, fetches, &values).ToString(), "OK");
  values.resize(fetches.size());
  return values;
}

Tensor ValueOf(const Scope& scope, const Output& output) {
  Session session(scope);
  return ValuesOf(&session, {}, {output})[0];
}

namespace {

template <typename T>
std::vector<double> ElementsOf(const Tensor& tensor) {
  const auto flat = tensor.flat<T>();
  std::vector<double> elements;
  for (int64_t k = 0; k < flat.size(); ++k) {
    elements.push_back(static_cast<double>(flat(k)));
  }
  return elements;
}

double Dot(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (int64_t k = 0; k < a.NumElements(); ++k) {
    sum += a.flat<double>()(k) * b.flat<double>()(k);
  }
  return sum;
}

}  // namespace

std::vector<double> Elements(const Tensor& tensor) {
  switch (tensor.dtype()) {
    case tensorflow::DT_FLOAT:
      return ElementsOf<float>(tensor);
    case tensorflow::DT_DOUBLE:
      return ElementsOf<double>(tensor);
    case tensorflow::DT_INT32:
      return ElementsOf<int32_t>(tensor);
    case tensorflow::DT_INT64:
      return ElementsOf<int64_t>(tensor);
    default:
      EXPECT_EQ(tensorflow::DataTypeString(tensor.dtype()), "a number");
      return {};
  }
}

void ExpectSame(const Tensor& actual, const Tensor& expected) {
  EXPECT_EQ(actual.shape().DebugString(), expected.shape().DebugString());
  EXPECT_EQ(tensorflow::DataTypeString(actual.dtype()),
            tensorflow::DataTypeString(expected.dtype()));
  if (actual.dtype() != expected.dtype() ||
      actual.NumElements() != expected.NumElements()) {
    return;
  }
  if (actual.dtype() == tensorflow::DT_STRING) {
    for (int64_t k = 0; k < actual.NumElements(); ++k) {
      EXPECT_EQ(std::string(actual.flat<tensorflow::tstring>()(k)),
                std::string(expected.flat<tensorflow::tstring>()(k)));
    }
  } else {
    EXPECT_TRUE(actual.tensor_data() == expected.tensor_data());
  }
}

void ExpectRefused(const Scope& scope, const std::string& words) {
  const absl::Status status = scope.status();
  EXPECT_EQ(absl::StatusCodeToString(status.code()), "INVALID_ARGUMENT");
  if (status.message().find(words) == absl::string_view::npos) {
    EXPECT_EQ(std::string(status.message()), words);
  }
}

std::string Described(const Node* node) {
  return node == nullptr ? "" : node->type_string() + " as " + node->name();
}

std::string AttrOf(const Node* node, const std::string& name) {
  if (node == nullptr) return "no node";
  const tensorflow::AttrValue* value = node->attrs().Find(name);
  return name + "=" +
         (value == nullptr ? "" : tensorflow::SummarizeAttrValue(*value));
}

Tensor Doubles(const std::vector<int64_t>& shape, double first, double step) {
  Tensor tensor(tensorflow::DT_DOUBLE, tensorflow::TensorShape(shape));
  auto flat = tensor.flat<double>();
  for (int64_t k = 0; k < flat.size(); ++k) flat(k) = first + k * step;
  return tensor;
}

std::vector<double> ExpectGradient(const Scope& scope, const Output& input,
                                   const std::vector<int64_t>& input_shape,
                                   const Output& output) {
  EXPECT_EQ(scope.status().ToString(), "OK");
  Session session(scope);
  const Tensor at = Doubles(input_shape, 3, 2);
  const Tensor before = ValuesOf(&session, {{input, at}}, {output})[0];
  const auto dims = before.shape().dim_sizes();
  const Tensor weights = Doubles({dims.begin(), dims.end()}, 1, 3);

  std::vector<Output> gradients;
  EXPECT_EQ(tensorflow::AddSymbolicGradients(
                scope, {output}, {input},
                {tensorflow::ops::Const(scope, weights)}, &gradients)
                .ToString(),
            "OK");
  gradients.resize(1);
  const Tensor gradient = ValuesOf(&session, {{input, at}}, {gradients[0]})[0];
  EXPECT_EQ(gradient.shape().DebugString(), at.shape().DebugString());
  const std::vector<double> symbolic = Elements(gradient);

  std::vector<double> by_differences;
  for (int64_t k = 0; k < at.NumElements(); ++k) {
    Tensor moved = Doubles(input_shape, 3, 2);
    moved.flat<double>()(k) += 1;
    const Tensor after = ValuesOf(&session, {{input, moved}}, {output})[0];
    if (!after.IsSameSize(before)) return symbolic;
    by_differences.push_back(Dot(after, weights) - Dot(before, weights));
  }
  EXPECT_EQ(symbolic, by_differences);
  return symbolic;
}

}  // namespace testing
}  // namespace gather_stitch
