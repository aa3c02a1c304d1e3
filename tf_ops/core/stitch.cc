// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tf_ops/core/stitch.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "tf_ops/core/cost.h"
#include "tf_ops/core/cpu_features.h"
#include "tf_ops/core/first_bad_index.h"
#include "tf_ops/core/move_rows.h"
#include "tf_ops/core/resolve_block.h"

namespace gather_stitch {
namespace {

constexpr double kIndexNanoseconds = 3;

// Up to this many bytes a row is written straight to its place, in order, which
// costs less than to look up the winner: 4.6 against 30 ns for a row of 4
// bytes, 46 against 54 for one of 64, of 10^6 on one thread.
constexpr int64_t kScatterRowBytes = 64;

// Each thread reads all indices and writes the rows that are its own. With more
// threads they would mostly look at what is not theirs.
constexpr int64_t kMaxScatterParts = 6;

// A thread that looks at all indices is worth waking for more than this: two
// need 66 us where one needs 34 for 10^4 rows of 16 bytes, and half of its time
// for 10^6.
constexpr double kScatterNanoseconds = 8 * kRangeNanoseconds;

struct Inputs {
  const StitchInput* inputs;
  int num_inputs;

  int64_t Count() const {
    int64_t count = 0;
    for (int m = 0; m < num_inputs; ++m) count += inputs[m].count;
    return count;
  }

  // Calls use(m, begin, end, position of begin) for the indices [begin, end) of
  // input m that make up the positions [begin_position, end_position), in
  // order, in pieces of at most kBlockIndices.
  template <typename Use>
  void ForEachPiece(int64_t begin_position, int64_t end_position,
                    const Use& use) const {
    int64_t first = 0;
    for (int m = 0; m < num_inputs && first < end_position; ++m) {
      const int64_t end = std::min(inputs[m].count, end_position - first);
      for (int64_t i = std::max<int64_t>(begin_position - first, 0); i < end;
           i += kBlockIndices) {
        use(m, i, std::min(i + kBlockIndices, end), first + i);
      }
      first += inputs[m].count;
    }
  }

