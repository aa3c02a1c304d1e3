// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// Running the graph of a scope. TensorFlow's wheel declares ClientSession and
// has it in no library; this is as much of it as a program needs, by the same
// names.

#ifndef GATHER_STITCH_CC_SESSION_H_
#define GATHER_STITCH_CC_SESSION_H_

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "tensorflow/cc/framework/ops.h"
#include "tensorflow/cc/framework/scope.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/public/session.h"
#include "tensorflow/core/public/session_options.h"

namespace gather_stitch {

/// Evaluates tensors of the graph of a scope.
///
/// ```
///     tensorflow::Scope scope = tensorflow::Scope::NewRootScope();
///     auto ids = tensorflow::ops::Placeholder(scope, tensorflow::DT_INT32);
///     auto row = gather_stitch::ops::GatherV2(scope, {10, 20, 30}, ids, 0);
///     gather_stitch::Session session(scope);
///     std::vector<tensorflow::Tensor> outputs;
///     absl::Status status = session.Run({{ids, {2, 0}}}, {row}, &outputs);
///     // outputs[0].vec<int32_t>() is {30, 10}
/// ```
///
/// The graph may grow between two calls of Run; what was added is seen by the
/// next one. Run may be called by several threads while none of them adds to
/// the graph.
class Session {
 public:
  /// What to use in place of the tensors that outputs name.
  using FeedType =
      std::unordered_map<::tensorflow::Output, ::tensorflow::Input::Initializer,
                         ::tensorflow::OutputHash>;

  explicit Session(const ::tensorflow::Scope& scope);
  Session(const ::tensorflow::Scope& scope,
          const ::tensorflow::SessionOptions& options);
  ~Session();

  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Puts the values of `fetches` into `outputs`, in their order.
  ///
  /// Returns the status of the scope where that is an error: what is wrong with
  /// the graph is said here too. InvalidArgument for a fetch, feed or operation
  /// that is empty or of another graph. Else what TensorFlow says.
  absl::Status Run(const std::vector<::tensorflow::Output>& fetches,
                   std::vector<::tensorflow::Tensor>* outputs);

  /// The same with `feeds`.
  absl::Status Run(const FeedType& feeds,
                   const std::vector<::tensorflow::Output>& fetches,
                   std::vector<::tensorflow::Tensor>* outputs);

  /// The same, and runs `operations`, such as assignments. `outputs` may be
  /// null where there are no fetches.
  absl::Status Run(const FeedType& feeds,
                   const std::vector<::tensorflow::Output>& fetches,
                   const std::vector<::tensorflow::Operation>& operations,
                   std::vector<::tensorflow::Tensor>* outputs);

 private:
  absl::Status ExtendGraph();
  absl::Status CheckNode(const char* what,
                         const ::tensorflow::Node* node) const;
  absl::Status NameOf(const char* what, const ::tensorflow::Output& output,
                      std::string* name) const;

  const ::tensorflow::Scope scope_;
  const std::unique_ptr<::tensorflow::Session> session_;
  std::mutex mutex_;
  int extended_nodes_ = 0;  // Guarded by mutex_.
};

}  // namespace gather_stitch

#endif  // GATHER_STITCH_CC_SESSION_H_
