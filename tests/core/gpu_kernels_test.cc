// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// The bodies of the GPU kernels, walked on the host; and what their callers do
// with a device that has no memory, or takes no more work. That they compute
// the right thing is in the conformance tests.

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "tests/core/buffers.h"
#include "tests/core/cases.h"
#include "tests/core/reference.h"
#include "tests/core/test_device.h"
#include "tests/core/test_harness.h"
#include "tf_ops/core/gpu/add_rows_kernel.h"
#include "tf_ops/core/gpu/fast_divider.h"
#include "tf_ops/core/gpu/gather.h"
#include "tf_ops/core/gpu/gather_grad.h"
#include "tf_ops/core/gpu/gather_kernel.h"
#include "tf_ops/core/gpu/index_list.h"
#include "tf_ops/core/gpu/move_rows_kernel.h"
#include "tf_ops/core/gpu/stitch.h"
#include "tf_ops/core/gpu/stitch_kernel.h"
#include "tf_ops/core/gpu/sum_segments_kernel.h"

namespace gather_stitch {
namespace testing {
namespace {

const std::vector<LaunchShape> kShapes = {
    {1, 1}, {1, 32}, {1, 33}, {2, 7}, {3, 256}, {5, 100}, {300, 1}, {64, 256}};

// ---- Division ---------------------------------------------------------------

template <typename Number>
void ExpectDivides(const std::vector<Number>& numbers) {
  constexpr Number kEnd = Number{1} << (8 * sizeof(Number) - 1);
  for (const Number divisor : numbers) {
    if (divisor == 0) continue;
    const FastDivider<Number> divider(divisor);
    EXPECT_EQ(divider.divisor(), divisor);
    for (const Number n : numbers) {
      if (n < kEnd) EXPECT_EQ(divider.Divide(n), n / divisor);
    }
    // Both sides of the multiples, where a quotient changes.
    for (const Number factor : numbers) {
      const Number multiple = factor * divisor;
      if (multiple == 0 || multiple >= kEnd || multiple / divisor != factor) {
        continue;
      }
      EXPECT_EQ(divider.Divide(multiple), factor);
      EXPECT_EQ(divider.Divide(multiple - 1), factor - 1);
    }
  }
}

template <typename Number>
std::vector<Number> InterestingNumbers(Random& random) {
  std::vector<Number> numbers;
  for (int bit = 0; bit < static_cast<int>(8 * sizeof(Number)); ++bit) {
    for (const int offset : {-1, 0, 1}) {
      numbers.push_back((Number{1} << bit) + static_cast<Number>(offset));
    }
    numbers.push_back(static_cast<Number>(random.Bits()) >> bit);
  }
  return numbers;
}

TEST(FastDividerDivides) {
  Random random = TestRandom();
  ExpectDivides(InterestingNumbers<uint32_t>(random));
  ExpectDivides(InterestingNumbers<uint64_t>(random));
}

// ---- Every grid -------------------------------------------------------------

template <typename Offset>
void ExpectMovesOnEveryGrid(int64_t row_bytes, Random& random) {
  constexpr int64_t kRows = 7;
  constexpr int64_t kIndices = 30;
  const Input params(kRows * row_bytes, 0, random);
  const Input indices = RandomIndices(kIndices, kRows, IndexType::kInt32,
                                      IndexOrder::kWithBad, random);
  Output expected(kIndices * row_bytes, 0);
  reference::GatherRows(
      {1, 1, kRows, row_bytes, kIndices}, row_bytes, params.data(),
      reference::ReadIndices(indices.data(), IndexType::kInt32, kIndices),
      BadIndexAction::kZero, expected.data());
  for (const LaunchShape& shape : kShapes) {
    SCOPED_NOTE(std::to_string(shape.blocks) + " blocks of " +
                std::to_string(shape.threads) + ", rows of " +
                std::to_string(row_bytes));
    const auto output = [&] { return Output(kIndices * row_bytes, 0); };
    const auto plan_of = [&](Output& to) {
      return gpu::GatherPlan<gpu::IndexList<int32_t>, Offset>{
          params.data(),
          {reinterpret_cast<const int32_t*>(indices.data())},
          to.data(),
          row_bytes,
          kRows,
          FastDivider<Offset>(kIndices),
          FastDivider<Offset>(1),
          BadIndexAction::kZero,
          nullptr};
    };
    const HostLaunch launch{random.Bits(), random.OneIn(8) ? 3 : 1};

    Output by_short = output();
    using Plan = decltype(plan_of(by_short));
    WalkGrid(shape,
             gpu::MoveShortRows<uint8_t, Plan>{
                 plan_of(by_short), static_cast<Offset>(kIndices * row_bytes),
                 FastDivider<Offset>(static_cast<Offset>(row_bytes))},
             launch);
    EXPECT_TRUE(by_short.HasSentinels());
    EXPECT_TRUE(by_short.Equals(expected));

    Output by_long = output();
    using Long = gpu::MoveLongRows<uint8_t, Plan>;
    const int64_t parts =
        (row_bytes + Long::kPartChunks - 1) / Long::kPartChunks;
    WalkGrid(shape,
             Long{plan_of(by_long), static_cast<Offset>(kIndices * parts),
                  FastDivider<Offset>(static_cast<Offset>(parts)),
                  static_cast<uint64_t>(row_bytes)},
             launch);
    EXPECT_TRUE(by_long.HasSentinels());
    EXPECT_TRUE(by_long.Equals(expected));
  }
}

TEST(GpuMovesOnEveryGrid) {
  Random random = TestRandom();
  for (const int64_t row_bytes : {1, 3, 32, 33, 127, 128, 129, 1000}) {
    ExpectMovesOnEveryGrid<uint32_t>(row_bytes, random);
    ExpectMovesOnEveryGrid<uint64_t>(row_bytes, random);
  }
}

TEST(GpuAddsOnEveryGrid) {
  Random random = TestRandom();
  constexpr int64_t kRows = 5;
  constexpr int64_t kInner = 8;
  constexpr int64_t kIndices = 43;
  const GatherGeometry geometry{2, 3, kRows, kInner, kIndices};
  std::vector<float> grad(2 * 3 * kIndices * kInner);
  for (float& x : grad) x = static_cast<float>(random.Between(-9, 9));
  std::vector<int64_t> indices(2 * kIndices);
  for (int64_t& index : indices) index = random.Between(-1, kRows);
  std::vector<float> expected(2 * 3 * kRows * kInner);
  reference::GatherGrad(
      geometry, SumType::kFloat32, grad.data(),
      reference::ReadIndices(indices.data(), IndexType::kInt64, 2 * kIndices),
      BadIndexAction::kZero, expected.data());
  using Body = gpu::AddRows<gpu::IndexList<int64_t>, float, 4>;
  constexpr uint64_t kRuns =
      (kIndices + Body::kRunIndices - 1) / Body::kRunIndices;
  constexpr uint64_t kPacks = kInner / 4;
  // Aligned as the packs are.
  DeviceMemory memory;
  const auto* const aligned_grad = static_cast<const float*>(
      memory.CopyOf(std::memcpy(memory.Allocate(grad.size() * 4), grad.data(),
                                grad.size() * 4),
                    grad.size() * 4));
  for (const LaunchShape& shape : kShapes) {
    auto* const sums =
        static_cast<float*>(memory.Allocate(expected.size() * 4));
    std::memset(sums, 0, expected.size() * 4);
    WalkGrid(shape,
             Body{aligned_grad,
                  {indices.data()},
                  sums,
                  kRows,
                  kIndices,
                  2 * 3 * kRuns * kPacks,
                  FastDivider<uint64_t>(kPacks),
                  FastDivider<uint64_t>(kRuns),
                  FastDivider<uint64_t>(3),
                  BadIndexAction::kZero,
                  nullptr},
             {random.Bits(), 2});
    EXPECT_EQ(std::vector<float>(sums, sums + expected.size()), expected);
  }
}

// ---- Offsets that no test can allocate --------------------------------------

// No memory is read or written at these addresses.
char* Address(uint64_t address) { return reinterpret_cast<char*>(address); }
uint64_t NumberOf(const char* address) {
  return reinterpret_cast<uintptr_t>(address);
}

constexpr uint64_t kFarAway[] = {
    (uint64_t{1} << 31) - 1, uint64_t{1} << 31,
    (uint64_t{1} << 31) + 1, (uint64_t{1} << 32) - 1,
    uint64_t{1} << 32,       (uint64_t{1} << 32) + 1,
    (uint64_t{1} << 33) + 5, (uint64_t{1} << 40) + 12345};

TEST(GpuGatherAddressesBeyond32Bits) {
  constexpr int64_t kRowBytes = 48;
  const uint64_t params = 0x1000;
  const uint64_t output = 0x2000;
  for (const uint64_t far : kFarAway) {
    // A far row of the table.
    const std::vector<int64_t> indices = {3, static_cast<int64_t>(far)};
    gpu::GatherPlan<gpu::IndexList<int64_t>, uint32_t> near_output{
        Address(params),
        {indices.data()},
        Address(output),
        kRowBytes,
        static_cast<int64_t>(far) + 1,
        FastDivider<uint32_t>(2),
        FastDivider<uint32_t>(1),
        BadIndexAction::kZero,
        nullptr};
    EXPECT_EQ(NumberOf(near_output.At(1).from), params + far * kRowBytes);
    // A row of bytes is far where its number is not.
    near_output.row_bytes = 1 << 20;
    EXPECT_EQ(NumberOf(near_output.At(0).from), params + (3 << 20));

    // A far row of the output: of the line `far`, which reads the same indices.
    gpu::GatherPlan<gpu::IndexList<int64_t>, uint64_t> far_output{
        Address(params),
        {indices.data()},
        Address(output),
        kRowBytes,
        5,
        FastDivider<uint64_t>(2),
        FastDivider<uint64_t>(far + 1),
        BadIndexAction::kClip,
        nullptr};
    const gpu::RowMove move = far_output.At(2 * far + 1);
    EXPECT_EQ(NumberOf(move.from), params + (5 * far + 4) * kRowBytes);
    EXPECT_EQ(NumberOf(move.to), output + (2 * far + 1) * kRowBytes);
  }
  // A 32-bit row number times a row's bytes.
  const std::vector<int32_t> indices(1);
  const gpu::GatherPlan<gpu::IndexList<int32_t>, uint32_t> many_rows{
      Address(params),
      {indices.data()},
      Address(output),
      kRowBytes,
      1,
      FastDivider<uint32_t>(1),
      FastDivider<uint32_t>(1u << 31),
      BadIndexAction::kZero,
      nullptr};
  constexpr uint32_t kLastRow = (1u << 31) - 1;
  EXPECT_EQ(NumberOf(many_rows.At(kLastRow).to),
            output + uint64_t{kLastRow} * kRowBytes);
}

// The row numbers that a body asks for.
struct RecordingPlan {
  using Offset = uint64_t;
  std::vector<uint64_t>* rows;
  gpu::RowMove At(uint64_t row) const {
    rows->push_back(row);
    return {nullptr, nullptr};
  }
};

TEST(GpuRowNumbersBeyond32Bits) {
  for (const uint64_t far : kFarAway) {
    std::vector<uint64_t> rows;
    // Rows of three chunks; the last thread of a grid whose last block has the
    // last row.
    const uint64_t chunks = 3 * (far + 1);
    const uint64_t tile = 256 * gpu::kChunksInFlight;
    const uint32_t blocks = static_cast<uint32_t>((chunks + tile - 1) / tile);
    const gpu::MoveShortRows<Chunk16, RecordingPlan> short_rows{
        {&rows}, chunks, FastDivider<uint64_t>(3)};
    const uint64_t last_start = (blocks - uint64_t{1}) * tile;
    const uint32_t thread =
        static_cast<uint32_t>((chunks - 1 - last_start) % 256);
    short_rows({blocks - 1, blocks, thread, 256});
    EXPECT_EQ(rows.back(), far);

    rows.clear();
    const gpu::MoveLongRows<Chunk16, RecordingPlan> long_rows{
        {&rows}, 2 * (far + 1), FastDivider<uint64_t>(2), 200};
    const uint64_t threads = 2 * (far + 1) * gpu::kRowThreads;
    // The stride of the grid reaches the last part with its second step.
    const uint64_t stride = uint64_t{1 << 24} * 256;
    const uint64_t first = (threads - 1) % stride;
    if (threads / stride > 1000) continue;  // too many steps to walk
    long_rows({static_cast<uint32_t>(first / 256), 1 << 24,
               static_cast<uint32_t>(first % 256), 256});
    EXPECT_EQ(rows.back(), far);
  }
}

TEST(GpuStitchAddressesBeyond32Bits) {
  constexpr int64_t kRowBytes = 24;
  const uint64_t merged = 0x1000;
  for (const uint64_t far : kFarAway) {
    // An entry of the winner map at row `far`, and a far position in it.
    const int64_t winner = static_cast<int64_t>(far) + 7;
    const auto* const winners = reinterpret_cast<const int64_t*>(
        reinterpret_cast<uintptr_t>(&winner) - far * sizeof(winner));
    gpu::StitchTable table;
    table.num_inputs = 2;
    table.starts[0] = 0;
    table.starts[1] = 5;
    table.starts[2] = far + 8;
    table.rows[0] = Address(0x10);
    table.rows[1] = Address(0x20);
    const gpu::StitchPlan<int64_t, uint64_t> stitch{
        table, winners, Address(merged), kRowBytes, true};
    const gpu::RowMove move = stitch.At(far);
    EXPECT_EQ(NumberOf(move.from), 0x20 + (far + 2) * kRowBytes);
    EXPECT_EQ(NumberOf(move.to), merged + far * kRowBytes);

    // The gradient of that position, whose index is `far`.
    const int64_t index = static_cast<int64_t>(far);
    table.indices[0] = nullptr;
    table.indices[1] = reinterpret_cast<const int64_t*>(
        reinterpret_cast<uintptr_t>(&index) - (far + 2) * sizeof(index));
    const gpu::StitchGradPlan<int64_t, int64_t, uint64_t> grad{
        table, winners, Address(merged), kRowBytes, index + 1};
    const gpu::RowMove back = grad.At(far + 7);
    EXPECT_EQ(NumberOf(back.from), merged + far * kRowBytes);
    EXPECT_EQ(NumberOf(back.to), 0x20 + (far + 2) * kRowBytes);
  }
}

TEST(GpuPackNumbersBeyond32Bits) {
  for (const uint64_t far : kFarAway) {
    const gpu::RowTable table{FastDivider<uint64_t>(far + 1), 3,
                              FastDivider<uint64_t>(10)};
    // Batch 1, row far - 1, line 2, pack 4.
    EXPECT_EQ(table.PackAt(far + 1 + far - 1, 24),
              ((1 * 3 + 2) * (far + 1) + far - 1) * 10 + 4);
  }
}

// ---- Fixed order ------------------------------------------------------------

struct SumJob {
  GatherGeometry geometry;
  std::vector<int32_t> indices;
  std::vector<float> grad;

