// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tf_ops/core/scatter_add.h"

#include <algorithm>
#include <type_traits>

#include "tf_ops/core/cost.h"
#include "tf_ops/core/first_bad_index.h"
#include "tf_ops/core/floating_point_mode.h"
#include "tf_ops/core/numeric_types.h"
#include "tf_ops/core/resolve_block.h"
#include "tf_ops/core/row_partition.h"

namespace gather_stitch {
namespace {

// What a row costs beside the bytes that move: it is likely far away.
constexpr double kRowNanoseconds = 10;

// How far ahead a row of the table is announced, and how many of its bytes:
// beyond them the processor reads ahead by itself.
constexpr int64_t kAnnouncedRows = 8;
constexpr int64_t kAnnouncedBytes = 512;

// A thread's share of a row is at least two cache lines.
constexpr int64_t kMinStripeBytes = 128;

template <typename T, bool kSubtract>
T Sum(T a, T b) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<T>(kSubtract ? a - b : a + b);
  } else {
    const float x = Widen(a);
    const float y = Widen(b);
    return Narrow<T>(kSubtract ? x - y : x + y);
  }
}

template <typename T>
T Negated(T x) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<T>(-x);
  } else {
    return T{static_cast<uint16_t>(x.bits ^ 0x8000u)};
  }
}

// Columns [begin_column, end_column) of what every thread is given.
template <typename T>
struct Columns {
  const T* updates;
  int64_t update_stride;
  T* table;
  int64_t inner;
  int64_t begin_column;
  int64_t end_column;
};

// Rows and the updates that go to them: update i of `positions`, or
// first_position + i where that is null.
struct RowList {
  const int64_t* rows;
  const int64_t* positions;
  int64_t first_position;
  int64_t count;
};

// kColumns: the number of columns, or 0 where it is not known here.
template <typename T, bool kSubtract, int kColumns>
void AddRows(const Columns<T>& shared, const RowList& list) {
  const int64_t columns =
      kColumns != 0 ? kColumns : shared.end_column - shared.begin_column;
  const T* const updates = shared.updates + shared.begin_column;
  T* const table = shared.table + shared.begin_column;
  const int64_t inner = shared.inner;
  const int64_t update_stride = shared.update_stride;
  constexpr int64_t kLineElements = 64 / sizeof(T);
  constexpr int64_t kAnnouncedElements = kAnnouncedBytes / sizeof(T);
  const int64_t announced_columns = std::min(columns, kAnnouncedElements);
  const auto position_of = [&list](int64_t i) {
    return list.positions == nullptr ? list.first_position + i
                                     : list.positions[i];
  };
  for (int64_t i = 0; i < list.count; ++i) {
    if (i + kAnnouncedRows < list.count) {
      const T* const row_ahead = table + list.rows[i + kAnnouncedRows] * inner;
      const T* const update_ahead =
          updates + position_of(i + kAnnouncedRows) * update_stride;
      for (int64_t j = 0; j < announced_columns; j += kLineElements) {
        __builtin_prefetch(row_ahead + j, 1);
        __builtin_prefetch(update_ahead + j);
      }
    }
    const T* __restrict const update = updates + position_of(i) * update_stride;
    T* __restrict const row = table + list.rows[i] * inner;
    for (int64_t j = 0; j < columns; ++j) {
      row[j] = Sum<T, kSubtract>(row[j], update[j]);
    }
  }
}

template <typename T>
using AddRowsFunction = void (*)(const Columns<T>&, const RowList&);

template <typename T, bool kSubtract>
AddRowsFunction<T> AddRowsOf(int64_t columns) {
  switch (columns) {
    case 1:
      return AddRows<T, kSubtract, 1>;
    case 4:
      return AddRows<T, kSubtract, 4>;
    case 8:
      return AddRows<T, kSubtract, 8>;
    case 16:
      return AddRows<T, kSubtract, 16>;
    case 32:
      return AddRows<T, kSubtract, 32>;
    case 64:
      return AddRows<T, kSubtract, 64>;
    default:
      return AddRows<T, kSubtract, 0>;
  }
}

