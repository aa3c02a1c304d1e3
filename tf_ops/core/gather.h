// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// Gather: rows of bytes, moved.
//
//   output[batch, outer, i] == params[batch, outer, row]
//     where row == ResolveIndex(indices[batch, i])
//
// over the loops of GatherGeometry, where a row is `row_bytes` bytes and a
// kZeroRow is a row of zero bytes.

#ifndef GATHER_STITCH_CORE_GATHER_H_
#define GATHER_STITCH_CORE_GATHER_H_

#include <cstdint>

#include "tf_ops/core/gather_geometry.h"
#include "tf_ops/core/indices.h"
#include "tf_ops/core/outcome.h"
#include "tf_ops/core/parallel_for.h"

namespace gather_stitch {

// `params` holds batches * outer * rows rows, `indices` batches *
// indices_per_batch indices, `output` batches * outer * indices_per_batch rows.
// row_bytes == geometry.inner * the size of an element, >= 0. Pointers need no
// alignment beyond that of the index type, and may be null where nothing is
// read or written. `output` overlaps neither input. Every index is checked,
// also where rows are empty or outer == 0. Each index is read once for each use
// and checked after it was read: indices that change meanwhile give rows of the
// table or an error. Returns kOk or kBadIndex.
Outcome GatherRows(const GatherGeometry& geometry, int64_t row_bytes,
                   const void* params, const void* indices,
                   IndexType index_type, BadIndexAction action,
                   const ParallelFor& parallel, void* output);

// rows[i] == ResolveIndex(indices[i], rows) for `count` >= 0 indices: for rows
// that are not plain bytes. Returns kOk or kBadIndex.
Outcome ResolveIndices(int64_t count, int64_t params_rows, const void* indices,
                       IndexType index_type, BadIndexAction action,
                       const ParallelFor& parallel, int64_t* rows);

}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_GATHER_H_
