// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tests/core/test_device.h"

namespace gather_stitch {
namespace testing {

DeviceMemory::~DeviceMemory() {
  // What was added to the stream may still use it.
  WaitForDevice();
  for (void* piece : pieces_) DeviceFree(piece);
}

void* DeviceMemory::Allocate(int64_t bytes) {
  if (allocations_++ == refused_allocation_) return nullptr;
  pieces_.push_back(DeviceAllocate(bytes));
  return pieces_.back();
}

void* DeviceMemory::CopyOf(const void* host, int64_t bytes) {
  constexpr uintptr_t kAlignment = 64;
  const int64_t misalignment =
      static_cast<int64_t>(reinterpret_cast<uintptr_t>(host) % kAlignment);
  pieces_.push_back(DeviceAllocate(misalignment + bytes));
  char* const copy = static_cast<char*>(pieces_.back()) + misalignment;
  if (bytes > 0) CopyToDevice(copy, host, bytes);
  return copy;
}

}  // namespace testing
}  // namespace gather_stitch
