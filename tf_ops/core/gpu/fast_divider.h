// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// Division by a number that is the same for a whole launch, as a multiplication
// and a shift: devices have no instruction that divides.

#ifndef GATHER_STITCH_CORE_GPU_FAST_DIVIDER_H_
#define GATHER_STITCH_CORE_GPU_FAST_DIVIDER_H_

#include <cstdint>

#include "tf_ops/core/host_device.h"

namespace gather_stitch {

__extension__ typedef unsigned __int128 Uint128;

GATHER_STITCH_HOST_DEVICE inline uint64_t MultiplyHigh(uint64_t a, uint64_t b) {
#ifdef __CUDA_ARCH__
  return __umul64hi(a, b);
#else
  return static_cast<uint64_t>(static_cast<Uint128>(a) * b >> 64);
#endif
}

// Divide(n) == n / divisor for n < 2^(bits of Number - 1).
//
// With 2^(k-1) < divisor <= 2^k, the factor ceil(2^(bits - 1 + k) / divisor)
// fits the type, and its error, below 1, times n stays below what would raise
// the quotient.
template <typename Number>
class FastDivider {
 public:
  static constexpr int kBits = 8 * static_cast<int>(sizeof(Number));

  FastDivider() = default;
  explicit FastDivider(Number divisor) : divisor_(divisor) {
    while (shift_ < kBits - 1 && Number{1} << shift_ < divisor) ++shift_;
    factor_ = static_cast<Number>(
        ((Uint128{1} << (kBits - 1 + shift_)) + divisor - 1) / divisor);
  }

  GATHER_STITCH_HOST_DEVICE Number divisor() const { return divisor_; }

  GATHER_STITCH_HOST_DEVICE Number Divide(Number n) const {
    if constexpr (kBits == 32) {
      return static_cast<Number>(uint64_t{n} * factor_ >> (kBits - 1 + shift_));
    } else {
      // Twice n, so that the shift is by 64 bits at least.
      return MultiplyHigh(2 * n, factor_) >> shift_;
    }
  }

 private:
  Number divisor_ = 1;
  Number factor_ = Number{1} << (kBits - 1);
  int shift_ = 0;
};

}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_GPU_FAST_DIVIDER_H_
