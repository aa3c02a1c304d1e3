// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// The device that the GPU kernels run on in tests: a GPU where the tests are
// compiled by nvcc (test_device.cu.cc), else the host (test_device.cc), where a
// stream keeps its tasks until somebody waits for them.

#ifndef GATHER_STITCH_TESTS_CORE_TEST_DEVICE_H_
#define GATHER_STITCH_TESTS_CORE_TEST_DEVICE_H_

#include <cstdint>
#include <vector>

#include "tf_ops/core/gpu/stream.h"
#include "tf_ops/core/scratch.h"

namespace gather_stitch {
namespace testing {

const char* DeviceName();

// Aligned to 256 bytes, contents unspecified.
void* DeviceAllocate(int64_t bytes);
void DeviceFree(void* memory);
void CopyToDevice(void* device, const void* host, int64_t bytes);
void CopyFromDevice(void* host, const void* device, int64_t bytes);

GpuStream DeviceStream();
// Waits until the stream has done all that it was given.
GpuStatus WaitForDevice();

// Of the host twin alone: how many tasks all streams were given, and which of
// those to come, counted from 0, is refused once.
int64_t TasksGiven();
void RefuseTask(int64_t task);

// Device memory that lives as long as this object, refused from the allocation
// on that is asked for.
class DeviceMemory final : public Scratch {
 public:
  explicit DeviceMemory(int64_t refused_allocation = -1)
      : refused_allocation_(refused_allocation) {}
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() override;

  void* Allocate(int64_t bytes) override;

  // Memory as misaligned as `host` is, with a copy of its bytes.
  void* CopyOf(const void* host, int64_t bytes);

  int64_t allocations() const { return allocations_; }

 private:
  int64_t refused_allocation_;
  int64_t allocations_ = 0;
  std::vector<void*> pieces_;
};

}  // namespace testing
}  // namespace gather_stitch

#endif  // GATHER_STITCH_TESTS_CORE_TEST_DEVICE_H_
