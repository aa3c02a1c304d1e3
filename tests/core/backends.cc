// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tests/core/backends.h"

#include "tests/core/gpu_backend.h"
#include "tests/core/lenders.h"
#include "tests/core/test_harness.h"

namespace gather_stitch {
namespace testing {

Outcome CpuBackend::GatherRows(const GatherGeometry& geometry,
                               int64_t row_bytes, const void* params,
                               const void* indices, IndexType index_type,
                               BadIndexAction action, void* output) const {
  return gather_stitch::GatherRows(geometry, row_bytes, params, indices,
                                   index_type, action, parallel_, output);
}

Outcome CpuBackend::GatherGrad(const GatherGeometry& geometry, SumType sum_type,
                               const void* grad, const void* indices,
                               IndexType index_type, BadIndexAction action,
                               Scratch& scratch, void* params_grad) const {
  return gather_stitch::GatherGrad(geometry, sum_type, grad, indices,
                                   index_type, action, parallel_, scratch,
                                   params_grad);
}

Outcome CpuBackend::SparseGrad(int64_t count, int64_t params_rows,
                               const void* indices, IndexType index_type,
                               BadIndexAction action, bool unique,
                               int64_t inner, SumType sum_type,
                               const void* grad, Scratch& scratch,
                               reference::Slices* slices) const {
  SparseGradPlan plan;
  slices->slots.resize(count);
  const Outcome outcome =
      PlanSparseGrad(count, params_rows, indices, index_type, action, unique,
                     parallel_, scratch, &plan, slices->slots.data());
  if (!outcome.ok()) return outcome;
  slices->rows.assign(plan.rows, plan.rows + plan.slices);
  const bool is_identity = [&] {
    for (int64_t i = 0; i < count; ++i) {
      if (slices->slots[i] != i) return false;
    }
    return true;
  }();
  EXPECT_EQ(plan.is_identity, is_identity);
  slices->values.resize(plan.slices * inner * SumTypeBytes(sum_type));
  FillSparseGradValues(plan, inner, sum_type, grad, parallel_,
                       slices->values.data());
  return outcome;
}

Outcome CpuBackend::StitchMergedRows(const std::vector<StitchInput>& inputs,
                                     IndexType index_type,
                                     int64_t* merged_rows) const {
  return gather_stitch::StitchMergedRows(inputs.data(),
                                         static_cast<int>(inputs.size()),
                                         index_type, parallel_, merged_rows);
}

Outcome CpuBackend::StitchWinners(const std::vector<StitchInput>& inputs,
                                  IndexType index_type, int64_t merged_rows,
                                  BadIndexAction action,
                                  int64_t* winners) const {
  return gather_stitch::StitchWinners(
      inputs.data(), static_cast<int>(inputs.size()), index_type, merged_rows,
      action, parallel_, winners);
}

Outcome CpuBackend::StitchRows(const std::vector<StitchInput>& inputs,
                               IndexType index_type, int64_t row_bytes,
                               int64_t merged_rows, BadIndexAction action,
                               Scratch& scratch, void* merged) const {
  return gather_stitch::StitchRows(
      inputs.data(), static_cast<int>(inputs.size()), index_type, row_bytes,
      merged_rows, action, parallel_, scratch, merged);
}

Outcome CpuBackend::StitchGradRows(const std::vector<StitchInput>& inputs,
                                   IndexType index_type, int64_t row_bytes,
                                   int64_t grad_rows, const void* grad,
                                   Scratch& scratch,
                                   const std::vector<void*>& data_grads) const {
  return gather_stitch::StitchGradRows(
      inputs.data(), static_cast<int>(inputs.size()), index_type, row_bytes,
      grad_rows, grad, parallel_, scratch, data_grads.data());
}

namespace {

class ReferenceBackend final : public Backend {
 public:
  const char* name() const override { return "reference"; }

  Outcome GatherRows(const GatherGeometry& geometry, int64_t row_bytes,
                     const void* params, const void* indices,
                     IndexType index_type, BadIndexAction action,
                     void* output) const override {
    return reference::GatherRows(geometry, row_bytes, params,
                                 Read(geometry, indices, index_type), action,
                                 output);
  }

