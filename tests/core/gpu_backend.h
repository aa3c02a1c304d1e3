// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// The GPU kernels behind the interface of all backends: on whatever
// test_device.h is.

#ifndef GATHER_STITCH_TESTS_CORE_GPU_BACKEND_H_
#define GATHER_STITCH_TESTS_CORE_GPU_BACKEND_H_

#include <vector>

#include "tests/core/backends.h"
#include "tf_ops/core/gpu/gather_grad.h"

namespace gather_stitch {
namespace testing {

class GpuBackend final : public Backend {
 public:
  GpuBackend(const char* name, gpu::SumOrder order)
      : name_(name), order_(order) {}
  const char* name() const override { return name_; }
  bool sums_in_order() const override { return false; }

  Outcome GatherRows(const GatherGeometry& geometry, int64_t row_bytes,
                     const void* params, const void* indices,
                     IndexType index_type, BadIndexAction action,
                     void* output) const override;
  Outcome GatherGrad(const GatherGeometry& geometry, SumType sum_type,
                     const void* grad, const void* indices,
                     IndexType index_type, BadIndexAction action,
                     Scratch& scratch, void* params_grad) const override;
  Outcome SparseGrad(int64_t count, int64_t params_rows, const void* indices,
                     IndexType index_type, BadIndexAction action, bool unique,
                     int64_t inner, SumType sum_type, const void* grad,
                     Scratch& scratch,
                     reference::Slices* slices) const override;
  Outcome StitchMergedRows(const std::vector<StitchInput>& inputs,
                           IndexType index_type,
                           int64_t* merged_rows) const override;
  Outcome StitchWinners(const std::vector<StitchInput>& inputs,
                        IndexType index_type, int64_t merged_rows,
                        BadIndexAction action, int64_t* winners) const override;
  Outcome StitchRows(const std::vector<StitchInput>& inputs,
                     IndexType index_type, int64_t row_bytes,
                     int64_t merged_rows, BadIndexAction action,
                     Scratch& scratch, void* merged) const override;
  Outcome StitchGradRows(const std::vector<StitchInput>& inputs,
                         IndexType index_type, int64_t row_bytes,
                         int64_t grad_rows, const void* grad, Scratch& scratch,
                         const std::vector<void*>& data_grads) const override;

 private:
  const char* name_;
  gpu::SumOrder order_;
};

}  // namespace testing
}  // namespace gather_stitch

#endif  // GATHER_STITCH_TESTS_CORE_GPU_BACKEND_H_
