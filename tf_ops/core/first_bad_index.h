// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// The smallest bad position of all ranges of a parallel loop.

#ifndef GATHER_STITCH_CORE_FIRST_BAD_INDEX_H_
#define GATHER_STITCH_CORE_FIRST_BAD_INDEX_H_

#include <cstdint>
#include <mutex>

#include "tf_ops/core/outcome.h"

namespace gather_stitch {

class FirstBadIndex {
 public:
  // From any thread. A lock will do: a range reports at most once for each of
  // its blocks, and only where the op fails.
  void Report(int input, int64_t position, int64_t value) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (first_.ok() || input < first_.input ||
        (input == first_.input && position < first_.position)) {
      first_ = Outcome::BadIndex(input, position, value);
    }
  }

  // After the loop has returned.
  const Outcome& outcome() const { return first_; }

 private:
  std::mutex mutex_;
  Outcome first_;
};

}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_FIRST_BAD_INDEX_H_
