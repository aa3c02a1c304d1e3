// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// A rule of the core that failed, as TensorFlow's status.

#ifndef GATHER_STITCH_OPS_RULE_STATUS_H_
#define GATHER_STITCH_OPS_RULE_STATUS_H_

#include <string>

#include "absl/status/status.h"

namespace gather_stitch {

// OK where `error` is empty, else InvalidArgument with these words.
inline absl::Status RuleStatus(const std::string& error) {
  return error.empty() ? absl::OkStatus() : absl::InvalidArgumentError(error);
}

}  // namespace gather_stitch

#endif  // GATHER_STITCH_OPS_RULE_STATUS_H_