// In order, on this thread, up to the first bad index.
template <typename T, typename Index>
Outcome AddInOrder(const Columns<T>& columns, AddRowsFunction<T> add_rows,
                   const Index* indices, int64_t count, int64_t rows) {
  int64_t numbers[kBlockIndices];
  for (int64_t i = 0; i < count; i += kBlockIndices) {
    const int64_t block_count = std::min(kBlockIndices, count - i);
    const ResolvedBlock block = ResolveBlock(indices + i, block_count, rows, 0,
                                             BadIndexAction::kFail, numbers);
    // The row numbers before the bad one are set.
    add_rows(columns, {numbers, nullptr, i,
                       block.is_bad() ? block.first_bad : block_count});
    if (block.is_bad()) {
      return Outcome::BadIndex(0, i + block.first_bad, block.bad_value);
    }
  }
  return Outcome();
}

// Adds rows by the block, so that the rows of many small buckets are announced
// ahead as those of one large bucket are.
template <typename T>
class RowCollector {
 public:
  RowCollector(const Columns<T>& columns, AddRowsFunction<T> add_rows)
      : columns_(columns), add_rows_(add_rows) {}
  ~RowCollector() { Flush(); }
  RowCollector(const RowCollector&) = delete;
  RowCollector& operator=(const RowCollector&) = delete;

  void Push(int64_t row, int64_t position) {
    rows_[kept_] = row;
    positions_[kept_] = position;
    if (++kept_ == kBlockIndices) Flush();
  }

 private:
  void Flush() {
    add_rows_(columns_, {rows_, positions_, 0, kept_});
    kept_ = 0;
  }

  const Columns<T>& columns_;
  AddRowsFunction<T> add_rows_;
  int64_t kept_ = 0;
  int64_t rows_[kBlockIndices];
  int64_t positions_[kBlockIndices];
};

// The rows of a bucket, as a power of two: as few as the number of buckets
// allows, so that a row that many indices name shares its bucket with few.
int BucketShift(int64_t rows, int64_t count) {
  const int64_t buckets =
      std::clamp<int64_t>(count / 8, 1, RowPartition<uint32_t>::kMaxBuckets);
  int shift = 0;
  while ((rows - 1) >> shift >= buckets) ++shift;
  return shift;
}

// Each thread takes buckets of rows, and adds to them what is theirs in order.
template <typename T, typename Index, typename Word>
Outcome AddByBuckets(const ScatterAddJob& job, int row_shift,
                     const Columns<T>& columns, AddRowsFunction<T> add_rows,
                     AddRowsFunction<T> add_stripes, const Index* indices,
                     const ParallelFor& parallel, Scratch& scratch) {
  RowPartition<Word> partition;
  if (!partition.Prepare(1, job.count, job.rows, row_shift, scratch)) {
    return Outcome::OutOfMemory();
  }
  const int64_t buckets = partition.buckets;
  // ends[k]: how many indices the buckets up to k have.
  auto* const ends = static_cast<int64_t*>(
      scratch.Allocate(buckets * static_cast<int64_t>(sizeof(int64_t))));
  if (ends == nullptr) return Outcome::OutOfMemory();
  FirstBadIndex first_bad;
  partition.Fill(indices, BadIndexAction::kFail, parallel, &first_bad);
  if (!first_bad.outcome().ok()) {
    // What comes before it counts. It may have changed since, as any other.
    AddInOrder(columns, add_rows, indices, first_bad.outcome().position,
               job.rows);
    return first_bad.outcome();
  }
  int64_t end = 0;
  for (int64_t k = 0; k < buckets; ++k) {
    end += partition.BucketSize(0, k);
    ends[k] = end;
  }

  const auto collect = [&](int64_t k, RowCollector<T>* collector) {
    const int64_t first_row = k << row_shift;
    partition.ForEach(0, k, [&](int64_t row, int64_t position) {
      collector->Push(first_row + row, position);
    });
  };

  // A bucket with much more than its share would keep one thread busy and the
  // others waiting: its columns are split instead.
  const FloatingPointMode mode = FloatingPointMode::OfThisThread();
  const int64_t threads = parallel.max_threads();
  const int64_t row_bytes = job.inner * static_cast<int64_t>(sizeof(T));
  const int64_t stripes =
      std::clamp<int64_t>(row_bytes / kMinStripeBytes, 1, threads);
  const auto is_split = [&](int64_t k) {
    const int64_t size = ends[k] - (k == 0 ? 0 : ends[k - 1]);
    return stripes > 1 && size > job.count / (2 * threads);
  };
  for (int64_t k = 0; k < buckets; ++k) {
    if (!is_split(k)) continue;
    parallel.Run(stripes, 1, [&](int64_t begin, int64_t end) {
      const FloatingPointMode::Scope scope(mode);
      Columns<T> part = columns;
      part.begin_column = begin * job.inner / stripes;
      part.end_column = end * job.inner / stripes;
      RowCollector<T> collector(part, add_stripes);
      collect(k, &collector);
    });
  }

  // A range of indices stands for the buckets that end in it.
  const double nanoseconds =
      kRowNanoseconds +
      3 * static_cast<double>(row_bytes) * kNanosecondsPerByte;
  parallel.Run(job.count, GrainOf(nanoseconds),
               [&](int64_t begin_index, int64_t end_index) {
                 const FloatingPointMode::Scope scope(mode);
                 RowCollector<T> collector(columns, add_rows);
                 int64_t k =
                     std::upper_bound(ends, ends + buckets, begin_index) - ends;
                 for (; k < buckets && ends[k] <= end_index; ++k) {
                   if (!is_split(k)) collect(k, &collector);
                 }
               });
  return Outcome();
}

