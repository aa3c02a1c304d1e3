// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// Prints what the documented examples give, those of
// examples/documented_examples.py by the same names, a line each:
//
//   gather_vector: ["pear", "fig", "pear", "plum"]

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/cc/ops/array_ops.h"
#include "tensorflow/cc/ops/const_op.h"
#include "tensorflow/cc/ops/data_flow_ops.h"
#include "tensorflow/cc/ops/math_ops.h"
#include "tf_ops/cc/gather_ops.h"
#include "tf_ops/cc/session.h"
#include "tf_ops/cc/stitch_ops.h"

namespace gs = gather_stitch::ops;
namespace tf = tensorflow;

namespace {

std::string Printed(const tf::Tensor& tensor, int64_t element) {
  char number[32];
  switch (tensor.dtype()) {
    case tf::DT_STRING:
      return "\"" + std::string(tensor.flat<tf::tstring>()(element)) + "\"";
    case tf::DT_INT32:
      return std::to_string(tensor.flat<int32_t>()(element));
    default:
      std::snprintf(number, sizeof(number), "%.9g",
                    tensor.flat<float>()(element));
      return number;
  }
}

// The elements from `*element` on, as lists within lists.
std::string Printed(const tf::Tensor& tensor, int dim, int64_t* element) {
  if (dim == tensor.dims()) return Printed(tensor, (*element)++);
  std::string printed = "[";
  for (int64_t i = 0; i < tensor.dim_size(dim); ++i) {
    if (i > 0) printed += ", ";
    printed += Printed(tensor, dim + 1, element);
  }
  return printed + "]";
}

// Partition, work on one part, stitch back: 1 is added to all but the -1s.
tf::Output StitchRoundTrip(const tf::Scope& scope) {
  // TensorFlow's lists of outputs are empty where the scope has an error.
  if (!scope.ok()) return tf::Output();
  const auto x = tf::ops::Const(scope, {0.1f, -1.0f, 5.2f, 4.3f, -1.0f, 7.4f});
  const auto part =
      tf::ops::Cast(scope, tf::ops::NotEqual(scope, x, -1.0f), tf::DT_INT32);
  const auto kept_and_changed = tf::ops::DynamicPartition(scope, x, part, 2);
  const auto places = tf::ops::DynamicPartition(
      scope, tf::ops::Range(scope, 0, tf::ops::Size(scope, x), 1), part, 2);
  const auto changed = tf::ops::Add(scope, kept_and_changed[1], 1.0f);
  return gs::ParallelDynamicStitch(scope, places.outputs,
                                   {kept_and_changed[0], changed.z});
}

std::vector<std::pair<std::string, tf::Output>> Examples(
    const tf::Scope& scope) {
  return {
      // A scalar index takes one element, and the axis is gone.
      {"gather_scalar", gs::GatherV2(scope, {10, 11, 12, 13, 14, 15}, 3, 0)},
      // A vector of indices takes them in its order, repeated ones too.
      {"gather_vector",
       gs::GatherV2(scope, {"fig", "kiwi", "pear", "plum"}, {2, 0, 2, 3}, 0)},
      // Indices of any rank: their shape takes the place of the axis.
      {"gather_matrix_of_indices", gs::GatherV2(scope, {{0, 1}, {2, 3}, {4, 5}},
                                                {{2, 0}, {1, 2}, {0, 0}}, 0)},
      // An axis from the end: -1 takes columns.
      {"gather_columns", gs::GatherV2(scope,
                                      {{0.0f, 0.1f, 0.2f, 0.3f},
                                       {1.0f, 1.1f, 1.2f, 1.3f},
                                       {2.0f, 2.1f, 2.2f, 2.3f}},
                                      {3, 1}, -1)},
      // With batch_dims each row has indices of its own.
      {"gather_batch",
       gs::GatherV2(scope, {{1, 2, 3}, {10, 20, 30}}, {{2, 0, 0}, {0, 2, 1}}, 1,
                    gs::GatherV2::BatchDims(1))},
      // batch_dims and axis together: the dimension between them is kept.
      {"gather_batch_axis",
       gs::GatherV2(scope, {{{1, 2}, {3, 4}}, {{5, 6}, {7, 8}}},
                    {{1, 0}, {0, 0}}, 2, gs::GatherV2::BatchDims(1))},
      // What becomes of an index that is no row.
      {"gather_ignore", gs::GatherV2(scope, {10, 20, 30}, {2, -1, 7}, 0,
                                     gs::GatherV2::BadIndicesPolicy("IGNORE"))},
      {"gather_clip", gs::GatherV2(scope, {10, 20, 30}, {2, -1, 7}, 0,
                                   gs::GatherV2::BadIndicesPolicy("CLIP"))},
      {"gather_wrap", gs::GatherV2(scope, {10, 20, 30}, {2, -1, 7}, 0,
                                   gs::GatherV2::BadIndicesPolicy("WRAP"))},
      // Indices of every rank say where each row of data goes.
      {"stitch_mixed_ranks",
       gs::ParallelDynamicStitch(scope, {6, {4, 1}, {{5, 2}, {0, 3}}},
                                 {{61, 62},
                                  {{41, 42}, {11, 12}},
                                  {{{51, 52}, {21, 22}}, {{1, 2}, {31, 32}}}})},
      // Where an index is named twice the last one wins.
      {"stitch_duplicates",
       gs::ParallelDynamicStitch(scope, {{0, 1}, {1, 2}}, {{1, 2}, {20, 30}})},
      {"stitch_round_trip", StitchRoundTrip(scope)},
      // With a number of rows; those that no index names are zeros.
      {"stitch_size",
       gs::ParallelDynamicStitchV2(scope, {{0, 2}, {2}}, {{10, 20}, {30}}, 4)},
  };
}

}  // namespace

int main() {
  const tf::Scope scope = tf::Scope::NewRootScope();
  const auto examples = Examples(scope);
  std::vector<tf::Output> fetches;
  for (const auto& example : examples) fetches.push_back(example.second);

  gather_stitch::Session session(scope);
  std::vector<tf::Tensor> values;
  const absl::Status status = session.Run(fetches, &values);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return 1;
  }
  for (size_t i = 0; i < examples.size(); ++i) {
    int64_t element = 0;
    std::printf("%s: %s\n", examples[i].first.c_str(),
                Printed(values[i], 0, &element).c_str());
  }
  return 0;
}
