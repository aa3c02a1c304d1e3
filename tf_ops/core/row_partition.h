// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// Indices grouped by ranges of rows, so that a thread owns the rows that it
// sums and finds their indices in order.
//
// The indices of a batch are cut into chunks, and each chunk is sorted, stably
// and on its own, into buckets of 2^row_shift rows. What a bucket holds is then
// its segments of all chunks, one after the other. Chunks need no word from
// each other, so that one parallel loop does it, within the L1 and L2 caches.

#ifndef GATHER_STITCH_CORE_ROW_PARTITION_H_
#define GATHER_STITCH_CORE_ROW_PARTITION_H_

#include <algorithm>
#include <cstdint>

#include "tf_ops/core/cost.h"
#include "tf_ops/core/first_bad_index.h"
#include "tf_ops/core/indices.h"
#include "tf_ops/core/parallel_for.h"
#include "tf_ops/core/resolve_block.h"
#include "tf_ops/core/scratch.h"

namespace gather_stitch {

// Word is uint32_t or uint64_t, whichever holds the rows of a bucket.
template <typename Word>
struct RowPartition {
  struct Entry {
    Word row;           // within its bucket
    uint32_t position;  // within its chunk
  };

  // The row numbers of a chunk are on the stack of the thread that sorts it.
  static constexpr int64_t kMaxChunkIndices = 8192;
  // Eight indices a bucket, or the starts of buckets would outweigh the
  // entries.
  static constexpr int64_t kMaxBuckets = kMaxChunkIndices / 8;

  int64_t batches = 0;
  int64_t indices_per_batch = 0;
  int64_t rows = 0;
  int row_shift = 0;

  int64_t buckets = 0;
  int64_t chunk_indices = 0;
  int64_t chunks_per_batch = 0;

  Entry* entries = nullptr;    // [batches, indices_per_batch]
  uint32_t* starts = nullptr;  // [batches, chunks_per_batch, buckets + 1]

  // Allocates. rows > 0, indices_per_batch > 0; false where there is no memory.
  bool Prepare(int64_t num_batches, int64_t num_indices_per_batch,
               int64_t num_rows, int shift, Scratch& scratch) {
    batches = num_batches;
    indices_per_batch = num_indices_per_batch;
    rows = num_rows;
    row_shift = shift;
    buckets = ((rows - 1) >> row_shift) + 1;
    chunk_indices = std::clamp<int64_t>(buckets * 8, 4096, kMaxChunkIndices);
    chunks_per_batch = (indices_per_batch - 1) / chunk_indices + 1;
    const int64_t entry_bytes =
        batches * indices_per_batch * static_cast<int64_t>(sizeof(Entry));
    entries = static_cast<Entry*>(scratch.Allocate(entry_bytes));
    if (entries == nullptr) return false;
    starts = static_cast<uint32_t*>(
        scratch.Allocate(batches * chunks_per_batch * (buckets + 1) *
                         static_cast<int64_t>(sizeof(uint32_t))));
    return starts != nullptr;
  }

  // Indices without a row are left out.
  template <typename Index>
  void Fill(const Index* indices, BadIndexAction action,
            const ParallelFor& parallel, FirstBadIndex* first_bad) {
    parallel.Run(batches * chunks_per_batch,
                 GrainOf(4.0 * static_cast<double>(chunk_indices)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t chunk = begin; chunk < end; ++chunk) {
                     SortChunk(chunk / chunks_per_batch,
                               chunk % chunks_per_batch, indices, action,
                               first_bad);
                   }
                 });
  }

  const uint32_t* ChunkStarts(int64_t batch, int64_t chunk) const {
    return starts + (batch * chunks_per_batch + chunk) * (buckets + 1);
  }

  int64_t BucketSize(int64_t batch, int64_t bucket) const {
    int64_t size = 0;
    for (int64_t chunk = 0; chunk < chunks_per_batch; ++chunk) {
      const uint32_t* const chunk_starts = ChunkStarts(batch, chunk);
      size += chunk_starts[bucket + 1] - chunk_starts[bucket];
    }
    return size;
  }

  // Calls use(row within the bucket, position within the batch), positions
  // ascending.
  template <typename Use>
  void ForEach(int64_t batch, int64_t bucket, const Use& use) const {
    for (int64_t chunk = 0; chunk < chunks_per_batch; ++chunk) {
      const uint32_t* const chunk_starts = ChunkStarts(batch, chunk);
      const int64_t chunk_position = chunk * chunk_indices;
      const Entry* const chunk_entries =
          entries + batch * indices_per_batch + chunk_position;
      for (uint32_t i = chunk_starts[bucket]; i < chunk_starts[bucket + 1];
           ++i) {
        use(static_cast<int64_t>(chunk_entries[i].row),
            chunk_position + chunk_entries[i].position);
      }
    }
  }

 private:
  template <typename Index>
  void SortChunk(int64_t batch, int64_t chunk, const Index* indices,
                 BadIndexAction action, FirstBadIndex* first_bad) {
    const int64_t chunk_position = chunk * chunk_indices;
    const int64_t count =
        std::min(chunk_indices, indices_per_batch - chunk_position);
    const int64_t first = batch * indices_per_batch + chunk_position;
    uint32_t* const chunk_starts =
        starts + (batch * chunks_per_batch + chunk) * (buckets + 1);
    std::fill_n(chunk_starts, buckets + 1, 0u);

    // Rows are kept, for an index read a second time might be another one.
    int64_t chunk_rows[kMaxChunkIndices];
    for (int64_t i = 0; i < count; i += kBlockIndices) {
      const int64_t block_count = std::min(kBlockIndices, count - i);
      const ResolvedBlock block = ResolveBlock(indices + first + i, block_count,
                                               rows, 0, action, chunk_rows + i);
      if (block.is_bad()) {
        first_bad->Report(0, first + i + block.first_bad, block.bad_value);
        std::fill_n(chunk_starts, buckets + 1, 0u);
        return;
      }
      for (int64_t k = i; k < i + block_count; ++k) {
        if (chunk_rows[k] != kZeroRow)
          ++chunk_starts[chunk_rows[k] >> row_shift];
      }
    }

    uint32_t start = 0;
    for (int64_t bucket = 0; bucket <= buckets; ++bucket) {
      const uint32_t size = chunk_starts[bucket];
      chunk_starts[bucket] = start;
      start += size;
    }
    // Unsigned: one bucket may hold 2^63 rows.
    const int64_t row_mask =
        static_cast<int64_t>((uint64_t{1} << row_shift) - 1);
    Entry* const chunk_entries = entries + first;
    for (int64_t k = 0; k < count; ++k) {
      if (chunk_rows[k] == kZeroRow) continue;
      Entry& entry = chunk_entries[chunk_starts[chunk_rows[k] >> row_shift]++];
      entry = {static_cast<Word>(chunk_rows[k] & row_mask),
               static_cast<uint32_t>(k)};
    }
    // Each start has moved to the end of its bucket, the start of the next.
    std::copy_backward(chunk_starts, chunk_starts + buckets - 1,
                       chunk_starts + buckets);
    chunk_starts[0] = 0;
  }
};

}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_ROW_PARTITION_H_
