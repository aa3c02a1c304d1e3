// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// The half of gather_grad.h that yields slices.

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "tf_ops/core/cost.h"
#include "tf_ops/core/first_bad_index.h"
#include "tf_ops/core/floating_point_mode.h"
#include "tf_ops/core/gather.h"
#include "tf_ops/core/gather_grad.h"
#include "tf_ops/core/move_rows.h"
#include "tf_ops/core/row_partition.h"
#include "tf_ops/core/sum_rows.h"

namespace gather_stitch {
namespace {

// Indices in order, as many as sort within the L1 cache.
constexpr int64_t kBucketIndices = 512;

// The chunk of a loop that needs a sum over chunks before it can go on.
constexpr int64_t kChunkIndices = 16384;

int64_t* AllocateNumbers(int64_t count, Scratch& scratch) {
  return static_cast<int64_t*>(
      scratch.Allocate(std::max<int64_t>(count, 1) * 8));
}

// ---- A slice for each index -------------------------------------------------

Outcome PlanInOrder(int64_t count, int64_t params_rows, const void* indices,
                    IndexType index_type, BadIndexAction action,
                    const ParallelFor& parallel, Scratch& scratch,
                    SparseGradPlan* plan, int64_t* slots) {
  int64_t* const rows = AllocateNumbers(count, scratch);
  if (rows == nullptr) return Outcome::OutOfMemory();
  const Outcome outcome = ResolveIndices(count, params_rows, indices,
                                         index_type, action, parallel, rows);
  if (!outcome.ok()) return outcome;

  const int64_t chunks = (count + kChunkIndices - 1) / kChunkIndices;
  int64_t* const starts = AllocateNumbers(chunks + 1, scratch);
  if (starts == nullptr) return Outcome::OutOfMemory();
  const auto for_each_chunk = [&](const auto& body) {
    parallel.Run(chunks, GrainOf(1.0 * kChunkIndices),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t chunk = begin; chunk < end; ++chunk) {
                     const int64_t first = chunk * kChunkIndices;
                     body(chunk, first, std::min(first + kChunkIndices, count));
                   }
                 });
  };
  starts[0] = 0;
  for_each_chunk([&](int64_t chunk, int64_t first, int64_t last) {
    starts[chunk + 1] =
        (last - first) - std::count(rows + first, rows + last, kZeroRow);
  });
  std::partial_sum(starts, starts + chunks + 1, starts);
  plan->slices = starts[chunks];

  if (plan->slices == count) {
    for_each_chunk([&](int64_t, int64_t first, int64_t last) {
      std::iota(slots + first, slots + last, first);
    });
    plan->is_identity = true;
    plan->rows = rows;
    return outcome;
  }

  int64_t* const kept_rows = AllocateNumbers(plan->slices, scratch);
  int64_t* const positions = AllocateNumbers(plan->slices, scratch);
  if (kept_rows == nullptr || positions == nullptr) {
    return Outcome::OutOfMemory();
  }
  for_each_chunk([&](int64_t chunk, int64_t first, int64_t last) {
    int64_t slice = starts[chunk];
    for (int64_t i = first; i < last; ++i) {
      if (rows[i] == kZeroRow) {
        slots[i] = -1;
        continue;
      }
      slots[i] = slice;
      kept_rows[slice] = rows[i];
      positions[slice] = i;
      ++slice;
    }
  });
  plan->rows = kept_rows;
  plan->positions = positions;
  return outcome;
}

// ---- A slice for each distinct row ------------------------------------------

// Key is uint32_t or uint64_t, whichever holds rows and positions.
template <typename Key>
struct Item {
  Key row;  // within its bucket
  Key position;
};

// Sorts stably by the lowest `bits` bits of the rows: least significant digit
// first. The result is in `items`; `spare` is as large.
template <typename Key>
void SortItems(Item<Key>* items, Item<Key>* spare, int64_t count, int bits) {
  constexpr int kDigitBits = 8;
  constexpr int kDigits = 1 << kDigitBits;
  Item<Key>* from = items;
  Item<Key>* to = spare;
  for (int shift = 0; shift < bits; shift += kDigitBits) {
    int64_t ends[kDigits] = {};
    for (int64_t i = 0; i < count; ++i) {
      ++ends[from[i].row >> shift & (kDigits - 1)];
    }
    // A digit that is the same in all rows sorts nothing.
    if (ends[from[0].row >> shift & (kDigits - 1)] == count) continue;
    int64_t start = 0;
    for (int64_t& end : ends) start += std::exchange(end, start);
    for (int64_t i = 0; i < count; ++i) {
      to[ends[from[i].row >> shift & (kDigits - 1)]++] = from[i];
    }
    std::swap(from, to);
  }
  if (from != items) std::copy_n(from, count, items);
}

