// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// A piece of scratch memory for each range of a parallel loop that runs at the
// same time as others.

#ifndef GATHER_STITCH_CORE_WORKER_MEMORY_H_
#define GATHER_STITCH_CORE_WORKER_MEMORY_H_

#include <atomic>
#include <cstdint>
#include <new>

#include "tf_ops/core/parallel_for.h"
#include "tf_ops/core/scratch.h"

namespace gather_stitch {

class WorkerMemory {
 public:
  // Allocates `bytes` for each thread, nothing for 0; false where there is no
  // memory.
  bool Prepare(const ParallelFor& parallel, int64_t bytes, Scratch& scratch) {
    if (bytes == 0) return true;
    pieces_ = parallel.max_threads();
    piece_bytes_ = (bytes + 63) / 64 * 64;
    void* const flags =
        scratch.Allocate(pieces_ * static_cast<int64_t>(sizeof(Flag)));
    if (flags == nullptr) return false;
    is_taken_ = static_cast<Flag*>(flags);
    for (int i = 0; i < pieces_; ++i) new (&is_taken_[i]) Flag(false);
    memory_ = static_cast<char*>(scratch.Allocate(pieces_ * piece_bytes_));
    return memory_ != nullptr;
  }

  // A piece for as long as the lease lives; null where none were asked for.
  class Lease {
   public:
    explicit Lease(WorkerMemory& owner) : owner_(owner) {
      if (owner_.pieces_ == 0) return;
      // There are as many pieces as ranges that run at once, so that a round or
      // two finds one.
      while (
          owner_.is_taken_[piece_].exchange(true, std::memory_order_acquire)) {
        piece_ = (piece_ + 1) % owner_.pieces_;
      }
    }
    ~Lease() {
      if (owner_.pieces_ == 0) return;
      owner_.is_taken_[piece_].store(false, std::memory_order_release);
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

    void* get() const {
      if (owner_.pieces_ == 0) return nullptr;
      return owner_.memory_ + piece_ * owner_.piece_bytes_;
    }

   private:
    WorkerMemory& owner_;
    int piece_ = 0;
  };

 private:
  using Flag = std::atomic<bool>;

  int pieces_ = 0;
  int64_t piece_bytes_ = 0;
  Flag* is_taken_ = nullptr;
  char* memory_ = nullptr;
};

}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_WORKER_MEMORY_H_
