// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// Every backend stitches as the reference does.

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "tests/core/backends.h"
#include "tests/core/buffers.h"
#include "tests/core/cases.h"
#include "tests/core/lenders.h"
#include "tests/core/test_harness.h"

namespace gather_stitch {
namespace testing {
namespace {

// The inputs of a stitch, with the memory that they point to.
class StitchInputs {
 public:
  void Add(Input indices, Input data, int64_t count) {
    indices_.push_back(std::move(indices));
    data_.push_back(std::move(data));
    inputs_.push_back({indices_.back().data(), count, data_.back().data()});
  }
  const std::vector<StitchInput>& inputs() const { return inputs_; }
  Input& indices(int64_t m) { return indices_[m]; }

 private:
  std::vector<Input> indices_;
  std::vector<Input> data_;
  std::vector<StitchInput> inputs_;
};

StitchInputs RandomInputs(const std::vector<int64_t>& counts, int64_t rows,
                          IndexType index_type, IndexOrder order,
                          int64_t row_bytes, Random& random) {
  StitchInputs inputs;
  for (const int64_t count : counts) {
    inputs.Add(RandomIndices(count, rows, index_type, order, random),
               Input(count * row_bytes, random.Between(0, 17), random), count);
  }
  return inputs;
}

// Each row once, dealt to the inputs at random.
StitchInputs Permutation(const std::vector<int64_t>& counts,
                         IndexType index_type, int64_t row_bytes,
                         Random& random) {
  std::vector<int64_t> rows(std::accumulate(counts.begin(), counts.end(), 0));
  std::iota(rows.begin(), rows.end(), 0);
  for (int64_t i = static_cast<int64_t>(rows.size()) - 1; i > 0; --i) {
    std::swap(rows[i], rows[random.Between(0, i)]);
  }
  StitchInputs inputs;
  int64_t next = 0;
  for (const int64_t count : counts) {
    Input indices(count * IndexBytes(index_type), 0, random);
    for (int64_t i = 0; i < count; ++i) {
      StoreIndex(indices.data(), i, index_type, rows[next++]);
    }
    inputs.Add(std::move(indices),
               Input(count * row_bytes, random.Between(0, 17), random), count);
  }
  return inputs;
}

void ExpectStitchesAsReference(const StitchInputs& inputs, int64_t merged_rows,
                               IndexType index_type, int64_t row_bytes,
                               BadIndexAction action, Random& random) {
  SCOPED_NOTE(std::to_string(inputs.inputs().size()) + " inputs, " +
              std::to_string(merged_rows) + " merged rows of " +
              std::to_string(row_bytes) + " bytes, " + Name(index_type) + ", " +
              Name(action));
  const int64_t misalignment = random.Between(0, 17);
  const Input grad(merged_rows * row_bytes, random.Between(0, 17), random);

  Outcome expected_rows_outcome;
  int64_t expected_rows = 0;
  Outcome expected_outcome;
  Output expected(merged_rows * row_bytes, misalignment);
  std::vector<int64_t> expected_winners(merged_rows);
  std::vector<std::unique_ptr<Output>> expected_grads;

  for (const Backend* backend : AllBackends()) {
    SCOPED_NOTE(backend->name());
    const bool is_reference = backend == AllBackends().front();

    int64_t rows = -1;
    const Outcome rows_outcome =
        backend->StitchMergedRows(inputs.inputs(), index_type, &rows);
    if (is_reference) {
      expected_rows_outcome = rows_outcome;
      expected_rows = rows;
    }
    EXPECT_EQ(rows_outcome, expected_rows_outcome);
    if (expected_rows_outcome.ok()) EXPECT_EQ(rows, expected_rows);

    std::vector<int64_t> winners(merged_rows, 77);
    const Outcome winners_outcome = backend->StitchWinners(
        inputs.inputs(), index_type, merged_rows, action, winners.data());

    TestScratch scratch;
    Output merged(expected.bytes(), misalignment);
    const Outcome outcome =
        backend->StitchRows(inputs.inputs(), index_type, row_bytes, merged_rows,
                            action, scratch, merged.data());
    EXPECT_TRUE(merged.HasSentinels());
    EXPECT_TRUE(scratch.bytes() <=
                8 * merged_rows +
                    64 * static_cast<int64_t>(inputs.inputs().size()) +
                    16 * 1024);

    TestScratch grad_scratch;
    std::vector<std::unique_ptr<Output>> grads;
    std::vector<void*> grad_pointers;
    for (const StitchInput& input : inputs.inputs()) {
      grads.push_back(
          std::make_unique<Output>(input.count * row_bytes, misalignment));
      grad_pointers.push_back(grads.back()->data());
    }
    EXPECT_EQ(backend->StitchGradRows(inputs.inputs(), index_type, row_bytes,
                                      merged_rows, grad.data(), grad_scratch,
                                      grad_pointers),
              Outcome());

    if (is_reference) {
      expected_outcome = outcome;
      std::copy_n(merged.data(), merged.bytes(), expected.data());
      expected_winners = winners;
      expected_grads = std::move(grads);
      continue;
    }
    EXPECT_EQ(winners_outcome, expected_outcome);
    EXPECT_EQ(outcome, expected_outcome);
    if (expected_outcome.ok()) {
      EXPECT_EQ(winners, expected_winners);
      EXPECT_TRUE(merged.Equals(expected));
    }
    for (size_t m = 0; m < grads.size(); ++m) {
      EXPECT_TRUE(grads[m]->HasSentinels());
      EXPECT_TRUE(grads[m]->Equals(*expected_grads[m]));
    }
  }
}

std::vector<int64_t> RandomCounts(int64_t inputs, int64_t most,
                                  Random& random) {
  std::vector<int64_t> counts;
  for (int64_t m = 0; m < inputs; ++m) {
    counts.push_back(random.OneIn(5) ? 0 : random.Between(0, most));
  }
  return counts;
}

TEST(StitchEveryRowSize) {
  Random random = TestRandom();
  for (int64_t row_bytes = 0; row_bytes <= 300; ++row_bytes) {
    const IndexType index_type = random.Of(kStitchIndexTypes);
    const int64_t merged_rows = random.Between(0, 60);
    ExpectStitchesAsReference(
        RandomInputs(RandomCounts(random.Between(1, 4), 30, random),
                     merged_rows, index_type, random.Of(kAllOrders), row_bytes,
                     random),
        merged_rows, index_type, row_bytes,
        random.OneIn(2) ? BadIndexAction::kZero : BadIndexAction::kFail,
        random);
  }
}

TEST(StitchPermutations) {
  Random random = TestRandom();
  for (const int64_t row_bytes : {0, 1, 4, 16, 24, 64, 100, 1000, 70001}) {
    for (const int64_t inputs : {1, 2, 9, 64}) {
      const std::vector<int64_t> counts =
          RandomCounts(inputs, row_bytes > 1000 ? 2 : 40, random);
      const IndexType index_type = random.Of(kStitchIndexTypes);
      const int64_t rows =
          std::accumulate(counts.begin(), counts.end(), int64_t{0});
      ExpectStitchesAsReference(
          Permutation(counts, index_type, row_bytes, random), rows, index_type,
          row_bytes, BadIndexAction::kFail, random);
    }
  }
}

TEST(StitchManyIndices) {
  Random random = TestRandom();
  for (const IndexOrder order : kAllOrders) {
    for (const int64_t inputs : {1, 3, 300}) {
      for (const int64_t row_bytes : {1, 8, 20}) {
        const int64_t merged_rows = random.Between(1, 20000);
        const IndexType index_type = random.Of(kStitchIndexTypes);
        ExpectStitchesAsReference(
            RandomInputs(RandomCounts(inputs, 25000 / inputs, random),
                         merged_rows, index_type, order, row_bytes, random),
            merged_rows, index_type, row_bytes, BadIndexAction::kZero, random);
      }
    }
  }
}

// Enough for each thread to write the rows that are its own.
TEST(StitchManyShortRows) {
  Random random = TestRandom();
  for (const int64_t row_bytes : {4, 64}) {
    for (const IndexOrder order : {IndexOrder::kSkewed, IndexOrder::kWithBad}) {
      const int64_t merged_rows = random.Between(150000, 200000);
      ExpectStitchesAsReference(
          RandomInputs(RandomCounts(3, 100000, random), merged_rows,
                       IndexType::kInt32, order, row_bytes, random),
          merged_rows, IndexType::kInt32, row_bytes, BadIndexAction::kZero,
          random);
    }
  }
}

// One large input among many of a row or none.
TEST(StitchUnequalInputs) {
  Random random = TestRandom();
  for (const int64_t large : {0, 250, 499}) {
    std::vector<int64_t> counts(500);
    for (int64_t& count : counts) count = random.Between(0, 1);
    counts[large] = 20000;
    ExpectStitchesAsReference(RandomInputs(counts, 15000, IndexType::kInt64,
                                           IndexOrder::kUniform, 12, random),
                              15000, IndexType::kInt64, 12,
                              BadIndexAction::kFail, random);
  }
}

TEST(StitchRandomInputs) {
  Random random = TestRandom();
  for (int i = 0; i < 400; ++i) {
    const IndexType index_type = random.Of(kStitchIndexTypes);
    const int64_t row_bytes = random.Between(0, 40);
    const int64_t merged_rows = random.Between(0, 40);
    ExpectStitchesAsReference(
        RandomInputs(RandomCounts(random.Between(1, 6), 20, random),
                     merged_rows, index_type, random.Of(kAllOrders), row_bytes,
                     random),
        merged_rows, index_type, row_bytes,
        random.OneIn(2) ? BadIndexAction::kZero : BadIndexAction::kFail,
        random);
  }
}

// The last input wins and its row is whole, at any thread count.
TEST(StitchLastWriterWinsWhole) {
  constexpr int64_t kInputs = 64;
  constexpr int64_t kRowBytes = 20000;
  const std::vector<int32_t> index = {0};
  std::vector<std::vector<char>> data;
  std::vector<StitchInput> inputs;
  for (int64_t m = 0; m < kInputs; ++m) {
    data.emplace_back(kRowBytes, static_cast<char>(m));
    inputs.push_back({index.data(), 1, data.back().data()});
  }
  for (const Backend* backend : AllBackends()) {
    SCOPED_NOTE(backend->name());
    TestScratch scratch;
    std::vector<char> merged(kRowBytes, 'x');
    EXPECT_EQ(
        backend->StitchRows(inputs, IndexType::kInt32, kRowBytes, 1,
                            BadIndexAction::kFail, scratch, merged.data()),
        Outcome());
    EXPECT_TRUE(merged == data.back());
  }
}

TEST(StitchDocumentedExample) {
  const std::vector<std::vector<int32_t>> indices = {{6}, {4, 1}, {5, 2, 0, 3}};
  const std::vector<std::vector<int32_t>> data = {
      {61, 62}, {41, 42, 11, 12}, {51, 52, 21, 22, 1, 2, 31, 32}};
  std::vector<StitchInput> inputs;
  for (size_t m = 0; m < indices.size(); ++m) {
    inputs.push_back({indices[m].data(),
                      static_cast<int64_t>(indices[m].size()), data[m].data()});
  }
  for (const Backend* backend : AllBackends()) {
    SCOPED_NOTE(backend->name());
    int64_t merged_rows = 0;
    EXPECT_EQ(
        backend->StitchMergedRows(inputs, IndexType::kInt32, &merged_rows),
        Outcome());
    EXPECT_EQ(merged_rows, 7);
    TestScratch scratch;
    std::vector<int32_t> merged(14);
    EXPECT_EQ(
        backend->StitchRows(inputs, IndexType::kInt32, 8, 7,
                            BadIndexAction::kFail, scratch, merged.data()),
        Outcome());
    EXPECT_EQ(merged, (std::vector<int32_t>{1, 2, 11, 12, 21, 22, 31, 32, 41,
                                            42, 51, 52, 61, 62}));
  }
}

TEST(StitchNamesTheFirstBadIndex) {
  std::vector<int64_t> first(30000, 1);
  std::vector<int64_t> second(30000, 2);
  first[29000] = -559038737;
  first[29001] = -1;
  second[3] = 9;
  const std::vector<StitchInput> inputs = {
      {first.data(), 30000, first.data()},
      {second.data(), 30000, second.data()}};
  for (const Backend* backend : AllBackends()) {
    SCOPED_NOTE(backend->name());
    const Outcome expected = Outcome::BadIndex(0, 29000, -559038737);
    int64_t rows = 0;
    EXPECT_EQ(backend->StitchMergedRows(inputs, IndexType::kInt64, &rows),
              expected);
    TestScratch scratch;
    std::vector<int64_t> merged(9);
    EXPECT_EQ(
        backend->StitchRows(inputs, IndexType::kInt64, 8, 9,
                            BadIndexAction::kFail, scratch, merged.data()),
        expected);
  }
}

TEST(StitchMergedRowsOfExtremes) {
  const std::vector<int64_t> most = {3, INT64_MAX};
  const std::vector<int64_t> nearly = {3, INT64_MAX - 1};
  const std::vector<int32_t> most32 = {INT32_MAX};
  const std::vector<int32_t> least32 = {0, INT32_MIN};
  for (const Backend* backend : AllBackends()) {
    SCOPED_NOTE(backend->name());
    int64_t rows = 0;
    EXPECT_EQ(backend->StitchMergedRows({{most.data(), 2, nullptr}},
                                        IndexType::kInt64, &rows),
              Outcome::BadIndex(0, 1, INT64_MAX));
    EXPECT_EQ(backend->StitchMergedRows({{nearly.data(), 2, nullptr}},
                                        IndexType::kInt64, &rows),
              Outcome());
    EXPECT_EQ(rows, INT64_MAX);
    EXPECT_EQ(backend->StitchMergedRows({{most32.data(), 1, nullptr}},
                                        IndexType::kInt32, &rows),
              Outcome());
    EXPECT_EQ(rows, int64_t{INT32_MAX} + 1);
    EXPECT_EQ(backend->StitchMergedRows({{least32.data(), 2, nullptr}},
                                        IndexType::kInt32, &rows),
              Outcome::BadIndex(0, 1, INT32_MIN));
    EXPECT_EQ(backend->StitchMergedRows({{nullptr, 0, nullptr}},
                                        IndexType::kInt32, &rows),
              Outcome());
    EXPECT_EQ(rows, 0);
  }
}

TEST(StitchSurvivesIndicesThatChange) {
  Random random = TestRandom();
  for (const int64_t row_bytes : {4, 100}) {
    constexpr int64_t kRows = 20000;
    StitchInputs inputs = RandomInputs({15000, 15000}, kRows, IndexType::kInt32,
                                       IndexOrder::kUniform, row_bytes, random);
    const InterruptedFor interrupted([&] {
      for (int64_t i = 0; i < 15000; ++i) {
        StoreIndex(
            inputs.indices(i % 2).data(), i, IndexType::kInt32,
            random.OneIn(30000) ? random.Bits() : random.Between(0, kRows - 1));
      }
    });
    for (const BadIndexAction action :
         {BadIndexAction::kFail, BadIndexAction::kZero}) {
      TestScratch scratch;
      Output merged(kRows * row_bytes, 0);
      StitchRows(inputs.inputs().data(), 2, IndexType::kInt32, row_bytes, kRows,
                 action, interrupted, scratch, merged.data());
      EXPECT_TRUE(merged.HasSentinels());
      const Input grad(kRows * row_bytes, 0, random);
      Output first(15000 * row_bytes, 0);
      Output second(15000 * row_bytes, 0);
      void* const data_grads[] = {first.data(), second.data()};
      StitchGradRows(inputs.inputs().data(), 2, IndexType::kInt32, row_bytes,
                     kRows, grad.data(), interrupted, scratch, data_grads);
      EXPECT_TRUE(first.HasSentinels());
      EXPECT_TRUE(second.HasSentinels());
    }
  }
}

TEST(StitchRefusedMemory) {
  const ThreadedFor threaded(2);
  constexpr int64_t kRows = 30000;
  std::vector<int32_t> indices(kRows);
  std::iota(indices.begin(), indices.end(), 0);
  std::vector<char> data(kRows * 100);
  const StitchInput input{indices.data(), kRows, data.data()};
  std::vector<char> merged(kRows * 100);
  void* const data_grads[] = {merged.data()};
  for (const bool is_grad : {false, true}) {
    for (int64_t refused = 0;; ++refused) {
      TestScratch scratch(refused);
      const Outcome outcome =
          is_grad ? StitchGradRows(&input, 1, IndexType::kInt32, 100, kRows,
                                   data.data(), threaded, scratch, data_grads)
                  : StitchRows(&input, 1, IndexType::kInt32, 100, kRows,
                               BadIndexAction::kFail, threaded, scratch,
                               merged.data());
      if (scratch.allocations() <= refused) {
        EXPECT_EQ(outcome, Outcome());
        EXPECT_TRUE(refused >= 1);
        break;
      }
      EXPECT_EQ(outcome, Outcome::OutOfMemory());
    }
  }
}

}  // namespace
}  // namespace testing
}  // namespace gather_stitch