  std::vector<float> Run(gpu::SumOrder order) const {
    DeviceMemory memory;
    std::vector<float> sums(geometry.rows * geometry.inner);
    const int64_t bytes = static_cast<int64_t>(sums.size()) * 4;
    void* const on_device = memory.Allocate(bytes);
    const GpuStatus status = gpu::GatherGrad(
        geometry, SumType::kFloat32,
        memory.CopyOf(grad.data(), static_cast<int64_t>(grad.size()) * 4),
        memory.CopyOf(indices.data(), static_cast<int64_t>(indices.size()) * 4),
        IndexType::kInt32, BadIndexAction::kZero, order, memory, nullptr,
        on_device, DeviceStream());
    EXPECT_EQ(status.words, "");
    WaitForDevice();
    CopyFromDevice(sums.data(), on_device, bytes);
    return sums;
  }
};

SumJob RandomSumJob(int64_t rows, int64_t inner, int64_t count,
                    Random& random) {
  SumJob job{{1, 1, rows, inner, count}, {}, {}};
  for (int64_t i = 0; i < count; ++i) {
    job.indices.push_back(static_cast<int32_t>(
        random.OneIn(3) ? random.Between(0, rows - 1) : 0));
  }
  for (int64_t i = 0; i < count * inner; ++i) {
    job.grad.push_back(static_cast<float>(random.Between(-1000, 1000)) / 7);
  }
  return job;
}

TEST(GpuFixedOrderGivesTheSameBits) {
  Random random = TestRandom();
  for (const int64_t inner : {1, 4, 6}) {
    for (const int64_t count : {1, 31, 32, 33, 1000, 40000}) {
      const SumJob job = RandomSumJob(50, inner, count, random);
      const std::vector<float> first = job.Run(gpu::SumOrder::kFixed);
      // Each launch walks its grid in another order.
      for (int repeat = 0; repeat < 3; ++repeat) {
        EXPECT_EQ(job.Run(gpu::SumOrder::kFixed), first);
      }
    }
  }
}

TEST(GpuSumsAreNearTheExactOnes) {
  Random random = TestRandom();
  for (const gpu::SumOrder order :
       {gpu::SumOrder::kAny, gpu::SumOrder::kFixed}) {
    const SumJob job = RandomSumJob(20, 4, 30000, random);
    std::vector<double> exact(80);
    for (size_t i = 0; i < job.indices.size(); ++i) {
      for (int64_t k = 0; k < 4; ++k) {
        exact[job.indices[i] * 4 + k] += job.grad[i * 4 + k];
      }
    }
    const std::vector<float> sums = job.Run(order);
    for (size_t i = 0; i < sums.size(); ++i) {
      // 30000 roundings of numbers below 2^21.
      EXPECT_TRUE(std::abs(sums[i] - exact[i]) < 30000 * 0.125);
    }
  }
}

// The order matters for such numbers, so that the tests above test something.
TEST(GpuOrderOfSumsMatters) {
  Random random = TestRandom();
  const SumJob job = RandomSumJob(4, 1, 30000, random);
  std::vector<float> in_order(4);
  for (size_t i = 0; i < job.indices.size(); ++i) {
    in_order[job.indices[i]] += job.grad[i];
  }
  EXPECT_TRUE(job.Run(gpu::SumOrder::kFixed) != in_order);
}

// ---- Nothing to do, and a device that does nothing --------------------------

TEST(GpuEmptyInputsLaunchNothing) {
  const int64_t before = TasksGiven();
  DeviceMemory memory;
  for (const GatherGeometry& geometry :
       {GatherGeometry{0, 1, 2, 3, 4}, GatherGeometry{1, 1, 2, 3, 0},
        GatherGeometry{1, 0, 2, 3, 4}, GatherGeometry{1, 1, 2, 0, 4}}) {
    gpu::GatherRows(geometry, geometry.inner, nullptr, nullptr,
                    IndexType::kInt32, BadIndexAction::kZero, nullptr, nullptr,
                    DeviceStream());
  }
  for (const GatherGeometry& geometry :
       {GatherGeometry{0, 1, 2, 3, 4}, GatherGeometry{1, 1, 0, 3, 4},
        GatherGeometry{1, 0, 2, 3, 4}, GatherGeometry{1, 1, 2, 0, 4}}) {
    gpu::GatherGrad(geometry, SumType::kHalf, nullptr, nullptr,
                    IndexType::kInt32, BadIndexAction::kZero,
                    gpu::SumOrder::kAny, memory, nullptr, nullptr,
                    DeviceStream());
  }
  gpu::SparseGradPlan plan;
  gpu::PlanSparseGrad(0, 5, nullptr, IndexType::kInt32, BadIndexAction::kZero,
                      true, memory, nullptr, &plan, nullptr, DeviceStream());
  gpu::FillSparseGrad(plan, 3, SumType::kHalf, nullptr, memory, nullptr,
                      nullptr, DeviceStream());
  const std::vector<StitchInput> inputs(3);
  gpu::StitchRows(inputs.data(), 3, IndexType::kInt32, 8, 0,
                  BadIndexAction::kZero, memory, nullptr, nullptr,
                  DeviceStream());
  gpu::StitchRows(inputs.data(), 3, IndexType::kInt32, 0, 9,
                  BadIndexAction::kZero, memory, nullptr, nullptr,
                  DeviceStream());
  const std::vector<void*> data_grads(3);
  gpu::StitchGradRows(inputs.data(), 3, IndexType::kInt32, 8, 9, nullptr,
                      memory, data_grads.data(), DeviceStream());
  EXPECT_EQ(TasksGiven(), before);
  EXPECT_EQ(memory.allocations(), 0);
}

// Every function that adds to a stream, on inputs for which it does all that it
// can.
struct Everything {
  static constexpr int64_t kCount = 200;
  static constexpr int64_t kRows = 30;
  static constexpr int64_t kInner = 4;
  static constexpr int kFunctions = 7;

