// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// What the tests of the C++ client have in common.

#ifndef GATHER_STITCH_TESTS_CC_GRAPH_H_
#define GATHER_STITCH_TESTS_CC_GRAPH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tensorflow/cc/framework/ops.h"
#include "tensorflow/cc/framework/scope.h"
#include "tensorflow/core/common_runtime/shape_refiner.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/graph/graph.h"
#include "tests/core/test_harness.h"
#include "tf_ops/cc/session.h"

namespace gather_stitch {
namespace testing {

// The folder that the libraries are loaded from, given by the environment.
std::string PackageFolder();

// A new graph, with the op library loaded.
tensorflow::Scope NewGraph();

// A graph of which the shapes can be seen that Scope::DoShapeInference infers.
class ShapedGraph {
 public:
  ShapedGraph();
  const tensorflow::Scope& scope() const { return scope_; }
  // A placeholder of float32 or another dtype, of a shape such as {-1, 3}.
  tensorflow::Output Input(
      const std::vector<int64_t>& shape,
      tensorflow::DataType dtype = tensorflow::DT_FLOAT) const;
  tensorflow::Output InputOfUnknownRank(tensorflow::DataType dtype) const;
  // Such as "[?,3]", "?" for an unknown rank; the error of the scope if any.
  std::string ShapeOf(const tensorflow::Output& output) const;

 private:
  tensorflow::Graph graph_;
  absl::Status status_;
  tensorflow::ShapeRefiner refiner_;
  tensorflow::Scope scope_;
};

// The values of `fetches`, as many; empty ones, and a failure, where Run fails.
std::vector<tensorflow::Tensor> ValuesOf(
    Session* session, const Session::FeedType& feeds,
    const std::vector<tensorflow::Output>& fetches);

// The value of an output; empty, and a failure, where it has none.
tensorflow::Tensor ValueOf(const tensorflow::Scope& scope,
                           const tensorflow::Output& output);

// The elements in row-major order, numbers of any dtype as double.
std::vector<double> Elements(const tensorflow::Tensor& tensor);

// Fails unless both are the same bytes, or strings, of one dtype and shape.
void ExpectSame(const tensorflow::Tensor& actual,
                const tensorflow::Tensor& expected);

// Fails unless the scope has an InvalidArgument with `words` in its message.
void ExpectRefused(const tensorflow::Scope& scope, const std::string& words);

// The node's type and name, "GatherStitch>GatherV2 as GatherV2"; "" for null.
std::string Described(const tensorflow::Node* node);

// An attr of a node, as text such as `batch_dims=1`.
std::string AttrOf(const tensorflow::Node* node, const std::string& name);

// A scalar, vector or matrix of float64 whose element k is first + k * step.
tensorflow::Tensor Doubles(const std::vector<int64_t>& shape, double first,
                           double step);

// `input` is a placeholder of float64 that `output` is a linear function of.
// Fails unless the gradient by AddSymbolicGradients is the one by differences,
// for outputs that weigh unlike. All numbers are small integers, which makes
// differences exact. Returns the gradient.
std::vector<double> ExpectGradient(const tensorflow::Scope& scope,
                                   const tensorflow::Output& input,
                                   const std::vector<int64_t>& input_shape,
                                   const tensorflow::Output& output);

}  // namespace testing
}  // namespace gather_stitch

#endif  // GATHER_STITCH_TESTS_CC_GRAPH_H_
