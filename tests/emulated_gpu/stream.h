// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// Streams and events of the emulated devices, after those of CUDA.

#ifndef GATHER_STITCH_TESTS_EMULATED_GPU_STREAM_H_
#define GATHER_STITCH_TESTS_EMULATED_GPU_STREAM_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>

namespace emulated_gpu {

// Runs tasks one after the other on a thread of its own.
class Stream {
 public:
  using Task = std::function<void()>;

  // A task on device memory waits before it runs: `delay_us`, give or take half
  // of it.
  explicit Stream(int64_t delay_us);
  // Runs what is left.
  ~Stream();

  // A task that accesses device memory.
  void Enqueue(Task task) { Push({std::move(task), true}); }
  // A task about the order of others: it does not wait, and has no access.
  void EnqueueMark(Task task) { Push({std::move(task), false}); }
  // Waits until all that was enqueued before has run.
  void Block();

  // The first failure of a task.
  void Fail(const std::string& error);
  std::string error();

 private:
  struct Entry {
    Task task;
    bool accesses_memory;
  };

  void Push(Entry entry);
  void Run();

  const int64_t delay_us_;
  std::mt19937 random_;  // of the worker
  std::mutex mutex_;
  std::condition_variable pushed_;
  std::deque<Entry> entries_;
  bool is_ending_ = false;
  std::string error_;
  std::thread worker_;
};

// A place in a stream. Recording it again moves it; who waited before waits for
// the place of then.
class Event {
 public:
  void Record(Stream* stream);
  // What `stream` is given from now on runs after the place was passed.
  void BlockStream(Stream* stream);
  void BlockHost();
  bool IsComplete();

 private:
  // Outlives the event in the streams that have yet to pass it.
  struct State {
    std::mutex mutex;
    std::condition_variable passed;
    uint64_t records = 0;
    uint64_t passed_records = 0;

    void WaitFor(uint64_t record);
  };

  uint64_t records();

  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace emulated_gpu

#endif  // GATHER_STITCH_TESTS_EMULATED_GPU_STREAM_H_
