// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tf_ops/core/gpu/sort.h"

#include "tf_ops/core/gpu/device.h"

#ifdef __CUDACC__
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>
#else
#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>
#endif

namespace gather_stitch {
namespace gpu {

#ifdef __CUDACC__

namespace {

// Calls CUB twice: first it says how much memory it needs.
template <typename F>
GpuStatus CallCub(Scratch& scratch, const F& call) {
  size_t bytes = 0;
  GATHER_STITCH_RETURN_IF_GPU_ERROR(StatusOf(call(nullptr, bytes)));
  // A null pointer asks for the size, also where that is zero.
  bytes = bytes == 0 ? 1 : bytes;
  void* const memory = scratch.Allocate(static_cast<int64_t>(bytes));
  if (memory == nullptr) return GpuStatus::OutOfMemory();
  return StatusOf(call(memory, bytes));
}

}  // namespace

template <typename Number>
GpuStatus SortPairs(int64_t count, int key_bits, Number* const keys[2],
                    Number* const values[2], int* result, Scratch& scratch,
                    GpuStream stream) {
  cub::DoubleBuffer<Number> key_buffers(keys[0], keys[1]);
  cub::DoubleBuffer<Number> value_buffers(values[0], values[1]);
  GATHER_STITCH_RETURN_IF_GPU_ERROR(
      CallCub(scratch, [&](void* memory, size_t& bytes) {
        return cub::DeviceRadixSort::SortPairs(memory, bytes, key_buffers,
                                               value_buffers, count, 0,
                                               key_bits, CudaStream(stream));
      }));
  *result = key_buffers.selector;
  return GpuStatus();
}

GpuStatus SumPrefixes(int64_t count, int64_t* sums, Scratch& scratch,
                      GpuStream stream) {
  return CallCub(scratch, [&](void* memory, size_t& bytes) {
    return cub::DeviceScan::InclusiveSum(memory, bytes, sums, sums, count,
                                         CudaStream(stream));
  });
}

#else  // The host twin.

template <typename Number>
GpuStatus SortPairs(int64_t count, int /*key_bits*/, Number* const keys[2],
                    Number* const values[2], int* result, Scratch& /*scratch*/,
                    GpuStream stream) {
  Number* const from_keys = keys[0];
  Number* const from_values = values[0];
  Number* const to_keys = keys[1];
  Number* const to_values = values[1];
  *result = 1;
  return EnqueueHostTask(stream, [=] {
    std::vector<std::pair<Number, Number> > pairs(count);
    for (int64_t i = 0; i < count; ++i) {
      pairs[i] = {from_keys[i], from_values[i]};
    }
    std::stable_sort(
        pairs.begin(), pairs.end(),
        [](const auto& a, const auto& b) { return a.first < b.first; });
    for (int64_t i = 0; i < count; ++i) {
      to_keys[i] = pairs[i].first;
      to_values[i] = pairs[i].second;
    }
  });
}

GpuStatus SumPrefixes(int64_t count, int64_t* sums, Scratch& /*scratch*/,
                      GpuStream stream) {
  return EnqueueHostTask(stream,
                         [=] { std::partial_sum(sums, sums + count, sums); });
}

#endif

template GpuStatus SortPairs<uint32_t>(int64_t, int, uint32_t* const[2],
                                       uint32_t* const[2], int*, Scratch&,
                                       GpuStream);
template GpuStatus SortPairs<uint64_t>(int64_t, int, uint64_t* const[2],
                                       uint64_t* const[2], int*, Scratch&,
                                       GpuStream);

}  // namespace gpu
}  // namespace gather_stitch
