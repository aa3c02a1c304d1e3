// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// Working memory is lent by the caller, so that it is accounted for, and
// refused, where the caller's tensors are.

#ifndef GATHER_STITCH_CORE_SCRATCH_H_
#define GATHER_STITCH_CORE_SCRATCH_H_

#include <cstdint>

namespace gather_stitch {

class Scratch {
 public:
  virtual ~Scratch() = default;

  // Returns `bytes` > 0 bytes, aligned to 64, contents unspecified, or nullptr
  // where there is no memory. The lender frees them after the call that they
  // were lent for.
  virtual void* Allocate(int64_t bytes) = 0;
};

}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_SCRATCH_H_