template <typename Key, typename Index>
Outcome PlanUnique(int64_t count, int64_t params_rows, int row_shift,
                   const Index* indices, BadIndexAction action,
                   const ParallelFor& parallel, Scratch& scratch,
                   SparseGradPlan* plan, int64_t* slots) {
  RowPartition<Key> partition;
  FirstBadIndex first_bad;
  if (!partition.Prepare(1, count, params_rows, row_shift, scratch)) {
    return Outcome::OutOfMemory();
  }
  partition.Fill(indices, action, parallel, &first_bad);
  if (!first_bad.outcome().ok()) return first_bad.outcome();

  // bucket_starts: into the items; slice_bases: the first slice of a bucket.
  const int64_t buckets = partition.buckets;
  int64_t* const bucket_starts = AllocateNumbers(buckets + 1, scratch);
  int64_t* const slice_bases = AllocateNumbers(buckets + 1, scratch);
  if (bucket_starts == nullptr || slice_bases == nullptr) {
    return Outcome::OutOfMemory();
  }
  bucket_starts[0] = 0;
  for (int64_t bucket = 0; bucket < buckets; ++bucket) {
    bucket_starts[bucket + 1] =
        bucket_starts[bucket] + partition.BucketSize(0, bucket);
  }
  const int64_t kept = bucket_starts[buckets];
  auto* const items = static_cast<Item<Key>*>(scratch.Allocate(
      std::max<int64_t>(kept, 1) * static_cast<int64_t>(sizeof(Item<Key>))));
  auto* const spare = static_cast<Item<Key>*>(scratch.Allocate(
      std::max<int64_t>(kept, 1) * static_cast<int64_t>(sizeof(Item<Key>))));
  if (items == nullptr || spare == nullptr) return Outcome::OutOfMemory();

  const auto for_each_bucket = [&](const auto& body) {
    const double bucket_items =
        static_cast<double>(kept) / static_cast<double>(buckets);
    parallel.Run(buckets, GrainOf(10 * bucket_items + 100),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t bucket = begin; bucket < end; ++bucket) {
                     body(bucket, bucket_starts[bucket],
                          bucket_starts[bucket + 1]);
                   }
                 });
  };
  slice_bases[0] = 0;
  for_each_bucket([&](int64_t bucket, int64_t begin, int64_t end) {
    slice_bases[bucket + 1] = 0;
    if (begin == end) return;
    int64_t next = begin;
    partition.ForEach(0, bucket, [&](int64_t row, int64_t position) {
      items[next++] = {static_cast<Key>(row), static_cast<Key>(position)};
    });
    SortItems(items + begin, spare + begin, end - begin, row_shift);
    int64_t distinct = 1;
    for (int64_t i = begin + 1; i < end; ++i) {
      distinct += items[i].row != items[i - 1].row;
    }
    slice_bases[bucket + 1] = distinct;
  });
  std::partial_sum(slice_bases, slice_bases + buckets + 1, slice_bases);
  plan->slices = slice_bases[buckets];

  int64_t* const rows = AllocateNumbers(plan->slices, scratch);
  int64_t* const slice_starts = AllocateNumbers(plan->slices + 1, scratch);
  int64_t* const positions = AllocateNumbers(kept, scratch);
  if (rows == nullptr || slice_starts == nullptr || positions == nullptr) {
    return Outcome::OutOfMemory();
  }
  if (kept < count) {
    parallel.Run(count, GrainOf(1), [slots](int64_t begin, int64_t end) {
      std::fill(slots + begin, slots + end, int64_t{-1});
    });
  }
  for_each_bucket([&](int64_t bucket, int64_t begin, int64_t end) {
    int64_t slice = slice_bases[bucket] - 1;
    for (int64_t i = begin; i < end; ++i) {
      if (i == begin || items[i].row != items[i - 1].row) {
        ++slice;
        slice_starts[slice] = i;
        rows[slice] =
            (bucket << row_shift) + static_cast<int64_t>(items[i].row);
      }
      positions[i] = static_cast<int64_t>(items[i].position);
      slots[positions[i]] = slice;
    }
  });
  slice_starts[plan->slices] = kept;
  plan->is_identity =
      plan->slices == count && std::is_sorted(positions, positions + count);
  plan->rows = rows;
  plan->slice_starts = slice_starts;
  plan->positions = positions;
  return first_bad.outcome();
}

