// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tests/core/test_device.h"

#include <atomic>
#include <cstring>
#include <functional>
#include <new>
#include <utility>

#include "tests/core/test_harness.h"
#include "tf_ops/core/gpu/device.h"

namespace gather_stitch {
namespace {

// Launches so far, of all streams: each walks its grid in another order, every
// fourth on two threads.
std::atomic<uint64_t> launches{0};

int64_t tasks_given = 0;
int64_t tasks_to_refused = -1;

std::vector<std::function<void()>>& Tasks() {
  static std::vector<std::function<void()>> tasks;
  return tasks;
}

}  // namespace

GpuStatus EnqueueHostTask(GpuStream /*stream*/, std::function<void()> task) {
  ++tasks_given;
  if (tasks_to_refused-- == 0) return GpuStatus::DeviceError(700, "refused");
  Tasks().push_back(std::move(task));
  return GpuStatus();
}

HostLaunch CurrentHostLaunch() {
  const uint64_t launch = launches++;
  return {launch, launch % 4 == 3 ? 2 : 1};
}

namespace testing {

namespace {
constexpr std::align_val_t kAlignment{256};
}  // namespace

const char* DeviceName() { return "host twin"; }

void* DeviceAllocate(int64_t bytes) {
  void* const memory = ::operator new(static_cast<size_t>(bytes), kAlignment);
  if (bytes > 0) std::memset(memory, 0x5b, static_cast<size_t>(bytes));
  return memory;
}

void DeviceFree(void* memory) { ::operator delete(memory, kAlignment); }

void CopyToDevice(void* device, const void* host, int64_t bytes) {
  std::memcpy(device, host, static_cast<size_t>(bytes));
}

void CopyFromDevice(void* host, const void* device, int64_t bytes) {
  std::memcpy(host, device, static_cast<size_t>(bytes));
}

GpuStream DeviceStream() { return GpuStream(); }

int64_t TasksGiven() { return tasks_given; }

void RefuseTask(int64_t task) { tasks_to_refused = task; }

GpuStatus WaitForDevice() {
  for (const auto& task : std::exchange(Tasks(), {})) task();
  return GpuStatus();
}

}  // namespace testing
}  // namespace gather_stitch
