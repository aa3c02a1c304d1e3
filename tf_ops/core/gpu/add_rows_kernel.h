// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// The kernel that adds rows of a gradient to where they came from, by atomic
// additions in the order in which threads run.

#ifndef GATHER_STITCH_CORE_GPU_ADD_ROWS_KERNEL_H_
#define GATHER_STITCH_CORE_GPU_ADD_ROWS_KERNEL_H_

#include <cstdint>
#include <type_traits>

#include "tf_ops/core/gpu/device.h"
#include "tf_ops/core/gpu/fast_divider.h"
#include "tf_ops/core/gpu/report.h"
#include "tf_ops/core/gpu/report_bad_index.h"
#include "tf_ops/core/gpu/sum_types.h"
#include "tf_ops/core/indices.h"

namespace gather_stitch {
namespace gpu {

template <int kCount, typename Element>
GATHER_STITCH_DEVICE inline void AtomicAddPack(
    const Pack<Element, kCount>& pack, Element* p) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  constexpr bool kHasVectors = kCount == 4 && std::is_same_v<Element, float>;
#else
  constexpr bool kHasVectors = false;
#endif
  if constexpr (kHasVectors) {
    AtomicAdd4(p, pack.elements);
  } else {
    GATHER_STITCH_UNROLL
    for (int k = 0; k < kCount; ++k) AtomicAdd(p + k, pack.elements[k]);
  }
}

// A thread takes kRunIndices neighbouring indices of a line, a pair (batch,
// outer), and one pack of their rows. Neighbours that are equal are one
// addition, so that a gradient whose indices are all equal does not wait for
// as many turns at one address as it has indices.
template <typename Indices, typename Element, int kCount>
struct AddRows {
  static constexpr int kRunIndices = 4;

  const Element* grad;
  Indices indices;
  Element* params_grad;  // zeros before
  int64_t rows;
  uint64_t indices_per_line;
  uint64_t threads;
  FastDivider<uint64_t> packs_per_row;
  FastDivider<uint64_t> runs_per_line;
  FastDivider<uint64_t> lines_per_batch;
  BadIndexAction action;
  Report* report;

  GATHER_STITCH_DEVICE void operator()(const ThreadPosition& at) const {
    for (uint64_t t = at.First(); t < threads; t += at.Stride()) {
      const uint64_t run = packs_per_row.Divide(t);
      const uint64_t pack = t - run * packs_per_row.divisor();
      const uint64_t line = runs_per_line.Divide(run);
      const uint64_t batch = lines_per_batch.Divide(line);
      const uint64_t first =
          (run - line * runs_per_line.divisor()) * kRunIndices;
      const uint64_t row_stride = packs_per_row.divisor() * kCount;
      AddRun(
          batch * indices_per_line + first, indices_per_line - first,
          grad + (line * indices_per_line + first) * row_stride + pack * kCount,
          params_grad + line * static_cast<uint64_t>(rows) * row_stride +
              pack * kCount,
          row_stride);
    }
  }

 private:
  // The `count` indices from `position` on, or kRunIndices of them.
  GATHER_STITCH_DEVICE void AddRun(uint64_t position, uint64_t count,
                                   const Element* source, Element* target,
                                   uint64_t row_stride) const {
    int64_t numbers[kRunIndices];
    Pack<Element, kCount> packs[kRunIndices];
    GATHER_STITCH_UNROLL
    for (int j = 0; j < kRunIndices; ++j) {
      numbers[j] = kZeroRow;
      if (static_cast<uint64_t>(j) >= count) continue;
      numbers[j] = indices.Resolve(position + j, rows, action);
      if (numbers[j] == kBadRow) ReportBadIndex(report, position + j);
      if (numbers[j] < 0) continue;
      packs[j] = LoadPack<Element, kCount>(source + j * row_stride);
    }
    GATHER_STITCH_UNROLL
    for (int j = 0; j < kRunIndices; ++j) {
      if (numbers[j] < 0) continue;
      if (j + 1 < kRunIndices && numbers[j] == numbers[j + 1]) {
        GATHER_STITCH_UNROLL
        for (int k = 0; k < kCount; ++k) {
          packs[j + 1].elements[k] =
              packs[j].elements[k] + packs[j + 1].elements[k];
        }
        continue;
      }
      AtomicAddPack(packs[j],
                    target + static_cast<uint64_t>(numbers[j]) * row_stride);
    }
  }
};

}  // namespace gpu
}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_GPU_ADD_ROWS_KERNEL_H_
