// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tf_ops/core/gpu/gather_grad.h"

#include <algorithm>
#include <type_traits>

#include "tf_ops/core/gpu/add_rows_kernel.h"
#include "tf_ops/core/gpu/check_indices_kernel.h"
#include "tf_ops/core/gpu/index_list.h"
#include "tf_ops/core/gpu/move_rows_kernel.h"
#include "tf_ops/core/gpu/slices_kernel.h"
#include "tf_ops/core/gpu/sort.h"
#include "tf_ops/core/gpu/sum_segments_kernel.h"

namespace gather_stitch {
namespace gpu {
namespace {

// A divisor above every number of rows.
constexpr uint64_t kOneBatch = uint64_t{1} << 62;

// Rows of at least this many bytes are not summed faster in any order: what
// sorting costs an index, some 120 bytes of traffic, is less than what atomic
// additions read and write of a row beyond what a sum needs.
constexpr int64_t kSortedRowBytes = 256;

// With more indices a row than this, atomic additions wait for each other.
constexpr int64_t kSortedDuplicates = 8;

template <typename T>
T* Allocate(int64_t count, Scratch& scratch) {
  return static_cast<T*>(
      scratch.Allocate(count * static_cast<int64_t>(sizeof(T))));
}

FastDivider<uint64_t> DividerOf(int64_t divisor) {
  return FastDivider<uint64_t>(static_cast<uint64_t>(divisor));
}

template <typename Element, int kCount>
struct ElementPack {
  using Type = Element;
  static constexpr int count = kCount;
};

// Calls f(ElementPack) with what one thread sums: a wide pack where rows are
// aligned to it.
template <typename F>
GpuStatus VisitSum(SumType type, int64_t inner, uint64_t alignment, F&& f) {
  const auto is_wide = [&](int64_t count, int64_t bytes) {
    return inner % count == 0 && CommonAlignment(alignment) == 16 &&
           count * bytes == 16;
  };
  const auto visit = [&](auto element, auto wide_count) {
    using Element = decltype(element);
    constexpr int kWide = decltype(wide_count)::value;
    return is_wide(kWide, sizeof(Element)) ? f(ElementPack<Element, kWide>{})
                                           : f(ElementPack<Element, 1>{});
  };
  switch (type) {
    case SumType::kInt8:
      return f(ElementPack<uint8_t, 1>{});
    case SumType::kInt16:
      return f(ElementPack<uint16_t, 1>{});
    case SumType::kInt32:
      return visit(uint32_t{}, std::integral_constant<int, 4>{});
    case SumType::kInt64:
      return visit(uint64_t{}, std::integral_constant<int, 2>{});
    case SumType::kFloat32:
      return visit(float{}, std::integral_constant<int, 4>{});
    case SumType::kFloat64:
      return visit(double{}, std::integral_constant<int, 2>{});
    case SumType::kHalf:
      return visit(Half{}, std::integral_constant<int, 8>{});
    case SumType::kBfloat16:
      return visit(Bfloat16{}, std::integral_constant<int, 8>{});
    default:
      return f(ElementPack<AnyFloat8, 1>{});
  }
}

// ---- In any order -----------------------------------------------------------

template <typename Element, int kCount, typename Indices>
GpuStatus LaunchAddRows(const GatherGeometry& geometry, const void* grad,
                        const Indices& indices, BadIndexAction action,
                        Report* report, void* params_grad, GpuStream stream) {
  using Body = AddRows<Indices, Element, kCount>;
  const int64_t packs_per_row = geometry.inner / kCount;
  const int64_t runs_per_line =
      (geometry.indices_per_batch + Body::kRunIndices - 1) / Body::kRunIndices;
  const int64_t threads =
      geometry.batches * geometry.outer * runs_per_line * packs_per_row;
  return Launch(
      ShapeFor(threads),
      Body{static_cast<const Element*>(grad), indices,
           static_cast<Element*>(params_grad), geometry.rows,
           static_cast<uint64_t>(geometry.indices_per_batch),
           static_cast<uint64_t>(threads), DividerOf(packs_per_row),
           DividerOf(runs_per_line), DividerOf(geometry.outer), action, report},
      stream);
}

template <typename Indices>
GpuStatus SumInAnyOrder(const GatherGeometry& geometry, SumType sum_type,
                        const void* grad, const Indices& indices,
                        BadIndexAction action, Report* report,
                        void* params_grad, GpuStream stream) {
  const auto add = [&](auto element, auto count) {
    return LaunchAddRows<decltype(element), decltype(count)::value>(
        geometry, grad, indices, action, report, params_grad, stream);
  };
  constexpr std::integral_constant<int, 1> kSingle;
  constexpr std::integral_constant<int, 4> kFour;
  switch (sum_type) {
    case SumType::kFloat32:
      return geometry.inner % 4 == 0 &&
                     CommonAlignment(AddressBits(grad) |
                                     AddressBits(params_grad)) == 16
                 ? add(float{}, kFour)
                 : add(float{}, kSingle);
    case SumType::kFloat64:
      return add(double{}, kSingle);
    case SumType::kInt32:
      return add(uint32_t{}, kSingle);
    default:
      return add(uint64_t{}, kSingle);
  }
}

bool HasAtomicAddition(SumType type) {
  return type == SumType::kFloat32 || type == SumType::kFloat64 ||
         type == SumType::kInt32 || type == SumType::kInt64;
}

// ---- In fixed order ---------------------------------------------------------

// The terms of `count` > 0 indices, sorted by key if `sorts`.
template <typename Number, typename Indices>
GpuStatus ListTermsAs(const GatherGeometry& geometry, const Indices& indices,
                      BadIndexAction action, bool sorts, Scratch& scratch,
                      Report* report, SliceTerms* slices, GpuStream stream) {
  const int64_t count = geometry.batches * geometry.indices_per_batch;
  const int buffers = sorts ? 2 : 1;
  Number* keys[2] = {};
  Number* positions[2] = {};
  for (int i = 0; i < buffers; ++i) {
    keys[i] = Allocate<Number>(count, scratch);
    positions[i] = Allocate<Number>(count, scratch);
    if (keys[i] == nullptr || positions[i] == nullptr) {
      return GpuStatus::OutOfMemory();
    }
  }
  GATHER_STITCH_RETURN_IF_GPU_ERROR(
      Launch(ShapeFor(count),
             ListKeys<Indices, Number>{indices, static_cast<uint64_t>(count),
                                       DividerOf(geometry.indices_per_batch),
                                       geometry.rows, slices->end_key, action,
                                       keys[0], positions[0], report},
             stream));
  int result = 0;
  if (sorts) {
    int key_bits = 1;
    while (slices->end_key >> key_bits != 0) ++key_bits;
    GATHER_STITCH_RETURN_IF_GPU_ERROR(
        SortPairs(count, key_bits, keys, positions, &result, scratch, stream));
  }
  slices->terms = {sizeof(Number) == 8, keys[result],
                   sorts ? positions[result] : nullptr,
                   static_cast<uint64_t>(count)};
  return GpuStatus();
}

template <typename Indices>
GpuStatus ListTerms(const GatherGeometry& geometry, const Indices& indices,
                    BadIndexAction action, bool sorts, Scratch& scratch,
                    Report* report, SliceTerms* slices, GpuStream stream) {
  const int64_t count = geometry.batches * geometry.indices_per_batch;
  slices->end_key = static_cast<uint64_t>(geometry.batches) *
                    static_cast<uint64_t>(geometry.rows);
  slices->are_unique = sorts;
  return slices->end_key <= UINT32_MAX && count <= UINT32_MAX
             ? ListTermsAs<uint32_t>(geometry, indices, action, sorts, scratch,
                                     report, slices, stream)
             : ListTermsAs<uint64_t>(geometry, indices, action, sorts, scratch,
                                     report, slices, stream);
}

// The terms and tables of a sum, but for what depends on the type of elements.
struct SegmentJob {
  SliceTerms slices;
  SumType sum_type;
  int64_t outer;
  int64_t inner;
  int64_t grad_rows_per_line;
  bool starts_with_zero;
  const int64_t* numbers;  // of the slices, or null: the target has all rows
  int64_t target_rows_per_line;
  const void* grad;
  void* target;
};

template <typename Element, int kCount>
GpuStatus SumSegmentsAs(const SegmentJob& job, Scratch& scratch,
                        GpuStream stream) {
  using Sum = typename SumOf<Element>::Type;
  const int64_t packs_per_row = job.inner / kCount;
  const int64_t columns = job.outer * packs_per_row;
  const auto table_of = [&](int64_t rows_per_line) {
    return RowTable{DividerOf(rows_per_line), static_cast<uint64_t>(job.outer),
                    DividerOf(packs_per_row)};
  };
  SumSegments<Element, kCount> segments;
  segments.terms = job.slices.terms;
  segments.end_key = job.slices.end_key;
  segments.table = table_of(job.grad_rows_per_line);
  segments.rows = static_cast<const Element*>(job.grad);
  segments.type = job.sum_type;
  segments.starts_with_zero = job.starts_with_zero;
  segments.columns = DividerOf(columns);
  segments.level_table = {FastDivider<uint64_t>(kOneBatch), 1,
                          DividerOf(columns)};
  segments.numbers = job.numbers;
  segments.target_table = table_of(job.target_rows_per_line);
  segments.target = static_cast<Element*>(job.target);

  const auto add_level = [&](const auto& body_below, SumLevel<Sum>* level) {
    auto body = body_below;
    body.tiles = (body.terms.count + kTileIndices - 1) / kTileIndices;
    const int64_t tiles = static_cast<int64_t>(body.tiles);
    body.columns = segments.columns;
    body.sums = Allocate<Sum>(tiles * columns * kCount, scratch);
    body.keys = Allocate<uint64_t>(tiles, scratch);
    if (body.sums == nullptr || body.keys == nullptr) {
      return GpuStatus::OutOfMemory();
    }
    *level = {{true, body.keys, nullptr, body.tiles}, body.sums};
    return Launch(ShapeFor(tiles * columns), body, stream);
  };
  const SortedTerms* terms = &segments.terms;
  for (int level = 0; terms->count > kTileIndices; ++level) {
    SumLevel<Sum>* const above = &segments.levels[level];
    if (level == 0) {
      SumContinuations<Element, kCount> body{};
      body.terms = *terms;
      body.end_key = segments.end_key;
      body.table = segments.table;
      body.rows = segments.rows;
      body.type = segments.type;
      GATHER_STITCH_RETURN_IF_GPU_ERROR(add_level(body, above));
    } else {
      SumContinuations<Sum, kCount> body{};
      body.terms = *terms;
      body.end_key = kNoKey;
      body.table = segments.level_table;
      body.rows = segments.levels[level - 1].sums;
      body.type = segments.type;
      GATHER_STITCH_RETURN_IF_GPU_ERROR(add_level(body, above));
    }
    terms = &above->terms;
  }
  return Launch(ShapeFor(static_cast<int64_t>(segments.terms.count) * columns),
                segments, stream);
}

GpuStatus SumInFixedOrder(const SegmentJob& job, Scratch& scratch,
                          GpuStream stream) {
  return VisitSum(job.sum_type, job.inner,
                  AddressBits(job.grad) | AddressBits(job.target),
                  [&](auto pack) {
                    using Pack = decltype(pack);
                    return SumSegmentsAs<typename Pack::Type, Pack::count>(
                        job, scratch, stream);
                  });
}

}  // namespace

GpuStatus GatherGrad(const GatherGeometry& geometry, SumType sum_type,
                     const void* grad, const void* indices,
                     IndexType index_type, BadIndexAction action,
                     SumOrder order, Scratch& scratch, Report* report,
                     void* params_grad, GpuStream stream) {
  const int64_t count =
      SaturatingMultiply(geometry.batches, geometry.indices_per_batch);
  const bool has_params = geometry.batches != 0 && geometry.outer != 0 &&
                          geometry.rows != 0 && geometry.inner != 0;
  if (has_params) {
    GATHER_STITCH_RETURN_IF_GPU_ERROR(
        FillBytes(params_grad, 0,
                  geometry.batches * geometry.outer * geometry.rows *
                      geometry.inner * SumTypeBytes(sum_type),
                  stream));
  }
  if (!geometry.has_indices()) return GpuStatus();
  if (!has_params) {
    return LaunchCheckIndices(indices, index_type, count, geometry.rows, action,
                              report, stream);
  }
  const int64_t row_bytes =
      geometry.outer * geometry.inner * SumTypeBytes(sum_type);
  const bool sorts =
      order == SumOrder::kFixed || !HasAtomicAddition(sum_type) ||
      row_bytes >= kSortedRowBytes ||
      geometry.indices_per_batch / kSortedDuplicates >= geometry.rows;
  return VisitIndexList(indices, index_type, [&](const auto& list) {
    if (sorts) {
      SegmentJob job{{},
                     sum_type,
                     geometry.outer,
                     geometry.inner,
                     geometry.indices_per_batch,
                     /*starts_with_zero=*/true,
                     /*numbers=*/nullptr,
                     geometry.rows,
                     grad,
                     params_grad};
      GATHER_STITCH_RETURN_IF_GPU_ERROR(ListTerms(geometry, list, action,
                                                  /*sorts=*/true, scratch,
                                                  report, &job.slices, stream));
      GATHER_STITCH_RETURN_IF_GPU_ERROR(SumInFixedOrder(job, scratch, stream));
    } else {
      GATHER_STITCH_RETURN_IF_GPU_ERROR(SumInAnyOrder(
          geometry, sum_type, grad, list, action, report, params_grad, stream));
    }
    return LaunchReportBadValue(list, report, stream);
  });
}

GpuStatus PlanSparseGrad(int64_t count, int64_t params_rows,
                         const void* indices, IndexType index_type,
                         BadIndexAction action, bool unique, Scratch& scratch,
                         Report* report, SparseGradPlan* plan, int64_t* slots,
                         GpuStream stream) {
  *plan = SparseGradPlan();
  if (count == 0) return GpuStatus();
  const GatherGeometry geometry{1, 1, params_rows, 1, count};
  return VisitIndexList(indices, index_type, [&](const auto& list) {
    SliceTerms slices;
    GATHER_STITCH_RETURN_IF_GPU_ERROR(ListTerms(
        geometry, list, action, unique, scratch, report, &slices, stream));
    int64_t* const numbers = Allocate<int64_t>(count, scratch);
    if (numbers == nullptr) return GpuStatus::OutOfMemory();
    *plan = {count,
             unique,
             slices.terms.are_wide,
             slices.terms.keys,
             slices.terms.positions,
             slices.end_key,
             numbers};
    GATHER_STITCH_RETURN_IF_GPU_ERROR(
        Launch(ShapeFor(count), MarkSlices{slices, numbers}, stream));
    GATHER_STITCH_RETURN_IF_GPU_ERROR(
        SumPrefixes(count, numbers, scratch, stream));
    GATHER_STITCH_RETURN_IF_GPU_ERROR(Launch(
        ShapeFor(count), ListSlots{slices, numbers, slots, report}, stream));
    return LaunchReportBadValue(list, report, stream);
  });
}

GpuStatus FillSparseGrad(const SparseGradPlan& plan, int64_t inner,
                         SumType sum_type, const void* grad, Scratch& scratch,
                         int64_t* rows, void* values, GpuStream stream) {
  const int64_t count = plan.count;
  if (count == 0) return GpuStatus();
  const SliceTerms slices{
      {plan.are_wide, plan.keys, plan.positions, static_cast<uint64_t>(count)},
      plan.end_key,
      plan.is_unique};
  GATHER_STITCH_RETURN_IF_GPU_ERROR(
      Launch(ShapeFor(count), ListRows{slices, plan.numbers, rows}, stream));
  if (inner == 0) return GpuStatus();
  if (plan.is_unique) {
    return SumInFixedOrder(
        {slices, sum_type, /*outer=*/1, inner, static_cast<int64_t>(kOneBatch),
         /*starts_with_zero=*/false, plan.numbers,
         static_cast<int64_t>(kOneBatch), grad, values},
        scratch, stream);
  }
  const int64_t row_bytes = inner * SumTypeBytes(sum_type);
  const auto move_as = [&](auto offset) {
    const SlicePlan<decltype(offset)> slice_plan{
        slices, plan.numbers, static_cast<const char*>(grad),
        static_cast<char*>(values), row_bytes};
    return MoveRows(slice_plan, count, row_bytes,
                    AddressBits(grad) | AddressBits(values), stream);
  };
  return FitsUint32(count, row_bytes) ? move_as(uint32_t{})
                                      : move_as(uint64_t{});
}

}  // namespace gpu
}  // namespace gather_stitch
