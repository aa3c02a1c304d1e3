// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// The launch layer's host twin; device.h is its contract.

#ifndef GATHER_STITCH_CORE_GPU_DEVICE_HOST_H_
#define GATHER_STITCH_CORE_GPU_DEVICE_HOST_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "tf_ops/core/gpu/launch_shape.h"
#include "tf_ops/core/gpu/stream.h"

#define GATHER_STITCH_UNROLL

namespace gather_stitch {

// How the grid of a launch is walked: its blocks in an order drawn from `seed`,
// dealt to `host_threads` >= 1 threads.
struct HostLaunch {
  uint64_t seed = 0;
  int host_threads = 1;
};

// The link-time part: these two are defined by whoever links the twin.
//
// Runs `task` after the tasks that were given to `stream` before, on any
// thread, now or later. An error is the caller's, and the task does not run.
GpuStatus EnqueueHostTask(GpuStream stream, std::function<void()> task);
// For the launch that runs now. Any thread may ask.
HostLaunch CurrentHostLaunch();

// Runs a body over a grid.
template <typename Body>
void WalkGrid(LaunchShape shape, const Body& body, HostLaunch launch) {
  std::vector<uint32_t> blocks(shape.blocks);
  std::iota(blocks.begin(), blocks.end(), 0);
  std::mt19937_64 random(launch.seed);
  for (uint32_t i = shape.blocks; i > 1; --i) {
    std::swap(blocks[i - 1], blocks[random() % i]);
  }
  const bool is_last_first = random() % 2 == 1;
  const auto walk = [&](int host_thread) {
    for (size_t i = host_thread; i < blocks.size(); i += launch.host_threads) {
      for (uint32_t t = 0; t < shape.threads; ++t) {
        const uint32_t thread = is_last_first ? shape.threads - 1 - t : t;
        body(ThreadPosition{blocks[i], shape.blocks, thread, shape.threads});
      }
    }
  };
  std::vector<std::thread> others;
  for (int i = 1; i < launch.host_threads; ++i) others.emplace_back(walk, i);
  walk(0);
  for (std::thread& other : others) other.join();
}

template <typename Body>
GpuStatus Launch(LaunchShape shape, const Body& body, GpuStream stream) {
  if (shape.blocks == 0) return GpuStatus();
  return EnqueueHostTask(
      stream, [shape, body] { WalkGrid(shape, body, CurrentHostLaunch()); });
}

inline GpuStatus FillBytes(void* memory, uint8_t byte, int64_t bytes,
                           GpuStream stream) {
  if (bytes == 0) return GpuStatus();
  return EnqueueHostTask(
      stream, [=] { std::memset(memory, byte, static_cast<size_t>(bytes)); });
}

inline GpuStatus CopyToHost(void* host, const void* device, int64_t bytes,
                            GpuStream stream) {
  if (bytes == 0) return GpuStatus();
  return EnqueueHostTask(
      stream, [=] { std::memcpy(host, device, static_cast<size_t>(bytes)); });
}

template <typename T>
T LoadIndex(const T* p) {
  return *const_cast<const volatile T*>(p);
}

template <typename T>
T LoadRelaxed(const T* p) {
  return __atomic_load_n(p, __ATOMIC_RELAXED);
}

template <typename T>
T Load(const void* p) {
  return *static_cast<const T*>(p);
}

template <typename T>
void Store(void* p, T value) {
  *static_cast<T*>(p) = value;
}

namespace host_internal {

// *p = f(*p), as one step.
template <typename T, typename F>
void Update(T* p, F&& f) {
  T current;
  __atomic_load(p, &current, __ATOMIC_RELAXED);
  for (;;) {
    T wanted = f(current);
    if (__atomic_compare_exchange(p, &current, &wanted, /*weak=*/true,
                                  __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
      return;
    }
  }
}

}  // namespace host_internal

template <typename T>
void AtomicMin(T* p, T value) {
  host_internal::Update(p, [=](T old) { return std::min(old, value); });
}

template <typename T>
void AtomicMax(T* p, T value) {
  host_internal::Update(p, [=](T old) { return std::max(old, value); });
}

template <typename T>
void AtomicAdd(T* p, T value) {
  host_internal::Update(p, [=](T old) { return old + value; });
}

}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_GPU_DEVICE_HOST_H_
