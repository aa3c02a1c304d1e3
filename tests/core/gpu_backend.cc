// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tests/core/gpu_backend.h"

#include "tests/core/cases.h"
#include "tests/core/test_device.h"
#include "tests/core/test_harness.h"
#include "tf_ops/core/gpu/gather.h"
#include "tf_ops/core/gpu/stitch.h"

namespace gather_stitch {
namespace testing {
namespace {

void ExpectOk(const GpuStatus& status) { EXPECT_EQ(status.words, ""); }

// A report on the device.
class DeviceReport {
 public:
  explicit DeviceReport(DeviceMemory& memory)
      : report_(
            static_cast<gpu::Report*>(memory.Allocate(sizeof(gpu::Report)))) {
    ExpectOk(gpu::ClearReport(report_, DeviceStream()));
  }
  gpu::Report* get() { return report_; }

  // After all that was added to the stream.
  gpu::Report Read() {
    gpu::Report report;
    ExpectOk(gpu::CopyReport(&report, report_, DeviceStream()));
    ExpectOk(WaitForDevice());
    return report;
  }

 private:
  gpu::Report* report_;
};

// Where rows are written: what was there before is part of the copy, so that
// what a kernel leaves out shows.
struct DeviceOutput {
  DeviceOutput(DeviceMemory& memory, void* host_memory, int64_t byte_count)
      : host(host_memory),
        device(memory.CopyOf(host_memory, byte_count)),
        bytes(byte_count) {}
  void Read() const {
    if (bytes > 0) CopyFromDevice(host, device, bytes);
  }

