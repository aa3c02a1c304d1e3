// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tf_ops/cc/session.h"

#include <string>
#include <thread>
#include <vector>

#include "tensorflow/cc/ops/array_ops.h"
#include "tensorflow/cc/ops/const_op.h"
#include "tensorflow/cc/ops/math_ops.h"
#include "tensorflow/cc/ops/resource_variable_ops.h"
#include "tests/cc/graph.h"
#include "tf_ops/cc/gather_ops.h"
#include "tf_ops/cc/loader.h"

namespace gather_stitch {
namespace testing {
namespace {

namespace tf = tensorflow;
using ops::GatherV2;
using Numbers = std::vector<double>;

TEST(SessionFeedsFetchesAndSeesWhatWasAdded) {
  const tf::Scope scope = NewGraph();
  const auto ids = tf::ops::Placeholder(scope, tf::DT_INT32);
  const GatherV2 rows(scope, {10, 20, 30}, ids, 0);
  Session session(scope);
  EXPECT_EQ(Elements(ValuesOf(&session, {{ids, {2, 0}}}, {rows})[0]),
            (Numbers{30, 10}));

  const auto twice = tf::ops::Add(scope, rows, rows);
  const auto values = ValuesOf(&session, {{ids, {1}}}, {twice, rows});
  EXPECT_EQ(Elements(values[0]), (Numbers{40}));
  EXPECT_EQ(Elements(values[1]), (Numbers{20}));
  // What is not a placeholder may be fed as well.
  EXPECT_EQ(Elements(ValuesOf(&session, {{rows, {5}}}, {twice})[0]),
            (Numbers{10}));
}

TEST(SessionRunsOperationsWithoutFetches) {
  const tf::Scope scope = NewGraph();
  const auto variable =
      tf::ops::VarHandleOp(scope, tf::DT_DOUBLE, tf::PartialTensorShape({2}));
  const auto assign =
      tf::ops::AssignVariableOp(scope, variable, Doubles({2}, 1, 1));
  const auto add =
      tf::ops::AssignAddVariableOp(scope, variable, Doubles({2}, 10, 0));
  const auto read = tf::ops::ReadVariableOp(scope, variable, tf::DT_DOUBLE);
  Session session(scope, tf::SessionOptions());
  EXPECT_EQ(session.Run({}, {}, {assign}, nullptr).ToString(), "OK");
  EXPECT_EQ(session.Run({}, {}, {add}, nullptr).ToString(), "OK");
  EXPECT_EQ(Elements(ValuesOf(&session, {}, {read})[0]), (Numbers{11, 12}));
}

TEST(SessionRefusesWhatIsNotOfItsGraph) {
  const tf::Scope scope = NewGraph();
  const tf::Scope other = NewGraph();
  const tf::Output ours = tf::ops::Const(scope, 1);
  const tf::Output theirs = tf::ops::Const(other.WithOpName("theirs"), 1);
  Session session(scope);
  std::vector<tf::Tensor> values;
  const auto message = [](const absl::Status& status) {
    return absl::StatusCodeToString(status.code()) + ": " +
           std::string(status.message());
  };
  EXPECT_EQ(message(session.Run({tf::Output()}, &values)),
            "INVALID_ARGUMENT: fetch is empty");
  EXPECT_EQ(message(session.Run({theirs}, &values)),
            "INVALID_ARGUMENT: fetch theirs is not of the graph of this "
            "session");
  EXPECT_EQ(message(session.Run({{theirs, 2}}, {ours}, &values)),
            "INVALID_ARGUMENT: feed theirs is not of the graph of this "
            "session");
  EXPECT_EQ(message(session.Run({}, {ours}, {tf::Operation()}, &values)),
            "INVALID_ARGUMENT: operation is empty");
  EXPECT_EQ(message(session.Run({}, {ours}, {theirs.op()}, &values)),
            "INVALID_ARGUMENT: operation theirs is not of the graph of this "
            "session");
  EXPECT_TRUE(!session.Run({tf::Output(ours.node(), 4)}, &values).ok());
  EXPECT_TRUE(!session.Run({{ours, {{1, 2}, {3}}}}, {ours}, &values).ok());
  // The session is none the worse for it.
  EXPECT_EQ(session.Run({ours}, &values).ToString(), "OK");
}

TEST(SessionSaysWhatIsWrongWithTheScope) {
  const tf::Scope scope = NewGraph();
  Session session(scope);
  const tf::Output good = tf::ops::Const(scope, 1);
  std::vector<tf::Tensor> values;
  EXPECT_EQ(session.Run({good}, &values).ToString(), "OK");
  const GatherV2 bad(scope, {1, 2}, {0}, 9);
  EXPECT_EQ(session.Run({good}, &values).ToString(), scope.status().ToString());
  EXPECT_TRUE(!scope.ok());
}

TEST(SessionIsCalledByManyThreads) {
  const tf::Scope scope = NewGraph();
  const auto ids = tf::ops::Placeholder(scope, tf::DT_INT32);
  const GatherV2 rows(scope, {10, 20, 30}, ids, 0);
  Session session(scope);
  constexpr int kThreads = 4;
  std::vector<Numbers> found(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::vector<tf::Tensor> values;
      for (int i = 0; i < 50; ++i) {
        if (!session.Run({{ids, {t % 3}}}, {rows}, &values).ok()) return;
      }
      found[t] = Elements(values[0]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < kThreads; ++t) {
    EXPECT_EQ(found[t], (Numbers{10.0 * (t % 3 + 1)}));
  }
}

TEST(LoadLibraryDoesNothingTheSecondTime) {
  EXPECT_EQ(LoadLibrary(PackageFolder()).ToString(), "OK");
  EXPECT_EQ(LoadLibrary("/no/such/folder").ToString(), "OK");
  EXPECT_EQ(LoadLibrary().ToString(), "OK");
}

}  // namespace
}  // namespace testing
}  // namespace gather_stitch