  explicit Everything(int64_t refused_allocation = -1)
      : scratch(refused_allocation) {
    for (int32_t i = 0; i < kCount; ++i) indices[i] = i % kRows;
    inputs = {{indices, kCount / 2, Data()},
              {indices + kCount / 2, kCount / 2, Data()}};
    report = static_cast<gpu::Report*>(memory.Allocate(sizeof(gpu::Report)));
    std::memset(static_cast<void*>(report), 0xff, sizeof(gpu::Report));
  }

  void* Data() { return memory.Allocate(kCount * kInner * 8); }

  GpuStatus Run(int function) {
    const GatherGeometry geometry{1, 1, kRows, kInner, kCount};
    const GpuStream stream = DeviceStream();
    switch (function) {
      case 0:
        return gpu::GatherRows(geometry, kInner * 4, Data(), indices,
                               IndexType::kInt32, BadIndexAction::kFail, report,
                               Data(), stream);
      case 1:
      case 2:
        return gpu::GatherGrad(
            geometry, SumType::kFloat32, Data(), indices, IndexType::kInt32,
            BadIndexAction::kFail,
            function == 1 ? gpu::SumOrder::kAny : gpu::SumOrder::kFixed,
            scratch, report, Data(), stream);
      case 3: {
        gpu::SparseGradPlan plan;
        GATHER_STITCH_RETURN_IF_GPU_ERROR(
            gpu::PlanSparseGrad(kCount, kRows, indices, IndexType::kInt32,
                                BadIndexAction::kFail, true, scratch, report,
                                &plan, static_cast<int64_t*>(Data()), stream));
        return gpu::FillSparseGrad(plan, kInner, SumType::kFloat32, Data(),
                                   scratch, static_cast<int64_t*>(Data()),
                                   Data(), stream);
      }
      case 4:
        return gpu::FindLargestIndex(inputs.data(), 2, IndexType::kInt32,
                                     report, stream);
      case 5:
        return gpu::StitchRows(inputs.data(), 2, IndexType::kInt32, kInner * 4,
                               kRows, BadIndexAction::kFail, scratch, report,
                               Data(), stream);
      default: {
        const std::vector<void*> data_grads = {Data(), Data()};
        return gpu::StitchGradRows(inputs.data(), 2, IndexType::kInt32,
                                   kInner * 4, kRows, Data(), scratch,
                                   data_grads.data(), stream);
      }
    }
  }

