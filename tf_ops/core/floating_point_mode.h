// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// The rounding mode and the treatment of denormal numbers, which belong to a
// thread. Threads of a pool often flush denormals to zero where the calling
// thread does not; sums run in the caller's mode on every thread, so that they
// do not depend on how the work was split.

#ifndef GATHER_STITCH_CORE_FLOATING_POINT_MODE_H_
#define GATHER_STITCH_CORE_FLOATING_POINT_MODE_H_

#include <cstdint>

#ifdef __SSE2__
#include <xmmintrin.h>
#endif

namespace gather_stitch {

class FloatingPointMode {
 public:
  static FloatingPointMode OfThisThread() {
    return FloatingPointMode(Read() & kModeBits);
  }

  // This thread is in `mode` as long as the scope lives.
  class Scope {
   public:
    explicit Scope(FloatingPointMode mode) : saved_(Read()) {
      const uint64_t wanted = (saved_ & ~kModeBits) | mode.bits_;
      if (wanted != saved_) Write(wanted);
    }
    ~Scope() {
      const uint64_t current = Read();
      if ((current ^ saved_) & kModeBits) {
        Write((current & ~kModeBits) | (saved_ & kModeBits));
      }
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    uint64_t saved_;
  };

 private:
  explicit FloatingPointMode(uint64_t bits) : bits_(bits) {}

#if defined(__SSE2__)
  // Flush to zero, rounding control, denormals are zero.
  static constexpr uint64_t kModeBits = 0x8000 | 0x6000 | 0x0040;
  static uint64_t Read() { return _mm_getcsr(); }
  static void Write(uint64_t bits) { _mm_setcsr(static_cast<unsigned>(bits)); }
#elif defined(__aarch64__)
  // Flush to zero, rounding mode.
  static constexpr uint64_t kModeBits = 0x01000000 | 0x00c00000;
  static uint64_t Read() {
    uint64_t bits;
    asm volatile("mrs %0, fpcr" : "=r"(bits));
    return bits;
  }
  static void Write(uint64_t bits) {
    asm volatile("msr fpcr, %0" : : "r"(bits));
  }
#else
  static constexpr uint64_t kModeBits = 0;
  static uint64_t Read() { return 0; }
  static void Write(uint64_t) {}
#endif

  uint64_t bits_;
};

}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_FLOATING_POINT_MODE_H_