  Outcome GatherGrad(const GatherGeometry& geometry, SumType sum_type,
                     const void* grad, const void* indices,
                     IndexType index_type, BadIndexAction action,
                     Scratch& /*scratch*/, void* params_grad) const override {
    return reference::GatherGrad(geometry, sum_type, grad,
                                 Read(geometry, indices, index_type), action,
                                 params_grad);
  }

  Outcome SparseGrad(int64_t count, int64_t params_rows, const void* indices,
                     IndexType index_type, BadIndexAction action, bool unique,
                     int64_t inner, SumType sum_type, const void* grad,
                     Scratch& /*scratch*/,
                     reference::Slices* slices) const override {
    return reference::SparseGrad(
        params_rows, reference::ReadIndices(indices, index_type, count), action,
        unique, inner, sum_type, grad, slices);
  }

  Outcome StitchMergedRows(const std::vector<StitchInput>& inputs,
                           IndexType index_type,
                           int64_t* merged_rows) const override {
    return reference::StitchMergedRows(Read(inputs, index_type), merged_rows);
  }

  Outcome StitchWinners(const std::vector<StitchInput>& inputs,
                        IndexType index_type, int64_t merged_rows,
                        BadIndexAction action,
                        int64_t* winners) const override {
    return reference::StitchWinners(Read(inputs, index_type), merged_rows,
                                    action, winners);
  }

  Outcome StitchRows(const std::vector<StitchInput>& inputs,
                     IndexType index_type, int64_t row_bytes,
                     int64_t merged_rows, BadIndexAction action,
                     Scratch& /*scratch*/, void* merged) const override {
    std::vector<const void*> data;
    for (const StitchInput& input : inputs) data.push_back(input.data);
    return reference::StitchRows(Read(inputs, index_type), data, row_bytes,
                                 merged_rows, action, merged);
  }

  Outcome StitchGradRows(const std::vector<StitchInput>& inputs,
                         IndexType index_type, int64_t row_bytes,
                         int64_t grad_rows, const void* grad,
                         Scratch& /*scratch*/,
                         const std::vector<void*>& data_grads) const override {
    reference::StitchGradRows(Read(inputs, index_type), row_bytes, grad_rows,
                              grad, data_grads);
    return Outcome();
  }

 private:
  static std::vector<reference::Wide> Read(const GatherGeometry& geometry,
                                           const void* indices,
                                           IndexType index_type) {
    return reference::ReadIndices(
        indices, index_type, geometry.batches * geometry.indices_per_batch);
  }

  static reference::StitchIndices Read(const std::vector<StitchInput>& inputs,
                                       IndexType index_type) {
    reference::StitchIndices indices;
    for (const StitchInput& input : inputs) {
      indices.push_back(
          reference::ReadIndices(input.indices, index_type, input.count));
    }
    return indices;
  }
};

}  // namespace

const std::vector<const Backend*>& AllBackends() {
  static const ReferenceBackend reference;
  static const SerialFor serial;
  static const ReversedFor reversed;
  static const OneItemFor one_item_of_one(1);
  static const OneItemFor one_item_of_many(16);
  static const ThreadedFor few_threads(2);
  static const ThreadedFor many_threads(8);
  static const CpuBackend cpu_serial("cpu, serial", serial);
  static const CpuBackend cpu_reversed("cpu, reversed", reversed);
  static const CpuBackend cpu_one_item_of_one("cpu, one item, one thread",
                                              one_item_of_one);
  static const CpuBackend cpu_one_item_of_many("cpu, one item, many threads",
                                               one_item_of_many);
  static const CpuBackend cpu_few_threads("cpu, two threads", few_threads);
  static const CpuBackend cpu_many_threads("cpu, eight threads", many_threads);
  static const GpuBackend gpu_any("gpu kernels, sums in any order",
                                  gpu::SumOrder::kAny);
  static const GpuBackend gpu_fixed("gpu kernels, sums in fixed order",
                                    gpu::SumOrder::kFixed);
  static const std::vector<const Backend*> backends = {&reference,
                                                       &cpu_serial,
                                                       &cpu_reversed,
                                                       &cpu_one_item_of_one,
                                                       &cpu_one_item_of_many,
                                                       &cpu_few_threads,
                                                       &cpu_many_threads,
                                                       &gpu_any,
                                                       &gpu_fixed};
  return backends;
}

}  // namespace testing
}  // namespace gather_stitch
