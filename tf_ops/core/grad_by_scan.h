// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// The gradient without any preparation: each thread reads the indices in order
// and adds the rows, or the columns of rows, that are its own. Grad is read
// from front to back, which no other way of dealing the work to threads can
// keep.

#ifndef GATHER_STITCH_CORE_GRAD_BY_SCAN_H_
#define GATHER_STITCH_CORE_GRAD_BY_SCAN_H_

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "tf_ops/core/cost.h"
#include "tf_ops/core/first_bad_index.h"
#include "tf_ops/core/grad_tile.h"
#include "tf_ops/core/outcome.h"
#include "tf_ops/core/parallel_for.h"
#include "tf_ops/core/resolve_block.h"
#include "tf_ops/core/scratch.h"
#include "tf_ops/core/worker_memory.h"

namespace gather_stitch {

// A thread looks at an index that is not its own for a sixth of what it costs
// to sort it into a bucket.
inline constexpr int64_t kMaxRowParts = 6;

// The parts that a line's table is cut into, each summed by one thread.
struct ScanParts {
  int64_t row_parts = 1;
  int64_t column_parts = 1;
  // The rows of a part, [first_rows[part], first_rows[part + 1]).
  int64_t first_rows[kMaxRowParts + 1];

  int64_t parts() const { return row_parts * column_parts; }
};

inline double ScanNanoseconds(const GradJob& job) {
  const double row_nanoseconds =
      static_cast<double>(job.row_bytes()) * kNanosecondsPerByte;
  return static_cast<double>(job.geometry.indices_per_batch) *
             (2 + 2 * row_nanoseconds) +
         static_cast<double>(job.geometry.rows) * row_nanoseconds;
}

// The parts of a line that give each thread as many as any other, or nearly.
inline int64_t WantedParts(const GradJob& job, int64_t threads) {
  const int64_t lines = job.lines();
  const bool is_small =
      ScanNanoseconds(job) * static_cast<double>(lines) < 2 * kRangeNanoseconds;
  // To pick a thread's own indices costs as much as to add rows as short as
  // these to a table that stays in the L2 cache.
  const bool is_light = job.row_bytes() <= 8 &&
                        job.geometry.rows * job.row_bytes() <= 512 * 1024 &&
                        threads <= kMaxRowParts;
  if (is_small || lines >= 4 * threads || lines % threads == 0 || is_light) {
    return 1;
  }
  const int64_t items = lines < threads ? threads : 2 * threads;
  return (items + lines - 1) / lines;
}

// Rows of the table as a sample of the work: those that indices name, and, for
// each row costs something by itself, some of all rows.
class RowSample {
 public:
  template <typename Index>
  RowSample(const GradJob& job, const Index* indices, BadIndexAction action) {
    const double rows = static_cast<double>(job.geometry.rows);
    const double count = static_cast<double>(job.all_indices());
    const double batches = static_cast<double>(job.geometry.batches);
    const int row_samples = static_cast<int>(kSamples * rows * batches /
                                             (rows * batches + 4 * count));
    for (int i = 0; i < row_samples; ++i) {
      rows_[i] = static_cast<int64_t>(rows * i / row_samples);
    }
    for (int i = row_samples; i < kSamples; ++i) {
      const int64_t position = static_cast<int64_t>(count * (i - row_samples) /
                                                    (kSamples - row_samples));
      // Where an index has no row it does not matter which one is counted.
      rows_[i] = std::max<int64_t>(
          0, ResolveIndex(indices[position], job.geometry.rows, action));
    }
    std::sort(rows_, rows_ + kSamples);
  }

  // The row that this share of the work lies before.
  int64_t RowAt(int64_t part, int64_t parts) const {
    return rows_[part * kSamples / parts];
  }

