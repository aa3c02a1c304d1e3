// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// The launch layer on CUDA; device.h is its contract.

#ifndef GATHER_STITCH_CORE_GPU_DEVICE_CUDA_H_
#define GATHER_STITCH_CORE_GPU_DEVICE_CUDA_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "tf_ops/core/gpu/chunk.h"
#include "tf_ops/core/gpu/launch_shape.h"
#include "tf_ops/core/gpu/stream.h"

#define GATHER_STITCH_UNROLL _Pragma("unroll")

namespace gather_stitch {

inline GpuStatus StatusOf(cudaError_t error) {
  if (error == cudaSuccess) return GpuStatus();
  return GpuStatus::DeviceError(error, cudaGetErrorString(error));
}

inline cudaStream_t CudaStream(GpuStream stream) {
  return static_cast<cudaStream_t>(stream.handle);
}

// A grid constant: what a body points to within itself stays where kernel
// parameters are, and is not copied to each thread's memory.
template <typename Body>
__global__ void __launch_bounds__(kThreadsPerBlock)
    RunBody(const __grid_constant__ Body body) {
  body(ThreadPosition{blockIdx.x, gridDim.x, threadIdx.x, blockDim.x});
}

template <typename Body>
GpuStatus Launch(LaunchShape shape, const Body& body, GpuStream stream) {
  if (shape.blocks == 0) return GpuStatus();
  void* arguments[] = {const_cast<Body*>(&body)};
  return StatusOf(cudaLaunchKernel(
      reinterpret_cast<const void*>(&RunBody<Body>), dim3(shape.blocks),
      dim3(shape.threads), arguments, 0, CudaStream(stream)));
}

inline GpuStatus FillBytes(void* memory, uint8_t byte, int64_t bytes,
                           GpuStream stream) {
  if (bytes == 0) return GpuStatus();
  return StatusOf(cudaMemsetAsync(memory, byte, static_cast<size_t>(bytes),
                                  CudaStream(stream)));
}

inline GpuStatus CopyToHost(void* host, const void* device, int64_t bytes,
                            GpuStream stream) {
  if (bytes == 0) return GpuStatus();
  return StatusOf(cudaMemcpyAsync(host, device, static_cast<size_t>(bytes),
                                  cudaMemcpyDeviceToHost, CudaStream(stream)));
}

// One instruction, which a compiler repeats no more than a volatile read, and
// through the cache, unlike that: the index of a row is for several threads.
template <typename T>
__device__ inline T LoadIndex(const T* p) {
  return __ldca(p);
}

template <typename T>
__device__ inline T LoadRelaxed(const T* p) {
  return *const_cast<const volatile T*>(p);
}

template <typename T>
__device__ inline T Load(const void* p) {
  return __ldg(static_cast<const T*>(p));
}

template <>
__device__ inline Chunk16 Load<Chunk16>(const void* p) {
  const uint4 words = __ldg(static_cast<const uint4*>(p));
  return {words.x, words.y, words.z, words.w};
}

// The assumption makes it a store to global memory, where the compiler can not
// see which kind of memory a pointer is of.
template <typename T>
__device__ inline void Store(void* p, T value) {
  __builtin_assume(__isGlobal(p));
  *static_cast<T*>(p) = value;
}

template <>
__device__ inline void Store<Chunk16>(void* p, Chunk16 value) {
  __builtin_assume(__isGlobal(p));
  *static_cast<uint4*>(p) = make_uint4(value.x, value.y, value.z, value.w);
}

__device__ inline void AtomicMin(uint64_t* p, uint64_t value) {
  atomicMin(reinterpret_cast<unsigned long long*>(p), value);
}
__device__ inline void AtomicMax(int32_t* p, int32_t value) {
  atomicMax(p, value);
}
__device__ inline void AtomicMax(int64_t* p, int64_t value) {
  atomicMax(reinterpret_cast<long long*>(p), value);
}
__device__ inline void AtomicAdd(uint32_t* p, uint32_t value) {
  atomicAdd(p, value);
}
__device__ inline void AtomicAdd(uint64_t* p, uint64_t value) {
  atomicAdd(reinterpret_cast<unsigned long long*>(p), value);
}
__device__ inline void AtomicAdd(float* p, float value) { atomicAdd(p, value); }
__device__ inline void AtomicAdd(double* p, double value) {
  atomicAdd(p, value);
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
// Four neighbours, aligned to 16 bytes, as one instruction.
__device__ inline void AtomicAdd4(float* p, const float (&values)[4]) {
  atomicAdd(reinterpret_cast<float4*>(p),
            make_float4(values[0], values[1], values[2], values[3]));
}
#endif

}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_GPU_DEVICE_CUDA_H_
