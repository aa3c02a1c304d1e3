// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// Memory for tests: at any misalignment, with sentinels around what is written,
// and ending where an allocation ends, where a sanitizer looks.

#ifndef GATHER_STITCH_TESTS_CORE_BUFFERS_H_
#define GATHER_STITCH_TESTS_CORE_BUFFERS_H_

#include <cstdint>
#include <cstring>
#include <memory>

#include "tests/core/test_harness.h"

namespace gather_stitch {
namespace testing {

// Random bytes to read.
class Input {
 public:
  Input(int64_t bytes, int64_t misalignment, Random& random)
      : memory_(new char[bytes + misalignment]),
        start_(memory_.get() + misalignment) {
    int64_t i = 0;
    for (; i + 8 <= bytes; i += 8) {
      const uint64_t bits = random.Bits();
      std::memcpy(start_ + i, &bits, 8);
    }
    for (; i < bytes; ++i) start_[i] = static_cast<char>(random.Bits());
  }

  char* data() { return start_; }
  const char* data() const { return start_; }

 private:
  std::unique_ptr<char[]> memory_;
  char* start_;
};

// Memory to write.
class Output {
 public:
  Output(int64_t bytes, int64_t misalignment)
      : bytes_(bytes),
        before_(kSentinels + misalignment),
        memory_(new char[before_ + bytes + kSentinels]) {
    std::memset(memory_.get(), kSentinel,
                static_cast<size_t>(before_ + bytes + kSentinels));
  }

  char* data() { return memory_.get() + before_; }
  const char* data() const { return memory_.get() + before_; }
  int64_t bytes() const { return bytes_; }

  bool HasSentinels() const {
    for (int64_t i = 0; i < before_; ++i) {
      if (memory_[i] != kSentinel) return false;
    }
    for (int64_t i = 0; i < kSentinels; ++i) {
      if (memory_[before_ + bytes_ + i] != kSentinel) return false;
    }
    return true;
  }

  bool Equals(const Output& other) const {
    return bytes_ == other.bytes_ &&
           std::memcmp(data(), other.data(), static_cast<size_t>(bytes_)) == 0;
  }

 private:
  static constexpr int64_t kSentinels = 64;
  static constexpr char kSentinel = 0x3c;

  int64_t bytes_;
  int64_t before_;
  std::unique_ptr<char[]> memory_;
};

}  // namespace testing
}  // namespace gather_stitch

#endif  // GATHER_STITCH_TESTS_CORE_BUFFERS_H_
