// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// Times the GPU kernels on the first device, as a share of what a copy on the
// device reaches in the same run. Results are checked before they are timed.
//
//   gpu_benchmark RESULTS.json

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "tf_ops/core/gpu/device.h"
#include "tf_ops/core/gpu/gather.h"
#include "tf_ops/core/gpu/gather_grad.h"
#include "tf_ops/core/gpu/stitch.h"

namespace gather_stitch {
namespace {

void Check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", call, cudaGetErrorString(error));
  std::exit(3);
}

void Check(const GpuStatus& status) {
  if (status.ok()) return;
  std::fprintf(
      stderr, "%s\n",
      status.code == GpuStatus::kOutOfMemory ? "out of memory" : status.words);
  std::exit(3);
}

[[noreturn]] void Wrong(const std::string& cell) {
  std::fprintf(stderr, "%s: the result is wrong\n", cell.c_str());
  std::exit(4);
}

// Device memory that is kept and lent again from the start.
class Arena final : public Scratch {
 public:
  explicit Arena(int64_t bytes) : bytes_(bytes) {
    Check(cudaMalloc(&memory_, static_cast<size_t>(bytes)), "cudaMalloc");
  }
  ~Arena() override { cudaFree(memory_); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  void* Allocate(int64_t bytes) override {
    const int64_t start = used_;
    used_ += (bytes + 255) / 256 * 256;
    return used_ > bytes_ ? nullptr : static_cast<char*>(memory_) + start;
  }
  void Reset() { used_ = 0; }

 private:
  void* memory_ = nullptr;
  int64_t bytes_;
  int64_t used_ = 0;
};

// Seconds of one call: the median of some.
template <typename F>
double Seconds(const F& call) {
  constexpr int kRepeats = 9;
  cudaEvent_t start, end;
  Check(cudaEventCreate(&start), "cudaEventCreate");
  Check(cudaEventCreate(&end), "cudaEventCreate");
  std::vector<float> milliseconds(kRepeats);
  call();
  for (float& time : milliseconds) {
    Check(cudaEventRecord(start), "cudaEventRecord");
    call();
    Check(cudaEventRecord(end), "cudaEventRecord");
    Check(cudaEventSynchronize(end), "cudaEventSynchronize");
    Check(cudaEventElapsedTime(&time, start, end), "cudaEventElapsedTime");
  }
  Check(cudaEventDestroy(start), "cudaEventDestroy");
  Check(cudaEventDestroy(end), "cudaEventDestroy");
  std::nth_element(milliseconds.begin(), milliseconds.begin() + kRepeats / 2,
                   milliseconds.end());
  return milliseconds[kRepeats / 2] * 1e-3;
}

enum class Order { kUniform, kZipf, kEqual };
const char* Name(Order order) {
  constexpr const char* kNames[] = {"uniform", "zipf", "equal"};
  return kNames[static_cast<int>(order)];
}

std::vector<int32_t> Indices(int64_t count, int64_t rows, Order order) {
  std::mt19937_64 random(count * 31 + rows);
  std::vector<int32_t> indices(count);
  for (int32_t& index : indices) {
    const double u = static_cast<double>(random() >> 11) * 0x1p-53;
    switch (order) {
      case Order::kUniform:
        index = static_cast<int32_t>(u * static_cast<double>(rows));
        break;
      case Order::kZipf:
        // Density 1 / x on [1, rows + 1).
        index = static_cast<int32_t>(
            std::min(std::pow(static_cast<double>(rows + 1), u) - 1,
                     static_cast<double>(rows - 1)));
        break;
      case Order::kEqual:
        index = static_cast<int32_t>(rows / 2);
        break;
    }
  }
  return indices;
}

template <typename T>
T* Upload(const std::vector<T>& values, Arena& arena) {
  const int64_t bytes = static_cast<int64_t>(values.size() * sizeof(T));
  T* const memory = static_cast<T*>(arena.Allocate(bytes));
  if (memory == nullptr) Check(GpuStatus::OutOfMemory());
  Check(cudaMemcpy(memory, values.data(), bytes, cudaMemcpyHostToDevice),
        "cudaMemcpy");
  return memory;
}

float At(const float* device) {
  float value;
  Check(cudaMemcpy(&value, device, sizeof(value), cudaMemcpyDeviceToHost),
        "cudaMemcpy");
  return value;
}

// A number for each place, so that a wrong one shows.
struct FillPattern {
  float* table;
  uint64_t count;
  __device__ void operator()(const ThreadPosition& at) const {
    for (uint64_t i = at.First(); i < count; i += at.Stride()) {
      table[i] = static_cast<float>(i * 2654435761u >> 9 & 1023);
    }
  }
};
float Pattern(uint64_t i) {
  return static_cast<float>(i * 2654435761u >> 9 & 1023);
}

struct Cell {
  const char* work;
  int64_t row_bytes;
  Order order;
  int64_t rows;
  int64_t count;
  double seconds;
  double bytes;  // that had to move
};

class Benchmark {
 public:
  Benchmark() {
    size_t free_bytes, all_bytes;
    Check(cudaMemGetInfo(&free_bytes, &all_bytes), "cudaMemGetInfo");
    table_bytes_ = std::min<int64_t>(int64_t{8} << 30,
                                     static_cast<int64_t>(free_bytes / 4));
    rows_bytes_ = std::min<int64_t>(int64_t{1} << 30, table_bytes_ / 4);
    table_ = Allocate(table_bytes_);
    moved_ = Allocate(rows_bytes_);
    Fill(table_, table_bytes_);
    copy_bytes_per_second_ =
        2.0 * static_cast<double>(rows_bytes_) / Seconds([&] {
          Check(cudaMemcpyAsync(moved_, table_, rows_bytes_,
                                cudaMemcpyDeviceToDevice),
                "cudaMemcpyAsync");
        });
  }

