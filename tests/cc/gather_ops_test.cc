// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tf_ops/cc/gather_ops.h"

#include <cstdint>
#include <string>
#include <vector>

#include "tensorflow/cc/framework/gradients.h"
#include "tensorflow/cc/ops/array_ops.h"
#include "tensorflow/cc/ops/const_op.h"
#include "tensorflow/cc/ops/resource_variable_ops.h"
#include "tests/cc/graph.h"
#include "tf_ops/cc/session.h"

namespace gather_stitch {
namespace testing {
namespace {

namespace tf = tensorflow;
using ops::GatherV2;
using ops::GatherV2Grad;
using ops::GatherV2SparseGrad;
using ops::ResourceGather;
using Numbers = std::vector<double>;

tf::Output DoublePlaceholder(const tf::Scope& scope,
                             const std::vector<int64_t>& shape) {
  return tf::ops::Placeholder(
      scope, tf::DT_DOUBLE,
      tf::ops::Placeholder::Shape(tf::PartialTensorShape(shape)));
}

// ---- Constructors, attrs, members, conversions
// -------------------------------

TEST(GatherV2HasTheMembersAndDefaultsOfTensorFlow) {
  const tf::Scope scope = NewGraph();
  const GatherV2 gather(scope, {10, 20, 30}, {2, 0}, 0);
  EXPECT_EQ(Described(gather.node()), "GatherStitch>GatherV2 as GatherV2");
  EXPECT_TRUE(gather.operation.node() == gather.node());
  EXPECT_EQ(gather.operation.num_outputs(), 1);
  EXPECT_EQ(AttrOf(gather.node(), "batch_dims"), "batch_dims=0");
  EXPECT_EQ(AttrOf(gather.node(), "bad_indices_policy"),
            "bad_indices_policy=\"DEFAULT\"");
  EXPECT_EQ(AttrOf(gather.node(), "gradient"), "gradient=\"AUTO\"");

  const tf::Output output = gather;
  EXPECT_TRUE(output == gather.output);
  const tf::Input input = gather;
  EXPECT_TRUE(input.node() == gather.node() && input.index() == 0);
  EXPECT_EQ(Elements(ValueOf(scope, gather)), (Numbers{30, 10}));
}

TEST(GatherV2TakesEveryAttrFirstAndChained) {
  const tf::Scope scope = NewGraph();
  const GatherV2 first(
      scope, {{1, 2}, {3, 4}}, {{0}, {1}}, 1,
      GatherV2::BatchDims(1).BadIndicesPolicy("CLIP").Gradient("DENSE"));
  const GatherV2 second(scope, {{1, 2}, {3, 4}}, {{0}, {1}}, 1,
                        GatherV2::Gradient("DENSE").BatchDims(1));
  const GatherV2 third(scope, {1, 2}, {0}, 0,
                       GatherV2::BadIndicesPolicy("WRAP").Gradient("SPARSE"));
  EXPECT_EQ(AttrOf(first.node(), "batch_dims"), "batch_dims=1");
  EXPECT_EQ(AttrOf(first.node(), "bad_indices_policy"),
            "bad_indices_policy=\"CLIP\"");
  EXPECT_EQ(AttrOf(first.node(), "gradient"), "gradient=\"DENSE\"");
  EXPECT_EQ(AttrOf(second.node(), "batch_dims"), "batch_dims=1");
  EXPECT_EQ(AttrOf(second.node(), "gradient"), "gradient=\"DENSE\"");
  EXPECT_EQ(AttrOf(third.node(), "bad_indices_policy"),
            "bad_indices_policy=\"WRAP\"");
  EXPECT_EQ(AttrOf(third.node(), "gradient"), "gradient=\"SPARSE\"");
  EXPECT_EQ(Elements(ValueOf(scope, first)), (Numbers{1, 4}));
}

TEST(GatherOpsAreNamedAndPlacedByTheirScope) {
  const tf::Scope scope = NewGraph();
  const GatherV2 named(scope.NewSubScope("tower").WithOpName("rows"), {1, 2, 3},
                       {0}, 0);
  const GatherV2 unnamed(scope.WithDevice("/cpu:0"), {1, 2, 3}, {0}, 0);
  const GatherV2 another(scope.WithControlDependencies(unnamed), {1, 2}, {0},
                         0);
  EXPECT_EQ(Described(named.node()), "GatherStitch>GatherV2 as tower/rows");
  EXPECT_EQ(unnamed.node()->requested_device(), "/cpu:0");
  EXPECT_EQ(Described(another.node()), "GatherStitch>GatherV2 as GatherV2_1");
  EXPECT_EQ(another.node()->in_edges().size(), 4u);
}

TEST(ResourceGatherHasEveryConstructorAndAttr) {
  const tf::Scope scope = NewGraph();
  const auto table = tf::ops::VarHandleOp(scope, tf::DT_DOUBLE,
                                          tf::PartialTensorShape({3, 2}));
  const auto assign =
      tf::ops::AssignVariableOp(scope, table, Doubles({3, 2}, 0, 1));
  const ResourceGather rows(scope, table, {2, 0}, 0, tf::DT_DOUBLE);
  const ResourceGather columns(
      scope, table, {{5}, {-1}, {1}}, 1, tf::DT_DOUBLE,
      ResourceGather::BatchDims(1).BadIndicesPolicy("CLIP").Gradient("DENSE"));
  const ResourceGather padded(scope, table, {-1, 1}, 0, tf::DT_DOUBLE,
                              ResourceGather::BadIndicesPolicy("IGNORE"));
  const ResourceGather sparse(scope, table, {0}, 0, tf::DT_DOUBLE,
                              ResourceGather::Gradient("SPARSE"));
  EXPECT_EQ(Described(rows.node()),
            "GatherStitch>ResourceGather as ResourceGather");
  EXPECT_EQ(AttrOf(rows.node(), "dtype"), "dtype=DT_DOUBLE");
  EXPECT_EQ(AttrOf(rows.node(), "bad_indices_policy"),
            "bad_indices_policy=\"DEFAULT\"");
  EXPECT_EQ(AttrOf(columns.node(), "batch_dims"), "batch_dims=1");
  EXPECT_EQ(AttrOf(columns.node(), "gradient"), "gradient=\"DENSE\"");
  EXPECT_EQ(AttrOf(sparse.node(), "gradient"), "gradient=\"SPARSE\"");
  EXPECT_TRUE(rows.operation.node() == rows.node());
  const tf::Output output = rows;
  const tf::Input input = rows;
  EXPECT_TRUE(output == rows.output && input.node() == rows.node());

  Session session(scope);
  EXPECT_EQ(session.Run({}, {}, {assign}, nullptr).ToString(), "OK");
  const auto values = ValuesOf(&session, {}, {rows, columns, padded, sparse});
  EXPECT_EQ(Elements(values[0]), (Numbers{4, 5, 0, 1}));
  EXPECT_EQ(Elements(values[1]), (Numbers{1, 2, 5}));
  EXPECT_EQ(Elements(values[2]), (Numbers{0, 0, 2, 3}));
  EXPECT_EQ(Elements(values[3]), (Numbers{0, 1}));
}

TEST(GatherV2GradHasEveryConstructorAndAttr) {
  const tf::Scope scope = NewGraph();
  const auto shape = tf::ops::Const<int64_t>(scope, {3});
  const GatherV2Grad plain(scope, {1.0, 10.0, 100.0}, {2, 0, 2}, shape, 0);
  const GatherV2Grad wrapped(scope, {1.0, 10.0, 100.0}, {-1, 0, 4}, shape, 0,
                             GatherV2Grad::BadIndicesPolicy("WRAP"));
  const GatherV2Grad batched(
      scope, {{1.0}, {10.0}}, {{1}, {7}},
      tf::ops::Const<int64_t>(scope, {2, 2}), 1,
      GatherV2Grad::BatchDims(1).BadIndicesPolicy("IGNORE"));
  EXPECT_EQ(Described(plain.node()),
            "GatherStitch>GatherV2Grad as GatherV2Grad");
  EXPECT_EQ(AttrOf(batched.node(), "batch_dims"), "batch_dims=1");
  EXPECT_EQ(AttrOf(batched.node(), "bad_indices_policy"),
            "bad_indices_policy=\"IGNORE\"");
  EXPECT_TRUE(plain.operation.node() == plain.node());
  const tf::Output output = plain;
  const tf::Input input = plain;
  EXPECT_TRUE(output == plain.params_grad && input.node() == plain.node());
  EXPECT_EQ(Elements(ValueOf(scope, plain)), (Numbers{10, 0, 101}));
  EXPECT_EQ(Elements(ValueOf(scope, wrapped)), (Numbers{10, 100, 1}));
  EXPECT_EQ(Elements(ValueOf(scope, batched)), (Numbers{0, 1, 0, 0}));
}

TEST(GatherV2SparseGradHasEveryConstructorAttrAndOutput) {
  const tf::Scope scope = NewGraph();
  const auto rows = tf::ops::Const<int64_t>(scope, 5);
  const GatherV2SparseGrad unique(scope, {1.0, 10.0, 100.0}, {4, 0, 4}, rows);
  const GatherV2SparseGrad in_order(
      scope, {1.0, 10.0, 100.0}, {4, 9, 4}, rows,
      GatherV2SparseGrad::Unique(false).BadIndicesPolicy("IGNORE"));
  const GatherV2SparseGrad clipped(
      scope, {1.0}, {9}, rows,
      GatherV2SparseGrad::BadIndicesPolicy("CLIP").Unique(true));
  EXPECT_EQ(Described(unique.operation.node()),
            "GatherStitch>GatherV2SparseGrad as GatherV2SparseGrad");
  EXPECT_EQ(AttrOf(unique.operation.node(), "unique"), "unique=true");
  EXPECT_EQ(AttrOf(in_order.operation.node(), "unique"), "unique=false");
  EXPECT_EQ(AttrOf(clipped.operation.node(), "bad_indices_policy"),
            "bad_indices_policy=\"CLIP\"");
  EXPECT_EQ(Elements(ValueOf(scope, unique.values)), (Numbers{10, 101}));
  EXPECT_EQ(Elements(ValueOf(scope, unique.rows)), (Numbers{0, 4}));
  EXPECT_EQ(Elements(ValueOf(scope, unique.slots)), (Numbers{1, 0, 1}));
  EXPECT_EQ(Elements(ValueOf(scope, in_order.values)), (Numbers{1, 100}));
  EXPECT_EQ(Elements(ValueOf(scope, in_order.rows)), (Numbers{4, 4}));
  EXPECT_EQ(Elements(ValueOf(scope, in_order.slots)), (Numbers{0, -1, 1}));
  EXPECT_EQ(Elements(ValueOf(scope, clipped.rows)), (Numbers{4}));
}

// ---- Values
// ------------------------------------------------------------------

TEST(GatherV2EqualsTensorFlows) {
  const tf::Scope scope = NewGraph();
  const std::vector<tf::Output> params = {
      tf::ops::Const(scope, Doubles({3, 4, 2}, -5, 0.5)),
      tf::ops::Const(scope, {{{1, 2}, {3, 4}, {5, 6}, {7, 8}},
                             {{9, 10}, {11, 12}, {13, 14}, {15, 16}},
                             {{17, 18}, {19, 20}, {21, 22}, {23, 24}}}),
      tf::ops::Const(scope, {{{"a", "b"}, {"c", "d"}, {"e", "f"}, {"g", "h"}},
                             {{"i", "j"}, {"k", "l"}, {"m", "n"}, {"o", "p"}},
                             {{"q", "r"}, {"s", "t"}, {"u", "v"}, {"w", ""}}}),
  };
  const std::vector<tf::Output> indices = {
      tf::ops::Const(scope, 1),
      tf::ops::Const(scope, {1, 0, 1}),
      tf::ops::Const<int64_t>(scope, {{1, 0}, {0, 1}, {1, 1}}),
  };
  for (const tf::Output& p : params) {
    for (const tf::Output& i : indices) {
      for (int axis = -3; axis < 3; ++axis) {
        SCOPED_NOTE("axis " + std::to_string(axis));
        ExpectSame(ValueOf(scope, GatherV2(scope, p, i, axis)),
                   ValueOf(scope, tf::ops::GatherV2(scope, p, i, axis)));
      }
    }
    const int64_t axis = 1;
    ExpectSame(
        ValueOf(scope,
                GatherV2(scope, p, indices[1], axis, GatherV2::BatchDims(1))),
        ValueOf(scope, tf::ops::GatherV2(scope, p, indices[1], axis,
                                         tf::ops::GatherV2::BatchDims(1))));
  }
}

TEST(GatherPoliciesSayWhatABadIndexGives) {
  const tf::Scope scope = NewGraph();
  const auto gathered = [&](const char* policy) {
    return Elements(
        ValueOf(scope, GatherV2(scope, {10, 20, 30}, {-1, 1, 4}, 0,
                                GatherV2::BadIndicesPolicy(policy))));
  };
  EXPECT_EQ(gathered("IGNORE"), (Numbers{0, 20, 0}));
  EXPECT_EQ(gathered("CLIP"), (Numbers{10, 20, 30}));
  EXPECT_EQ(gathered("WRAP"), (Numbers{30, 20, 20}));
}

TEST(GatherErrorsOfTheKernelComeFromTheSession) {
  for (const char* policy : {"DEFAULT", "ERROR"}) {
    const tf::Scope scope = NewGraph();
    const GatherV2 gather(scope, {10, 20, 30}, {{0, 1}, {7, 2}}, 0,
                          GatherV2::BadIndicesPolicy(policy));
    EXPECT_EQ(scope.status().ToString(), "OK");
    Session session(scope);
    std::vector<tf::Tensor> values;
    const absl::Status status = session.Run({gather}, &values);
    EXPECT_EQ(absl::StatusCodeToString(status.code()), "INVALID_ARGUMENT");
    EXPECT_TRUE(status.message().find("indices[1,0] = 7 is not in [0, 3)") !=
                absl::string_view::npos);
  }
}

// ---- Shapes
// ------------------------------------------------------------------

TEST(GatherShapesAreInferredByTheScope) {
  const ShapedGraph graph;
  const tf::Scope& scope = graph.scope();
  const auto params = graph.Input({-1, 3, 5});
  const auto vector = graph.Input({4}, tf::DT_INT32);
  const auto matrix = graph.Input({6, -1}, tf::DT_UINT8);
  const auto unknown = graph.InputOfUnknownRank(tf::DT_INT64);
  const auto axis = graph.Input({}, tf::DT_INT32);
  EXPECT_EQ(graph.ShapeOf(GatherV2(scope, params, vector, 1)), "[?,4,5]");
  EXPECT_EQ(graph.ShapeOf(GatherV2(scope, params, vector, -1)), "[?,3,4]");
  EXPECT_EQ(graph.ShapeOf(GatherV2(scope, params, matrix, 2)), "[?,3,6,?]");
  EXPECT_EQ(
      graph.ShapeOf(GatherV2(scope, params, matrix, 1, GatherV2::BatchDims(1))),
      "[6,?,5]");
  EXPECT_EQ(graph.ShapeOf(GatherV2(scope, params, unknown, 1)), "?");
  EXPECT_EQ(graph.ShapeOf(GatherV2(scope, params, vector, axis)), "[?,?,?]");

  const auto handle =
      tf::ops::VarHandleOp(scope, tf::DT_FLOAT, tf::PartialTensorShape({7, 2}));
  EXPECT_EQ(
      graph.ShapeOf(ResourceGather(scope, handle, matrix, 0, tf::DT_FLOAT)),
      "[6,?,2]");

  const auto shape = tf::ops::Const<int64_t>(scope, {7, 3, 5});
  EXPECT_EQ(graph.ShapeOf(
                GatherV2Grad(scope, graph.Input({7, 4, 5}), vector, shape, 1)),
            "[7,3,5]");
  const auto rows = tf::ops::Const<int64_t>(scope, 7);
  const GatherV2SparseGrad sparse(scope, graph.Input({4, 2}), vector, rows);
  EXPECT_EQ(graph.ShapeOf(sparse.values), "[?,2]");
  EXPECT_EQ(graph.ShapeOf(sparse.rows), "[?]");
  EXPECT_EQ(graph.ShapeOf(sparse.slots), "[4]");
}

// ---- Gradients
// ---------------------------------------------------------------

TEST(GatherGradientsAreThoseByDifferences) {
  for (const char* policy : {"IGNORE", "CLIP", "WRAP"}) {
    for (const char* form : {"AUTO", "DENSE", "SPARSE"}) {
      SCOPED_NOTE(std::string(policy) + " " + form);
      const tf::Scope scope = NewGraph();
      const auto params = DoublePlaceholder(scope, {3, 2});
      ExpectGradient(
          scope, params, {3, 2},
          GatherV2(scope, params, {{2, -1}, {0, 2}, {5, 2}}, 0,
                   GatherV2::BadIndicesPolicy(policy).Gradient(form)));
    }
    const tf::Scope scope = NewGraph();
    const auto params = DoublePlaceholder(scope, {2, 3, 2});
    for (int axis = -3; axis < 3; ++axis) {
      SCOPED_NOTE("axis " + std::to_string(axis));
      ExpectGradient(scope, params, {2, 3, 2},
                     GatherV2(scope, params, {1, 7, 0, -2, 1}, axis,
                              GatherV2::BadIndicesPolicy(policy)));
    }
    ExpectGradient(scope, params, {2, 3, 2},
                   GatherV2(scope, params, {{1, 1, 4}, {2, 0, -1}}, 2,
                            GatherV2::BatchDims(1).BadIndicesPolicy(policy)));
  }
}

TEST(GatherGradientSumsRepeatedRows) {
  const tf::Scope scope = NewGraph();
  const auto params = DoublePlaceholder(scope, {3});
  // The weights are 1, 4, 7, 10.
  EXPECT_EQ(ExpectGradient(scope, params, {3},
                           GatherV2(scope, params, {1, 2, 1, 1}, 0)),
            (Numbers{0, 18, 4}));
}

TEST(GatherGradientsHaveGradients) {
  const tf::Scope scope = NewGraph();
  const auto grad = DoublePlaceholder(scope, {4, 2});
  const auto shape = tf::ops::Const<int64_t>(scope, {3, 2});
  ExpectGradient(scope, grad, {4, 2},
                 GatherV2Grad(scope, grad, {2, 0, 2, 9}, shape, 0,
                              GatherV2Grad::BadIndicesPolicy("CLIP")));
  const auto batched = DoublePlaceholder(scope, {2, 3});
  ExpectGradient(
      scope, batched, {2, 3},
      GatherV2Grad(scope, batched, {{1, 1, 4}, {0, 0, -1}},
                   tf::ops::Const<int64_t>(scope, {2, 2}), 1,
                   GatherV2Grad::BatchDims(1).BadIndicesPolicy("IGNORE")));
  for (const bool unique : {true, false}) {
    ExpectGradient(
        scope, grad, {4, 2},
        GatherV2SparseGrad(
            scope, grad, {2, 0, -7, 2}, tf::ops::Const<int64_t>(scope, 3),
            GatherV2SparseGrad::Unique(unique).BadIndicesPolicy("IGNORE"))
            .values);
  }
}

TEST(ResourceGatherGradientIsThatOfAGatherOfItsValue) {
  const tf::Scope scope = NewGraph();
  const auto table = tf::ops::VarHandleOp(scope, tf::DT_DOUBLE,
                                          tf::PartialTensorShape({3, 2}));
  const tf::Tensor value = Doubles({3, 2}, 0, 1);
  const auto assign = tf::ops::AssignVariableOp(scope, table, value);
  const auto params = tf::ops::Const(scope, value);
  const tf::Input indices = {{2, 0}, {-1, 2}};
  Session session(scope);
  EXPECT_EQ(session.Run({}, {}, {assign}, nullptr).ToString(), "OK");
  for (const int axis : {0, 1}) {
    const auto attrs = GatherV2::BadIndicesPolicy("WRAP");
    const ResourceGather from_table(scope, table, indices, axis, tf::DT_DOUBLE,
                                    attrs);
    const GatherV2 from_params(scope, params, indices, axis, attrs);
    std::vector<tf::Output> grads;
    std::vector<tf::Output> expected_grads;
    EXPECT_EQ(tf::AddSymbolicGradients(scope, {from_table}, {table}, &grads)
                  .ToString(),
              "OK");
    EXPECT_EQ(tf::AddSymbolicGradients(scope, {from_params}, {params},
                                       &expected_grads)
                  .ToString(),
              "OK");
    grads.resize(1);
    expected_grads.resize(1);
    const auto values = ValuesOf(&session, {}, {grads[0], expected_grads[0]});
    ExpectSame(values[0], values[1]);
  }
}

TEST(GatherV2SparseGradIsWhatAScatterTakes) {
  const tf::Scope scope = NewGraph();
  const auto table = tf::ops::VarHandleOp(scope, tf::DT_DOUBLE,
                                          tf::PartialTensorShape({3, 2}));
  const auto assign =
      tf::ops::AssignVariableOp(scope, table, Doubles({3, 2}, 0, 1));
  const tf::Output indices = tf::ops::Const(scope, {2, 0, 2});
  const GatherV2SparseGrad grad(scope, Doubles({3, 2}, 10, 10), indices,
                                tf::ops::Const<int64_t>(scope, 3));
  const auto scatter =
      tf::ops::ResourceScatterSub(scope, table, grad.rows, grad.values);
  const auto read = tf::ops::ReadVariableOp(scope, table, tf::DT_DOUBLE);
  Session session(scope);
  EXPECT_EQ(session.Run({}, {}, {assign}, nullptr).ToString(), "OK");
  EXPECT_EQ(session.Run({}, {}, {scatter}, nullptr).ToString(), "OK");
  EXPECT_EQ(Elements(ValuesOf(&session, {}, {read})[0]),
            (Numbers{-30, -39, 2, 3, -56, -75}));
}

TEST(GatherGradientSparseIsRefusedOffAxisZero) {
  const tf::Scope scope = NewGraph();
  const auto params = DoublePlaceholder(scope, {2, 3});
  const auto attrs = GatherV2::Gradient("SPARSE");
  const auto axis = tf::ops::Placeholder(scope, tf::DT_INT32);
  const std::vector<tf::Output> gathers = {
      GatherV2(scope, params, {0}, 1, attrs),
      GatherV2(scope, params, {0}, axis, attrs),
      GatherV2(scope, params, {{0}, {1}}, 1, attrs.BatchDims(1)),
  };
  EXPECT_EQ(scope.status().ToString(), "OK");
  for (const tf::Output& gather : gathers) {
    std::vector<tf::Output> grads;
    const absl::Status status =
        tf::AddSymbolicGradients(scope, {gather}, {params}, &grads);
    EXPECT_EQ(absl::StatusCodeToString(status.code()), "INVALID_ARGUMENT");
    EXPECT_TRUE(status.message().find("gradient SPARSE needs a gather along a "
                                      "constant axis 0 without batch_dims") !=
                absl::string_view::npos);
  }
}

// ---- Bad use
// -----------------------------------------------------------------

TEST(GatherBadUseIsTheStatusOfTheScope) {
  struct BadUse {
    const char* words;
    tf::Output (*add)(const tf::Scope& scope);
  };
  const BadUse bad_uses[] = {
      {"params must be at least 1 dimensional",
       [](const tf::Scope& s) { return GatherV2(s, 5, {0}, 0).output; }},
      {"axis",
       [](const tf::Scope& s) { return GatherV2(s, {1, 2}, {0}, 1).output; }},
      {"axis",
       [](const tf::Scope& s) {
         return GatherV2(s, {1, 2}, {0}, tf::Input(INT64_MIN)).output;
       }},
      {"axis must be scalar",
       [](const tf::Scope& s) { return GatherV2(s, {1, 2}, {0}, {0}).output; }},
      {"batch_dims",
       [](const tf::Scope& s) {
         return GatherV2(s, {1, 2}, {0}, 0, GatherV2::BatchDims(5)).output;
       }},
      {"batch_dims",
       [](const tf::Scope& s) {
         return GatherV2(s, {1, 2}, {0}, 0, GatherV2::BatchDims(1)).output;
       }},
      {"of \"NEAREST\" is not in the list",
       [](const tf::Scope& s) {
         return GatherV2(s, {1, 2}, {0}, 0,
                         GatherV2::BadIndicesPolicy("NEAREST"))
             .output;
       }},
      {"of \"dense\" is not in the list",
       [](const tf::Scope& s) {
         return GatherV2(s, {1, 2}, {0}, 0, GatherV2::Gradient("dense")).output;
       }},
      {"float",
       [](const tf::Scope& s) {
         return GatherV2(s, {1, 2}, {0.5f}, 0).output;
       }},
      {"a nested list that is no rectangle",
       [](const tf::Scope& s) {
         return GatherV2(s, {{1, 2}, {3}}, {0}, 0).output;
       }},
      {"an empty Output",
       [](const tf::Scope& s) {
         return GatherV2(s, {1, 2}, tf::Output(), 0).output;
       }},
      {"resource",
       [](const tf::Scope& s) {
         return ResourceGather(s, {1, 2}, {0}, 0, tf::DT_INT32).output;
       }},
      {"params_shape must be a vector",
       [](const tf::Scope& s) {
         return GatherV2Grad(s, {1.0f}, {0}, tf::Input(int64_t{3}), 0)
             .params_grad;
       }},
      {"there is no sum of string",
       [](const tf::Scope& s) {
         return GatherV2Grad(s, {"a"}, {0}, tf::ops::Const<int64_t>(s, {3}), 0)
             .params_grad;
       }},
      {"params_rows",
       [](const tf::Scope& s) {
         return GatherV2SparseGrad(s, {1.0f}, {0},
                                   tf::ops::Const<int64_t>(s, -1))
             .values;
       }},
  };
  for (const BadUse& bad_use : bad_uses) {
    SCOPED_NOTE(bad_use.words);
    const tf::Scope scope = NewGraph();
    const tf::Output output = bad_use.add(scope);
    ExpectRefused(scope, bad_use.words);
    EXPECT_TRUE(output.node() == nullptr);

    // What follows stays empty, and the first error is what a session says.
    const absl::Status first = scope.status();
    const GatherV2 next(scope, output, {0}, 0);
    EXPECT_TRUE(next.node() == nullptr && next.operation.node() == nullptr);
    EXPECT_EQ(scope.status().ToString(), first.ToString());
    Session session(scope);
    std::vector<tf::Tensor> values;
    EXPECT_EQ(session.Run({output}, &values).ToString(), first.ToString());
  }
}

TEST(GatherOfAnotherGraphOrOutputIsRefused) {
  const tf::Scope scope = NewGraph();
  const GatherV2 gather(scope, {1, 2}, {0}, 0);
  const GatherV2 beyond(scope, tf::Output(gather.node(), 3), {0}, 0);
  ExpectRefused(scope, "");
  EXPECT_TRUE(beyond.node() == nullptr);
}

}  // namespace
}  // namespace testing
}  // namespace gather_stitch
