// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// Threads and memory lent to the core by tests.

#ifndef GATHER_STITCH_TESTS_CORE_LENDERS_H_
#define GATHER_STITCH_TESTS_CORE_LENDERS_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "tf_ops/core/parallel_for.h"
#include "tf_ops/core/scratch.h"

namespace gather_stitch {
namespace testing {

// On the calling thread, in ranges of a grain at most, the last one first,
// while it claims to have many threads.
class ReversedFor final : public ParallelFor {
 public:
  int max_threads() const override { return 7; }
  void Run(int64_t items, int64_t grain, RangeFunction body) const override;
};

// On the calling thread, one item after the other, or as few as make some
// thousands of ranges.
class OneItemFor final : public ParallelFor {
 public:
  explicit OneItemFor(int max_threads) : max_threads_(max_threads) {}
  int max_threads() const override { return max_threads_; }
  void Run(int64_t items, int64_t grain, RangeFunction body) const override;

 private:
  int max_threads_;
};

// On threads of its own, in many small ranges that each takes as it comes. The
// threads flush denormal numbers to zero, as those of a pool may.
class ThreadedFor final : public ParallelFor {
 public:
  explicit ThreadedFor(int threads);
  ~ThreadedFor() override;
  int max_threads() const override { return static_cast<int>(threads_.size()); }
  void Run(int64_t items, int64_t grain, RangeFunction body) const override;

 private:
  struct Job {
    int64_t items;
    int64_t range;
    const RangeFunction* body;
    std::atomic<int64_t> next{0};
  };

  void Work();
  static void WorkOn(Job* job);

  mutable std::mutex mutex_;
  mutable std::condition_variable wake_;
  mutable std::condition_variable done_;
  mutable Job* job_ = nullptr;
  mutable int64_t job_number_ = 0;
  mutable int working_ = 0;
  bool stops_ = false;
  std::vector<std::thread> threads_;
};

// Serial, in ranges of a grain at most; calls `between` before each.
class InterruptedFor final : public ParallelFor {
 public:
  explicit InterruptedFor(std::function<void()> between)
      : between_(std::move(between)) {}
  int max_threads() const override { return 4; }
  void Run(int64_t items, int64_t grain, RangeFunction body) const override;

 private:
  std::function<void()> between_;
};

// Flushes denormal numbers of this thread to zero while it lives, where the
// processor can.
class FlushDenormals {
 public:
  FlushDenormals();
  ~FlushDenormals();

 private:
  uint32_t saved_;
};

// Memory that is full of rubbish, counted, and refused from the allocation on
// that is asked for.
class TestScratch final : public Scratch {
 public:
  explicit TestScratch(int64_t refused_allocation = -1)
      : refused_allocation_(refused_allocation) {}
  void* Allocate(int64_t bytes) override;

  int64_t allocations() const { return allocations_; }
  int64_t bytes() const { return bytes_; }

 private:
  static constexpr size_t kAlignment = 64;
  struct Free {
    void operator()(char* piece) const {
      ::operator delete(piece, std::align_val_t{kAlignment});
    }
  };

  int64_t refused_allocation_;
  int64_t allocations_ = 0;
  int64_t bytes_ = 0;
  std::vector<std::unique_ptr<char, Free>> pieces_;
};

}  // namespace testing
}  // namespace gather_stitch

#endif  // GATHER_STITCH_TESTS_CORE_LENDERS_H_
