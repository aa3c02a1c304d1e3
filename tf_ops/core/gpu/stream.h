// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// A stream of device work, and what became of an attempt to add to it.

#ifndef GATHER_STITCH_CORE_GPU_STREAM_H_
#define GATHER_STITCH_CORE_GPU_STREAM_H_

namespace gather_stitch {

// Work of a stream runs in the order in which it was added, after the call that
// added it has returned or before. Functions that take a stream take it last,
// and never wait for it: pointers to device memory are read and written by the
// stream alone.
struct GpuStream {
  // Of CUDA: a cudaStream_t. Of the host twin: what EnqueueHostTask takes.
  void* handle = nullptr;
};

// Errors are values. `error` is a cudaError_t.
struct GpuStatus {
  enum Code {
    kOk,
    kOutOfMemory,  // Scratch::Allocate returned nullptr
    kDeviceError,  // a call of the CUDA runtime failed
  };

  Code code = kOk;
  int error = 0;
  const char* words = "";  // of `error`, in static memory

  bool ok() const { return code == kOk; }

  static GpuStatus OutOfMemory() { return {kOutOfMemory, 0, ""}; }
  static GpuStatus DeviceError(int error, const char* words) {
    return {kDeviceError, error, words};
  }
};

}  // namespace gather_stitch

#define GATHER_STITCH_RETURN_IF_GPU_ERROR(expression)            \
  do {                                                           \
    if (const ::gather_stitch::GpuStatus status_ = (expression); \
        !status_.ok())                                           \
      return status_;                                            \
  } while (false)

#endif  // GATHER_STITCH_CORE_GPU_STREAM_H_
