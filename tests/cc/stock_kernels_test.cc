// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// In a file that is linked last: the kernels that it loads stay.

#include <string>

#include "tensorflow/core/framework/op_kernel.h"
#include "tests/cc/graph.h"
#include "tests/core/test_harness.h"
#include "tf_ops/cc/loader.h"

namespace gather_stitch {
namespace testing {
namespace {

namespace tf = tensorflow;

// How many kernels of a stock op stand before TensorFlow's own.
int PreferredKernels(const char* op) {
  int preferred = 0;
  const tf::KernelList kernels = tf::GetRegisteredKernelsForOp(op);
  for (const auto& kernel : kernels.kernel()) {
    preferred += kernel.priority() > 0;
  }
  return preferred;
}

TEST(LoadStockKernelsLoadsThemOrSaysThatThereAreNone) {
  EXPECT_EQ(LoadLibrary(PackageFolder()).ToString(), "OK");
  EXPECT_EQ(LoadStockKernels("/no/such/folder").ToString(),
            "NOT_FOUND: there is no _stock_kernels.so in /no/such/folder: this "
            "installation can not accelerate stock models");
  EXPECT_EQ(PreferredKernels("GatherV2"), 0);

  EXPECT_EQ(LoadStockKernels(PackageFolder()).ToString(), "OK");
  for (const char* op :
       {"GatherV2", "ResourceGather", "DynamicStitch", "ParallelDynamicStitch",
        "UnsortedSegmentSum", "ResourceScatterAdd", "ResourceScatterSub"}) {
    SCOPED_NOTE(op);
    EXPECT_TRUE(PreferredKernels(op) > 0);
  }
  EXPECT_EQ(LoadStockKernels("/no/such/folder").ToString(), "OK");
}

}  // namespace
}  // namespace testing
}  // namespace gather_stitch
