// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// What kernels have to say to the host: a few words in device memory, copied
// once.

#ifndef GATHER_STITCH_CORE_GPU_REPORT_H_
#define GATHER_STITCH_CORE_GPU_REPORT_H_

#include <cstdint>

#include "tf_ops/core/gpu/stream.h"
#include "tf_ops/core/host_device.h"
#include "tf_ops/core/outcome.h"

namespace gather_stitch {
namespace gpu {

// All bits are set where nothing was reported.
struct Report {
  uint64_t first_bad;  // the smallest position whose index is bad
  int64_t bad_value;   // of that index; of a uint64 index: the same 64 bits
  int64_t number;      // what the function says it reports

  GATHER_STITCH_HOST_DEVICE bool has_bad_index() const {
    return first_bad != UINT64_MAX;
  }
  // For a single input.
  Outcome outcome() const {
    return has_bad_index() ? Outcome::BadIndex(
                                 0, static_cast<int64_t>(first_bad), bad_value)
                           : Outcome();
  }
};

// Before the functions that report.
GpuStatus ClearReport(Report* report, GpuStream stream);

// `host` may be read when the stream has passed it, and has to live until then.
GpuStatus CopyReport(Report* host, const Report* report, GpuStream stream);

}  // namespace gpu
}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_GPU_REPORT_H_