template <typename T, typename Index>
Outcome AddTyped(const ScatterAddJob& job, const T* updates,
                 const Index* indices, const ParallelFor& parallel,
                 Scratch& scratch, T* table) {
  bool subtract = job.subtract;
  int64_t update_stride = job.update_stride;
  if (job.scalar_lanes > 0 && job.inner > 0) {
    T* const row = static_cast<T*>(
        scratch.Allocate(job.inner * static_cast<int64_t>(sizeof(T))));
    if (row == nullptr) return Outcome::OutOfMemory();
    // Added with the other sign, which is the same but for the sign of a NaN.
    for (int64_t j = 0; j < job.inner; ++j) {
      const T update = updates[j % job.scalar_lanes];
      row[j] = subtract ? Negated(update) : update;
    }
    subtract = false;
    updates = row;
    update_stride = 0;
  }
  const Columns<T> columns = {updates, update_stride, table, job.inner,
                              0,       job.inner};
  const auto add_rows =
      subtract ? AddRowsOf<T, true>(job.inner) : AddRowsOf<T, false>(job.inner);
  const auto add_stripes =
      subtract ? AddRowsOf<T, true>(0) : AddRowsOf<T, false>(0);
  const double row_nanoseconds =
      kRowNanoseconds +
      3 * static_cast<double>(job.inner * sizeof(T)) * kNanosecondsPerByte;
  if (parallel.max_threads() == 1 || job.rows == 0 || job.inner == 0 ||
      static_cast<double>(job.count) * row_nanoseconds <
          2 * kRangeNanoseconds) {
    return AddInOrder(columns, add_rows, indices, job.count, job.rows);
  }
  const int row_shift = BucketShift(job.rows, job.count);
  if (row_shift <= 32) {
    return AddByBuckets<T, Index, uint32_t>(job, row_shift, columns, add_rows,
                                            add_stripes, indices, parallel,
                                            scratch);
  }
  return AddByBuckets<T, Index, uint64_t>(job, row_shift, columns, add_rows,
                                          add_stripes, indices, parallel,
                                          scratch);
}

// Calls f(T{}) with the C++ type of `type`; integers are unsigned, for their
// sums wrap around.
template <typename F>
decltype(auto) VisitScatterType(SumType type, F&& f) {
  switch (type) {
    case SumType::kInt8:
      return f(uint8_t{});
    case SumType::kInt16:
      return f(uint16_t{});
    case SumType::kInt32:
      return f(uint32_t{});
    case SumType::kInt64:
      return f(uint64_t{});
    case SumType::kFloat32:
      return f(float{});
    case SumType::kFloat64:
      return f(double{});
    case SumType::kHalf:
      return f(Half{});
    default:
      return f(Bfloat16{});
  }
}

}  // namespace

Outcome ScatterAdd(const ScatterAddJob& job, SumType type, const void* updates,
                   const void* indices, IndexType index_type,
                   const ParallelFor& parallel, Scratch& scratch, void* table) {
  return VisitScatterType(type, [&](auto element) {
    using T = decltype(element);
    const auto run = [&](const auto* typed_indices) {
      return AddTyped(job, static_cast<const T*>(updates), typed_indices,
                      parallel, scratch, static_cast<T*>(table));
    };
    // Updates of a table come with these two index types only.
    return index_type == IndexType::kInt32
               ? run(static_cast<const int32_t*>(indices))
               : run(static_cast<const int64_t*>(indices));
  });
}

}  // namespace gather_stitch
