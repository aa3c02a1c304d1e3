// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// Chunks: what one thread moves at once, the widest piece to which all rows are
// aligned.

#ifndef GATHER_STITCH_CORE_GPU_CHUNK_H_
#define GATHER_STITCH_CORE_GPU_CHUNK_H_

#include <cstdint>

namespace gather_stitch {

struct alignas(16) Chunk16 {
  uint32_t x, y, z, w;
};

// The largest of 1, 2, 4, 8, 16 that divides `bits`: an OR of addresses and
// sizes.
inline int CommonAlignment(uint64_t bits) {
  for (int bytes = 16; bytes > 1; bytes /= 2) {
    if (bits % static_cast<uint64_t>(bytes) == 0) return bytes;
  }
  return 1;
}

// Calls f(Chunk{}) with the type of chunks of `bytes` bytes.
template <typename F>
decltype(auto) VisitChunk(int bytes, F&& f) {
  switch (bytes) {
    case 16:
      return f(Chunk16{});
    case 8:
      return f(uint64_t{});
    case 4:
      return f(uint32_t{});
    case 2:
      return f(uint16_t{});
    default:
      return f(uint8_t{});
  }
}

}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_GPU_CHUNK_H_