template <typename Index>
Outcome PlanUniqueTyped(int64_t count, int64_t params_rows,
                        const Index* indices, BadIndexAction action,
                        const ParallelFor& parallel, Scratch& scratch,
                        SparseGradPlan* plan, int64_t* slots) {
  const int64_t wanted_buckets = std::clamp<int64_t>(
      count / kBucketIndices, 1, RowPartition<uint32_t>::kMaxBuckets);
  int row_shift = 0;
  while ((params_rows - 1) >> row_shift >= wanted_buckets) ++row_shift;
  constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
  if (row_shift <= 32 && count <= kMost) {
    return PlanUnique<uint32_t>(count, params_rows, row_shift, indices, action,
                                parallel, scratch, plan, slots);
  }
  return PlanUnique<uint64_t>(count, params_rows, row_shift, indices, action,
                              parallel, scratch, plan, slots);
}

// ---- Values -----------------------------------------------------------------

// Where a slice is one row of grad nothing is added.
void MoveSlices(const SparseGradPlan& plan, int64_t row_bytes, const void* grad,
                const ParallelFor& parallel, void* values) {
  const int64_t bytes = plan.slices * row_bytes;
  const RowMover mover(row_bytes, bytes, bytes);
  const char* const rows = static_cast<const char*>(grad);
  char* const out = static_cast<char*>(values);
  if (rows == out) return;
  parallel.Run(plan.slices, GrainOf(mover.row_nanoseconds()),
               [&](int64_t begin, int64_t end) {
                 int64_t numbers[kBlockIndices];
                 while (begin < end) {
                   const int64_t count = std::min(kBlockIndices, end - begin);
                   if (plan.is_identity) {
                     std::iota(numbers, numbers + count, begin);
                   } else {
                     std::copy_n(plan.positions + begin, count, numbers);
                   }
                   mover.MoveNumbered(rows, numbers, count, false,
                                      out + begin * row_bytes);
                   begin += count;
                 }
               });
}

struct SliceJob {
  const SparseGradPlan& plan;
  const SumFunctions& sum;
  int64_t inner;
  const char* grad;
  char* values;

  int64_t row_bytes() const { return inner * sum.element_bytes; }
  int64_t SliceSize(int64_t slice) const {
    return plan.slice_starts[slice + 1] - plan.slice_starts[slice];
  }
};

// Sums the columns [begin_column, +columns) of the slices [begin, end), which
// fit `memory` where sums are not in place.
void SumSliceTile(const SliceJob& job, int64_t begin, int64_t end,
                  int64_t begin_column, int64_t columns, float* memory) {
  const SumFunctions& sum = job.sum;
  const char* const grad = job.grad + begin_column * sum.element_bytes;
  char* const out =
      job.values + (begin * job.inner + begin_column) * sum.element_bytes;
  void* const accumulators = sum.is_in_place ? out : static_cast<void*>(memory);
  const int64_t stride = sum.is_in_place ? job.inner : columns;
  if (stride == columns) {
    sum.start(SumStart::kNeutral, (end - begin) * columns, accumulators);
  } else {
    for (int64_t slice = begin; slice < end; ++slice) {
      sum.start(SumStart::kNeutral, columns,
                static_cast<char*>(accumulators) +
                    (slice - begin) * stride * sum.accumulator_bytes);
    }
  }
  RowPairs pairs;
  const auto add = [&] {
    sum.add(pairs, Announce::kGrad, grad, job.inner, columns, accumulators,
            stride);
    pairs.count = 0;
  };
  for (int64_t slice = begin; slice < end; ++slice) {
    for (int64_t i = job.plan.slice_starts[slice];
         i < job.plan.slice_starts[slice + 1]; ++i) {
      pairs.Push(slice - begin, job.plan.positions[i]);
      if (pairs.is_full()) add();
    }
  }
  add();
  if (sum.is_in_place) return;
  for (int64_t slice = begin; slice < end; ++slice) {
    sum.round(memory + (slice - begin) * stride, columns,
              out + (slice - begin) * job.row_bytes());
  }
}

