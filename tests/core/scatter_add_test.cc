// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// A scatter-add equals one addition after the other, bit by bit, whoever lends
// the threads.

#include "tf_ops/core/scatter_add.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/core/buffers.h"
#include "tests/core/cases.h"
#include "tests/core/lenders.h"
#include "tests/core/reference.h"
#include "tests/core/test_harness.h"
#include "tf_ops/core/numeric_types.h"

namespace gather_stitch {
namespace testing {
namespace {

const std::vector<SumType> kScatterTypes = {
    SumType::kInt8,    SumType::kInt16,   SumType::kInt32, SumType::kInt64,
    SumType::kFloat32, SumType::kFloat64, SumType::kHalf,  SumType::kBfloat16};

template <typename T>
void AddOne(bool subtract, const char* update, char* element) {
  T a, b;
  std::memcpy(&a, element, sizeof(T));
  std::memcpy(&b, update, sizeof(T));
  if constexpr (std::is_arithmetic_v<T>) {
    a = static_cast<T>(subtract ? a - b : a + b);
  } else {
    a = Narrow<T>(subtract ? Widen(a) - Widen(b) : Widen(a) + Widen(b));
  }
  std::memcpy(element, &a, sizeof(T));
}

void AddOne(SumType type, bool subtract, const char* update, char* element) {
  switch (type) {
    case SumType::kInt8:
      return AddOne<uint8_t>(subtract, update, element);
    case SumType::kInt16:
      return AddOne<uint16_t>(subtract, update, element);
    case SumType::kInt32:
      return AddOne<uint32_t>(subtract, update, element);
    case SumType::kInt64:
      return AddOne<uint64_t>(subtract, update, element);
    case SumType::kFloat32:
      return AddOne<float>(subtract, update, element);
    case SumType::kFloat64:
      return AddOne<double>(subtract, update, element);
    case SumType::kHalf:
      return AddOne<Half>(subtract, update, element);
    default:
      return AddOne<Bfloat16>(subtract, update, element);
  }
}

// What the header says, up to the first bad index.
Outcome Reference(const ScatterAddJob& job, SumType type, const char* updates,
                  const std::vector<reference::Wide>& indices, char* table) {
  const int64_t bytes = SumTypeBytes(type);
  for (int64_t i = 0; i < job.count; ++i) {
    if (indices[i] < 0 || indices[i] >= job.rows) {
      return Outcome::BadIndex(0, i, static_cast<int64_t>(indices[i]));
    }
    for (int64_t k = 0; k < job.inner; ++k) {
      const int64_t from = job.scalar_lanes > 0 ? k % job.scalar_lanes
                                                : i * job.update_stride + k;
      const int64_t to = static_cast<int64_t>(indices[i]) * job.inner + k;
      AddOne(type, job.subtract, updates + from * bytes, table + to * bytes);
    }
  }
  return Outcome();
}

const std::vector<std::unique_ptr<ParallelFor>>& AllLenders() {
  static const auto* const lenders = [] {
    auto* const all = new std::vector<std::unique_ptr<ParallelFor>>;
    all->push_back(std::make_unique<SerialFor>());
    all->push_back(std::make_unique<ReversedFor>());
    all->push_back(std::make_unique<OneItemFor>(3));
    all->push_back(std::make_unique<ThreadedFor>(4));
    return all;
  }();
  return *lenders;
}

void ExpectAsReference(const ScatterAddJob& job, SumType type,
                       IndexType index_type, IndexOrder order, Random& random) {
  SCOPED_NOTE(std::to_string(job.count) + " updates of " +
              std::to_string(job.inner) + " to " + std::to_string(job.rows) +
              " rows, stride " + std::to_string(job.update_stride) +
              ", lanes " + std::to_string(job.scalar_lanes) + ", " +
              Name(type));
  const int64_t bytes = SumTypeBytes(type);
  const int64_t table_elements = job.rows * job.inner;
  const Input start = RandomElements(table_elements, type, random);
  const Input updates = RandomElements(
      job.scalar_lanes > 0 ? job.scalar_lanes : job.count * job.update_stride,
      type, random);
  const Input indices =
      RandomIndices(job.count, job.rows, index_type, order, random);
  Output expected(table_elements * bytes, 0);
  std::copy_n(start.data(), expected.bytes(), expected.data());
  const Outcome expected_outcome =
      Reference(job, type, updates.data(),
                reference::ReadIndices(indices.data(), index_type, job.count),
                expected.data());
  for (const auto& lender : AllLenders()) {
    SCOPED_NOTE(std::to_string(lender->max_threads()) + " threads");
    Output table(expected.bytes(), 0);
    std::copy_n(start.data(), table.bytes(), table.data());
    TestScratch scratch;
    const Outcome outcome =
        ScatterAdd(job, type, updates.data(), indices.data(), index_type,
                   *lender, scratch, table.data());
    EXPECT_EQ(outcome, expected_outcome);
    EXPECT_TRUE(table.Equals(expected));
    EXPECT_TRUE(table.HasSentinels());
    EXPECT_TRUE(scratch.bytes() <= 16 * job.count + 16384 + job.inner * bytes);
  }
}

ScatterAddJob RandomJob(int64_t count, int64_t rows, int64_t inner,
                        Random& random) {
  ScatterAddJob job;
  job.count = count;
  job.rows = rows;
  job.inner = inner;
  job.update_stride = inner + (random.OneIn(4) ? random.Between(1, 3) : 0);
  if (random.OneIn(5)) {
    job.scalar_lanes = inner % 2 == 0 && random.OneIn(2) ? 2 : 1;
  }
  job.subtract = random.OneIn(2);
  return job;
}

TEST(ScatterAddRandomShapes) {
  Random random = TestRandom();
  for (int i = 0; i < 400; ++i) {
    ExpectAsReference(
        RandomJob(random.Between(0, random.OneIn(9) ? 1100 : 20),
                  random.Between(0, 30), random.Between(0, 70), random),
        random.Of(kScatterTypes), random.Of(kStitchIndexTypes),
        random.Of(kAllOrders), random);
  }
}

// Large enough that the rows are dealt to the threads.
TEST(ScatterAddManyUpdates) {
  Random random = TestRandom();
  struct Shape {
    int64_t rows, inner, count;
  };
  for (const Shape& shape : std::vector<Shape>{{1, 3, 20000},
                                               {3, 100, 3000},
                                               {20000, 1, 30000},
                                               {9000, 16, 5000},
                                               {70000, 4, 6000},
                                               {2000, 64, 4096}}) {
    for (const IndexOrder order : {IndexOrder::kUniform, IndexOrder::kSkewed,
                                   IndexOrder::kOneRow, IndexOrder::kWithBad}) {
      ExpectAsReference(
          RandomJob(shape.count, shape.rows, shape.inner, random),
          random.OneIn(2) ? SumType::kFloat32 : random.Of(kScatterTypes),
          random.Of(kStitchIndexTypes), order, random);
    }
  }
}

TEST(ScatterAddStopsAtTheFirstBadIndex) {
  for (const auto& lender : AllLenders()) {
    constexpr int64_t kCount = 50000;
    std::vector<int64_t> indices(kCount, 1);
    indices[30000] = 3;
    indices[30001] = -1;
    const std::vector<int32_t> updates(kCount * 4, 1);
    std::vector<int32_t> table(3 * 4);
    ScatterAddJob job;
    job.count = kCount;
    job.rows = 3;
    job.inner = job.update_stride = 4;
    TestScratch scratch;
    EXPECT_EQ(ScatterAdd(job, SumType::kInt32, updates.data(), indices.data(),
                         IndexType::kInt64, *lender, scratch, table.data()),
              Outcome::BadIndex(0, 30000, 3));
    EXPECT_EQ(table, std::vector<int32_t>(
                         {0, 0, 0, 0, 30000, 30000, 30000, 30000, 0, 0, 0, 0}));
  }
}

// 3000 ones are 2048 in half, which counts no further by steps of one: each sum
// is a value of the table.
TEST(ScatterAddRoundsEachSum) {
  const std::vector<int32_t> indices(3000, 0);
  const std::vector<uint16_t> ones(3000, Narrow<Half>(1).bits);
  std::vector<uint16_t> table(1, 0);
  ScatterAddJob job;
  job.count = 3000;
  job.rows = job.inner = job.update_stride = 1;
  TestScratch scratch;
  ScatterAdd(job, SumType::kHalf, ones.data(), indices.data(),
             IndexType::kInt32, SerialFor(), scratch, table.data());
  EXPECT_EQ(Widen(Half{table[0]}), 2048.0f);
}

TEST(ScatterAddWithoutMemoryAddsNothing) {
  constexpr int64_t kCount = 50000;
  const std::vector<int32_t> indices(kCount, 1);
  const std::vector<float> updates(kCount * 8, 1);
  ScatterAddJob job;
  job.count = kCount;
  job.rows = 100;
  job.inner = job.update_stride = 8;
  const ThreadedFor threaded(2);
  for (int64_t refused = 0;; ++refused) {
    std::vector<float> table(100 * 8);
    TestScratch scratch(refused);
    const Outcome outcome =
        ScatterAdd(job, SumType::kFloat32, updates.data(), indices.data(),
                   IndexType::kInt32, threaded, scratch, table.data());
    if (outcome.ok()) {
      EXPECT_TRUE(refused > 0);
      break;
    }
    EXPECT_EQ(outcome, Outcome::OutOfMemory());
    EXPECT_EQ(table, std::vector<float>(100 * 8));
  }
}

TEST(ScatterAddSurvivesIndicesThatChange) {
  Random random = TestRandom();
  ScatterAddJob job;
  job.count = 30000;
  job.rows = 3000;
  job.inner = job.update_stride = 3;
  const Input updates =
      RandomElements(job.count * 3, SumType::kFloat32, random);
  Input indices(job.count * 4, 0, random);
  const InterruptedFor interrupted([&] {
    for (int64_t i = 0; i < job.count; ++i) {
      StoreIndex(indices.data(), i, IndexType::kInt32,
                 random.OneIn(90000) ? static_cast<int64_t>(random.Bits())
                                     : random.Between(0, job.rows - 1));
    }
  });
  Output table(job.rows * 3 * 4, 0);
  std::memset(table.data(), 0, static_cast<size_t>(table.bytes()));
  TestScratch scratch;
  ScatterAdd(job, SumType::kFloat32, updates.data(), indices.data(),
             IndexType::kInt32, interrupted, scratch, table.data());
  EXPECT_TRUE(table.HasSentinels());
}

}  // namespace
}  // namespace testing
}  // namespace gather_stitch
