// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tf_ops/cc/session.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensorflow/core/graph/graph.h"

namespace gather_stitch {

using ::tensorflow::Node;
using ::tensorflow::Operation;
using ::tensorflow::Output;
using ::tensorflow::Scope;
using ::tensorflow::Tensor;

namespace {

// TensorFlow would otherwise throw the graph away that the next call adds to.
::tensorflow::SessionOptions ForGrowing(::tensorflow::SessionOptions options) {
  options.config.mutable_experimental()->set_disable_optimize_for_static_graph(
      true);
  return options;
}

}  // namespace

Session::Session(const Scope& scope)
    : Session(scope, ::tensorflow::SessionOptions()) {}

Session::Session(const Scope& scope,
                 const ::tensorflow::SessionOptions& options)
    : scope_(scope), session_(::tensorflow::NewSession(ForGrowing(options))) {}

Session::~Session() {
  if (session_ != nullptr) session_->Close().IgnoreError();
}

absl::Status Session::Run(const std::vector<Output>& fetches,
                          std::vector<Tensor>* outputs) {
  return Run({}, fetches, {}, outputs);
}

absl::Status Session::Run(const FeedType& feeds,
                          const std::vector<Output>& fetches,
                          std::vector<Tensor>* outputs) {
  return Run(feeds, fetches, {}, outputs);
}

absl::Status Session::Run(const FeedType& feeds,
                          const std::vector<Output>& fetches,
                          const std::vector<Operation>& operations,
                          std::vector<Tensor>* outputs) {
  TF_RETURN_IF_ERROR(ExtendGraph());
  std::vector<std::pair<std::string, Tensor>> named_feeds;
  for (const auto& feed : feeds) {
    TF_RETURN_IF_ERROR(feed.second.status);
    std::string name;
    TF_RETURN_IF_ERROR(NameOf("feed", feed.first, &name));
    named_feeds.emplace_back(std::move(name), feed.second.tensor);
  }
  std::vector<std::string> fetch_names(fetches.size());
  for (size_t i = 0; i < fetches.size(); ++i) {
    TF_RETURN_IF_ERROR(NameOf("fetch", fetches[i], &fetch_names[i]));
  }
  std::vector<std::string> operation_names;
  for (const Operation& operation : operations) {
    TF_RETURN_IF_ERROR(CheckNode("operation", operation.node()));
    operation_names.push_back(operation.node()->name());
  }
  std::vector<Tensor> ignored;
  return session_->Run(named_feeds, fetch_names, operation_names,
                       outputs == nullptr ? &ignored : outputs);
}

absl::Status Session::ExtendGraph() {
  if (session_ == nullptr) {
    return absl::InternalError("TensorFlow could not make a session");
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  TF_RETURN_IF_ERROR(scope_.status());
  const int nodes = scope_.graph()->num_node_ids();
  if (nodes == extended_nodes_) return absl::OkStatus();
  ::tensorflow::GraphDef added;
  scope_.graph()->ToGraphDefSubRange(&added, extended_nodes_);
  TF_RETURN_IF_ERROR(session_->Extend(added));
  extended_nodes_ = nodes;
  return absl::OkStatus();
}

absl::Status Session::CheckNode(const char* what, const Node* node) const {
  if (node == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(what, " is empty"));
  }
  const ::tensorflow::Graph* graph = scope_.graph();
  if (node->id() < 0 || node->id() >= graph->num_node_ids() ||
      graph->FindNodeId(node->id()) != node) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, " ", node->name(), " is not of the graph of this session"));
  }
  return absl::OkStatus();
}

absl::Status Session::NameOf(const char* what, const Output& output,
                             std::string* name) const {
  TF_RETURN_IF_ERROR(CheckNode(what, output.node()));
  *name = output.name();
  return absl::OkStatus();
}

}  // namespace gather_stitch
