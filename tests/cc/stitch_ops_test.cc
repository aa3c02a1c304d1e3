// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tf_ops/cc/stitch_ops.h"

#include <cstdint>
#include <string>
#include <vector>

#include "tensorflow/cc/ops/array_ops.h"
#include "tensorflow/cc/ops/const_op.h"
#include "tensorflow/cc/ops/data_flow_ops.h"
#include "tests/cc/graph.h"
#include "tf_ops/cc/session.h"

namespace gather_stitch {
namespace testing {
namespace {

namespace tf = tensorflow;
using ops::ParallelDynamicStitch;
using ops::ParallelDynamicStitchGrad;
using ops::ParallelDynamicStitchV2;
using Numbers = std::vector<double>;

// A list of one, which braces leave ambiguous.
tf::InputList Only(const tf::Input& input) {
  return absl::Span<const tf::Input>(&input, 1);
}

// ---- Constructors, attrs, members, conversions
// -------------------------------

TEST(StitchHasTheMembersOfTensorFlow) {
  const tf::Scope scope = NewGraph();
  const ParallelDynamicStitch stitch(scope, {{0, 2}, {3}}, {{1, 2}, {3}});
  EXPECT_EQ(Described(stitch.node()),
            "GatherStitch>ParallelDynamicStitch as ParallelDynamicStitch");
  EXPECT_EQ(AttrOf(stitch.node(), "N"), "N=2");
  EXPECT_TRUE(stitch.operation.node() == stitch.node());
  const tf::Output output = stitch;
  const tf::Input input = stitch;
  EXPECT_TRUE(output == stitch.merged && input.node() == stitch.node());
  EXPECT_EQ(Elements(ValueOf(scope, stitch)), (Numbers{1, 0, 2, 3}));
}

TEST(StitchV2HasEveryConstructorAndAttr) {
  const tf::Scope scope = NewGraph();
  const ParallelDynamicStitchV2 plain(scope, Only({0, 2}), Only({1, 2}), 4);
  const ParallelDynamicStitchV2 padded(
      scope, {{0, 9}, {-1}}, {{1, 2}, {3}}, tf::Input(int64_t{2}),
      ParallelDynamicStitchV2::BadIndicesPolicy("IGNORE"));
  EXPECT_EQ(Described(plain.node()),
            "GatherStitch>ParallelDynamicStitchV2 as ParallelDynamicStitchV2");
  EXPECT_EQ(AttrOf(plain.node(), "bad_indices_policy"),
            "bad_indices_policy=\"DEFAULT\"");
  EXPECT_EQ(AttrOf(padded.node(), "bad_indices_policy"),
            "bad_indices_policy=\"IGNORE\"");
  EXPECT_TRUE(plain.operation.node() == plain.node());
  const tf::Output output = plain;
  const tf::Input input = plain;
  EXPECT_TRUE(output == plain.merged && input.node() == plain.node());
  EXPECT_EQ(Elements(ValueOf(scope, plain)), (Numbers{1, 0, 2, 0}));
  EXPECT_EQ(Elements(ValueOf(scope, padded)), (Numbers{1, 0}));
}

TEST(StitchGradHasAnOutputForEachInput) {
  const tf::Scope scope = NewGraph();
  const ParallelDynamicStitchGrad grad(scope, {1.0, 10.0, 100.0},
                                       {{0, 1, 0}, {2, 7}});
  EXPECT_EQ(Described(grad.operation.node()),
            "GatherStitch>ParallelDynamicStitchGrad as "
            "ParallelDynamicStitchGrad");
  EXPECT_EQ(grad.data_grad.size(), 2u);
  EXPECT_TRUE(grad[1] == tf::Output(grad.operation, 1));
  EXPECT_TRUE(grad[2].node() == nullptr);
  EXPECT_EQ(Elements(ValueOf(scope, grad[0])), (Numbers{0, 10, 1}));
  EXPECT_EQ(Elements(ValueOf(scope, grad[1])), (Numbers{100, 0}));
}

TEST(StitchTakesListsOfOutputsAndOfInputs) {
  const tf::Scope scope = NewGraph();
  const tf::Output a = tf::ops::Const(scope, {0, 1});
  const tf::Output b = tf::ops::Const(scope, {2, 3});
  const tf::OutputList list = {a, b};
  const std::vector<tf::Input> inputs = {a, {2, 3}};
  for (const tf::Output& stitch :
       {ParallelDynamicStitch(scope, list, list).merged,
        ParallelDynamicStitch(scope, {a, b}, list).merged,
        ParallelDynamicStitch(scope, absl::Span<const tf::Input>(inputs), list)
            .merged}) {
    EXPECT_EQ(Elements(ValueOf(scope, stitch)), (Numbers{0, 1, 2, 3}));
  }
}

// ---- Values
// ------------------------------------------------------------------

TEST(StitchEqualsTensorFlows) {
  const tf::Scope scope = NewGraph();
  const tf::OutputList indices = {
      tf::ops::Const(scope, 6),
      tf::ops::Const(scope, {4, 1}),
      tf::ops::Const(scope, {{5, 2}, {0, 3}}),
  };
  const tf::OutputList numbers = {
      tf::ops::Const(scope, Doubles({2}, 0.5, 1)),
      tf::ops::Const(scope, Doubles({2, 2}, 10, 1)),
      tf::ops::Const(scope, Doubles({2, 2, 2}, 20, 1)),
  };
  const tf::OutputList words = {
      tf::ops::Const(scope, {"a", "b"}),
      tf::ops::Const(scope, {{"c", "d"}, {"e", "f"}}),
      tf::ops::Const(scope,
                     {{{"g", "h"}, {"i", "j"}}, {{"k", ""}, {"m", "n"}}}),
  };
  for (const tf::OutputList& data : {numbers, words}) {
    const tf::Tensor expected =
        ValueOf(scope, tf::ops::ParallelDynamicStitch(scope, indices, data));
    ExpectSame(ValueOf(scope, ParallelDynamicStitch(scope, indices, data)),
               expected);
    ExpectSame(ValueOf(scope, ParallelDynamicStitchV2(scope, indices, data, 7)),
               expected);
  }
}

TEST(StitchErrorsOfTheKernelComeFromTheSession) {
  const tf::Scope scope = NewGraph();
  const auto indices = tf::ops::Placeholder(scope, tf::DT_INT32);
  const ParallelDynamicStitchV2 stitch(scope, Only(indices), Only({1, 2}), 3);
  Session session(scope);
  std::vector<tf::Tensor> values;
  const absl::Status status =
      session.Run({{indices, {0, 8}}}, {stitch}, &values);
  EXPECT_EQ(absl::StatusCodeToString(status.code()), "INVALID_ARGUMENT");
  EXPECT_TRUE(status.message().find("indices[0][1] = 8 is not in [0, 3)") !=
              absl::string_view::npos);
}

// ---- Shapes
// ------------------------------------------------------------------

TEST(StitchShapesAreInferredByTheScope) {
  const ShapedGraph graph;
  const tf::Scope& scope = graph.scope();
  const auto indices = graph.Input({4}, tf::DT_INT32);
  const auto data = graph.Input({4, 3, -1});
  const auto rows = graph.Input({}, tf::DT_INT32);
  EXPECT_EQ(
      graph.ShapeOf(ParallelDynamicStitch(scope, Only(indices), Only(data))),
      "[?,3,?]");
  EXPECT_EQ(graph.ShapeOf(
                ParallelDynamicStitch(scope, Only({0, 4, 2, 1}), Only(data))),
            "[5,3,?]");
  EXPECT_EQ(graph.ShapeOf(
                ParallelDynamicStitchV2(scope, Only(indices), Only(data), 9)),
            "[9,3,?]");
  EXPECT_EQ(graph.ShapeOf(ParallelDynamicStitchV2(scope, Only(indices),
                                                  Only(data), rows)),
            "[?,3,?]");
  EXPECT_EQ(graph.ShapeOf(ParallelDynamicStitchGrad(scope, graph.Input({-1, 6}),
                                                    {indices})[0]),
            "[4,6]");
}

// ---- Gradients
// ---------------------------------------------------------------

TEST(StitchGradientsAreThoseByDifferences) {
  const tf::Scope scope = NewGraph();
  const auto data = tf::ops::Placeholder(scope, tf::DT_DOUBLE);
  const auto other = tf::ops::Const(scope, Doubles({2, 2}, 0, 1));
  const auto indices = tf::ops::Const(scope, {3, 0, 3, 1});
  // Row 1 is overwritten by `other` where that comes last.
  for (const tf::OutputList& lists :
       {tf::OutputList{data, other}, tf::OutputList{other, data}}) {
    const tf::OutputList rows = {
        lists[0] == data ? indices : tf::ops::Const(scope, {1, 5}),
        lists[1] == data ? indices : tf::ops::Const(scope, {1, 5})};
    ExpectGradient(scope, data, {4, 2},
                   ParallelDynamicStitch(scope, rows, lists));
    ExpectGradient(scope, data, {4, 2},
                   ParallelDynamicStitchV2(
                       scope, rows, lists, 3,
                       ParallelDynamicStitchV2::BadIndicesPolicy("IGNORE")));
  }
  // The first of the two rows 0 has no influence; the weights are 1, 4.
  const auto scalars = tf::ops::Placeholder(scope, tf::DT_DOUBLE);
  EXPECT_EQ(ExpectGradient(
                scope, scalars, {3},
                ParallelDynamicStitch(scope, Only({0, 1, 0}), Only(scalars))),
            (Numbers{0, 4, 1}));
}

TEST(StitchGradientsHaveGradients) {
  const tf::Scope scope = NewGraph();
  const auto grad = tf::ops::Placeholder(scope, tf::DT_DOUBLE);
  const ParallelDynamicStitchGrad data_grad(scope, grad, {{0, 1, 0}, {2, 7}});
  for (const size_t m : {0, 1}) {
    ExpectGradient(scope, grad, {4, 2}, data_grad[m]);
  }
}

// ---- Bad use
// -----------------------------------------------------------------

TEST(StitchBadUseIsTheStatusOfTheScope) {
  struct BadUse {
    const char* words;
    tf::Output (*add)(const tf::Scope& scope);
  };
  const BadUse bad_uses[] = {
      {"indices and data must be lists of the same length, but have 2 and 1 "
       "tensors",
       [](const tf::Scope& s) {
         return ParallelDynamicStitch(s, {{0}, {1}}, Only({1})).merged;
       }},
      {"lists of the same length, but have 1 and 2 tensors",
       [](const tf::Scope& s) {
         return ParallelDynamicStitchV2(s, Only({0}), {{1}, {2}}, 3).merged;
       }},
      {"at least one tensor each",
       [](const tf::Scope& s) {
         return ParallelDynamicStitch(s, tf::OutputList(), tf::OutputList())
             .merged;
       }},
      {"",
       [](const tf::Scope& s) {
         return ParallelDynamicStitchGrad(s, {1.0f}, tf::OutputList())[0];
       }},
      {"an empty Output",
       [](const tf::Scope& s) {
         return ParallelDynamicStitch(s, {{0}, {1}}, {tf::Output(), {2}})
             .merged;
       }},
      {"shape",
       [](const tf::Scope& s) {
         return ParallelDynamicStitch(s, {{0, 1}, {2}}, {{1, 2}, {{3}, {4}}})
             .merged;
       }},
      {"merged_rows",
       [](const tf::Scope& s) {
         return ParallelDynamicStitchV2(s, {{0}, {1}}, {{1}, {2}}, -1).merged;
       }},
      {"of \"CLIP\" is not in the list",
       [](const tf::Scope& s) {
         return ParallelDynamicStitchV2(
                    s, {{0}, {1}}, {{1}, {2}}, 3,
                    ParallelDynamicStitchV2::BadIndicesPolicy("CLIP"))
             .merged;
       }},
      {"= -4 is not in",
       [](const tf::Scope& s) {
         return ParallelDynamicStitch(s, {{0}, {-4}}, {{1}, {2}}).merged;
       }},
      {"grad must be at least 1 dimensional",
       [](const tf::Scope& s) {
         return ParallelDynamicStitchGrad(s, 1.0f, {{0}, {1}})[0];
       }},
      {"float",
       [](const tf::Scope& s) {
         return ParallelDynamicStitch(s, {{0.5f}, {1.5f}}, {{1}, {2}}).merged;
       }},
  };
  for (const BadUse& bad_use : bad_uses) {
    SCOPED_NOTE(bad_use.words);
    const tf::Scope scope = NewGraph();
    const tf::Output output = bad_use.add(scope);
    ExpectRefused(scope, bad_use.words);
    EXPECT_TRUE(output.node() == nullptr);
  }
}

}  // namespace
}  // namespace testing
}  // namespace gather_stitch
