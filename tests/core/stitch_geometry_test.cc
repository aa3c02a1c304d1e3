// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// The shapes of a stitch, known and partly known.

#include "tf_ops/core/stitch_geometry.h"

#include <string>
#include <vector>

#include "tests/core/test_harness.h"

namespace gather_stitch {
namespace testing {
namespace {

using Dims = std::vector<int64_t>;

struct Shape {
  bool has_rank = true;
  Dims dims;

  ShapeView view() const {
    if (!has_rank) return ShapeView();
    return {dims.data(), static_cast<int>(dims.size())};
  }
};

StitchShapes Infer(const std::vector<Shape>& indices,
                   const std::vector<Shape>& data) {
  std::vector<ShapeView> indices_views;
  std::vector<ShapeView> data_views;
  for (const Shape& shape : indices) indices_views.push_back(shape.view());
  for (const Shape& shape : data) data_views.push_back(shape.view());
  return InferStitchShapes(indices_views.data(), data_views.data(),
                           static_cast<int>(indices.size()));
}

const Shape kUnknown = {false, {}};

TEST(StitchShapesAreMerged) {
  const StitchShapes known =
      Infer({{true, {2}}, {true, {}}, {true, {3, 4}}},
            {{true, {2, 7, 8}}, {true, {7, 8}}, {true, {3, 4, 7, 8}}});
  EXPECT_TRUE(known.ok());
  EXPECT_EQ(known.constant_dims, (Dims{7, 8}));
  const StitchShapes part =
      Infer({kUnknown, {true, {2}}, {true, {kUnknownDim}}},
            {{true, {2, 7, 8}},
             {true, {2, kUnknownDim, 8}},
             {true, {3, 7, kUnknownDim}}});
  EXPECT_TRUE(part.ok());
  EXPECT_EQ(part.constant_dims, (Dims{7, 8}));
  EXPECT_EQ(Infer({kUnknown}, {{true, {2}}}).constant_rank, kUnknownRank);
  EXPECT_EQ(Infer({{true, {2}}}, {kUnknown}).constant_rank, kUnknownRank);
}

TEST(StitchShapeErrorWords) {
  struct Row {
    std::vector<Shape> indices;
    std::vector<Shape> data;
    std::string error;
  };
  const std::vector<Row> rows = {
      {{{true, {2}}},
       {{true, {3}}},
       "data[0].shape = [3] does not start with indices[0].shape = [2]"},
      {{{true, {2, 1}}},
       {{true, {2}}},
       "data[0].shape = [2] does not start with indices[0].shape = [2,1]"},
      {{{true, {2}}, {true, {1}}},
       {{true, {2, 1}}, {true, {1, 2}}},
       "Need data[0].shape[1:] = data[1].shape[1:], got data[0].shape = [2,1], "
       "data[1].shape = [1,2], indices[0].shape = [2], indices[1].shape = "
       "[1]"},
      {{{true, {}}, {true, {1}}},
       {{true, {1}}, {true, {1, 2, 3}}},
       "Need data[0].shape[0:] = data[1].shape[1:], got data[0].shape = [1], "
       "data[1].shape = [1,2,3], indices[0].shape = [], indices[1].shape = "
       "[1]"},
      // The first input leaves it open, the others do not.
      {{{true, {2}}, {true, {1}}, {true, {}}},
       {{true, {2, kUnknownDim}}, {true, {1, 5}}, {true, {6}}},
       "Need data[1].shape[1:] = data[2].shape[0:], got data[1].shape = [1,5], "
       "data[2].shape = [6], indices[1].shape = [1], indices[2].shape = []"},
      {{{true, {}}},
       {{true, Dims(254, 1)}},
       "rank(merged) = 255 must be at most 254"},
  };
  for (const Row& row : rows) {
    const StitchShapes shapes = Infer(row.indices, row.data);
    EXPECT_EQ(shapes.error, row.error);
    EXPECT_EQ(shapes.ok(), false);
  }
}

Shape Hidden(const Shape& shape, Random& random) {
  Shape hidden = shape;
  hidden.has_rank = !random.OneIn(6);
  for (int64_t& dim : hidden.dims) {
    if (random.OneIn(3)) dim = kUnknownDim;
  }
  return hidden;
}

TEST(StitchShapesOfPartsAgreeWithTheWhole) {
  Random random = TestRandom();
  const auto dims = [&](int64_t most) {
    Dims sizes(random.Between(0, most));
    for (int64_t& size : sizes) size = random.Between(0, 2);
    return sizes;
  };
  int whole_ones = 0;
  for (int i = 0; i < 30000; ++i) {
    const Dims constant = dims(2);
    std::vector<Shape> indices;
    std::vector<Shape> data;
    std::vector<Shape> indices_part;
    std::vector<Shape> data_part;
    const int64_t inputs = random.Between(1, 4);
    for (int64_t m = 0; m < inputs; ++m) {
      const Dims head = dims(2);
      Dims joined = head;
      joined.insert(joined.end(), constant.begin(), constant.end());
      if (random.OneIn(8) && !joined.empty()) {
        joined[random.Between(0, static_cast<int64_t>(joined.size()) - 1)] = 1;
      }
      if (random.OneIn(12)) joined = dims(4);
      indices.push_back({true, head});
      data.push_back({true, joined});
      indices_part.push_back(Hidden(indices.back(), random));
      data_part.push_back(Hidden(data.back(), random));
    }
    const StitchShapes whole = Infer(indices, data);
    const StitchShapes part = Infer(indices_part, data_part);
    if (!part.ok()) EXPECT_TRUE(!whole.ok());
    if (!whole.ok()) continue;
    ++whole_ones;
    EXPECT_EQ(whole.constant_dims.size(),
              static_cast<size_t>(whole.constant_rank));
    if (part.constant_rank == kUnknownRank) continue;
    EXPECT_EQ(part.constant_rank, whole.constant_rank);
    for (int k = 0; k < whole.constant_rank; ++k) {
      if (part.constant_dims[k] == kUnknownDim) continue;
      EXPECT_EQ(part.constant_dims[k], whole.constant_dims[k]);
    }
  }
  EXPECT_TRUE(whole_ones > 10000);
}

}  // namespace
}  // namespace testing
}  // namespace gather_stitch
