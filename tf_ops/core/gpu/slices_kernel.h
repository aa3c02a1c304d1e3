// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// The kernels that turn indices into sorted terms, and those into the slices of
// a sparse gradient.

#ifndef GATHER_STITCH_CORE_GPU_SLICES_KERNEL_H_
#define GATHER_STITCH_CORE_GPU_SLICES_KERNEL_H_

#include <cstdint>

#include "tf_ops/core/gpu/device.h"
#include "tf_ops/core/gpu/fast_divider.h"
#include "tf_ops/core/gpu/move_rows_kernel.h"
#include "tf_ops/core/gpu/report.h"
#include "tf_ops/core/gpu/report_bad_index.h"
#include "tf_ops/core/gpu/sum_segments_kernel.h"
#include "tf_ops/core/indices.h"

namespace gather_stitch {
namespace gpu {

// keys[p] = the row of index p, counted over all batches, or end_key where it
// has none; positions[p] = p.
template <typename Indices, typename Number>
struct ListKeys {
  Indices indices;
  uint64_t count;
  FastDivider<uint64_t> indices_per_batch;
  int64_t rows;
  uint64_t end_key;
  BadIndexAction action;
  Number* keys;
  Number* positions;
  Report* report;

  GATHER_STITCH_DEVICE void operator()(const ThreadPosition& at) const {
    for (uint64_t p = at.First(); p < count; p += at.Stride()) {
      const int64_t row = indices.Resolve(p, rows, action);
      if (row == kBadRow) ReportBadIndex(report, p);
      const uint64_t batch = indices_per_batch.Divide(p);
      const uint64_t key =
          batch * static_cast<uint64_t>(rows) + static_cast<uint64_t>(row);
      keys[p] = static_cast<Number>(row < 0 ? end_key : key);
      positions[p] = static_cast<Number>(p);
    }
  }
};

// The terms of slices: in the order of their keys, a slice for each key; or in
// that of their positions, a slice for each term.
struct SliceTerms {
  SortedTerms terms;
  uint64_t end_key;  // terms from this key on are dropped
  bool are_unique;

  GATHER_STITCH_DEVICE bool IsKept(uint64_t j) const {
    return terms.Key(j) < end_key;
  }
  GATHER_STITCH_DEVICE bool StartsSlice(uint64_t j) const {
    return IsKept(j) && (!are_unique || terms.IsHead(j));
  }
};

// numbers[j] = 1 where term j starts a slice, else 0. Their sums number the
// slices from 1.
struct MarkSlices {
  SliceTerms slices;
  int64_t* numbers;

  GATHER_STITCH_DEVICE void operator()(const ThreadPosition& at) const {
    for (uint64_t j = at.First(); j < slices.terms.count; j += at.Stride()) {
      numbers[j] = slices.StartsSlice(j) ? 1 : 0;
    }
  }
};

// slots[position of j] = the slice of term j, or -1.
struct ListSlots {
  SliceTerms slices;
  const int64_t* numbers;
  int64_t* slots;
  Report* report;

  GATHER_STITCH_DEVICE void operator()(const ThreadPosition& at) const {
    const uint64_t count = slices.terms.count;
    for (uint64_t j = at.First(); j < count; j += at.Stride()) {
      slots[slices.terms.Position(j)] =
          slices.IsKept(j) ? numbers[j] - 1 : int64_t{-1};
      if (j == count - 1) report->number = numbers[j] - 1;
    }
  }
};

// rows[slice] = its row.
struct ListRows {
  SliceTerms slices;
  const int64_t* numbers;
  int64_t* rows;

  GATHER_STITCH_DEVICE void operator()(const ThreadPosition& at) const {
    for (uint64_t j = at.First(); j < slices.terms.count; j += at.Stride()) {
      if (!slices.StartsSlice(j)) continue;
      rows[numbers[j] - 1] = static_cast<int64_t>(slices.terms.Key(j));
    }
  }
};

// Moves the row of each term that is kept to its slice, where no two terms
// share one.
template <typename OffsetType>
struct SlicePlan {
  using Offset = OffsetType;

  SliceTerms slices;
  const int64_t* numbers;
  const char* grad;
  char* values;
  int64_t row_bytes;

  GATHER_STITCH_DEVICE RowMove At(Offset j) const {
    if (!slices.IsKept(j)) return {nullptr, nullptr};
    const uint64_t slice = static_cast<uint64_t>(numbers[j] - 1);
    return {grad + uint64_t{j} * row_bytes, values + slice * row_bytes};
  }
};

}  // namespace gpu
}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_GPU_SLICES_KERNEL_H_
