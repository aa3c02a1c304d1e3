// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// Every backend sums gradients as the reference does, bit by bit: those that
// add in another order where the order makes no difference.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/core/backends.h"
#include "tests/core/buffers.h"
#include "tests/core/cases.h"
#include "tests/core/lenders.h"
#include "tests/core/test_harness.h"
#include "tf_ops/core/numeric_types.h"

namespace gather_stitch {
namespace testing {
namespace {

struct GradCase {
  GatherGeometry geometry;
  SumType sum_type;
  IndexType index_type;
  IndexOrder order;
  BadIndexAction action;
};

Input Elements(int64_t count, SumType type, bool are_whole, Random& random) {
  return are_whole ? RandomWholeElements(count, type, random)
                   : RandomElements(count, type, random);
}

void ExpectSumsAsReference(const GradCase& c, Random& random) {
  const GatherGeometry& g = c.geometry;
  SCOPED_NOTE(Description(g));
  SCOPED_NOTE(std::string(Name(c.sum_type)) + ", " + Name(c.index_type) + ", " +
              Name(c.action));
  const int64_t lines = g.batches * g.outer;
  const int64_t bytes = SumTypeBytes(c.sum_type);
  const bool are_whole = random.OneIn(2);
  const Input grad = Elements(lines * g.indices_per_batch * g.inner, c.sum_type,
                              are_whole, random);
  const int64_t indices_count = g.batches * g.indices_per_batch;
  const Input indices =
      RandomIndices(indices_count, g.rows, c.index_type, c.order, random);
  const int64_t misalignment = bytes * random.Between(0, 3);
  Outcome expected_outcome;
  Output expected(lines * g.rows * g.inner * bytes, misalignment);
  for (const Backend* backend : AllBackends()) {
    if (!are_whole && !backend->sums_in_order()) continue;
    SCOPED_NOTE(backend->name());
    Output output(expected.bytes(), misalignment);
    TestScratch scratch;
    const Outcome outcome =
        backend->GatherGrad(g, c.sum_type, grad.data(), indices.data(),
                            c.index_type, c.action, scratch, output.data());
    EXPECT_TRUE(output.HasSentinels());
    constexpr int64_t kThreads = 16;
    EXPECT_TRUE(scratch.bytes() <=
                16 * indices_count + kThreads * (512 << 10) + 64 * g.batches);
    if (backend == AllBackends().front()) {
      expected_outcome = outcome;
      std::copy_n(output.data(), output.bytes(), expected.data());
      continue;
    }
    EXPECT_EQ(outcome, expected_outcome);
    if (expected_outcome.ok()) EXPECT_TRUE(output.Equals(expected));
  }
}

TEST(GradEverySumTypeAndWidth) {
  Random random = TestRandom();
  for (const SumType sum_type : kAllSumTypes) {
    for (const int64_t inner : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33,
                                63, 64, 65, 100, 129}) {
      ExpectSumsAsReference(
          {{1, 1, random.Between(1, 40), inner, random.Between(1, 200)},
           sum_type,
           random.Of(kAllIndexTypes),
           random.Of(kAllOrders),
           BadIndexAction::kWrap},
          random);
    }
  }
}

TEST(GradEveryIndexTypeOrderAndAction) {
  Random random = TestRandom();
  for (const IndexType index_type : kAllIndexTypes) {
    for (const IndexOrder order : kAllOrders) {
      for (const BadIndexAction action : kAllActions) {
        ExpectSumsAsReference({{random.Between(1, 2), random.Between(1, 2),
                                random.Of<int64_t>({1, 7, 130, 300}),
                                random.Between(1, 5), random.Between(1, 900)},
                               random.Of(kAllSumTypes),
                               index_type,
                               order,
                               action},
                              random);
      }
    }
  }
}

TEST(GradEmptyInEachDimension) {
  Random random = TestRandom();
  for (int empty = 0; empty < 32; ++empty) {
    for (const BadIndexAction action : kAllActions) {
      const auto dim = [&](int bit) -> int64_t {
        return empty >> bit & 1 ? 0 : 3;
      };
      ExpectSumsAsReference({{dim(0), dim(1), dim(2), dim(3), dim(4)},
                             random.Of(kAllSumTypes),
                             random.Of(kAllIndexTypes),
                             random.Of(kAllOrders),
                             action},
                            random);
    }
  }
}

// Large enough that the rows are dealt to the threads.
TEST(GradManyIndices) {
  Random random = TestRandom();
  struct Shape {
    int64_t batches, outer, rows, inner, indices;
  };
  for (const Shape& shape : std::vector<Shape>{{1, 1, 1, 3, 30000},
                                               {1, 1, 3, 40, 20000},
                                               {1, 1, 2, 200, 3000},
                                               {1, 1, 20000, 1, 40000},
                                               {1, 1, 9000, 6, 15000},
                                               {1, 1, 70000, 1, 100},
                                               {1, 3, 700, 8, 9000},
                                               {3, 1, 900, 16, 9000},
                                               {2, 2, 2000, 9, 3},
                                               {3, 1, 100000, 1, 1},
                                               {1, 1, 40, 2000, 150}}) {
    for (const IndexOrder order : {IndexOrder::kUniform, IndexOrder::kSkewed,
                                   IndexOrder::kOneRow, IndexOrder::kWithBad}) {
      ExpectSumsAsReference(
          {{shape.batches, shape.outer, shape.rows, shape.inner, shape.indices},
           random.OneIn(2) ? SumType::kFloat32 : random.Of(kAllSumTypes),
           random.OneIn(2) ? IndexType::kInt32 : IndexType::kInt64,
           order,
           BadIndexAction::kZero},
          random);
    }
  }
}

// One row of float32 accumulators is more than a thread works on at a time.
TEST(GradRowsWiderThanATile) {
  Random random = TestRandom();
  for (const SumType sum_type :
       {SumType::kHalf, SumType::kFloat8E4m3fn, SumType::kFloat32}) {
    ExpectSumsAsReference({{1, 1, 3, 70001, 6},
                           sum_type,
                           IndexType::kInt32,
                           IndexOrder::kUniform,
                           BadIndexAction::kFail},
                          random);
  }
}

// More rows in a bucket than a tile has, since buckets are few.
TEST(GradMoreRowsThanATileForEachIndex) {
  Random random = TestRandom();
  for (const SumType sum_type : {SumType::kBfloat16, SumType::kInt8}) {
    ExpectSumsAsReference({{2, 1, 200000, 1, 3},
                           sum_type,
                           IndexType::kInt32,
                           IndexOrder::kUniform,
                           BadIndexAction::kFail},
                          random);
  }
}

TEST(GradRandomShapes) {
  Random random = TestRandom();
  for (int i = 0; i < 500; ++i) {
    ExpectSumsAsReference(
        {{random.Between(0, 4), random.Between(0, 5), random.Between(0, 30),
          random.Between(0, 20), random.Between(0, random.OneIn(9) ? 1100 : 9)},
         random.Of(kAllSumTypes),
         random.Of(kAllIndexTypes),
         random.Of(kAllOrders),
         random.Of(kAllActions)},
        random);
  }
}

// 5000 ones are 5000, which neither half nor bfloat16 counts to by steps of
// one.
TEST(GradRoundsOnce) {
  constexpr int64_t kIndices = 5000;
  const std::vector<int32_t> indices(kIndices, 2);
  for (const Backend* backend : AllBackends()) {
    SCOPED_NOTE(backend->name());
    TestScratch scratch;
    const GatherGeometry geometry{1, 1, 4, 1, kIndices};
    const std::vector<uint16_t> half_ones(kIndices, Narrow<Half>(1).bits);
    std::vector<uint16_t> sums(4, 0xffff);
    EXPECT_EQ(backend->GatherGrad(geometry, SumType::kHalf, half_ones.data(),
                                  indices.data(), IndexType::kInt32,
                                  BadIndexAction::kFail, scratch, sums.data()),
              Outcome());
    EXPECT_EQ(Widen(Half{sums[2]}), 5000.0f);
    EXPECT_EQ(sums[0], 0);
    const std::vector<uint16_t> bfloat_ones(kIndices, Narrow<Bfloat16>(1).bits);
    EXPECT_EQ(
        backend->GatherGrad(geometry, SumType::kBfloat16, bfloat_ones.data(),
                            indices.data(), IndexType::kInt32,
                            BadIndexAction::kFail, scratch, sums.data()),
        Outcome());
    EXPECT_EQ(sums[2], Narrow<Bfloat16>(5000).bits);
  }
}

TEST(GradOfMinusZeroIsZero) {
  const std::vector<int32_t> indices = {0};
  const std::vector<float> grad = {-0.0f};
  for (const Backend* backend : AllBackends()) {
    SCOPED_NOTE(backend->name());
    TestScratch scratch;
    std::vector<float> sum = {1};
    backend->GatherGrad({1, 1, 1, 1, 1}, SumType::kFloat32, grad.data(),
                        indices.data(), IndexType::kInt32,
                        BadIndexAction::kFail, scratch, sum.data());
    EXPECT_EQ(std::signbit(sum[0]), false);
  }
}

TEST(GradOfInfinitiesAndNans) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<int32_t> indices = {0, 1, 1, 2, 0};
  const std::vector<float> grad = {kInfinity, kInfinity, -kInfinity,
                                   std::nanf(""), 1};
  for (const Backend* backend : AllBackends()) {
    SCOPED_NOTE(backend->name());
    TestScratch scratch;
    std::vector<float> sums(3);
    backend->GatherGrad({1, 1, 3, 1, 5}, SumType::kFloat32, grad.data(),
                        indices.data(), IndexType::kInt32,
                        BadIndexAction::kFail, scratch, sums.data());
    EXPECT_EQ(sums[0], kInfinity);
    EXPECT_TRUE(std::isnan(sums[1]));
    EXPECT_TRUE(std::isnan(sums[2]));
  }
}

TEST(GradNamesTheFirstBadIndex) {
  for (const Backend* backend : AllBackends()) {
    SCOPED_NOTE(backend->name());
    for (const int64_t outer : {1, 3, 40}) {
      constexpr int64_t kIndices = 30000;
      std::vector<int64_t> indices(kIndices, 1);
      indices[12345] = 7;
      indices[12346] = -3;
      indices[29999] = 9;
      const std::vector<uint8_t> grad(outer * kIndices);
      std::vector<uint8_t> sums(outer * 7);
      TestScratch scratch;
      EXPECT_EQ(
          backend->GatherGrad({1, outer, 7, 1, kIndices}, SumType::kInt8,
                              grad.data(), indices.data(), IndexType::kInt64,
                              BadIndexAction::kFail, scratch, sums.data()),
          Outcome::BadIndex(0, 12345, 7));
    }
  }
}

TEST(GradSurvivesIndicesThatChange) {
  Random random = TestRandom();
  for (const SumType sum_type : {SumType::kFloat32, SumType::kHalf}) {
    for (const GatherGeometry& geometry : {GatherGeometry{1, 1, 3000, 3, 30000},
                                           GatherGeometry{1, 40, 30, 3, 300}}) {
      const Input grad = RandomElements(
          geometry.outer * geometry.indices_per_batch * geometry.inner,
          sum_type, random);
      Input indices(geometry.indices_per_batch * 4, 0, random);
      const InterruptedFor interrupted([&] {
        for (int64_t i = 0; i < geometry.indices_per_batch; ++i) {
          StoreIndex(indices.data(), i, IndexType::kInt32,
                     random.OneIn(90000)
                         ? random.Bits()
                         : random.Between(0, geometry.rows - 1));
        }
      });
      Output sums(geometry.outer * geometry.rows * geometry.inner *
                      SumTypeBytes(sum_type),
                  0);
      TestScratch scratch;
      GatherGrad(geometry, sum_type, grad.data(), indices.data(),
                 IndexType::kInt32, BadIndexAction::kZero, interrupted, scratch,
                 sums.data());
      EXPECT_TRUE(sums.HasSentinels());
    }
  }
}

// Sums run in the caller's floating-point mode on every thread.
TEST(GradDoesNotDependOnTheModeOfOtherThreads) {
  constexpr int64_t kRows = 5000;
  constexpr int64_t kIndices = 20000;
  const float denormal = std::numeric_limits<float>::denorm_min();
  const std::vector<float> grad(kIndices, denormal);
  std::vector<int32_t> indices(kIndices);
  for (int64_t i = 0; i < kIndices; ++i) indices[i] = i % kRows;
  for (const Backend* backend : AllBackends()) {
    SCOPED_NOTE(backend->name());
    TestScratch scratch;
    std::vector<float> sums(kRows);
    backend->GatherGrad({1, 1, kRows, 1, kIndices}, SumType::kFloat32,
                        grad.data(), indices.data(), IndexType::kInt32,
                        BadIndexAction::kFail, scratch, sums.data());
    EXPECT_EQ(sums, std::vector<float>(kRows, 4 * denormal));
  }
}

TEST(GradRefusedMemory) {
  const ReversedFor many_threads;
  constexpr int64_t kRows = 30000;
  constexpr int64_t kIndices = 160000;
  const std::vector<int32_t> indices(kIndices, 5);
  for (const SumType sum_type : {SumType::kFloat32, SumType::kHalf}) {
    for (const int64_t outer : {1, 100}) {
      const int64_t rows = kRows / outer;
      const int64_t per_batch = kIndices / outer;
      const std::vector<char> grad(kIndices * 4);
      std::vector<char> sums(kRows * 4);
      int64_t refused = 0;
      for (;; ++refused) {
        TestScratch scratch(refused);
        const Outcome outcome =
            GatherGrad({1, outer, rows, 1, per_batch}, sum_type, grad.data(),
                       indices.data(), IndexType::kInt32, BadIndexAction::kFail,
                       many_threads, scratch, sums.data());
        if (scratch.allocations() <= refused) {
          EXPECT_EQ(outcome, Outcome());
          break;
        }
        EXPECT_EQ(outcome, Outcome::OutOfMemory());
      }
      if (outer == 1) EXPECT_TRUE(refused >= 3);
    }
  }
}

// ---- Slices -----------------------------------------------------------------

struct SparseCase {
  int64_t count;
  int64_t params_rows;
  int64_t inner;
  bool unique;
  SumType sum_type;
  IndexType index_type;
  IndexOrder order;
  BadIndexAction action;
};

void ExpectSlicesAsReference(const SparseCase& c, Random& random) {
  SCOPED_NOTE(std::to_string(c.count) + " indices, " +
              std::to_string(c.params_rows) + " rows, inner " +
              std::to_string(c.inner) + (c.unique ? ", unique" : ""));
  SCOPED_NOTE(std::string(Name(c.sum_type)) + ", " + Name(c.index_type) + ", " +
              Name(c.action));
  const bool are_whole = random.OneIn(2);
  const Input grad = Elements(c.count * c.inner, c.sum_type, are_whole, random);
  const Input indices =
      RandomIndices(c.count, c.params_rows, c.index_type, c.order, random);
  Outcome expected_outcome;
  reference::Slices expected;
  for (const Backend* backend : AllBackends()) {
    if (!are_whole && !backend->sums_in_order()) continue;
    SCOPED_NOTE(backend->name());
    reference::Slices slices;
    TestScratch scratch;
    const Outcome outcome = backend->SparseGrad(
        c.count, c.params_rows, indices.data(), c.index_type, c.action,
        c.unique, c.inner, c.sum_type, grad.data(), scratch, &slices);
    if (backend == AllBackends().front()) {
      expected_outcome = outcome;
      expected = slices;
      continue;
    }
    EXPECT_EQ(outcome, expected_outcome);
    if (!expected_outcome.ok()) continue;
    EXPECT_EQ(slices.rows, expected.rows);
    EXPECT_EQ(slices.slots, expected.slots);
    EXPECT_TRUE(slices.values == expected.values);
  }
}

TEST(SlicesOfEveryTypeOrderAndAction) {
  Random random = TestRandom();
  for (const IndexOrder order : kAllOrders) {
    for (const BadIndexAction action : kAllActions) {
      for (const bool unique : {false, true}) {
        for (const SumType sum_type : kAllSumTypes) {
          ExpectSlicesAsReference({random.Between(0, 300),
                                   random.Of<int64_t>({0, 1, 20, 300, 70000}),
                                   random.Between(0, 20), unique, sum_type,
                                   random.Of(kAllIndexTypes), order, action},
                                  random);
        }
      }
    }
  }
}

TEST(SlicesOfManyIndices) {
  Random random = TestRandom();
  for (const IndexOrder order : kAllOrders) {
    for (const int64_t params_rows :
         {int64_t{3}, int64_t{5000}, int64_t{1} << 20, int64_t{1} << 40,
          INT64_MAX}) {
      for (const bool unique : {false, true}) {
        ExpectSlicesAsReference(
            {10000, params_rows, random.Of<int64_t>({1, 4, 20}), unique,
             random.OneIn(2) ? SumType::kFloat32 : random.Of(kAllSumTypes),
             IndexType::kInt64, order, BadIndexAction::kZero},
            random);
      }
    }
  }
}

// All of the largest table is one bucket.
TEST(SlicesOfFewIndicesOfTheLargestTables) {
  Random random = TestRandom();
  for (const int64_t params_rows :
       {(int64_t{1} << 62) + 1, INT64_MAX - 1, INT64_MAX}) {
    for (const IndexOrder order :
         {IndexOrder::kUniform, IndexOrder::kExtremes}) {
      ExpectSlicesAsReference({5, params_rows, 2, true, SumType::kFloat32,
                               IndexType::kInt64, order, BadIndexAction::kZero},
                              random);
    }
  }
}

TEST(SlicesWiderThanATile) {
  Random random = TestRandom();
  for (const SumType sum_type : {SumType::kHalf, SumType::kFloat64}) {
    ExpectSlicesAsReference({7, 3, 10001, true, sum_type, IndexType::kInt32,
                             IndexOrder::kUniform, BadIndexAction::kFail},
                            random);
  }
}

TEST(SlicesOfSortedDistinctRowsAreGradItself) {
  const std::vector<int32_t> indices = {1, 4, 5, 9};
  const SerialFor serial;
  for (const bool unique : {false, true}) {
    TestScratch scratch;
    SparseGradPlan plan;
    std::vector<int64_t> slots(4);
    EXPECT_EQ(PlanSparseGrad(4, 10, indices.data(), IndexType::kInt32,
                             BadIndexAction::kFail, unique, serial, scratch,
                             &plan, slots.data()),
              Outcome());
    EXPECT_EQ(plan.is_identity, true);
    EXPECT_EQ(plan.slices, 4);
    // Where values share the memory of grad there is nothing to do.
    std::vector<float> grad = {1, 2, 3, 4};
    FillSparseGradValues(plan, 1, SumType::kFloat32, grad.data(), serial,
                         grad.data());
    EXPECT_EQ(grad, (std::vector<float>{1, 2, 3, 4}));
  }
}

TEST(SlicesRefusedMemory) {
  const ThreadedFor threaded(2);
  constexpr int64_t kIndices = 3000;
  std::vector<int32_t> indices(kIndices, 5);
  indices[7] = 100;
  for (const bool unique : {false, true}) {
    for (int64_t refused = 0;; ++refused) {
      TestScratch scratch(refused);
      SparseGradPlan plan;
      std::vector<int64_t> slots(kIndices);
      const Outcome outcome =
          PlanSparseGrad(kIndices, 50, indices.data(), IndexType::kInt32,
                         BadIndexAction::kZero, unique, threaded, scratch,
                         &plan, slots.data());
      if (scratch.allocations() <= refused) {
        EXPECT_EQ(outcome, Outcome());
        EXPECT_TRUE(refused >= 4);
        break;
      }
      EXPECT_EQ(outcome, Outcome::OutOfMemory());
    }
  }
}

}  // namespace
}  // namespace testing
}  // namespace gather_stitch