  // The share of the largest part.
  double LargestShare(const ScanParts& parts) const {
    int64_t largest = 0;
    const int64_t* begin = rows_;
    for (int64_t part = 1; part <= parts.row_parts; ++part) {
      const int64_t* const end =
          std::lower_bound(begin, rows_ + kSamples, parts.first_rows[part]);
      largest = std::max<int64_t>(largest, end - begin);
      begin = end;
    }
    return static_cast<double>(largest) / kSamples;
  }

 private:
  static constexpr int kSamples = 512;
  int64_t rows_[kSamples];
};

// False where the parts would be so many that threads mostly look at what is
// not theirs.
template <typename Index>
bool ChooseScanParts(const GradJob& job, int64_t threads, const Index* indices,
                     BadIndexAction action, ScanParts* parts) {
  const int64_t rows = job.geometry.rows;
  parts->first_rows[0] = 0;
  parts->first_rows[1] = rows;
  const int64_t wanted = WantedParts(job, threads);
  if (wanted == 1) return true;
  if (wanted > kMaxRowParts) return false;

  parts->row_parts = std::min(wanted, rows);
  const RowSample sample(job, indices, action);
  for (int64_t part = 1; part <= parts->row_parts; ++part) {
    const int64_t equal = rows / parts->row_parts * part +
                          std::min(part, rows % parts->row_parts);
    // Where sums are not in place there is memory for parts of equal size.
    parts->first_rows[part] = !job.sum.is_in_place || part == parts->row_parts
                                  ? equal
                                  : sample.RowAt(part, parts->row_parts);
  }
  // Columns are dealt without regard to how often a row is named. Otherwise
  // rows are better: half a row of 256 bytes to 1 KiB costs three quarters of
  // a whole one.
  constexpr int64_t kMinPieceBytes = 128;
  const double fair_share = 1 / static_cast<double>(wanted);
  if (sample.LargestShare(*parts) > 1.5 * fair_share &&
      job.row_bytes() >= wanted * kMinPieceBytes) {
    parts->row_parts = 1;
    parts->column_parts = wanted;
    parts->first_rows[1] = rows;
  }
  return true;
}

// The indices of a batch that name one of the rows [first_row, first_row +
// rows), as they come.
template <typename Index>
class IndexPairs {
 public:
  IndexPairs(const GatherGeometry& geometry, const Index* indices,
             int64_t batch, int64_t first_row, int64_t rows,
             BadIndexAction action, FirstBadIndex* first_bad)
      : geometry_(geometry),
        first_position_(batch * geometry.indices_per_batch),
        indices_(indices + first_position_),
        first_row_(first_row),
        rows_(rows),
        action_(action),
        first_bad_(first_bad) {}

  bool Next(RowPairs* pairs) {
    if (next_ == geometry_.indices_per_batch) return false;
    const int64_t count =
        std::min(kBlockIndices, geometry_.indices_per_batch - next_);
    const bool is_whole_table = rows_ == geometry_.rows;
    if (is_whole_table || !KeepInRange(count, pairs)) {
      const ResolvedBlock block = ResolveBlock(
          indices_ + next_, count, geometry_.rows, 0, action_, pairs->rows);
      if (block.is_bad()) {
        first_bad_->Report(0, first_position_ + next_ + block.first_bad,
                           block.bad_value);
        return false;
      }
      if (is_whole_table && !block.has_zero_rows) {
        pairs->is_consecutive = true;
        pairs->positions[0] = next_;
        pairs->count = count;
      } else {
        Keep(count, pairs);
      }
    }
    next_ += count;
    return true;
  }