  // Freed in reverse: first what waits for the stream.
  int32_t indices[kCount];
  std::vector<StitchInput> inputs;
  gpu::Report* report;
  DeviceMemory memory;
  DeviceMemory scratch;
};

TEST(GpuRefusedMemory) {
  for (int function = 0; function < Everything::kFunctions; ++function) {
    for (int64_t refused = 0;; ++refused) {
      Everything everything(refused);
      const GpuStatus status = everything.Run(function);
      if (everything.scratch.allocations() <= refused) {
        EXPECT_TRUE(status.ok());
        break;
      }
      EXPECT_EQ(static_cast<int>(status.code),
                static_cast<int>(GpuStatus::kOutOfMemory));
    }
  }
}

TEST(GpuRefusedWork) {
  for (int function = 0; function < Everything::kFunctions; ++function) {
    for (int64_t refused = 0;; ++refused) {
      Everything everything;
      const int64_t before = TasksGiven();
      RefuseTask(refused);
      const GpuStatus status = everything.Run(function);
      RefuseTask(-1);
      if (TasksGiven() - before <= refused) {
        EXPECT_TRUE(status.ok());
        EXPECT_TRUE(refused >= 2);
        break;
      }
      EXPECT_EQ(status.error, 700);
      EXPECT_EQ(TasksGiven() - before, refused + 1);
    }
  }
}

}  // namespace
}  // namespace testing
}  // namespace gather_stitch
