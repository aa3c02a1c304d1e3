// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// Runs one job of the core, for instruction_counts.py, which counts what
// happens inside of CountedRun. Without an argument it lists the jobs.

#include <cstdio>
#include <functional>
#include <map>
#include <string>

#include "benchmarks/core/jobs.h"
#include "tf_ops/core/cpu_features.h"
#include "tf_ops/core/parallel_for.h"

extern "C" __attribute__((noinline)) void CountedRun(
    const std::function<void()>& run) {
  run();
}

namespace gather_stitch {
namespace {

// Small enough to be counted in about a second each, and large enough that the
// loops are what is counted.
constexpr int64_t kCount = 20'000;
constexpr int64_t kRows = 5'000;

// Runs twice: what happens only once in a process is not counted.
template <typename Job>
void Count(Job& job, void (Job::*run)(const ParallelFor&)) {
  const auto once = [&] { (job.*run)(SerialFor()); };
  once();
  CountedRun(once);
}

template <typename Job, typename... Args>
std::function<void()> Counted(void (Job::*run)(const ParallelFor&),
                              Args... args) {
  return [=] {
    Job job(args...);
    Count(job, run);
  };
}

std::map<std::string, std::function<void()>> Jobs() {
  std::map<std::string, std::function<void()>> jobs;
  for (const int row_bytes : {1, 4, 16, 64, 100, 1024}) {
    const std::string size = "/" + std::to_string(row_bytes) + "B";
    jobs["forward" + size] =
        Counted(&GatherJob::Forward, Order::kUniform, kRows, kCount, row_bytes);
  }
  for (const int row_bytes : {4, 64, 1024}) {
    const std::string size = "/" + std::to_string(row_bytes) + "B";
    jobs["forward_in_order" + size] = Counted(
        &GatherJob::Forward, Order::kSequential, kRows, kCount, row_bytes);
    jobs["dense_gradient" + size] = Counted(
        &GatherJob::DenseGradient, Order::kUniform, kRows, kCount, row_bytes);
    jobs["sparse_gradient" + size] = Counted(
        &GatherJob::SparseGradient, Order::kUniform, kRows, kCount, row_bytes);
    jobs["stitch" + size] =
        Counted(&StitchJob::Forward, /*inputs=*/8, kCount, row_bytes);
    jobs["stitch_gradient" + size] =
        Counted(&StitchJob::Gradient, /*inputs=*/8, kCount, row_bytes);
  }
  return jobs;
}

}  // namespace
}  // namespace gather_stitch

int main(int argc, char** argv) {
  const auto jobs = gather_stitch::Jobs();
  if (argc == 1) {
    for (const auto& [name, run] : jobs) std::puts(name.c_str());
    return 0;
  }
  const auto job = jobs.find(argv[1]);
  if (job == jobs.end()) {
    std::fprintf(stderr, "no job is called %s\n", argv[1]);
    return 1;
  }
  job->second();
  std::puts(gather_stitch::CpuFeaturesName(gather_stitch::CpuFeaturesInUse()));
  return 0;
}
