// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// The gradient of many indices by many threads: the indices are sorted into
// buckets of rows, and a thread sums the buckets that it takes. What sorting
// costs is divided among the threads, where a scan costs each of them the same.

#ifndef GATHER_STITCH_CORE_GRAD_BY_BUCKETS_H_
#define GATHER_STITCH_CORE_GRAD_BY_BUCKETS_H_

#include <algorithm>
#include <cstdint>

#include "tf_ops/core/cost.h"
#include "tf_ops/core/first_bad_index.h"
#include "tf_ops/core/grad_tile.h"
#include "tf_ops/core/outcome.h"
#include "tf_ops/core/parallel_for.h"
#include "tf_ops/core/resolve_block.h"
#include "tf_ops/core/row_partition.h"
#include "tf_ops/core/scratch.h"
#include "tf_ops/core/worker_memory.h"

namespace gather_stitch {

// The indices of a bucket that name one of its rows [first_row, first_row +
// rows).
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

// The rows of a bucket, as a power of two: few enough for a tile, and for each
// thread to have some buckets.
inline int BucketShift(const GradJob& job, int threads, int64_t max_buckets) {
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
Outcome SumByBuckets(const GradJob& job, int row_shift, const Index* indices,
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
        const GradTile tile{batch * geometry.outer + outer,
                            (bucket << row_shift) + row,
                            std::min(tile_rows, rows - row), column,
                            std::min(tile_columns, end_column - column)};
        const BucketPairs pairs(partition, batch, bucket, row, tile.rows);
        if (!job.sum.is_in_place &&
            geometry.indices_per_batch < geometry.rows) {
          SumTileOfFewRows(job, tile, Announce::kGrad,
                           static_cast<float*>(tile_memory), pairs);
        } else {
          SumTile(job, tile, Announce::kGrad, tile_memory, pairs);
        }
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

}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_GRAD_BY_BUCKETS_H_