 private:
  // What ResolveBlock and Keep do, in one loop; false where an index of the
  // block is not in range, which leaves it to them.
  bool KeepInRange(int64_t count, RowPairs* pairs) const {
    const uint64_t last_row = static_cast<uint64_t>(geometry_.rows - 1);
    const uint64_t first_row = static_cast<uint64_t>(first_row_);
    const uint64_t rows = static_cast<uint64_t>(rows_);
    const int64_t first_position = next_;
    const Index* const indices = indices_ + first_position;
    int64_t* const kept_rows = pairs->rows;
    int64_t* const kept_positions = pairs->positions;
    uint64_t outside = 0;
    int64_t kept = 0;
    for (int64_t i = 0; i < count; ++i) {
      const uint64_t bits =
          static_cast<uint64_t>(static_cast<int64_t>(indices[i]));
      outside |= bits | (last_row - bits);
      kept_rows[kept] = static_cast<int64_t>(bits - first_row);
      kept_positions[kept] = first_position + i;
      kept += bits - first_row < rows;
    }
    pairs->is_consecutive = false;
    pairs->count = kept;
    return static_cast<int64_t>(outside) >= 0;
  }

  // Closes the gaps that other parts' rows and zero rows leave.
  void Keep(int64_t count, RowPairs* pairs) const {
    pairs->is_consecutive = false;
    int64_t kept = 0;
    for (int64_t i = 0; i < count; ++i) {
      // kZeroRow is below any first row.
      const int64_t row = pairs->rows[i] - first_row_;
      pairs->rows[kept] = row;
      pairs->positions[kept] = next_ + i;
      kept += static_cast<uint64_t>(row) < static_cast<uint64_t>(rows_);
    }
    pairs->count = kept;
  }

  const GatherGeometry& geometry_;
  int64_t first_position_;
  const Index* indices_;
  int64_t first_row_;
  int64_t rows_;
  BadIndexAction action_;
  FirstBadIndex* first_bad_;
  int64_t next_ = 0;
};

// The float32 accumulators of the largest part, where sums are not in place.
inline int64_t ScanMemoryBytes(const GradJob& job, const ScanParts& parts) {
  if (job.sum.is_in_place) return 0;
  const int64_t rows = (job.geometry.rows - 1) / parts.row_parts + 1;
  const int64_t columns = (job.geometry.inner - 1) / parts.column_parts + 1;
  return rows * columns * job.sum.accumulator_bytes;
}

template <typename Index>
Outcome SumByScan(const GradJob& job, const ScanParts& parts,
                  const Index* indices, BadIndexAction action,
                  const ParallelFor& parallel, Scratch& scratch) {
  const GatherGeometry& geometry = job.geometry;
  WorkerMemory memory;
  if (!memory.Prepare(parallel, ScanMemoryBytes(job, parts), scratch)) {
    return Outcome::OutOfMemory();
  }
  FirstBadIndex first_bad;
  const double part_nanoseconds =
      ScanNanoseconds(job) / static_cast<double>(parts.parts());
  parallel.Run(
      job.lines() * parts.parts(), GrainOf(part_nanoseconds),
      [&](int64_t begin, int64_t end) {
        const FloatingPointMode::Scope scope(job.mode);
        const WorkerMemory::Lease lease(memory);
        for (int64_t item = begin; item < end; ++item) {
          const int64_t line = item / parts.parts();
          const int64_t row_part = item % parts.row_parts;
          const int64_t column_part = item % parts.parts() / parts.row_parts;
          const int64_t first_row = parts.first_rows[row_part];
          const int64_t first_column =
              geometry.inner * column_part / parts.column_parts;
          const GradTile tile{
              line, first_row, parts.first_rows[row_part + 1] - first_row,
              first_column,
              geometry.inner * (column_part + 1) / parts.column_parts -
                  first_column};
          const bool is_near =
              tile.rows * tile.columns * job.sum.accumulator_bytes <=
              kNearBytes;
          SumTile(job, tile,
                  is_near ? Announce::kNone : Announce::kAccumulators,
                  lease.get(),
                  IndexPairs<Index>(geometry, indices, line / geometry.outer,
                                    first_row, tile.rows, action, &first_bad));
        }
      });
  return first_bad.outcome();
}

}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_GRAD_BY_SCAN_H_
