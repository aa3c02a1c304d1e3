// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tf_ops/core/gather_grad.h"

#include <algorithm>
#include <numeric>

#include "tf_ops/core/cost.h"
#include "tf_ops/core/first_bad_index.h"
#include "tf_ops/core/floating_point_mode.h"
#include "tf_ops/core/gather.h"
#include "tf_ops/core/move_rows.h"
#include "tf_ops/core/resolve_block.h"
#include "tf_ops/core/row_partition.h"
#include "tf_ops/core/sum_rows.h"
#include "tf_ops/core/worker_memory.h"

namespace gather_stitch {
namespace {

// The accumulators that a thread adds into at a time: half of an L2 cache.
constexpr int64_t kTileBytes = 256 * 1024;

// A thread's share of a row is at least a cache line.
constexpr int64_t kMinStripeBytes = 64;

constexpr double kPairNanoseconds = 2;

// Lines are the pairs (batch, outer): each has a table of its own to sum into.
struct Job {
  const GatherGeometry& geometry;
  const SumFunctions& sum;
  const char* grad;
  char* params_grad;
  FloatingPointMode mode;

  int64_t lines() const { return geometry.batches * geometry.outer; }
  int64_t row_bytes() const { return geometry.inner * sum.element_bytes; }
  int64_t accumulator_row_bytes() const {
    return geometry.inner * sum.accumulator_bytes;
  }
};

// A part of a line's table.
struct Tile {
  int64_t line;
  int64_t first_row;
  int64_t rows;
  int64_t first_column;
  int64_t columns;
};

// Sums into a tile what pairs.Next yields, whose rows count from first_row.
// `memory` holds the tile as float32 where sums are not in place.
template <typename Pairs>
void SumTile(const Job& job, const Tile& tile, void* memory, Pairs pairs) {
  const SumFunctions& sum = job.sum;
  const int64_t inner = job.geometry.inner;
  const int64_t first_grad_row = tile.line * job.geometry.indices_per_batch;
  const int64_t first_row = tile.line * job.geometry.rows + tile.first_row;
  const char* const grad =
      job.grad +
      (first_grad_row * inner + tile.first_column) * sum.element_bytes;
  char* const out = job.params_grad +
                    (first_row * inner + tile.first_column) * sum.element_bytes;

  void* const accumulators = sum.is_in_place ? out : memory;
  const int64_t stride = sum.is_in_place ? inner : tile.columns;
  const bool is_whole_rows = tile.columns == inner;
  if (stride == tile.columns) {
    sum.start(SumStart::kZero, tile.rows * stride, accumulators);
  } else {
    for (int64_t r = 0; r < tile.rows; ++r) {
      sum.start(SumStart::kZero, tile.columns,
                out + r * inner * sum.element_bytes);
    }
  }

  RowPairs block;
  while (pairs.Next(&block)) {
    sum.add(block, grad, inner, tile.columns, accumulators, stride);
  }

  if (sum.is_in_place) return;
  const float* const sums = static_cast<const float*>(memory);
  if (is_whole_rows) {
    sum.round(sums, tile.rows * inner, out);
    return;
  }
  for (int64_t r = 0; r < tile.rows; ++r) {
    sum.round(sums + r * stride, tile.columns,
              out + r * inner * sum.element_bytes);
  }
}

// The indices of a batch as they come.
template <typename Index>
class IndexPairs {
 public:
  IndexPairs(const GatherGeometry& geometry, const Index* indices,
             int64_t batch, BadIndexAction action, FirstBadIndex* first_bad)
      : indices_(indices + batch * geometry.indices_per_batch),
        first_position_(batch * geometry.indices_per_batch),
        count_(geometry.indices_per_batch),
        rows_(geometry.rows),
        action_(action),
        first_bad_(first_bad) {}

  bool Next(RowPairs* pairs) {
    if (next_ == count_) return false;
    const int64_t count = std::min(kBlockIndices, count_ - next_);
    const ResolvedBlock block =
        ResolveBlock(indices_ + next_, count, rows_, 0, action_, pairs->rows);
    if (block.is_bad()) {
      first_bad_->Report(0, first_position_ + next_ + block.first_bad,
                         block.bad_value);
      return false;
    }
    std::iota(pairs->positions, pairs->positions + count, next_);
    pairs->count = count;
    if (block.has_zero_rows) DropZeroRows(pairs);
    next_ += count;
    return true;
  }

