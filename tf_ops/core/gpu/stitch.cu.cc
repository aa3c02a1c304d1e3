// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tf_ops/core/gpu/stitch.h"

#include "tf_ops/core/gpu/stitch_kernel.h"

namespace gather_stitch {
namespace gpu {
namespace {

// A thread looks at some hundred positions, and raises the one number that all
// threads share once.
constexpr int64_t kPositionsPerThread = 64;

template <typename F>
decltype(auto) VisitStitchIndexType(IndexType type, F&& f) {
  if (type == IndexType::kInt32) return f(int32_t{});
  return f(int64_t{});
}

int64_t CountOf(const StitchInput* inputs, int num_inputs) {
  int64_t count = 0;
  for (int m = 0; m < num_inputs; ++m) count += inputs[m].count;
  return count;
}

// Calls f(table, positions of the table) for tables that have every input with
// an index; `data_grads` are their rows where it is not null. Ends with the
// first status that is not OK.
template <typename F>
GpuStatus ForEachTable(const StitchInput* inputs, int num_inputs,
                       void* const* data_grads, const F& f) {
  StitchTable table;
  table.starts[0] = 0;
  for (int m = 0; m <= num_inputs; ++m) {
    const bool is_end = m == num_inputs;
    if (table.num_inputs == kMostInputs || (is_end && table.num_inputs > 0)) {
      GATHER_STITCH_RETURN_IF_GPU_ERROR(
          f(table, static_cast<int64_t>(table.end() - table.first())));
      table.starts[0] = table.end();
      table.num_inputs = 0;
    }
    if (is_end || inputs[m].count == 0) continue;
    const int i = table.num_inputs++;
    table.indices[i] = inputs[m].indices;
    table.rows[i] = static_cast<char*>(data_grads == nullptr
                                           ? const_cast<void*>(inputs[m].data)
                                           : data_grads[m]);
    table.starts[i + 1] = table.starts[i] + inputs[m].count;
  }
  return GpuStatus();
}

// After the kernels that report bad positions.
template <typename Index>
GpuStatus LaunchReportBadStitchValue(const StitchInput* inputs, int num_inputs,
                                     Report* report, GpuStream stream) {
  if (report == nullptr) return GpuStatus();
  return ForEachTable(inputs, num_inputs, nullptr,
                      [&](const StitchTable& table, int64_t /*count*/) {
                        return Launch(
                            {1, 1}, ReportBadStitchValue<Index>{table, report},
                            stream);
                      });
}

template <typename Index, typename Winner>
GpuStatus FillWinners(const StitchInput* inputs, int num_inputs,
                      int64_t merged_rows, BadIndexAction action,
                      Report* report, Winner* winners, GpuStream stream) {
  static_assert(kNoWinner == -1, "all bits are set");
  GATHER_STITCH_RETURN_IF_GPU_ERROR(
      FillBytes(winners, 0xff,
                merged_rows * static_cast<int64_t>(sizeof(Winner)), stream));
  GATHER_STITCH_RETURN_IF_GPU_ERROR(ForEachTable(
      inputs, num_inputs, nullptr,
      [&](const StitchTable& table, int64_t count) {
        return Launch(ShapeFor(count),
                      RaiseWinners<Index, Winner>{table, merged_rows, action,
                                                  winners, report},
                      stream);
      }));
  return LaunchReportBadStitchValue<Index>(inputs, num_inputs, report, stream);
}

// Calls f with a winner of the narrowest type that holds `count` positions.
template <typename F>
GpuStatus VisitWinner(int64_t count, F&& f) {
  if (count <= INT32_MAX) return f(int32_t{});
  return f(int64_t{});
}

template <typename Winner>
Winner* AllocateWinners(int64_t rows, Scratch& scratch) {
  return static_cast<Winner*>(
      scratch.Allocate(rows * static_cast<int64_t>(sizeof(Winner))));
}

template <typename Winner>
GpuStatus MoveWinners(const StitchInput* inputs, int num_inputs,
                      int64_t row_bytes, int64_t merged_rows,
                      const Winner* winners, void* merged, GpuStream stream) {
  bool fills_holes = true;
  const auto move = [&](const StitchTable& table, int64_t /*count*/) {
    const auto move_as = [&](auto offset) {
      const StitchPlan<Winner, decltype(offset)> plan{
          table, winners, static_cast<char*>(merged), row_bytes, fills_holes};
      return MoveRows(plan, merged_rows, row_bytes,
                      table.AddressBits() | AddressBits(merged), stream);
    };
    const GpuStatus status = FitsUint32(merged_rows, row_bytes)
                                 ? move_as(uint32_t{})
                                 : move_as(uint64_t{});
    fills_holes = false;
    return status;
  };
  GATHER_STITCH_RETURN_IF_GPU_ERROR(
      ForEachTable(inputs, num_inputs, nullptr, move));
  // Without indices there was no table.
  return fills_holes ? FillBytes(merged, 0, merged_rows * row_bytes, stream)
                     : GpuStatus();
}

}  // namespace

GpuStatus FindLargestIndex(const StitchInput* inputs, int num_inputs,
                           IndexType index_type, Report* report,
                           GpuStream stream) {
  return VisitStitchIndexType(index_type, [&](auto typed_index) {
    using Index = decltype(typed_index);
    GATHER_STITCH_RETURN_IF_GPU_ERROR(ForEachTable(
        inputs, num_inputs, nullptr,
        [&](const StitchTable& table, int64_t count) {
          return Launch(ShapeFor(count / kPositionsPerThread + 1),
                        RaiseLargestIndex<Index>{table, report}, stream);
        }));
    return LaunchReportBadStitchValue<Index>(inputs, num_inputs, report,
                                             stream);
  });
}

GpuStatus StitchWinners(const StitchInput* inputs, int num_inputs,
                        IndexType index_type, int64_t merged_rows,
                        BadIndexAction action, Report* report, int64_t* winners,
                        GpuStream stream) {
  return VisitStitchIndexType(index_type, [&](auto index) {
    return FillWinners<decltype(index)>(inputs, num_inputs, merged_rows, action,
                                        report, winners, stream);
  });
}

GpuStatus StitchRows(const StitchInput* inputs, int num_inputs,
                     IndexType index_type, int64_t row_bytes,
                     int64_t merged_rows, BadIndexAction action,
                     Scratch& scratch, Report* report, void* merged,
                     GpuStream stream) {
  const bool has_rows = row_bytes > 0 && merged_rows > 0;
  if (!has_rows && report == nullptr) return GpuStatus();
  return VisitStitchIndexType(index_type, [&](auto typed_index) {
    using Index = decltype(typed_index);
    return VisitWinner(CountOf(inputs, num_inputs), [&](auto typed_winner) {
      using Winner = decltype(typed_winner);
      Winner* winners = nullptr;
      if (merged_rows > 0) {
        winners = AllocateWinners<Winner>(merged_rows, scratch);
        if (winners == nullptr) return GpuStatus::OutOfMemory();
      }
      GATHER_STITCH_RETURN_IF_GPU_ERROR(FillWinners<Index>(
          inputs, num_inputs, merged_rows, action, report, winners, stream));
      if (!has_rows) return GpuStatus();
      return MoveWinners(inputs, num_inputs, row_bytes, merged_rows, winners,
                         merged, stream);
    });
  });
}

GpuStatus StitchGradRows(const StitchInput* inputs, int num_inputs,
                         IndexType index_type, int64_t row_bytes,
                         int64_t grad_rows, const void* grad, Scratch& scratch,
                         void* const* data_grads, GpuStream stream) {
  const int64_t all_count = CountOf(inputs, num_inputs);
  if (row_bytes == 0 || all_count == 0) return GpuStatus();
  return VisitStitchIndexType(index_type, [&](auto typed_index) {
    using Index = decltype(typed_index);
    return VisitWinner(all_count, [&](auto typed_winner) {
      using Winner = decltype(typed_winner);
      Winner* winners = nullptr;
      if (grad_rows > 0) {
        winners = AllocateWinners<Winner>(grad_rows, scratch);
        if (winners == nullptr) return GpuStatus::OutOfMemory();
      }
      GATHER_STITCH_RETURN_IF_GPU_ERROR(
          FillWinners<Index>(inputs, num_inputs, grad_rows,
                             BadIndexAction::kZero, nullptr, winners, stream));
      return ForEachTable(
          inputs, num_inputs, data_grads,
          [&](const StitchTable& table, int64_t count) {
            const auto move_as = [&](auto offset) {
              const StitchGradPlan<Index, Winner, decltype(offset)> plan{
                  table, winners, static_cast<const char*>(grad), row_bytes,
                  grad_rows};
              return MoveRows(plan, count, row_bytes,
                              table.AddressBits() | AddressBits(grad), stream);
            };
            return FitsUint32(count, row_bytes) ? move_as(uint32_t{})
                                                : move_as(uint64_t{});
          });
    });
  });
}

Outcome StitchOutcome(const Report& report, const StitchInput* inputs,
                      int num_inputs) {
  if (!report.has_bad_index()) return Outcome();
  int64_t position = static_cast<int64_t>(report.first_bad);
  int m = 0;
  while (m < num_inputs - 1 && position >= inputs[m].count) {
    position -= inputs[m].count;
    ++m;
  }
  return Outcome::BadIndex(m, position, report.bad_value);
}

}  // namespace gpu
}  // namespace gather_stitch