// The same for any number of slices and columns.
void SumSliceRange(const SliceJob& job, int64_t begin, int64_t end,
                   int64_t begin_column, int64_t end_column) {
  // 16 KiB: half of an L1 cache, and small enough for a stack.
  constexpr int64_t kTileFloats = 4096;
  float memory[kTileFloats];
  const int64_t tile_columns = std::min(end_column - begin_column, kTileFloats);
  const int64_t tile_slices = kTileFloats / tile_columns;
  for (int64_t slice = begin; slice < end; slice += tile_slices) {
    for (int64_t column = begin_column; column < end_column;
         column += tile_columns) {
      SumSliceTile(job, slice, std::min(slice + tile_slices, end), column,
                   std::min(tile_columns, end_column - column), memory);
    }
  }
}

void SumSlices(const SliceJob& job, const ParallelFor& parallel) {
  const FloatingPointMode mode = FloatingPointMode::OfThisThread();
  const int64_t* const starts = job.plan.slice_starts;
  const int64_t slices = job.plan.slices;
  const int64_t pairs = starts[slices];
  const auto slice_at = [&](int64_t pair) {
    return std::upper_bound(starts, starts + slices, pair) - starts - 1;
  };

  // A slice with much more than its share would keep one thread busy and the
  // others waiting: its columns are split instead.
  const int64_t threads = parallel.max_threads();
  const int64_t stripes = std::min(
      threads, std::max<int64_t>(1, job.row_bytes() / kMinStripeBytes));
  const int64_t share = std::max(pairs / (2 * threads), kBucketIndices);
  const auto is_split = [&](int64_t slice) {
    return stripes > 1 && job.SliceSize(slice) > share;
  };
  // More than a share of pairs contains a multiple of a share.
  int64_t previous = -1;
  for (int64_t pair = 0; pair < pairs; pair += share) {
    const int64_t slice = slice_at(pair);
    if (slice == previous || !is_split(slice)) continue;
    previous = slice;
    parallel.Run(stripes, 1, [&](int64_t begin, int64_t end) {
      const FloatingPointMode::Scope scope(mode);
      SumSliceRange(job, slice, slice + 1, begin * job.inner / stripes,
                    end * job.inner / stripes);
    });
  }

  // A range of pairs stands for the slices that start in it.
  const double pair_nanoseconds =
      4 + 2 * kNanosecondsPerByte * static_cast<double>(job.row_bytes());
  parallel.Run(pairs, GrainOf(pair_nanoseconds),
               [&](int64_t begin, int64_t end) {
                 const FloatingPointMode::Scope scope(mode);
                 const int64_t last =
                     std::lower_bound(starts, starts + slices, end) - starts;
                 int64_t slice =
                     std::lower_bound(starts, starts + slices, begin) - starts;
                 while (slice < last) {
                   if (is_split(slice)) {
                     ++slice;
                     continue;
                   }
                   const int64_t first = slice;
                   while (slice < last && !is_split(slice)) ++slice;
                   SumSliceRange(job, first, slice, 0, job.inner);
                 }
               });
}

}  // namespace

Outcome PlanSparseGrad(int64_t count, int64_t params_rows, const void* indices,
                       IndexType index_type, BadIndexAction action, bool unique,
                       const ParallelFor& parallel, Scratch& scratch,
                       SparseGradPlan* plan, int64_t* slots) {
  *plan = SparseGradPlan();
  // Without rows there is no bucket, and without indices nothing to sort.
  if (!unique || params_rows == 0 || count == 0) {
    return PlanInOrder(count, params_rows, indices, index_type, action,
                       parallel, scratch, plan, slots);
  }
  return VisitIndexType(index_type, [&](auto index) {
    return PlanUniqueTyped(count, params_rows,
                           static_cast<const decltype(index)*>(indices), action,
                           parallel, scratch, plan, slots);
  });
}

void FillSparseGradValues(const SparseGradPlan& plan, int64_t inner,
                          SumType sum_type, const void* grad,
                          const ParallelFor& parallel, void* values) {
  if (plan.slices == 0 || inner == 0) return;
  const SumFunctions& sum = SumFunctionsOf(sum_type);
  if (plan.is_identity || plan.slice_starts == nullptr) {
    MoveSlices(plan, inner * sum.element_bytes, grad, parallel, values);
  } else {
    SumSlices({plan, sum, inner, static_cast<const char*>(grad),
               static_cast<char*>(values)},
              parallel);
  }
}

}  // namespace gather_stitch