  // The same with the row numbers of each piece, but for bad pieces:
  // use(m, begin, end, position of begin, rows, has_zero_rows).
  template <typename Index, typename Use>
  void ForEachResolved(int64_t begin_position, int64_t end_position,
                       int64_t rows, BadIndexAction action,
                       FirstBadIndex* first_bad, const Use& use) const {
    int64_t numbers[kBlockIndices];
    ForEachPiece(begin_position, end_position,
                 [&](int m, int64_t begin, int64_t end, int64_t position) {
                   const Index* const indices =
                       static_cast<const Index*>(inputs[m].indices);
                   const ResolvedBlock block = ResolveBlock(
                       indices + begin, end - begin, rows, 0, action, numbers);
                   if (block.is_bad()) {
                     first_bad->Report(m, begin + block.first_bad,
                                       block.bad_value);
                   } else {
                     use(m, begin, end, position, numbers, block.has_zero_rows);
                   }
                 });
  }
};

template <typename F>
decltype(auto) VisitStitchIndexType(IndexType type, F&& f) {
  if (type == IndexType::kInt32) return f(int32_t{});
  return f(int64_t{});
}

template <typename Index>
Outcome CheckIndices(const Inputs& inputs, int64_t merged_rows,
                     BadIndexAction action, const ParallelFor& parallel) {
  FirstBadIndex first_bad;
  if (action == BadIndexAction::kZero) return Outcome();
  parallel.Run(inputs.Count(), GrainOf(1), [&](int64_t begin, int64_t end) {
    inputs.ForEachResolved<Index>(
        begin, end, merged_rows, action, &first_bad,
        [](int, int64_t, int64_t, int64_t, const int64_t*, bool) {});
  });
  return first_bad.outcome();
}

// ---- The winner map ---------------------------------------------------------

// How far ahead an entry of the map is announced: for 10^6 rows of 4 to 64
// bytes this takes the gradient from 34 to 26 ns a row.
constexpr int64_t kAnnouncedRows = 16;

template <typename Winner>
void AnnounceWinner(const Winner* winners, const int64_t* rows, int64_t i,
                    int64_t count) {
  const int64_t row = rows[std::min(i + kAnnouncedRows, count - 1)];
  // That of a kZeroRow lies before the map, and is not read.
  __builtin_prefetch(reinterpret_cast<const void*>(
      reinterpret_cast<uintptr_t>(winners) +
      static_cast<uintptr_t>(row) * sizeof(Winner)));
}

template <typename Winner>
void RaiseWinner(Winner* winner, Winner position) {
  Winner current = __atomic_load_n(winner, __ATOMIC_RELAXED);
  while (current < position &&
         !__atomic_compare_exchange_n(winner, &current, position, true,
                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

// With several threads the first pass stores positions as they come, so that a
// row may be left with one that is not its largest, and the second raises those
// rows: few or none, and only they pay for an atomic exchange.
template <typename Winner, typename Index>
Outcome FillWinners(const Inputs& inputs, int64_t merged_rows,
                    BadIndexAction action, const ParallelFor& parallel,
                    Winner* winners) {
  const int64_t count = inputs.Count();
  FirstBadIndex first_bad;
  parallel.Run(merged_rows, GrainOf(sizeof(Winner) * kNanosecondsPerByte),
               [winners](int64_t begin, int64_t end) {
                 std::fill(winners + begin, winners + end,
                           static_cast<Winner>(kNoWinner));
               });

  const auto visit = [&](int64_t begin, int64_t end, const auto& write) {
    inputs.ForEachResolved<Index>(
        begin, end, merged_rows, action, &first_bad,
        [&](int, int64_t piece_begin, int64_t piece_end, int64_t position,
            const int64_t* rows, bool) {
          const int64_t piece_count = piece_end - piece_begin;
          for (int64_t i = 0; i < piece_count; ++i) {
            AnnounceWinner(winners, rows, i, piece_count);
            if (rows[i] == kZeroRow) continue;
            write(&winners[rows[i]], static_cast<Winner>(position + i));
          }
        });
  };
  const auto store = [&](int64_t begin, int64_t end) {
    visit(begin, end, [](Winner* winner, Winner position) {
      __atomic_store_n(winner, position, __ATOMIC_RELAXED);
    });
  };
  if (parallel.max_threads() == 1 ||
      static_cast<double>(count) * kIndexNanoseconds < kRangeNanoseconds) {
    store(0, count);
    return first_bad.outcome();
  }
  parallel.Run(count, GrainOf(kIndexNanoseconds), store);
  if (!first_bad.outcome().ok()) return first_bad.outcome();
  parallel.Run(count, GrainOf(kIndexNanoseconds),
               [&](int64_t begin, int64_t end) {
                 visit(begin, end, [](Winner* winner, Winner position) {
                   RaiseWinner(winner, position);
                 });
               });
  return first_bad.outcome();
}

// ---- Where the data of a position is ----------------------------------------

// A table of equal blocks of positions leads to the input, or to the few that
// share a block.
class DataRows {
 public:
  bool Prepare(const Inputs& inputs, int64_t row_bytes, Scratch& scratch) {
    const int num_inputs = inputs.num_inputs;
    const int64_t count = inputs.Count();
    row_bytes_ = row_bytes;
    while (count >> block_shift_ > 4 * int64_t{num_inputs} + 16) ++block_shift_;
    const int64_t blocks = (count >> block_shift_) + 2;
    starts_ = static_cast<int64_t*>(scratch.Allocate((num_inputs + 1) * 8));
    bases_ = static_cast<uintptr_t*>(
        scratch.Allocate(num_inputs * static_cast<int64_t>(sizeof(uintptr_t))));
    first_inputs_ = static_cast<int*>(
        scratch.Allocate(blocks * static_cast<int64_t>(sizeof(int))));
    if (starts_ == nullptr || bases_ == nullptr || first_inputs_ == nullptr) {
      return false;
    }
    starts_[0] = 0;
    int64_t block = 0;
    for (int m = 0; m < num_inputs; ++m) {
      starts_[m + 1] = starts_[m] + inputs.inputs[m].count;
      // Unsigned: the base of a late input may lie below its data's memory.
      bases_[m] = reinterpret_cast<uintptr_t>(inputs.inputs[m].data) -
                  static_cast<uintptr_t>(starts_[m] * row_bytes);
      for (; block << block_shift_ < starts_[m + 1]; ++block) {
        first_inputs_[block] = m;
      }
    }
    for (; block < blocks; ++block) first_inputs_[block] = num_inputs - 1;
    return true;
  }

  const char* At(int64_t position) const {
    const int64_t block = position >> block_shift_;
    int m = first_inputs_[block];
    const int last = first_inputs_[block + 1];
    if (m != last) {
      m = static_cast<int>(
              std::upper_bound(starts_ + m + 1, starts_ + last + 1, position) -
              starts_) -
          1;
    }
    return reinterpret_cast<const char*>(
        bases_[m] + static_cast<uintptr_t>(position * row_bytes_));
  }

 private:
  int64_t row_bytes_ = 0;
  int block_shift_ = 0;
  int64_t* starts_ = nullptr;   // [num_inputs + 1], the first position of each
  uintptr_t* bases_ = nullptr;  // [num_inputs], where position 0 would be
  int* first_inputs_ =
      nullptr;  // [blocks], the input of a block's first position
};

// ---- The rows ---------------------------------------------------------------

template <typename Winner>
Winner* AllocateWinners(int64_t rows, Scratch& scratch) {
  return static_cast<Winner*>(
      scratch.Allocate(rows * static_cast<int64_t>(sizeof(Winner))));
}

// A thread owns a range of merged rows and writes them in the order of the
// indices, so that the last writer is the last to write.
template <typename Index>
Outcome StitchByScatter(const Inputs& inputs, const RowMover& mover,
                        int64_t merged_rows, BadIndexAction action,
                        const ParallelFor& parallel, int64_t parts,
                        char* merged) {
  FirstBadIndex first_bad;
  const int64_t row_bytes = mover.row_bytes();
  const int64_t count = inputs.Count();
  const auto scatter_part = [&](int64_t first_row, int64_t end_row) {
    FillZeros((end_row - first_row) * row_bytes,
              merged_rows * row_bytes > LastLevelCacheBytes(),
              merged + first_row * row_bytes);
    int64_t kept_rows[kBlockIndices];
    int64_t offsets[kBlockIndices];
    const bool is_all = parts == 1;
    inputs.ForEachResolved<Index>(
        0, count, merged_rows, action, &first_bad,
        [&](int m, int64_t begin, int64_t end, int64_t, const int64_t* rows,
            bool has_zero_rows) {
          const char* const source =
              static_cast<const char*>(inputs.inputs[m].data) +
              begin * row_bytes;
          if (is_all && !has_zero_rows) {
            mover.Scatter(source, nullptr, rows, end - begin, merged);
            return;
          }
          int64_t kept = 0;
          for (int64_t i = 0; i < end - begin; ++i) {
            kept_rows[kept] = rows[i];
            offsets[kept] = i;
            kept += (rows[i] >= first_row) & (rows[i] < end_row);
          }
          const bool is_whole_block = kept == end - begin;
          mover.Scatter(source, is_whole_block ? nullptr : offsets, kept_rows,
                        kept, merged);
        });
  };
  parallel.Run(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const auto first_row_of = [&](int64_t p) {
        return merged_rows / parts * p + std::min(p, merged_rows % parts);
      };
      scatter_part(first_row_of(part), first_row_of(part + 1));
    }
  });
  return first_bad.outcome();
}

template <typename Winner, typename Index>
Outcome StitchByWinners(const Inputs& inputs, const RowMover& mover,
                        int64_t merged_rows, BadIndexAction action,
                        const ParallelFor& parallel, Scratch& scratch,
                        char* merged) {
  Winner* const winners = AllocateWinners<Winner>(merged_rows, scratch);
  DataRows data_rows;
  if (winners == nullptr ||
      !data_rows.Prepare(inputs, mover.row_bytes(), scratch)) {
    return Outcome::OutOfMemory();
  }
  const Outcome outcome = FillWinners<Winner, Index>(inputs, merged_rows,
                                                     action, parallel, winners);
  if (!outcome.ok()) return outcome;
  parallel.Run(
      merged_rows, GrainOf(kIndexNanoseconds + mover.row_nanoseconds()),
      [&](int64_t begin, int64_t end) {
        const char* sources[kBlockIndices];
        while (begin < end) {
          const int64_t count = std::min(kBlockIndices, end - begin);
          for (int64_t i = 0; i < count; ++i) {
            const Winner winner = winners[begin + i];
            sources[i] = winner < 0 ? mover.zero_row() : data_rows.At(winner);
          }
          mover.MovePointed(sources, count, merged + begin * mover.row_bytes());
          begin += count;
        }
      });
  return outcome;
}

template <typename Winner, typename Index>
Outcome StitchGradByWinners(const Inputs& inputs, const RowMover& mover,
                            int64_t grad_rows, const char* grad,
                            const ParallelFor& parallel, Scratch& scratch,
                            void* const* data_grads) {
  Winner* const winners =
      AllocateWinners<Winner>(std::max<int64_t>(grad_rows, 1), scratch);
  if (winners == nullptr) return Outcome::OutOfMemory();
  FillWinners<Winner, Index>(inputs, grad_rows, BadIndexAction::kZero, parallel,
                             winners);
  FirstBadIndex no_bad_index;
  const int64_t row_bytes = mover.row_bytes();
  parallel.Run(
      inputs.Count(), GrainOf(kIndexNanoseconds + mover.row_nanoseconds()),
      [&](int64_t begin_position, int64_t end_position) {
        inputs.ForEachResolved<Index>(
            begin_position, end_position, grad_rows, BadIndexAction::kZero,
            &no_bad_index,
            [&](int m, int64_t begin, int64_t end, int64_t position,
                const int64_t* rows, bool) {
              const char* sources[kBlockIndices];
              for (int64_t i = 0; i < end - begin; ++i) {
                AnnounceWinner(winners, rows, i, end - begin);
                const bool is_winner =
                    rows[i] != kZeroRow && winners[rows[i]] == position + i;
                sources[i] =
                    is_winner ? grad + rows[i] * row_bytes : mover.zero_row();
              }
              mover.MovePointed(
                  sources, end - begin,
                  static_cast<char*>(data_grads[m]) + begin * row_bytes);
            });
      });
  return Outcome();
}

bool FitsInt32(int64_t positions) {
  return positions <= std::numeric_limits<int32_t>::max();
}

}  // namespace

Outcome StitchMergedRows(const StitchInput* inputs, int num_inputs,
                         IndexType index_type, const ParallelFor& parallel,
                         int64_t* merged_rows) {
  const Inputs all{inputs, num_inputs};
  FirstBadIndex first_bad;
  int64_t largest = -1;
  VisitStitchIndexType(index_type, [&](auto typed_index) {
    using Index = decltype(typed_index);
    parallel.Run(all.Count(), GrainOf(1),
                 [&](int64_t begin_position, int64_t end_position) {
                   int64_t range_largest = -1;
                   all.ForEachPiece(
                       begin_position, end_position,
                       [&](int m, int64_t begin, int64_t end, int64_t) {
                         const Index* const indices =
                             static_cast<const Index*>(inputs[m].indices);
                         for (int64_t i = begin; i < end; ++i) {
                           const int64_t index = indices[i];
                           if (index < 0 ||
                               index == std::numeric_limits<int64_t>::max()) {
                             first_bad.Report(m, i, index);
                             return;
                           }
                           range_largest = std::max(range_largest, index);
                         }
                       });
                   RaiseWinner(&largest, range_largest);
                 });
  });
  *merged_rows = largest + 1;
  return first_bad.outcome();
}

Outcome StitchWinners(const StitchInput* inputs, int num_inputs,
                      IndexType index_type, int64_t merged_rows,
                      BadIndexAction action, const ParallelFor& parallel,
                      int64_t* winners) {
  return VisitStitchIndexType(index_type, [&](auto index) {
    return FillWinners<int64_t, decltype(index)>(
        {inputs, num_inputs}, merged_rows, action, parallel, winners);
  });
}

Outcome StitchRows(const StitchInput* inputs, int num_inputs,
                   IndexType index_type, int64_t row_bytes, int64_t merged_rows,
                   BadIndexAction action, const ParallelFor& parallel,
                   Scratch& scratch, void* merged) {
  const Inputs all{inputs, num_inputs};
  return VisitStitchIndexType(index_type, [&](auto typed_index) {
    using Index = decltype(typed_index);
    if (row_bytes == 0 || merged_rows == 0) {
      return CheckIndices<Index>(all, merged_rows, action, parallel);
    }
    char* const out = static_cast<char*>(merged);
    const int64_t count = all.Count();
    const RowMover mover(row_bytes, count * row_bytes, merged_rows * row_bytes);
    const double nanoseconds =
        static_cast<double>(count + merged_rows) * mover.row_nanoseconds();
    const int64_t threads =
        nanoseconds < kScatterNanoseconds ? 1 : parallel.max_threads();
    if (row_bytes <= kScatterRowBytes && threads <= kMaxScatterParts) {
      return StitchByScatter<Index>(all, mover, merged_rows, action, parallel,
                                    std::min(threads, merged_rows), out);
    }
    if (FitsInt32(count)) {
      return StitchByWinners<int32_t, Index>(all, mover, merged_rows, action,
                                             parallel, scratch, out);
    }
    return StitchByWinners<int64_t, Index>(all, mover, merged_rows, action,
                                           parallel, scratch, out);
  });
}

Outcome StitchGradRows(const StitchInput* inputs, int num_inputs,
                       IndexType index_type, int64_t row_bytes,
                       int64_t grad_rows, const void* grad,
                       const ParallelFor& parallel, Scratch& scratch,
                       void* const* data_grads) {
  const Inputs all{inputs, num_inputs};
  const int64_t count = all.Count();
  if (row_bytes == 0 || count == 0) return Outcome();
  const RowMover mover(row_bytes, grad_rows * row_bytes, count * row_bytes);
  const char* const rows = static_cast<const char*>(grad);
  return VisitStitchIndexType(index_type, [&](auto typed_index) {
    using Index = decltype(typed_index);
    if (FitsInt32(count)) {
      return StitchGradByWinners<int32_t, Index>(all, mover, grad_rows, rows,
                                                 parallel, scratch, data_grads);
    }
    return StitchGradByWinners<int64_t, Index>(all, mover, grad_rows, rows,
                                               parallel, scratch, data_grads);
  });
}

}  // namespace gather_stitch
