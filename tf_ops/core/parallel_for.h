// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// Threads are lent by the caller: the core starts none of its own.
//
//   parallel.Run(items, grain, body)
//
// calls body(begin, end) for half-open ranges that partition [0, items). The
// calls come in any order, on any thread, at most max_threads() at once, and
// have all returned when Run returns. Every function of the core gives the same
// result, bit for bit, for every partition and every order.

#ifndef GATHER_STITCH_CORE_PARALLEL_FOR_H_
#define GATHER_STITCH_CORE_PARALLEL_FOR_H_

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

namespace gather_stitch {

// A reference to a callable `void(int64_t begin, int64_t end)`. It does not own
// the callable, which must outlive it.
class RangeFunction {
 public:
  template <typename F, typename = std::enable_if_t<
                            !std::is_same_v<std::decay_t<F>, RangeFunction>>>
  RangeFunction(F&& f)  // NOLINT: implicit, so that a lambda can be passed
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        call_([](void* object, int64_t begin, int64_t end) {
          (*static_cast<std::remove_reference_t<F>*>(object))(begin, end);
        }) {}

  void operator()(int64_t begin, int64_t end) const {
    call_(object_, begin, end);
  }

 private:
  void* object_;
  void (*call_)(void*, int64_t, int64_t);
};

class ParallelFor {
 public:
  virtual ~ParallelFor() = default;

  // The most calls of a body that run at once. At least 1.
  virtual int max_threads() const = 0;

  // `items` >= 0. A range shorter than `grain` >= 1 items is not worth a thread
  // of its own; a lender may split finer or coarser all the same.
  virtual void Run(int64_t items, int64_t grain, RangeFunction body) const = 0;
};

// Everything at once on the calling thread.
class SerialFor final : public ParallelFor {
 public:
  int max_threads() const override { return 1; }
  void Run(int64_t items, int64_t /*grain*/,
           RangeFunction body) const override {
    if (items > 0) body(0, items);
  }
};

}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_PARALLEL_FOR_H_
