// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// Threads and memory as a benchmark lends them to the core.

#ifndef GATHER_STITCH_BENCHMARKS_CORE_LENDERS_H_
#define GATHER_STITCH_BENCHMARKS_CORE_LENDERS_H_

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "tf_ops/core/parallel_for.h"
#include "tf_ops/core/scratch.h"

namespace gather_stitch {

// A fixed number of threads, the calling one among them. Each takes one
// contiguous part.
class ThreadsFor final : public ParallelFor {
 public:
  explicit ThreadsFor(int threads) {
    for (int t = 1; t < threads; ++t) {
      helpers_.emplace_back([this, t] { Help(t); });
    }
  }

  ~ThreadsFor() override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ends_ = true;
    }
    starts_.notify_all();
    for (std::thread& helper : helpers_) helper.join();
  }

  int max_threads() const override {
    return static_cast<int>(helpers_.size()) + 1;
  }

  void Run(int64_t items, int64_t grain, RangeFunction body) const override {
    const int64_t parts =
        std::min<int64_t>(max_threads(), items / std::max<int64_t>(grain, 1));
    if (parts <= 1) {
      if (items > 0) body(0, items);
      return;
    }
    const auto run_part = [&](int64_t part) {
      if (part < parts) body(items * part / parts, items * (part + 1) / parts);
    };
    {
      std::lock_guard<std::mutex> lock(mutex_);
      run_part_ = run_part;
      running_ = static_cast<int>(helpers_.size());
      ++generation_;
    }
    starts_.notify_all();
    run_part(0);
    std::unique_lock<std::mutex> lock(mutex_);
    finishes_.wait(lock, [this] { return running_ == 0; });
  }

 private:
  void Help(int part) {
    int64_t seen = 0;
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      starts_.wait(lock, [&] { return ends_ || generation_ != seen; });
      if (ends_) return;
      seen = generation_;
      const auto run_part = run_part_;
      lock.unlock();
      run_part(part);
      lock.lock();
      if (--running_ == 0) finishes_.notify_one();
    }
  }

  std::vector<std::thread> helpers_;
  mutable std::mutex mutex_;
  mutable std::condition_variable starts_, finishes_;
  mutable std::function<void(int64_t)> run_part_;
  mutable int64_t generation_ = 0;
  mutable int running_ = 0;
  bool ends_ = false;
};

// Keeps what it lent for the next call, so that a loop measures no page faults.
class ReusedScratch final : public Scratch {
 public:
  ~ReusedScratch() override {
    for (const Block& block : blocks_) std::free(block.memory);
  }

  void* Allocate(int64_t bytes) override {
    if (next_ == blocks_.size()) blocks_.push_back({});
    Block& block = blocks_[next_++];
    if (block.bytes < bytes) {
      std::free(block.memory);
      block.bytes = (bytes + 63) / 64 * 64;
      block.memory = std::aligned_alloc(64, block.bytes);
    }
    return block.memory;
  }

  // All that was lent may be lent again.
  void TakeBack() { next_ = 0; }

 private:
  struct Block {
    void* memory = nullptr;
    int64_t bytes = 0;
  };
  std::vector<Block> blocks_;
  size_t next_ = 0;
};

}  // namespace gather_stitch

#endif  // GATHER_STITCH_BENCHMARKS_CORE_LENDERS_H_
