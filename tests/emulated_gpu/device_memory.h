// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// Memory of the emulated devices: host memory that is kept as far from host
// code as it would be on a GPU.
//
// A block ends, but for what alignment takes, at a page that nobody may access,
// its address is never used again, and under AddressSanitizer the bytes between
// are poisoned. New blocks are full of kFreshByte, so that what a kernel leaves
// unwritten is not taken for zeros; those larger than kMostFreshBytes are zeros
// that take memory only where they are written.
//
// All functions may be called from any thread.

#ifndef GATHER_STITCH_TESTS_EMULATED_GPU_DEVICE_MEMORY_H_
#define GATHER_STITCH_TESTS_EMULATED_GPU_DEVICE_MEMORY_H_

#include <cstdint>

namespace emulated_gpu {

inline constexpr uint8_t kFreshByte = 0xa5;
inline constexpr uint64_t kMostFreshBytes = uint64_t{1} << 26;
// What TensorFlow asks of an allocator.
inline constexpr uint64_t kAlignment = 64;

// Before the first block. With a guard, memory can be accessed only while a
// MemoryAccess lives; an access at another time, past the end of a block or
// after its release ends the process with a line that says so, guard or not.
void StartMemory(bool guard);

// nullptr where there is no room.
void* Allocate(uint64_t bytes);
void Release(void* block);

int64_t LiveBlocks();

class MemoryAccess {
 public:
  MemoryAccess();
  ~MemoryAccess();
  MemoryAccess(const MemoryAccess&) = delete;
  MemoryAccess& operator=(const MemoryAccess&) = delete;
};

}  // namespace emulated_gpu

#endif  // GATHER_STITCH_TESTS_EMULATED_GPU_DEVICE_MEMORY_H_
