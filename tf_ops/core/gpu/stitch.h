// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// core/stitch.h on a device: positions, the winner map and what follows from it
// are defined there. Pointers in StitchInput are of the device.

#ifndef GATHER_STITCH_CORE_GPU_STITCH_H_
#define GATHER_STITCH_CORE_GPU_STITCH_H_

#include <cstdint>

#include "tf_ops/core/gpu/report.h"
#include "tf_ops/core/gpu/stream.h"
#include "tf_ops/core/indices.h"
#include "tf_ops/core/outcome.h"
#include "tf_ops/core/scratch.h"
#include "tf_ops/core/stitch.h"

namespace gather_stitch {
namespace gpu {

// report->number == the largest index, or -1 where there is none. An index that
// is negative or INT64_MAX is bad.
GpuStatus FindLargestIndex(const StitchInput* inputs, int num_inputs,
                           IndexType index_type, Report* report,
                           GpuStream stream);

// Fills winners [merged_rows]. An index outside [0, merged_rows) names no row;
// under kFail it is reported, and under kZero `report` may be null.
GpuStatus StitchWinners(const StitchInput* inputs, int num_inputs,
                        IndexType index_type, int64_t merged_rows,
                        BadIndexAction action, Report* report, int64_t* winners,
                        GpuStream stream);

// The whole op. Takes 4 or 8 bytes of device scratch a merged row.
GpuStatus StitchRows(const StitchInput* inputs, int num_inputs,
                     IndexType index_type, int64_t row_bytes,
                     int64_t merged_rows, BadIndexAction action,
                     Scratch& scratch, Report* report, void* merged,
                     GpuStream stream);

GpuStatus StitchGradRows(const StitchInput* inputs, int num_inputs,
                         IndexType index_type, int64_t row_bytes,
                         int64_t grad_rows, const void* grad, Scratch& scratch,
                         void* const* data_grads, GpuStream stream);

// The outcome of a report on these inputs, which says position and value within
// an input.
Outcome StitchOutcome(const Report& report, const StitchInput* inputs,
                      int num_inputs);

}  // namespace gpu
}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_GPU_STITCH_H_
