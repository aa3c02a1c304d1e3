// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// core/gather.h on a device:
//
//   output[batch, outer, i] == params[batch, outer, row]
//     where row == ResolveIndex(indices[batch, i])
//
// A kZeroRow and a kBadRow are rows of zero bytes.

#ifndef GATHER_STITCH_CORE_GPU_GATHER_H_
#define GATHER_STITCH_CORE_GPU_GATHER_H_

#include <cstdint>

#include "tf_ops/core/gather_geometry.h"
#include "tf_ops/core/gpu/report.h"
#include "tf_ops/core/gpu/stream.h"
#include "tf_ops/core/indices.h"

namespace gather_stitch {
namespace gpu {

// Sizes, alignment and aliasing are those of gather_stitch::GatherRows; all
// pointers are of the device. A kBadRow is reported, also where rows are empty
// or outer == 0. `report` may be null where `action` makes none: then nothing
// is launched for an empty output. Launches at most two kernels.
GpuStatus GatherRows(const GatherGeometry& geometry, int64_t row_bytes,
                     const void* params, const void* indices,
                     IndexType index_type, BadIndexAction action,
                     Report* report, void* output, GpuStream stream);

}  // namespace gpu
}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_GPU_GATHER_H_
