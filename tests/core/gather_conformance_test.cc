// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// Every backend gathers as the reference does.

#include <algorithm>
#include <vector>

#include "tests/core/backends.h"
#include "tests/core/buffers.h"
#include "tests/core/cases.h"
#include "tests/core/lenders.h"
#include "tests/core/test_harness.h"

namespace gather_stitch {
namespace testing {
namespace {

struct GatherCase {
  GatherGeometry geometry;  // inner is the number of bytes of a row
  IndexType index_type;
  IndexOrder order;
  BadIndexAction action;
};

void ExpectGathersAsReference(const GatherCase& c, Random& random) {
  const GatherGeometry& g = c.geometry;
  SCOPED_NOTE(Description(g));
  SCOPED_NOTE(std::string(Name(c.index_type)) + ", " + Name(c.action));
  const int64_t lines = g.batches * g.outer;
  const Input params(lines * g.rows * g.inner, random.Between(0, 17), random);
  const Input indices = RandomIndices(g.batches * g.indices_per_batch, g.rows,
                                      c.index_type, c.order, random);
  const int64_t misalignment = random.Between(0, 17);
  Outcome expected_outcome;
  Output expected(lines * g.indices_per_batch * g.inner, misalignment);
  for (const Backend* backend : AllBackends()) {
    SCOPED_NOTE(backend->name());
    Output output(expected.bytes(), misalignment);
    const Outcome outcome =
        backend->GatherRows(g, g.inner, params.data(), indices.data(),
                            c.index_type, c.action, output.data());
    EXPECT_TRUE(output.HasSentinels());
    if (backend == AllBackends().front()) {
      expected_outcome = outcome;
      std::copy_n(output.data(), output.bytes(), expected.data());
      continue;
    }
    EXPECT_EQ(outcome, expected_outcome);
    if (expected_outcome.ok()) EXPECT_TRUE(output.Equals(expected));
  }
}

TEST(GatherEveryRowSize) {
  Random random = TestRandom();
  for (int64_t row_bytes = 0; row_bytes <= 300; ++row_bytes) {
    for (const BadIndexAction action : kAllActions) {
      GatherCase c;
      c.geometry = {random.Between(1, 2), random.Between(1, 3),
                    random.Between(1, 20), row_bytes, random.Between(1, 70)};
      c.index_type = random.Of(kAllIndexTypes);
      c.order = action == BadIndexAction::kFail ? IndexOrder::kUniform
                                                : random.Of(kAllOrders);
      c.action = action;
      ExpectGathersAsReference(c, random);
    }
  }
}

TEST(GatherEveryIndexTypeOrderAndAction) {
  Random random = TestRandom();
  for (const IndexType index_type : kAllIndexTypes) {
    for (const IndexOrder order : kAllOrders) {
      for (const BadIndexAction action : kAllActions) {
        for (const int64_t rows : {1, 5, 128, 300, 40000}) {
          const int64_t row_bytes = random.Of<int64_t>({1, 3, 4, 8, 16});
          ExpectGathersAsReference({{1, random.Between(1, 2), rows, row_bytes,
                                     random.Between(1, 1500)},
                                    index_type,
                                    order,
                                    action},
                                   random);
        }
      }
    }
  }
}

TEST(GatherEmptyInEachDimension) {
  Random random = TestRandom();
  for (int empty = 0; empty < 32; ++empty) {
    for (const BadIndexAction action : kAllActions) {
      for (const IndexOrder order : kAllOrders) {
        const auto dim = [&](int bit) -> int64_t {
          return empty >> bit & 1 ? 0 : 3;
        };
        ExpectGathersAsReference({{dim(0), dim(1), dim(2), dim(3), dim(4)},
                                  random.Of(kAllIndexTypes),
                                  order,
                                  action},
                                 random);
      }
    }
  }
}

TEST(GatherFromLargeTables) {
  Random random = TestRandom();
  for (const int64_t row_bytes :
       {1,  2,  4,   7,   8,   12,  16,  24,  31,  32,   33,
        64, 65, 100, 128, 130, 200, 255, 256, 257, 1024, 4096}) {
    for (const IndexOrder order :
         {IndexOrder::kUniform, IndexOrder::kRuns, IndexOrder::kWithBad}) {
      const int64_t rows = 600 * 1024 / row_bytes;
      const int64_t indices = std::min<int64_t>(3000, 600 * 1024 / row_bytes);
      ExpectGathersAsReference(
          {{1, 1, rows, row_bytes, indices},
           random.Of<IndexType>({IndexType::kInt32, IndexType::kInt64}),
           order,
           BadIndexAction::kZero},
          random);
    }
  }
}

TEST(GatherLargeRows) {
  Random random = TestRandom();
  for (const int64_t row_bytes : {65536, 65539, 300001}) {
    for (const IndexOrder order : kAllOrders) {
      ExpectGathersAsReference({{1, 1, 3, row_bytes, 5},
                                IndexType::kInt32,
                                order,
                                BadIndexAction::kZero},
                               random);
    }
  }
}

TEST(GatherRandomShapes) {
  Random random = TestRandom();
  for (int i = 0; i < 1500; ++i) {
    ExpectGathersAsReference(
        {{random.Between(0, 5), random.Between(0, 9), random.Between(0, 30),
          random.Between(0, 40), random.Between(0, random.OneIn(9) ? 1100 : 9)},
         random.Of(kAllIndexTypes),
         random.Of(kAllOrders),
         random.Of(kAllActions)},
        random);
  }
}

// The first bad position, whatever thread meets another one first.
TEST(GatherNamesTheFirstBadIndex) {
  for (const Backend* backend : AllBackends()) {
    SCOPED_NOTE(backend->name());
    constexpr int64_t kIndices = 5000;
    std::vector<int32_t> indices(kIndices, 1);
    indices[1234] = 7;
    indices[1235] = -3;
    indices[4999] = 9;
    std::vector<int32_t> params(2 * 7);
    std::vector<int32_t> output(2 * kIndices);
    const GatherGeometry geometry{1, 2, 7, 1, kIndices};
    EXPECT_EQ(backend->GatherRows(geometry, 4, params.data(), indices.data(),
                                  IndexType::kInt32, BadIndexAction::kFail,
                                  output.data()),
              Outcome::BadIndex(0, 1234, 7));
  }
}

TEST(GatherZeroNegativeRefusesWhatIsTooLarge) {
  const std::vector<int32_t> params = {10, 20, 30};
  for (const Backend* backend : AllBackends()) {
    SCOPED_NOTE(backend->name());
    const std::vector<int32_t> indices = {2, -1, INT32_MIN, 0};
    std::vector<int32_t> output(4, -1);
    EXPECT_EQ(backend->GatherRows({1, 1, 3, 1, 4}, 4, params.data(),
                                  indices.data(), IndexType::kInt32,
                                  BadIndexAction::kZeroNegative, output.data()),
              Outcome());
    EXPECT_EQ(output, std::vector<int32_t>({30, 0, 0, 10}));
    const std::vector<int32_t> too_large = {-1, 3, 0, -5};
    EXPECT_EQ(backend->GatherRows({1, 1, 3, 1, 4}, 4, params.data(),
                                  too_large.data(), IndexType::kInt32,
                                  BadIndexAction::kZeroNegative, output.data()),
              Outcome::BadIndex(0, 1, 3));
  }
}

TEST(GatherPolicies) {
  struct Row {
    BadIndexAction action;
    std::vector<int32_t> expected;
  };
  const std::vector<Row> rows = {
      {BadIndexAction::kZero, {10, 30, 0, 0, 0, 0, 20}},
      {BadIndexAction::kClip, {10, 30, 30, 10, 10, 30, 20}},
      {BadIndexAction::kWrap, {10, 30, 10, 30, 10, 20, 20}},
  };
  const std::vector<int32_t> params = {10, 20, 30};
  const std::vector<int64_t> indices = {0, 2, 3, -1, -3, 7, 1};
  for (const Backend* backend : AllBackends()) {
    SCOPED_NOTE(backend->name());
    for (const Row& row : rows) {
      std::vector<int32_t> output(indices.size(), -1);
      EXPECT_EQ(
          backend->GatherRows({1, 1, 3, 1, 7}, 4, params.data(), indices.data(),
                              IndexType::kInt64, row.action, output.data()),
          Outcome());
      EXPECT_EQ(output, row.expected);
    }
  }
}

// The output is empty, and yet the dimensions are as large as they can be.
TEST(GatherChecksIndicesOfHugeEmptyShapes) {
  constexpr int64_t kMost = INT64_MAX;
  const std::vector<int64_t> indices = {0, kMost - 1, kMost};
  const SerialFor serial;
  for (const GatherGeometry& geometry :
       {GatherGeometry{1, 0, kMost, kMost, 3},
        GatherGeometry{1, kMost, kMost, 0, 3},
        GatherGeometry{3, kMost, kMost, 0, 1}}) {
    EXPECT_EQ(
        GatherRows(geometry, 0, nullptr, indices.data(), IndexType::kInt64,
                   BadIndexAction::kFail, serial, nullptr),
        Outcome::BadIndex(0, 2, kMost));
    EXPECT_EQ(
        GatherRows(geometry, 0, nullptr, indices.data(), IndexType::kInt64,
                   BadIndexAction::kZero, serial, nullptr),
        Outcome());
  }
}

// Indices may change at any time: what comes is rows of the table or an error.
TEST(GatherSurvivesIndicesThatChange) {
  Random random = TestRandom();
  for (const int64_t row_bytes : {4, 24, 300}) {
    for (const BadIndexAction action : kAllActions) {
      constexpr int64_t kRows = 40;
      constexpr int64_t kIndices = 3000;
      const Input params(kRows * row_bytes, 0, random);
      Input indices(kIndices * 4, 0, random);
      const InterruptedFor interrupted([&] {
        for (int64_t i = 0; i < kIndices; ++i) {
          StoreIndex(indices.data(), i, IndexType::kInt32,
                     random.OneIn(9000) ? random.Bits()
                                        : random.Between(0, kRows - 1));
        }
      });
      Output output(kIndices * row_bytes, 0);
      GatherRows({1, 1, kRows, row_bytes, kIndices}, row_bytes, params.data(),
                 indices.data(), IndexType::kInt32, action, interrupted,
                 output.data());
      EXPECT_TRUE(output.HasSentinels());
    }
  }
}

TEST(ResolveIndicesAsTheRecipeSays) {
  Random random = TestRandom();
  const ThreadedFor threaded(3);
  for (const IndexType index_type : kAllIndexTypes) {
    for (const BadIndexAction action : kAllActions) {
      for (const IndexOrder order : kAllOrders) {
        const int64_t rows = random.Of<int64_t>({0, 1, 90, 5000, INT64_MAX});
        const int64_t count = random.Between(0, 2000);
        const Input indices =
            RandomIndices(count, rows, index_type, order, random);
        std::vector<int64_t> resolved(count);
        const Outcome outcome =
            ResolveIndices(count, rows, indices.data(), index_type, action,
                           threaded, resolved.data());
        // A gather of row numbers says what they should be.
        std::vector<reference::Wide> wide =
            reference::ReadIndices(indices.data(), index_type, count);
        Outcome expected;
        for (int64_t i = 0; i < count && expected.ok(); ++i) {
          const bool is_in_range = wide[i] >= 0 && wide[i] < rows;
          if (is_in_range) {
            if (outcome.ok()) {
              EXPECT_EQ(resolved[i], static_cast<int64_t>(wide[i]));
            }
          } else if (action == BadIndexAction::kZero ||
                     (action == BadIndexAction::kZeroNegative && wide[i] < 0)) {
            if (outcome.ok()) EXPECT_EQ(resolved[i], kZeroRow);
          } else if (action == BadIndexAction::kFail ||
                     action == BadIndexAction::kZeroNegative || rows == 0) {
            expected = Outcome::BadIndex(0, i, static_cast<int64_t>(wide[i]));
          } else if (outcome.ok()) {
            const reference::Wide row = action == BadIndexAction::kClip
                                            ? (wide[i] < 0 ? 0 : rows - 1)
                                            : (wide[i] % rows + rows) % rows;
            EXPECT_EQ(resolved[i], static_cast<int64_t>(row));
          }
        }
        EXPECT_EQ(outcome, expected);
      }
    }
  }
}

}  // namespace
}  // namespace testing
}  // namespace gather_stitch