  void* host;
  void* device;
  int64_t bytes;
};

// Bytes of a table of a geometry, none of whose products saturates where it is
// not empty.
int64_t TableBytes(const GatherGeometry& geometry, int64_t rows,
                   int64_t row_bytes) {
  if (geometry.batches == 0 || geometry.outer == 0 || rows == 0) return 0;
  return SaturatingMultiply(geometry.batches * geometry.outer * rows,
                            row_bytes);
}

int64_t IndexListBytes(const GatherGeometry& geometry, IndexType type) {
  return geometry.has_indices()
             ? geometry.batches * geometry.indices_per_batch * IndexBytes(type)
             : 0;
}

std::vector<StitchInput> InputsOnDevice(const std::vector<StitchInput>& inputs,
                                        IndexType index_type, int64_t row_bytes,
                                        DeviceMemory& memory) {
  std::vector<StitchInput> on_device = inputs;
  for (StitchInput& input : on_device) {
    input.indices =
        memory.CopyOf(input.indices, input.count * IndexBytes(index_type));
    input.data = memory.CopyOf(input.data, input.count * row_bytes);
  }
  return on_device;
}

int Size(const std::vector<StitchInput>& inputs) {
  return static_cast<int>(inputs.size());
}

}  // namespace

Outcome GpuBackend::GatherRows(const GatherGeometry& geometry,
                               int64_t row_bytes, const void* params,
                               const void* indices, IndexType index_type,
                               BadIndexAction action, void* output) const {
  DeviceMemory memory;
  DeviceReport report(memory);
  const DeviceOutput on_device(
      memory, output,
      geometry.has_output()
          ? TableBytes(geometry, geometry.indices_per_batch, row_bytes)
          : 0);
  ExpectOk(gpu::GatherRows(
      geometry, row_bytes,
      memory.CopyOf(params, TableBytes(geometry, geometry.rows, row_bytes)),
      memory.CopyOf(indices, IndexListBytes(geometry, index_type)), index_type,
      action, report.get(), on_device.device, DeviceStream()));
  const Outcome outcome = report.Read().outcome();
  on_device.Read();
  return outcome;
}

Outcome GpuBackend::GatherGrad(const GatherGeometry& geometry, SumType sum_type,
                               const void* grad, const void* indices,
                               IndexType index_type, BadIndexAction action,
                               Scratch& /*scratch*/, void* params_grad) const {
  const int64_t row_bytes = geometry.inner * SumTypeBytes(sum_type);
  DeviceMemory memory;
  DeviceReport report(memory);
  const DeviceOutput on_device(memory, params_grad,
                               TableBytes(geometry, geometry.rows, row_bytes));
  ExpectOk(gpu::GatherGrad(
      geometry, sum_type,
      memory.CopyOf(
          grad, TableBytes(geometry, geometry.indices_per_batch, row_bytes)),
      memory.CopyOf(indices, IndexListBytes(geometry, index_type)), index_type,
      action, order_, memory, report.get(), on_device.device, DeviceStream()));
  const Outcome outcome = report.Read().outcome();
  on_device.Read();
  return outcome;
}

Outcome GpuBackend::SparseGrad(int64_t count, int64_t params_rows,
                               const void* indices, IndexType index_type,
                               BadIndexAction action, bool unique,
                               int64_t inner, SumType sum_type,
                               const void* grad, Scratch& /*scratch*/,
                               reference::Slices* slices) const {
  const int64_t row_bytes = inner * SumTypeBytes(sum_type);
  DeviceMemory memory;
  DeviceReport report(memory);
  slices->slots.resize(count);
  const DeviceOutput slots(memory, slices->slots.data(), count * 8);
  gpu::SparseGradPlan plan;
  ExpectOk(gpu::PlanSparseGrad(
      count, params_rows,
      memory.CopyOf(indices, count * IndexBytes(index_type)), index_type,
      action, unique, memory, report.get(), &plan,
      static_cast<int64_t*>(slots.device), DeviceStream()));
  const gpu::Report found = report.Read();
  if (found.has_bad_index()) return found.outcome();
  slots.Read();

  slices->rows.resize(found.number + 1);
  slices->values.resize((found.number + 1) * row_bytes);
  const DeviceOutput rows(memory, slices->rows.data(), 8 * (found.number + 1));
  const DeviceOutput values(memory, slices->values.data(),
                            (found.number + 1) * row_bytes);
  ExpectOk(gpu::FillSparseGrad(
      plan, inner, sum_type, memory.CopyOf(grad, count * row_bytes), memory,
      static_cast<int64_t*>(rows.device), values.device, DeviceStream()));
  ExpectOk(WaitForDevice());
  rows.Read();
  values.Read();
  return Outcome();
}

Outcome GpuBackend::StitchMergedRows(const std::vector<StitchInput>& inputs,
                                     IndexType index_type,
                                     int64_t* merged_rows) const {
  DeviceMemory memory;
  DeviceReport report(memory);
  const std::vector<StitchInput> on_device =
      InputsOnDevice(inputs, index_type, 0, memory);
  ExpectOk(gpu::FindLargestIndex(on_device.data(), Size(inputs), index_type,
                                 report.get(), DeviceStream()));
  const gpu::Report found = report.Read();
  *merged_rows = found.number + 1;
  return gpu::StitchOutcome(found, inputs.data(), Size(inputs));
}

Outcome GpuBackend::StitchWinners(const std::vector<StitchInput>& inputs,
                                  IndexType index_type, int64_t merged_rows,
                                  BadIndexAction action,
                                  int64_t* winners) const {
  DeviceMemory memory;
  DeviceReport report(memory);
  const std::vector<StitchInput> on_device =
      InputsOnDevice(inputs, index_type, 0, memory);
  const DeviceOutput output(memory, winners, merged_rows * 8);
  ExpectOk(gpu::StitchWinners(
      on_device.data(), Size(inputs), index_type, merged_rows, action,
      report.get(), static_cast<int64_t*>(output.device), DeviceStream()));
  const gpu::Report found = report.Read();
  output.Read();
  return gpu::StitchOutcome(found, inputs.data(), Size(inputs));
}

Outcome GpuBackend::StitchRows(const std::vector<StitchInput>& inputs,
                               IndexType index_type, int64_t row_bytes,
                               int64_t merged_rows, BadIndexAction action,
                               Scratch& /*scratch*/, void* merged) const {
  DeviceMemory memory;
  DeviceReport report(memory);
  const std::vector<StitchInput> on_device =
      InputsOnDevice(inputs, index_type, row_bytes, memory);
  const DeviceOutput output(memory, merged, merged_rows * row_bytes);
  ExpectOk(gpu::StitchRows(on_device.data(), Size(inputs), index_type,
                           row_bytes, merged_rows, action, memory, report.get(),
                           output.device, DeviceStream()));
  const gpu::Report found = report.Read();
  output.Read();
  return gpu::StitchOutcome(found, inputs.data(), Size(inputs));
}

Outcome GpuBackend::StitchGradRows(const std::vector<StitchInput>& inputs,
                                   IndexType index_type, int64_t row_bytes,
                                   int64_t grad_rows, const void* grad,
                                   Scratch& /*scratch*/,
                                   const std::vector<void*>& data_grads) const {
  DeviceMemory memory;
  const std::vector<StitchInput> on_device =
      InputsOnDevice(inputs, index_type, 0, memory);
  std::vector<DeviceOutput> outputs;
  std::vector<void*> pointers;
  for (size_t m = 0; m < inputs.size(); ++m) {
    outputs.emplace_back(memory, data_grads[m], inputs[m].count * row_bytes);
    pointers.push_back(outputs.back().device);
  }
  ExpectOk(gpu::StitchGradRows(on_device.data(), Size(inputs), index_type,
                               row_bytes, grad_rows,
                               memory.CopyOf(grad, grad_rows * row_bytes),
                               memory, pointers.data(), DeviceStream()));
  ExpectOk(WaitForDevice());
  for (const DeviceOutput& output : outputs) output.Read();
  return Outcome();
}

}  // namespace testing
}  // namespace gather_stitch
