// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// What a function of the core reports: errors are values.

#ifndef GATHER_STITCH_CORE_OUTCOME_H_
#define GATHER_STITCH_CORE_OUTCOME_H_

#include <cstdint>

namespace gather_stitch {

struct Outcome {
  enum Code {
    kOk,
    kBadIndex,     // an index is outside its range and the caller asked to fail
    kOutOfMemory,  // Scratch::Allocate returned nullptr
  };

  Code code = kOk;
  // For kBadIndex: the first bad index in row-major order, as it was read. The
  // output is then unspecified.
  int input = 0;         // which of the inputs (0 for gather)
  int64_t position = 0;  // flat, within that input
  int64_t value = 0;     // of a uint64 index: the same 64 bits

  bool ok() const { return code == kOk; }

  static Outcome BadIndex(int input, int64_t position, int64_t value) {
    return {kBadIndex, input, position, value};
  }
  static Outcome OutOfMemory() { return {kOutOfMemory, 0, 0, 0}; }
};

}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_OUTCOME_H_
