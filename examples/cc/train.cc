// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// Learns an embedding by gradient descent. The rows that the ids name are
// pulled towards targets; the id -1 is padding, which has no row and no
// gradient. Prints the loss of each step and the table that was learnt.

#include <cstdint>
#include <cstdio>
#include <vector>

#include "tensorflow/cc/framework/gradients.h"
#include "tensorflow/cc/ops/array_ops.h"
#include "tensorflow/cc/ops/const_op.h"
#include "tensorflow/cc/ops/math_ops.h"
#include "tensorflow/cc/ops/resource_variable_ops.h"
#include "tf_ops/cc/gather_ops.h"
#include "tf_ops/cc/session.h"

namespace gs = gather_stitch::ops;
namespace tf = tensorflow;

namespace {

constexpr int kTableRows = 6;
constexpr int kColumns = 4;
constexpr int kIds = 8;
constexpr int kSteps = 5;
constexpr float kLearningRate = 0.5f;

// [rows, columns], of fractions that every float holds exactly.
tf::Tensor Slope(int rows, int columns, float row_step, float column_step) {
  tf::Tensor tensor(tf::DT_FLOAT, tf::TensorShape({rows, columns}));
  auto values = tensor.matrix<float>();
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < columns; ++j) {
      values(i, j) = row_step * i + column_step * j;
    }
  }
  return tensor;
}

absl::Status Train() {
  const tf::Scope scope = tf::Scope::NewRootScope();
  const auto table = tf::ops::VarHandleOp(
      scope, tf::DT_FLOAT, tf::PartialTensorShape({kTableRows, kColumns}));
  const auto initialize = tf::ops::AssignVariableOp(
      scope, table, Slope(kTableRows, kColumns, 0.25f, -0.125f));

  const tf::Input ids = {4, 1, -1, 4, 0, 5, 1, 4};
  const auto rows =
      gs::ResourceGather(scope, table, ids, 0, tf::DT_FLOAT,
                         gs::ResourceGather::BadIndicesPolicy("IGNORE"));
  const auto error =
      tf::ops::Sub(scope, rows, Slope(kIds, kColumns, -0.0625f, 0.5f));
  const auto loss = tf::ops::Mean(scope, tf::ops::Square(scope, error), {0, 1});

  // TensorFlow's gradients need a graph without errors.
  if (!scope.ok()) return scope.status();
  std::vector<tf::Output> gradients;
  absl::Status status =
      tf::AddSymbolicGradients(scope, {loss}, {table}, &gradients);
  if (!status.ok()) return status;
  const auto descend = tf::ops::AssignSubVariableOp(
      scope, table, tf::ops::Mul(scope, gradients[0], kLearningRate));

  gather_stitch::Session session(scope);
  status = session.Run({}, {}, {initialize}, nullptr);
  std::vector<tf::Tensor> values;
  for (int step = 0; step < kSteps && status.ok(); ++step) {
    status = session.Run({}, {loss}, {descend}, &values);
    if (status.ok()) {
      std::printf("step %d: loss %.9g\n", step, values[0].scalar<float>()());
    }
  }
  if (!status.ok()) return status;

  // The graph may grow after it ran.
  const auto learnt = tf::ops::ReadVariableOp(scope, table, tf::DT_FLOAT);
  status = session.Run({learnt}, &values);
  if (!status.ok()) return status;
  const auto matrix = values[0].matrix<float>();
  for (int i = 0; i < kTableRows; ++i) {
    std::printf("row %d:", i);
    for (int j = 0; j < kColumns; ++j) std::printf(" %.9g", matrix(i, j));
    std::printf("\n");
  }
  return absl::OkStatus();
}

}  // namespace

int main() {
  const absl::Status status = Train();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
