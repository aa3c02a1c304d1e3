// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tf_ops/core/gather.h"

#include <algorithm>

#include "tf_ops/core/cost.h"
#include "tf_ops/core/first_bad_index.h"
#include "tf_ops/core/move_rows.h"
#include "tf_ops/core/resolve_block.h"

namespace gather_stitch {
namespace {

constexpr double kResolveNanoseconds = 1;

// Calls use(offset, count, numbers, has_zero_rows) for the blocks of indices
// [begin, end) that are not bad.
template <typename Index, typename Use>
void ForEachBlock(const Index* indices, int64_t begin, int64_t end,
                  int64_t rows, BadIndexAction action, FirstBadIndex* first_bad,
                  const Use& use) {
  int64_t numbers[kBlockIndices];
  while (begin < end) {
    const int64_t count = std::min(kBlockIndices, end - begin);
    const ResolvedBlock block =
        ResolveBlock(indices + begin, count, rows, 0, action, numbers);
    if (block.is_bad()) {
      first_bad->Report(0, begin + block.first_bad, block.bad_value);
    } else {
      use(begin, count, numbers);
    }
    begin += count;
  }
}

// Lines are the pairs (batch, outer). A block of output rows may span many of
// them: an index becomes a row number of the whole of params.
template <typename Index>
void GatherRange(const GatherGeometry& geometry, const Index* indices,
                 BadIndexAction action, const char* params,
                 const RowMover& mover, FirstBadIndex* first_bad, int64_t begin,
                 int64_t end, char* output) {
  int64_t numbers[kBlockIndices];
  const int64_t per_line = geometry.indices_per_batch;
  int64_t line = begin / per_line;
  int64_t i = begin % per_line;
  int64_t batch = line / geometry.outer;
  int64_t outer = line % geometry.outer;
  while (begin < end) {
    const int64_t block_rows = std::min(kBlockIndices, end - begin);
    bool is_bad = false;
    bool has_zero_rows = false;
    for (int64_t filled = 0; filled < block_rows;) {
      const int64_t count = std::min(block_rows - filled, per_line - i);
      const int64_t position = batch * per_line + i;
      const ResolvedBlock block =
          ResolveBlock(indices + position, count, geometry.rows,
                       line * geometry.rows, action, numbers + filled);
      if (block.is_bad()) {
        is_bad = true;
        first_bad->Report(0, position + block.first_bad, block.bad_value);
      }
      has_zero_rows |= block.has_zero_rows;
      filled += count;
      i += count;
      if (i == per_line) {
        i = 0;
        ++line;
        if (++outer == geometry.outer) {
          outer = 0;
          ++batch;
        }
      }
    }
    if (!is_bad) {
      mover.MoveNumbered(params, numbers, block_rows, has_zero_rows,
                         output + begin * mover.row_bytes());
    }
    begin += block_rows;
  }
}

template <typename Index>
Outcome GatherTyped(const GatherGeometry& geometry, int64_t row_bytes,
                    const char* params, const Index* indices,
                    BadIndexAction action, const ParallelFor& parallel,
                    char* output) {
  FirstBadIndex first_bad;
  if (!geometry.has_output()) {
    if (geometry.has_indices()) {
      parallel.Run(
          geometry.batches * geometry.indices_per_batch,
          GrainOf(kResolveNanoseconds), [&](int64_t begin, int64_t end) {
            ForEachBlock(indices, begin, end, geometry.rows, action, &first_bad,
                         [](int64_t, int64_t, const int64_t*) {});
          });
    }
    return first_bad.outcome();
  }
  const int64_t output_rows =
      geometry.batches * geometry.outer * geometry.indices_per_batch;
  const RowMover mover(row_bytes, geometry.rows * row_bytes,
                       output_rows * row_bytes);
  parallel.Run(output_rows,
               GrainOf(kResolveNanoseconds + mover.row_nanoseconds()),
               [&](int64_t begin, int64_t end) {
                 GatherRange(geometry, indices, action, params, mover,
                             &first_bad, begin, end, output);
               });
  return first_bad.outcome();
}

}  // namespace

Outcome GatherRows(const GatherGeometry& geometry, int64_t row_bytes,
                   const void* params, const void* indices,
                   IndexType index_type, BadIndexAction action,
                   const ParallelFor& parallel, void* output) {
  return VisitIndexType(index_type, [&](auto index) {
    return GatherTyped(geometry, row_bytes, static_cast<const char*>(params),
                       static_cast<const decltype(index)*>(indices), action,
                       parallel, static_cast<char*>(output));
  });
}

Outcome ResolveIndices(int64_t count, int64_t params_rows, const void* indices,
                       IndexType index_type, BadIndexAction action,
                       const ParallelFor& parallel, int64_t* rows) {
  FirstBadIndex first_bad;
  VisitIndexType(index_type, [&](auto index) {
    const auto* const typed = static_cast<const decltype(index)*>(indices);
    parallel.Run(
        count, GrainOf(kResolveNanoseconds), [&](int64_t begin, int64_t end) {
          ForEachBlock(typed, begin, end, params_rows, action, &first_bad,
                       [rows](int64_t offset, int64_t block_count,
                              const int64_t* numbers) {
                         std::copy_n(numbers, block_count, rows + offset);
                       });
        });
  });
  return first_bad.outcome();
}

}  // namespace gather_stitch
