// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// Everything that implements the contracts of the core, behind one interface,
// so that one conformance suite runs over all of it.

#ifndef GATHER_STITCH_TESTS_CORE_BACKENDS_H_
#define GATHER_STITCH_TESTS_CORE_BACKENDS_H_

#include <cstdint>
#include <vector>

#include "tests/core/reference.h"
#include "tf_ops/core/gather.h"
#include "tf_ops/core/gather_grad.h"
#include "tf_ops/core/stitch.h"

namespace gather_stitch {
namespace testing {

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const char* name() const = 0;
  // Whether sums of floats run in the order of the indices, so that they have
  // the reference's bits.
  virtual bool sums_in_order() const { return true; }

  virtual Outcome GatherRows(const GatherGeometry& geometry, int64_t row_bytes,
                             const void* params, const void* indices,
                             IndexType index_type, BadIndexAction action,
                             void* output) const = 0;
  virtual Outcome GatherGrad(const GatherGeometry& geometry, SumType sum_type,
                             const void* grad, const void* indices,
                             IndexType index_type, BadIndexAction action,
                             Scratch& scratch, void* params_grad) const = 0;
  virtual Outcome SparseGrad(int64_t count, int64_t params_rows,
                             const void* indices, IndexType index_type,
                             BadIndexAction action, bool unique, int64_t inner,
                             SumType sum_type, const void* grad,
                             Scratch& scratch,
                             reference::Slices* slices) const = 0;
  virtual Outcome StitchMergedRows(const std::vector<StitchInput>& inputs,
                                   IndexType index_type,
                                   int64_t* merged_rows) const = 0;
  virtual Outcome StitchWinners(const std::vector<StitchInput>& inputs,
                                IndexType index_type, int64_t merged_rows,
                                BadIndexAction action,
                                int64_t* winners) const = 0;
  virtual Outcome StitchRows(const std::vector<StitchInput>& inputs,
                             IndexType index_type, int64_t row_bytes,
                             int64_t merged_rows, BadIndexAction action,
                             Scratch& scratch, void* merged) const = 0;
  virtual Outcome StitchGradRows(
      const std::vector<StitchInput>& inputs, IndexType index_type,
      int64_t row_bytes, int64_t grad_rows, const void* grad, Scratch& scratch,
      const std::vector<void*>& data_grads) const = 0;
};

// The reference first, then the CPU with each of the lenders, then the GPU
// kernels.
const std::vector<const Backend*>& AllBackends();

// The CPU loops with threads of `parallel`, which must outlive them.
class CpuBackend final : public Backend {
 public:
  CpuBackend(const char* name, const ParallelFor& parallel)
      : name_(name), parallel_(parallel) {}
  const char* name() const override { return name_; }

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
  const ParallelFor& parallel_;
};

}  // namespace testing
}  // namespace gather_stitch

#endif  // GATHER_STITCH_TESTS_CORE_BACKENDS_H_
