// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// Times the loops of the core without TensorFlow, for work on them:
//
//   make core-bench BENCH_FLAGS=--benchmark_filter=forward/4B

#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <thread>

#include "benchmarks/core/jobs.h"
#include "benchmarks/core/lenders.h"
#include "tf_ops/core/cpu_features.h"

namespace gather_stitch {
namespace {

constexpr int64_t kTableBytes = 32 << 20;  // no cache of one core holds it
constexpr int64_t kMaxOutputBytes = 64 << 20;

template <typename Job, typename... Args>
void Register(const std::string& name, int64_t bytes,
              void (Job::*run)(const ParallelFor&), Args... args) {
  for (const int threads :
       {1, static_cast<int>(std::thread::hardware_concurrency())}) {
    const std::string full_name = name + "/threads:" + std::to_string(threads);
    benchmark::RegisterBenchmark(
        full_name.c_str(),
        [=](benchmark::State& state) {
          Job job(args...);
          const ThreadsFor lender(threads);
          for (auto _ : state) {
            (job.*run)(lender);
            benchmark::ClobberMemory();
          }
          state.SetBytesProcessed(state.iterations() * bytes);
        })
        ->UseRealTime()
        ->MeasureProcessCPUTime()
        ->Unit(benchmark::kMicrosecond);
  }
}

void RegisterAll() {
  for (const int64_t row_bytes :
       {1, 4, 8, 16, 32, 64, 100, 256, 1024, 4096, 65536}) {
    const int64_t rows = kTableBytes / row_bytes;
    const std::string size = "/" + std::to_string(row_bytes) + "B/";
    for (const int64_t wanted : {10'000, 1'000'000}) {
      const int64_t count = std::min(wanted, kMaxOutputBytes / row_bytes);
      const int64_t bytes = count * (2 * row_bytes + 4);
      const int64_t dense_bytes = count * (row_bytes + 4) + kTableBytes;
      const std::string counted = "/" + std::to_string(count);
      for (const Order order :
           {Order::kSequential, Order::kUniform, Order::kAllEqual}) {
        const std::string name = size + OrderName(order) + counted;
        Register("forward" + name, bytes, &GatherJob::Forward, order, rows,
                 count, row_bytes);
        Register("dense_gradient" + name, dense_bytes,
                 &GatherJob::DenseGradient, order, rows, count, row_bytes);
        Register("sparse_gradient" + name, bytes, &GatherJob::SparseGradient,
                 order, std::max(rows, count), count, row_bytes);
      }
      for (const int inputs : {1, 64}) {
        const std::string name =
            size + std::to_string(inputs) + "_inputs" + counted;
        Register("stitch" + name, bytes, &StitchJob::Forward, inputs, count,
                 row_bytes);
        Register("stitch_gradient" + name, bytes, &StitchJob::Gradient, inputs,
                 count, row_bytes);
      }
      if (count < wanted) break;
    }
  }
}

}  // namespace
}  // namespace gather_stitch

int main(int argc, char** argv) {
  gather_stitch::RegisterAll();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::AddCustomContext(
      "instruction_set",
      gather_stitch::CpuFeaturesName(gather_stitch::CpuFeaturesInUse()));
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