  void Run() {
    for (const int64_t row_bytes :
         {4, 16, 32, 64, 128, 256, 1024, 4096, 16384, 65536}) {
      for (const Order order : {Order::kUniform, Order::kZipf, Order::kEqual}) {
        const int64_t rows =
            std::min<int64_t>(table_bytes_ / row_bytes, int64_t{1} << 26);
        const int64_t count =
            std::min<int64_t>(rows_bytes_ / row_bytes, int64_t{1} << 22);
        Gather(row_bytes, order, rows, count);
        // Sums go into a table a fourth as large.
        Gradient("gradient", gpu::SumOrder::kAny, row_bytes, order, rows / 4,
                 count);
        Gradient("gradient, fixed order", gpu::SumOrder::kFixed, row_bytes,
                 order, rows / 4, count);
      }
      Stitch(row_bytes,
             std::min<int64_t>(rows_bytes_ / row_bytes, int64_t{1} << 22));
    }
  }

  void Print(const char* path) const {
    cudaDeviceProp properties;
    Check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
    std::FILE* const json = std::fopen(path, "w");
    if (json == nullptr) {
      std::fprintf(stderr, "%s can not be written\n", path);
      std::exit(3);
    }
    std::fprintf(json,
                 "{\"device\": \"%s\", \"copy_bytes_per_second\": %.6g, "
                 "\"cells\": [",
                 properties.name, copy_bytes_per_second_);
    std::printf("%s, a copy moves %.0f GB/s\n\n", properties.name,
                copy_bytes_per_second_ * 1e-9);
    std::printf("%-22s %9s %-8s %12s %9s %9s\n", "work", "row bytes", "indices",
                "microseconds", "GB/s", "of a copy");
    const char* separator = "";
    for (const Cell& cell : cells_) {
      const double speed = cell.bytes / cell.seconds;
      std::fprintf(json,
                   "%s\n{\"work\": \"%s\", \"row_bytes\": %lld, \"indices\": "
                   "\"%s\", \"rows\": %lld, \"count\": %lld, \"seconds\": "
                   "%.6g, \"bytes\": %.6g, \"of_copy\": %.4f}",
                   separator, cell.work, static_cast<long long>(cell.row_bytes),
                   Name(cell.order), static_cast<long long>(cell.rows),
                   static_cast<long long>(cell.count), cell.seconds, cell.bytes,
                   speed / copy_bytes_per_second_);
      separator = ",";
      std::printf("%-22s %9lld %-8s %12.1f %9.0f %8.0f%%\n", cell.work,
                  static_cast<long long>(cell.row_bytes), Name(cell.order),
                  cell.seconds * 1e6, speed * 1e-9,
                  100 * speed / copy_bytes_per_second_);
    }
    std::fprintf(json, "\n]}\n");
    if (std::fclose(json) != 0) {
      std::fprintf(stderr, "%s can not be written\n", path);
      std::exit(3);
    }
  }

 private:
  static float* Allocate(int64_t bytes) {
    void* memory = nullptr;
    Check(cudaMalloc(&memory, static_cast<size_t>(bytes)), "cudaMalloc");
    return static_cast<float*>(memory);
  }

  static void Fill(float* table, int64_t bytes) {
    Check(Launch(ShapeFor(bytes / 4),
                 FillPattern{table, static_cast<uint64_t>(bytes / 4)},
                 GpuStream()));
  }

  static std::string NameOf(const char* work, int64_t row_bytes, Order order) {
    return std::string(work) + ", rows of " + std::to_string(row_bytes) +
           " bytes, " + Name(order);
  }

