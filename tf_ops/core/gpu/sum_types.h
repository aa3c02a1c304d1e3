// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// How kernels sum the elements of each SumType: as what, and several at once.

#ifndef GATHER_STITCH_CORE_GPU_SUM_TYPES_H_
#define GATHER_STITCH_CORE_GPU_SUM_TYPES_H_

#include <cstdint>
#include <cstring>

#include "tf_ops/core/gather_grad.h"
#include "tf_ops/core/gpu/chunk.h"
#include "tf_ops/core/gpu/device.h"
#include "tf_ops/core/numeric_types.h"

namespace gather_stitch {
namespace gpu {

// Stored as bits; which of the five types they are of is a number, on which all
// threads agree.
struct AnyFloat8 {
  uint8_t bits;
};

// SumOf<Element>::Type is what sums of elements are kept in. Integers are
// unsigned: sums are modulo 2^bits either way.
template <typename Element>
struct SumOf {
  using Type = Element;
};
template <>
struct SumOf<uint8_t> {
  using Type = uint32_t;
};
template <>
struct SumOf<uint16_t> {
  using Type = uint32_t;
};
template <>
struct SumOf<Half> {
  using Type = float;
};
template <>
struct SumOf<Bfloat16> {
  using Type = float;
};
template <>
struct SumOf<AnyFloat8> {
  using Type = float;
};

template <typename Element>
GATHER_STITCH_DEVICE inline Element WidenElement(Element x, SumType) {
  return x;
}
GATHER_STITCH_DEVICE inline uint32_t WidenElement(uint8_t x, SumType) {
  return x;
}
GATHER_STITCH_DEVICE inline uint32_t WidenElement(uint16_t x, SumType) {
  return x;
}
GATHER_STITCH_DEVICE inline float WidenElement(Half x, SumType) {
  return Widen(x);
}
GATHER_STITCH_DEVICE inline float WidenElement(Bfloat16 x, SumType) {
  return Widen(x);
}
GATHER_STITCH_DEVICE inline float WidenElement(AnyFloat8 x, SumType type) {
  switch (type) {
    case SumType::kFloat8E5m2:
      return Widen(Float8E5m2{x.bits});
    case SumType::kFloat8E4m3fn:
      return Widen(Float8E4m3fn{x.bits});
    case SumType::kFloat8E4m3fnuz:
      return Widen(Float8E4m3fnuz{x.bits});
    case SumType::kFloat8E4m3b11fnuz:
      return Widen(Float8E4m3b11fnuz{x.bits});
    default:
      return Widen(Float8E5m2fnuz{x.bits});
  }
}

template <typename Element>
struct ElementNarrower {
  GATHER_STITCH_DEVICE static Element Call(typename SumOf<Element>::Type x,
                                           SumType) {
    return static_cast<Element>(x);
  }
};
template <>
struct ElementNarrower<Half> {
  GATHER_STITCH_DEVICE static Half Call(float x, SumType) {
    return Narrow<Half>(x);
  }
};
template <>
struct ElementNarrower<Bfloat16> {
  GATHER_STITCH_DEVICE static Bfloat16 Call(float x, SumType) {
    return Narrow<Bfloat16>(x);
  }
};
template <>
struct ElementNarrower<AnyFloat8> {
  GATHER_STITCH_DEVICE static AnyFloat8 Call(float x, SumType type) {
    switch (type) {
      case SumType::kFloat8E5m2:
        return {Narrow<Float8E5m2>(x).bits};
      case SumType::kFloat8E4m3fn:
        return {Narrow<Float8E4m3fn>(x).bits};
      case SumType::kFloat8E4m3fnuz:
        return {Narrow<Float8E4m3fnuz>(x).bits};
      case SumType::kFloat8E4m3b11fnuz:
        return {Narrow<Float8E4m3b11fnuz>(x).bits};
      default:
        return {Narrow<Float8E5m2fnuz>(x).bits};
    }
  }
};

// Added to any number it gives that number, minus zero included.
template <typename Sum>
GATHER_STITCH_DEVICE inline Sum NeutralTerm() {
  // For integers it is zero.
  return -Sum{0};
}

// kCount neighbouring elements, which one thread sums.
template <typename Element, int kCount>
struct Pack {
  Element elements[kCount];
};

// Packs of 16 bytes or a multiple are aligned to 16, others to an element.
template <typename Element, int kCount>
GATHER_STITCH_DEVICE inline Pack<Element, kCount> LoadPack(const Element* p) {
  constexpr int kBytes = static_cast<int>(sizeof(Element)) * kCount;
  Pack<Element, kCount> pack;
  if constexpr (kBytes % 16 == 0) {
    Chunk16 chunks[kBytes / 16];
    GATHER_STITCH_UNROLL
    for (int i = 0; i < kBytes / 16; ++i) {
      chunks[i] = Load<Chunk16>(reinterpret_cast<const Chunk16*>(p) + i);
    }
    std::memcpy(&pack, chunks, kBytes);
  } else {
    GATHER_STITCH_UNROLL
    for (int i = 0; i < kCount; ++i) pack.elements[i] = p[i];
  }
  return pack;
}

template <typename Element, int kCount>
GATHER_STITCH_DEVICE inline void StorePack(const Pack<Element, kCount>& pack,
                                           Element* p) {
  constexpr int kBytes = static_cast<int>(sizeof(Element)) * kCount;
  if constexpr (kBytes % 16 == 0) {
    Chunk16 chunks[kBytes / 16];
    std::memcpy(chunks, &pack, kBytes);
    GATHER_STITCH_UNROLL
    for (int i = 0; i < kBytes / 16; ++i) {
      Store(reinterpret_cast<Chunk16*>(p) + i, chunks[i]);
    }
  } else {
    GATHER_STITCH_UNROLL
    for (int i = 0; i < kCount; ++i) p[i] = pack.elements[i];
  }
}

}  // namespace gpu
}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_GPU_SUM_TYPES_H_
