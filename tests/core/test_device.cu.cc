// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tests/core/test_device.h"

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

namespace gather_stitch {
namespace testing {
namespace {

void Check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", call, cudaGetErrorString(error));
  std::exit(3);
}

}  // namespace

const char* DeviceName() {
  static const cudaDeviceProp properties = [] {
    cudaDeviceProp found;
    Check(cudaGetDeviceProperties(&found, 0), "cudaGetDeviceProperties");
    return found;
  }();
  return properties.name;
}

void* DeviceAllocate(int64_t bytes) {
  void* memory = nullptr;
  Check(cudaMalloc(&memory, static_cast<size_t>(bytes)), "cudaMalloc");
  Check(cudaMemset(memory, 0x5b, static_cast<size_t>(bytes)), "cudaMemset");
  return memory;
}

void DeviceFree(void* memory) { Check(cudaFree(memory), "cudaFree"); }

void CopyToDevice(void* device, const void* host, int64_t bytes) {
  Check(cudaMemcpy(device, host, static_cast<size_t>(bytes),
                   cudaMemcpyHostToDevice),
        "cudaMemcpy");
}

void CopyFromDevice(void* host, const void* device, int64_t bytes) {
  Check(cudaMemcpy(host, device, static_cast<size_t>(bytes),
                   cudaMemcpyDeviceToHost),
        "cudaMemcpy");
}

GpuStream DeviceStream() {
  static cudaStream_t stream = [] {
    cudaStream_t created;
    Check(cudaStreamCreate(&created), "cudaStreamCreate");
    return created;
  }();
  return {stream};
}

GpuStatus WaitForDevice() {
  const cudaError_t error =
      cudaStreamSynchronize(static_cast<cudaStream_t>(DeviceStream().handle));
  if (error == cudaSuccess) return GpuStatus();
  return GpuStatus::DeviceError(error, cudaGetErrorString(error));
}

}  // namespace testing
}  // namespace gather_stitch