  void Gather(int64_t row_bytes, Order order, int64_t rows, int64_t count) {
    Arena arena(count * 4 + 1024);
    const std::vector<int32_t> indices = Indices(count, rows, order);
    const int32_t* const on_device = Upload(indices, arena);
    const GatherGeometry geometry{1, 1, rows, row_bytes / 4, count};
    const auto gather = [&] {
      Check(gpu::GatherRows(geometry, row_bytes, table_, on_device,
                            IndexType::kInt32, BadIndexAction::kZero, nullptr,
                            moved_, GpuStream()));
    };
    gather();
    for (const int64_t i : {int64_t{0}, count / 3, count - 1}) {
      const int64_t floats = row_bytes / 4;
      const uint64_t source = static_cast<uint64_t>(indices[i]) * floats;
      if (At(moved_ + i * floats) != Pattern(source) ||
          At(moved_ + (i + 1) * floats - 1) != Pattern(source + floats - 1)) {
        Wrong(NameOf("gather", row_bytes, order));
      }
    }
    cells_.push_back({"gather", row_bytes, order, rows, count, Seconds(gather),
                      static_cast<double>(count) *
                          (2.0 * static_cast<double>(row_bytes) + 4)});
  }

  void Gradient(const char* work, gpu::SumOrder sum_order, int64_t row_bytes,
                Order order, int64_t rows, int64_t count) {
    // Sorting, and the sums of continuations.
    Arena arena(count * 64 + rows_bytes_ / 8 + (int64_t{64} << 20));
    const std::vector<int32_t> indices = Indices(count, rows, order);
    const int64_t floats = row_bytes / 4;
    float* const grad = moved_;
    Fill(grad, count * row_bytes);
    const GatherGeometry geometry{1, 1, rows, floats, count};
    const auto sum = [&] {
      arena.Reset();
      const int32_t* const on_device =
          static_cast<const int32_t*>(arena.Allocate(count * 4));
      Check(gpu::GatherGrad(geometry, SumType::kFloat32, grad, on_device,
                            IndexType::kInt32, BadIndexAction::kZero, sum_order,
                            arena, nullptr, table_, GpuStream()));
    };
    arena.Reset();
    Upload(indices, arena);
    sum();
    const int64_t row = indices[count / 3];
    double expected = 0;
    for (int64_t i = 0; i < count; ++i) {
      if (indices[i] == row) expected += Pattern(i * floats);
    }
    if (std::abs(At(table_ + row * floats) - expected) > 1e-3 * expected + 1) {
      Wrong(NameOf(work, row_bytes, order));
    }
    std::vector<int32_t> distinct = indices;
    std::sort(distinct.begin(), distinct.end());
    const int64_t distinct_rows =
        std::unique(distinct.begin(), distinct.end()) - distinct.begin();
    // The table is written with zeros first, then each row with its sum.
    cells_.push_back(
        {work, row_bytes, order, rows, count, Seconds(sum),
         static_cast<double>(row_bytes) *
                 static_cast<double>(count + rows + distinct_rows) +
             4.0 * static_cast<double>(count)});
    Fill(table_, rows * row_bytes);
  }

  void Stitch(int64_t row_bytes, int64_t count) {
    Arena arena(count * 16 + 4096);
    std::vector<int32_t> indices(count);
    std::iota(indices.begin(), indices.end(), 0);
    std::shuffle(indices.begin(), indices.end(), std::mt19937_64(7));
    const int32_t* const on_device = Upload(indices, arena);
    const std::vector<StitchInput> inputs = {
        {on_device, count / 2, table_},
        {on_device + count / 2, count - count / 2,
         table_ + count / 2 * (row_bytes / 4)}};
    Arena scratch(count * 8 + 4096);
    const auto stitch = [&] {
      scratch.Reset();
      Check(gpu::StitchRows(inputs.data(), 2, IndexType::kInt32, row_bytes,
                            count, BadIndexAction::kZero, scratch, nullptr,
                            moved_, GpuStream()));
    };
    stitch();
    for (const int64_t i : {int64_t{0}, count / 2, count - 1}) {
      const int64_t floats = row_bytes / 4;
      if (At(moved_ + indices[i] * floats) != Pattern(i * floats)) {
        Wrong(NameOf("stitch", row_bytes, Order::kUniform));
      }
    }
    // The indices, the winners twice, the rows.
    cells_.push_back({"stitch", row_bytes, Order::kUniform, count, count,
                      Seconds(stitch),
                      static_cast<double>(count) *
                          (2.0 * static_cast<double>(row_bytes) + 16)});
  }

  int64_t table_bytes_;
  int64_t rows_bytes_;
  float* table_;
  float* moved_;
  double copy_bytes_per_second_;
  std::vector<Cell> cells_;
};

}  // namespace
}  // namespace gather_stitch

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s RESULTS.json\n", argv[0]);
    return 2;
  }
  gather_stitch::Benchmark benchmark;
  benchmark.Run();
  benchmark.Print(argv[1]);
  return 0;
}
