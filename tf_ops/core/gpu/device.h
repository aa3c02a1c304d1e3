// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// The launch layer: all that a kernel and its caller ask of a device.
//
// A kernel is a body: a copyable struct of numbers and device pointers with
//
//   GATHER_STITCH_DEVICE void operator()(const ThreadPosition& at) const
//
// that does the share of one thread. Threads share nothing but memory: no
// barrier, no shuffle, no block memory, so the threads of a grid may run in any
// order, one after the other as well. A body is right for every LaunchShape:
// its loops run from at.First() in steps of at.Stride().
//
//   Launch(shape, body, stream)          runs it; nothing where shape has no
//                                        blocks
//   FillBytes(memory, byte, n, stream)   memset
//   CopyToHost(host, device, n, stream)  `host` has to live, and may be read
//                                        only, until the stream has passed it
//
// What bodies call, on plain memory of the device:
//
//   LoadIndex(p)       *p, read once: memory that another stream may change
//   Load<Chunk>(p)     *p, through the cache for what nobody writes meanwhile
//   LoadRelaxed(p)     *p, which others change by the atomics below
//   AtomicMin, AtomicMax, AtomicAdd(p, value)   relaxed
//   Store(p, chunk)
//
// and before a loop of few steps, GATHER_STITCH_UNROLL.
//
// There are two implementations of it. nvcc compiles device_cuda.h. Any other
// compiler compiles the host twin, device_host.h, which runs the same body over
// the same grid on the CPU: the .cu.cc files are then plain C++ (-x c++), with
// the same functions in them. Their streams are what
//
//   GpuStatus EnqueueHostTask(GpuStream stream, std::function<void()> task);
//   HostLaunch CurrentHostLaunch();
//
// make of them, which whoever links the twin defines: the tests of the core,
// and the test build of the GPU library.

#ifndef GATHER_STITCH_CORE_GPU_DEVICE_H_
#define GATHER_STITCH_CORE_GPU_DEVICE_H_

#include "tf_ops/core/gpu/launch_shape.h"
#include "tf_ops/core/gpu/stream.h"
#include "tf_ops/core/host_device.h"

#ifdef __CUDACC__
#include "tf_ops/core/gpu/device_cuda.h"
#else
#include "tf_ops/core/gpu/device_host.h"
#endif

#endif  // GATHER_STITCH_CORE_GPU_DEVICE_H_