 private:
  static void DropZeroRows(RowPairs* pairs) {
    int64_t kept = 0;
    for (int64_t i = 0; i < pairs->count; ++i) {
      pairs->rows[kept] = pairs->rows[i];
      pairs->positions[kept] = pairs->positions[i];
      kept += pairs->rows[i] != kZeroRow;
    }
    pairs->count = kept;
  }

  const Index* indices_;
  int64_t first_position_;
  int64_t count_;
  int64_t rows_;
  BadIndexAction action_;
  FirstBadIndex* first_bad_;
  int64_t next_ = 0;
};

// Those of a bucket that name one of its rows [first_row, first_row + rows).
class BucketPairs {
 public:
  BucketPairs(const RowPartition<uint32_t>& partition, int64_t batch,
              int64_t bucket, int64_t first_row, int64_t rows)
      : partition_(partition),
        batch_(batch),
        bucket_(bucket),
        first_row_(first_row),
        rows_(rows) {}

  bool Next(RowPairs* pairs) {
    pairs->count = 0;
    while (chunk_ < partition_.chunks_per_batch) {
      const uint32_t* const starts = partition_.ChunkStarts(batch_, chunk_);
      const int64_t begin = starts[bucket_] + used_;
      const int64_t end = starts[bucket_ + 1];
      const int64_t room = kBlockIndices - pairs->count;
      const int64_t count = std::min(end - begin, room);
      const int64_t first_position = chunk_ * partition_.chunk_indices;
      const auto* const entries = partition_.entries +
                                  batch_ * partition_.indices_per_batch +
                                  first_position + begin;
      int64_t kept = pairs->count;
      for (int64_t i = 0; i < count; ++i) {
        const int64_t row = static_cast<int64_t>(entries[i].row) - first_row_;
        pairs->rows[kept] = row;
        pairs->positions[kept] = first_position + entries[i].position;
        kept += static_cast<uint64_t>(row) < static_cast<uint64_t>(rows_);
      }
      pairs->count = kept;
      used_ += count;
      if (count == room) return true;
      used_ = 0;
      ++chunk_;
    }
    return pairs->count > 0;
  }

