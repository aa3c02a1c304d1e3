// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// The kernels of a stitch. Where an op has more inputs than one launch can
// name, it is a launch for each table of kMostInputs of them.

#ifndef GATHER_STITCH_CORE_GPU_STITCH_KERNEL_H_
#define GATHER_STITCH_CORE_GPU_STITCH_KERNEL_H_

#include <cstdint>

#include "tf_ops/core/gpu/device.h"
#include "tf_ops/core/gpu/move_rows_kernel.h"
#include "tf_ops/core/gpu/report.h"
#include "tf_ops/core/gpu/report_bad_index.h"
#include "tf_ops/core/indices.h"
#include "tf_ops/core/stitch.h"

namespace gather_stitch {
namespace gpu {

// A table takes 1.6 KiB of the 4 KiB that a launch may pass.
inline constexpr int kMostInputs = 64;

// Inputs of a stitch, with their positions among those of all inputs.
struct StitchTable {
  int num_inputs = 0;
  uint64_t starts[kMostInputs + 1];  // input m has [starts[m], starts[m + 1])
  const void* indices[kMostInputs];
  char* rows[kMostInputs];  // data, or data_grad

  GATHER_STITCH_HOST_DEVICE uint64_t first() const { return starts[0]; }
  GATHER_STITCH_HOST_DEVICE uint64_t end() const { return starts[num_inputs]; }

  // Of all rows, for MoveRows.
  uint64_t AddressBits() const {
    uint64_t bits = 0;
    for (int m = 0; m < num_inputs; ++m) bits |= gpu::AddressBits(rows[m]);
    return bits;
  }

  // The input of a position in [first(), end()).
  GATHER_STITCH_DEVICE int InputOf(uint64_t position) const {
    int m = 0;
    for (int step = kMostInputs / 2; step > 0; step /= 2) {
      if (m + step < num_inputs && starts[m + step] <= position) m += step;
    }
    return m;
  }

  template <typename Index>
  GATHER_STITCH_DEVICE int64_t IndexAt(uint64_t position) const {
    const int m = InputOf(position);
    return LoadIndex(static_cast<const Index*>(indices[m]) + position -
                     starts[m]);
  }

  GATHER_STITCH_DEVICE char* RowAt(uint64_t position, int64_t row_bytes) const {
    const int m = InputOf(position);
    return rows[m] + (position - starts[m]) * row_bytes;
  }
};

// report->number = the largest index.
template <typename Index>
struct RaiseLargestIndex {
  StitchTable table;
  Report* report;

  GATHER_STITCH_DEVICE void operator()(const ThreadPosition& at) const {
    int64_t largest = -1;
    for (uint64_t p = table.first() + at.First(); p < table.end();
         p += at.Stride()) {
      const int64_t index = table.IndexAt<Index>(p);
      if (index < 0 || index == INT64_MAX) {
        ReportBadIndex(report, p);
      } else if (index > largest) {
        largest = index;
      }
    }
    // Most threads find a larger one there, and need no atomic.
    if (largest > LoadRelaxed(&report->number)) {
      AtomicMax(&report->number, largest);
    }
  }
};

// winners[r] = the largest position whose index is r. The last positions go
// first, so that a row with many of them is raised but a few times.
template <typename Index, typename Winner>
struct RaiseWinners {
  StitchTable table;
  int64_t merged_rows;
  BadIndexAction action;
  Winner* winners;
  Report* report;

  GATHER_STITCH_DEVICE void operator()(const ThreadPosition& at) const {
    const uint64_t count = table.end() - table.first();
    for (uint64_t i = at.First(); i < count; i += at.Stride()) {
      const uint64_t position = table.end() - 1 - i;
      const int64_t row =
          ResolveIndex(table.IndexAt<Index>(position), merged_rows, action);
      if (row < 0) {
        if (row == kBadRow) ReportBadIndex(report, position);
        continue;
      }
      const Winner winner = static_cast<Winner>(position);
      if (LoadRelaxed(winners + row) < winner) AtomicMax(winners + row, winner);
    }
  }
};

// One thread: the value of the first bad index, where this table has it.
template <typename Index>
struct ReportBadStitchValue {
  StitchTable table;
  Report* report;

  GATHER_STITCH_DEVICE void operator()(const ThreadPosition& at) const {
    const uint64_t position = report->first_bad;
    if (at.First() == 0 && position >= table.first() &&
        position < table.end()) {
      report->bad_value = table.IndexAt<Index>(position);
    }
  }
};

// merged[r] = the data row at winners[r], or zeros for a hole, where the winner
// is in this table.
template <typename Winner, typename OffsetType>
struct StitchPlan {
  using Offset = OffsetType;

  StitchTable table;
  const Winner* winners;
  char* merged;
  int64_t row_bytes;
  bool fills_holes;

  GATHER_STITCH_DEVICE RowMove At(Offset row) const {
    char* const to = merged + uint64_t{row} * row_bytes;
    const Winner winner = Load<Winner>(winners + row);
    if (winner < 0) return {nullptr, fills_holes ? to : nullptr};
    const uint64_t position = static_cast<uint64_t>(winner);
    if (position < table.first() || position >= table.end()) {
      return {nullptr, nullptr};
    }
    return {table.RowAt(position, row_bytes), to};
  }
};

// data_grad[p] = grad[index at p] where p is the winner of that row, else
// zeros. Positions are counted from the table's first.
template <typename Index, typename Winner, typename OffsetType>
struct StitchGradPlan {
  using Offset = OffsetType;

  StitchTable table;
  const Winner* winners;
  const char* grad;
  int64_t row_bytes;
  int64_t grad_rows;

  GATHER_STITCH_DEVICE RowMove At(Offset i) const {
    const uint64_t position = table.first() + i;
    char* const to = table.RowAt(position, row_bytes);
    const int64_t row = ResolveIndex(table.IndexAt<Index>(position), grad_rows,
                                     BadIndexAction::kZero);
    if (row < 0 ||
        Load<Winner>(winners + row) != static_cast<Winner>(position)) {
      return {nullptr, to};
    }
    return {grad + static_cast<uint64_t>(row) * row_bytes, to};
  }
};

}  // namespace gpu
}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_GPU_STITCH_KERNEL_H_