 private:
  const RowPartition<uint32_t>& partition_;
  int64_t batch_;
  int64_t bucket_;
  int64_t first_row_;
  int64_t rows_;
  int64_t chunk_ = 0;
  int64_t used_ = 0;  // entries of this chunk's segment
};

// ---- Lines side by side, each by one thread ---------------------------------

double LineNanoseconds(const Job& job) {
  const double row_nanoseconds =
      static_cast<double>(job.row_bytes()) * kNanosecondsPerByte;
  return static_cast<double>(job.geometry.indices_per_batch) *
             (kPairNanoseconds + 2 * row_nanoseconds) +
         static_cast<double>(job.geometry.rows) * row_nanoseconds;
}

template <typename Index>
Outcome SumLines(const Job& job, const Index* indices, BadIndexAction action,
                 const ParallelFor& parallel, Scratch& scratch) {
  const GatherGeometry& geometry = job.geometry;
  WorkerMemory memory;
  const int64_t tile_bytes =
      job.sum.is_in_place ? 0 : geometry.rows * job.accumulator_row_bytes();
  if (!memory.Prepare(parallel, tile_bytes, scratch)) {
    return Outcome::OutOfMemory();
  }
  FirstBadIndex first_bad;
  parallel.Run(
      job.lines(), GrainOf(LineNanoseconds(job)),
      [&](int64_t begin, int64_t end) {
        const FloatingPointMode::Scope scope(job.mode);
        const WorkerMemory::Lease lease(memory);
        for (int64_t line = begin; line < end; ++line) {
          const Tile tile{line, 0, geometry.rows, 0, geometry.inner};
          SumTile(job, tile, lease.get(),
                  IndexPairs<Index>(geometry, indices, line / geometry.outer,
                                    action, &first_bad));
        }
      });
  return first_bad.outcome();
}

// ---- Buckets of rows side by side, each by one thread -----------------------

// The rows of a bucket, as a power of two: few enough for a tile, and for each
// thread to have some buckets.
int BucketShift(const Job& job, int threads, int64_t max_buckets) {
  const int64_t rows = job.geometry.rows;
  const int64_t tile_rows = kTileBytes / job.accumulator_row_bytes();
  const int64_t most = std::min(tile_rows, rows / (4 * int64_t{threads}));
  int shift = 0;
  while ((int64_t{2} << shift) <= most) ++shift;
  while ((rows - 1) >> shift >= max_buckets) ++shift;
  // A row within a bucket is 32 bits wide.
  return std::min(shift, 32);
}

template <typename Index>
Outcome SumBuckets(const Job& job, int row_shift, const Index* indices,
                   BadIndexAction action, const ParallelFor& parallel,
                   Scratch& scratch) {
  const GatherGeometry& geometry = job.geometry;
  const int threads = parallel.max_threads();
  RowPartition<uint32_t> partition;
  if (!partition.Prepare(geometry.batches, geometry.indices_per_batch,
                         geometry.rows, row_shift, scratch)) {
    return Outcome::OutOfMemory();
  }
  const int64_t buckets = partition.buckets;
  const int64_t all_buckets = geometry.batches * buckets;
  // starts[k]: the bytes that buckets before k touch.
  int64_t* const starts =
      static_cast<int64_t*>(scratch.Allocate((all_buckets + 1) * 8));
  WorkerMemory memory;
  if (starts == nullptr ||
      !memory.Prepare(parallel, job.sum.is_in_place ? 0 : kTileBytes,
                      scratch)) {
    return Outcome::OutOfMemory();
  }

  FirstBadIndex first_bad;
  partition.Fill(indices, action, parallel, &first_bad);
  if (!first_bad.outcome().ok()) return first_bad.outcome();

  const auto bucket_rows = [&](int64_t bucket) {
    const int64_t first_row = bucket << row_shift;
    return std::min(int64_t{1} << row_shift, geometry.rows - first_row);
  };
  std::fill_n(starts, all_buckets + 1, int64_t{0});
  for (int64_t batch = 0; batch < geometry.batches; ++batch) {
    int64_t* const sizes = starts + batch * buckets;
    for (int64_t chunk = 0; chunk < partition.chunks_per_batch; ++chunk) {
      const uint32_t* const ends = partition.ChunkStarts(batch, chunk);
      for (int64_t bucket = 0; bucket < buckets; ++bucket) {
        sizes[bucket] += ends[bucket + 1] - ends[bucket];
      }
    }
  }
  int64_t line_bytes = 0;  // over all batches
  for (int64_t k = 0; k <= all_buckets; ++k) {
    const int64_t bytes = k == all_buckets
                              ? 0
                              : starts[k] * (16 + 2 * job.row_bytes()) +
                                    bucket_rows(k % buckets) * job.row_bytes();
    starts[k] = line_bytes;
    line_bytes += bytes;
  }
  const int64_t all_bytes = line_bytes * geometry.outer;

  // Sums the columns [begin, end) of a bucket, tile by tile.
  const auto sum_bucket = [&](int64_t outer, int64_t k, int64_t begin_column,
                              int64_t end_column, void* tile_memory) {
    const int64_t batch = k / buckets;
    const int64_t bucket = k % buckets;
    const int64_t rows = bucket_rows(bucket);
    int64_t tile_rows = rows;
    int64_t tile_columns = end_column - begin_column;
    if (!job.sum.is_in_place) {
      const int64_t room = kTileBytes / job.sum.accumulator_bytes;
      tile_rows = std::min(tile_rows, room);
      tile_columns = std::min(tile_columns, room / tile_rows);
    }
    for (int64_t row = 0; row < rows; row += tile_rows) {
      for (int64_t column = begin_column; column < end_column;
           column += tile_columns) {
        const Tile tile{batch * geometry.outer + outer,
                        (bucket << row_shift) + row,
                        std::min(tile_rows, rows - row), column,
                        std::min(tile_columns, end_column - column)};
        SumTile(job, tile, tile_memory,
                BucketPairs(partition, batch, bucket, row, tile.rows));
      }
    }
  };

  // A bucket with much more than its share would keep one thread busy and the
  // others waiting: its columns are split instead.
  const int64_t stripes = std::min<int64_t>(
      threads, std::max<int64_t>(1, job.row_bytes() / kMinStripeBytes));
  const auto is_split = [&](int64_t k) {
    return stripes > 1 &&
           starts[k + 1] - starts[k] > all_bytes / (2 * int64_t{threads});
  };
  for (int64_t k = 0; k < all_buckets; ++k) {
    if (!is_split(k)) continue;
    for (int64_t outer = 0; outer < geometry.outer; ++outer) {
      parallel.Run(stripes, 1, [&](int64_t begin, int64_t end) {
        const FloatingPointMode::Scope scope(job.mode);
        const WorkerMemory::Lease lease(memory);
        const int64_t begin_column = begin * geometry.inner / stripes;
        const int64_t end_column = end * geometry.inner / stripes;
        sum_bucket(outer, k, begin_column, end_column, lease.get());
      });
    }
  }

  // A range of bytes stands for the buckets that start in it.
  parallel.Run(all_bytes, GrainOf(kNanosecondsPerByte),
               [&](int64_t begin, int64_t end) {
                 const FloatingPointMode::Scope scope(job.mode);
                 const WorkerMemory::Lease lease(memory);
                 int64_t outer = begin / line_bytes;
                 int64_t k = std::lower_bound(starts, starts + all_buckets,
                                              begin - outer * line_bytes) -
                             starts;
                 for (;; ++k) {
                   if (k == all_buckets) {
                     k = 0;
                     ++outer;
                   }
                   if (outer * line_bytes + starts[k] >= end) break;
                   if (is_split(k)) continue;
                   sum_bucket(outer, k, 0, geometry.inner, lease.get());
                 }
               });
  return first_bad.outcome();
}

// ---- The choice between them ------------------------------------------------

template <typename Index>
Outcome GatherGradTyped(const Job& job, const Index* indices,
                        BadIndexAction action, const ParallelFor& parallel,
                        Scratch& scratch) {
  const GatherGeometry& geometry = job.geometry;
  const int threads = parallel.max_threads();
  const int64_t table_bytes = geometry.rows * job.accumulator_row_bytes();
  const bool fits_tile = job.sum.is_in_place || table_bytes <= kTileBytes;
  const bool is_cached =
      table_bytes <= 4 * kTileBytes || geometry.indices_per_batch < 4096;
  const bool has_work_for_all =
      threads == 1 || job.lines() >= 4 * int64_t{threads} ||
      LineNanoseconds(job) * static_cast<double>(job.lines()) <
          2 * kRangeNanoseconds;
  if (fits_tile && is_cached && has_work_for_all) {
    return SumLines(job, indices, action, parallel, scratch);
  }
  // With many batches of few indices the buckets must not outnumber the
  // indices.
  const int64_t most_buckets = RowPartition<uint32_t>::kMaxBuckets;
  const int64_t max_buckets =
      geometry.batches == 1
          ? most_buckets
          : std::clamp<int64_t>(geometry.indices_per_batch / 2, 1,
                                most_buckets);
  const int row_shift = BucketShift(job, threads, max_buckets);
  return SumBuckets(job, row_shift, indices, action, parallel, scratch);
}

}  // namespace

Outcome GatherGrad(const GatherGeometry& geometry, SumType sum_type,
                   const void* grad, const void* indices, IndexType index_type,
                   BadIndexAction action, const ParallelFor& parallel,
                   Scratch& scratch, void* params_grad) {
  const Job job{geometry, SumFunctionsOf(sum_type),
                static_cast<const char*>(grad), static_cast<char*>(params_grad),
                FloatingPointMode::OfThisThread()};
  if (!geometry.has_output() || geometry.rows == 0) {
    // Nothing is added: indices are checked, and the table, if there is one, is
    // all zeros.
    if (geometry.has_indices()) {
      GatherGeometry rowless = geometry;
      rowless.inner = 0;
      return GatherRows(rowless, 0, nullptr, indices, index_type, action,
                        parallel, nullptr);
    }
    if (geometry.batches == 0 || geometry.outer == 0 || geometry.rows == 0 ||
        geometry.inner == 0) {
      return Outcome();
    }
    FillZeros(parallel, job.lines() * geometry.rows * job.row_bytes(),
              params_grad);
    return Outcome();
  }
  return VisitIndexType(index_type, [&](auto index) {
    return GatherGradTyped(job, static_cast<const decltype(index)*>(indices),
                           action, parallel, scratch);
  });
}

}  // namespace gather_stitch
