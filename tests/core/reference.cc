// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tests/core/reference.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>

#include "tf_ops/core/numeric_types.h"

namespace gather_stitch {
namespace reference {
namespace {

// A row number, kZeroRow or kBadRow.
int64_t Resolve(Wide index, int64_t rows, BadIndexAction action) {
  if (index >= 0 && index < rows) return static_cast<int64_t>(index);
  switch (action) {
    case BadIndexAction::kFail:
      return kBadRow;
    case BadIndexAction::kZero:
      return kZeroRow;
    case BadIndexAction::kClip:
      if (rows == 0) return kBadRow;
      return index < 0 ? 0 : rows - 1;
    case BadIndexAction::kZeroNegative:
      return index < 0 ? kZeroRow : kBadRow;
    case BadIndexAction::kWrap:
      break;
  }
  if (rows == 0) return kBadRow;
  return static_cast<int64_t>((index % rows + rows) % rows);
}

// The first bad one of all indices.
Outcome Check(const std::vector<Wide>& indices, int64_t rows,
              BadIndexAction action) {
  for (size_t i = 0; i < indices.size(); ++i) {
    if (Resolve(indices[i], rows, action) == kBadRow) {
      return Outcome::BadIndex(0, static_cast<int64_t>(i),
                               static_cast<int64_t>(indices[i]));
    }
  }
  return Outcome();
}

Outcome Check(const StitchIndices& indices, int64_t rows,
              BadIndexAction action) {
  for (size_t m = 0; m < indices.size(); ++m) {
    Outcome outcome = Check(indices[m], rows, action);
    if (!outcome.ok()) {
      outcome.input = static_cast<int>(m);
      return outcome;
    }
  }
  return Outcome();
}

template <typename T>
void AppendIndices(const void* indices, int64_t count,
                   std::vector<Wide>* numbers) {
  for (int64_t i = 0; i < count; ++i) {
    numbers->push_back(static_cast<const T*>(indices)[i]);
  }
}

// terms[i] are element numbers of grad; the sum goes to element `to` of `sums`.
// It starts with zero, or with its first term.
template <typename T, typename Sum>
void SumElementsAs(const void* grad, const std::vector<int64_t>& terms,
                   bool starts_with_zero, int64_t to, void* sums) {
  const auto widen = [](T x) {
    if constexpr (std::is_arithmetic_v<T>) {
      return static_cast<Sum>(x);
    } else {
      return static_cast<Sum>(Widen(x));
    }
  };
  Sum sum = 0;
  for (size_t i = 0; i < terms.size(); ++i) {
    const Sum term = widen(static_cast<const T*>(grad)[terms[i]]);
    sum = i == 0 && !starts_with_zero ? term : static_cast<Sum>(sum + term);
  }
  T* const out = static_cast<T*>(sums) + to;
  if constexpr (std::is_arithmetic_v<T>) {
    *out = sum;
  } else {
    *out = Narrow<T>(sum);
  }
}

void SumElements(SumType type, const void* grad,
                 const std::vector<int64_t>& terms, bool starts_with_zero,
                 int64_t to, void* sums) {
  const auto sum = [&] {
    switch (type) {
      case SumType::kInt8:
        return SumElementsAs<uint8_t, uint8_t>;
      case SumType::kInt16:
        return SumElementsAs<uint16_t, uint16_t>;
      case SumType::kInt32:
        return SumElementsAs<uint32_t, uint32_t>;
      case SumType::kInt64:
        return SumElementsAs<uint64_t, uint64_t>;
      case SumType::kFloat32:
        return SumElementsAs<float, float>;
      case SumType::kFloat64:
        return SumElementsAs<double, double>;
      case SumType::kHalf:
        return SumElementsAs<Half, float>;
      case SumType::kBfloat16:
        return SumElementsAs<Bfloat16, float>;
      case SumType::kFloat8E5m2:
        return SumElementsAs<Float8E5m2, float>;
      case SumType::kFloat8E4m3fn:
        return SumElementsAs<Float8E4m3fn, float>;
      case SumType::kFloat8E4m3fnuz:
        return SumElementsAs<Float8E4m3fnuz, float>;
      case SumType::kFloat8E4m3b11fnuz:
        return SumElementsAs<Float8E4m3b11fnuz, float>;
      case SumType::kFloat8E5m2fnuz:
        break;
    }
    return SumElementsAs<Float8E5m2fnuz, float>;
  }();
  sum(grad, terms, starts_with_zero, to, sums);
}

}  // namespace

std::vector<Wide> ReadIndices(const void* indices, IndexType type,
                              int64_t count) {
  std::vector<Wide> numbers;
  switch (type) {
    case IndexType::kInt8:
      AppendIndices<int8_t>(indices, count, &numbers);
      break;
    case IndexType::kUint8:
      AppendIndices<uint8_t>(indices, count, &numbers);
      break;
    case IndexType::kInt16:
      AppendIndices<int16_t>(indices, count, &numbers);
      break;
    case IndexType::kUint16:
      AppendIndices<uint16_t>(indices, count, &numbers);
      break;
    case IndexType::kInt32:
      AppendIndices<int32_t>(indices, count, &numbers);
      break;
    case IndexType::kUint32:
      AppendIndices<uint32_t>(indices, count, &numbers);
      break;
    case IndexType::kInt64:
      AppendIndices<int64_t>(indices, count, &numbers);
      break;
    case IndexType::kUint64:
      AppendIndices<uint64_t>(indices, count, &numbers);
      break;
  }
  return numbers;
}

Outcome GatherRows(const GatherGeometry& geometry, int64_t row_bytes,
                   const void* params, const std::vector<Wide>& indices,
                   BadIndexAction action, void* output) {
  const Outcome outcome = Check(indices, geometry.rows, action);
  if (!outcome.ok()) return outcome;
  char* to = static_cast<char*>(output);
  for (int64_t batch = 0; batch < geometry.batches; ++batch) {
    for (int64_t outer = 0; outer < geometry.outer; ++outer) {
      for (int64_t i = 0; i < geometry.indices_per_batch; ++i) {
        const int64_t row =
            Resolve(indices[batch * geometry.indices_per_batch + i],
                    geometry.rows, action);
        for (int64_t byte = 0; byte < row_bytes; ++byte) {
          const int64_t line = batch * geometry.outer + outer;
          const int64_t from = (line * geometry.rows + row) * row_bytes + byte;
          *to++ =
              row == kZeroRow ? '\0' : static_cast<const char*>(params)[from];
        }
      }
    }
  }
  return outcome;
}

Outcome GatherGrad(const GatherGeometry& geometry, SumType sum_type,
                   const void* grad, const std::vector<Wide>& indices,
                   BadIndexAction action, void* params_grad) {
  const Outcome outcome = Check(indices, geometry.rows, action);
  if (!outcome.ok()) return outcome;
  for (int64_t batch = 0; batch < geometry.batches; ++batch) {
    std::vector<std::vector<int64_t>> positions_of_row(geometry.rows);
    for (int64_t i = 0; i < geometry.indices_per_batch; ++i) {
      const int64_t row =
          Resolve(indices[batch * geometry.indices_per_batch + i],
                  geometry.rows, action);
      if (row != kZeroRow) positions_of_row[row].push_back(i);
    }
    for (int64_t outer = 0; outer < geometry.outer; ++outer) {
      const int64_t line = batch * geometry.outer + outer;
      for (int64_t row = 0; row < geometry.rows; ++row) {
        for (int64_t k = 0; k < geometry.inner; ++k) {
          std::vector<int64_t> terms;
          for (const int64_t i : positions_of_row[row]) {
            terms.push_back(
                (line * geometry.indices_per_batch + i) * geometry.inner + k);
          }
          SumElements(sum_type, grad, terms, true,
                      (line * geometry.rows + row) * geometry.inner + k,
                      params_grad);
        }
      }
    }
  }
  return outcome;
}

Outcome SparseGrad(int64_t params_rows, const std::vector<Wide>& indices,
                   BadIndexAction action, bool unique, int64_t inner,
                   SumType sum_type, const void* grad, Slices* slices) {
  const Outcome outcome = Check(indices, params_rows, action);
  if (!outcome.ok()) return outcome;
  std::vector<int64_t> resolved;
  for (const Wide index : indices) {
    resolved.push_back(Resolve(index, params_rows, action));
  }
  for (const int64_t row : resolved) {
    if (row != kZeroRow) slices->rows.push_back(row);
  }
  if (unique) {
    const std::set<int64_t> distinct(slices->rows.begin(), slices->rows.end());
    slices->rows.assign(distinct.begin(), distinct.end());
  }
  int64_t next_slice = 0;
  for (const int64_t row : resolved) {
    if (row == kZeroRow) {
      slices->slots.push_back(-1);
    } else if (unique) {
      slices->slots.push_back(
          std::lower_bound(slices->rows.begin(), slices->rows.end(), row) -
          slices->rows.begin());
    } else {
      slices->slots.push_back(next_slice++);
    }
  }
  const int64_t count = static_cast<int64_t>(slices->rows.size());
  std::vector<std::vector<int64_t>> positions(count);
  for (size_t i = 0; i < resolved.size(); ++i) {
    if (slices->slots[i] >= 0) {
      positions[slices->slots[i]].push_back(static_cast<int64_t>(i));
    }
  }
  slices->values.resize(count * inner * SumTypeBytes(sum_type));
  for (int64_t slice = 0; slice < count; ++slice) {
    for (int64_t k = 0; k < inner; ++k) {
      std::vector<int64_t> terms;
      for (const int64_t i : positions[slice]) terms.push_back(i * inner + k);
      SumElements(sum_type, grad, terms, false, slice * inner + k,
                  slices->values.data());
    }
  }
  return outcome;
}

Outcome StitchMergedRows(const StitchIndices& indices, int64_t* merged_rows) {
  const Outcome outcome = Check(indices, std::numeric_limits<int64_t>::max(),
                                BadIndexAction::kFail);
  *merged_rows = 0;
  if (!outcome.ok()) return outcome;
  for (const std::vector<Wide>& input : indices) {
    for (const Wide index : input) {
      *merged_rows = std::max(*merged_rows, static_cast<int64_t>(index) + 1);
    }
  }
  return outcome;
}

Outcome StitchWinners(const StitchIndices& indices, int64_t merged_rows,
                      BadIndexAction action, int64_t* winners) {
  std::fill_n(winners, merged_rows, int64_t{-1});
  int64_t position = 0;
  for (const std::vector<Wide>& input : indices) {
    for (const Wide index : input) {
      if (index >= 0 && index < merged_rows) {
        winners[static_cast<int64_t>(index)] = position;
      }
      ++position;
    }
  }
  return Check(indices, merged_rows, action);
}

Outcome StitchRows(const StitchIndices& indices,
                   const std::vector<const void*>& data, int64_t row_bytes,
                   int64_t merged_rows, BadIndexAction action, void* merged) {
  const Outcome outcome = Check(indices, merged_rows, action);
  if (!outcome.ok()) return outcome;
  char* const out = static_cast<char*>(merged);
  for (int64_t byte = 0; byte < merged_rows * row_bytes; ++byte) out[byte] = 0;
  for (size_t m = 0; m < indices.size(); ++m) {
    for (size_t i = 0; i < indices[m].size(); ++i) {
      if (indices[m][i] < 0 || indices[m][i] >= merged_rows) continue;
      for (int64_t byte = 0; byte < row_bytes; ++byte) {
        out[static_cast<int64_t>(indices[m][i]) * row_bytes + byte] =
            static_cast<const char*>(
                data[m])[static_cast<int64_t>(i) * row_bytes + byte];
      }
    }
  }
  return outcome;
}

void StitchGradRows(const StitchIndices& indices, int64_t row_bytes,
                    int64_t grad_rows, const void* grad,
                    const std::vector<void*>& data_grads) {
  std::set<Wide> later;
  for (size_t m = indices.size(); m-- > 0;) {
    for (size_t i = indices[m].size(); i-- > 0;) {
      const Wide index = indices[m][i];
      const bool is_last = later.insert(index).second;
      const bool has_row = index >= 0 && index < grad_rows;
      for (int64_t byte = 0; byte < row_bytes; ++byte) {
        static_cast<char*>(
            data_grads[m])[static_cast<int64_t>(i) * row_bytes + byte] =
            is_last && has_row
                ? static_cast<const char*>(
                      grad)[static_cast<int64_t>(index) * row_bytes + byte]
                : '\0';
      }
    }
  }
}

}  // namespace reference
}  // namespace gather_stitch
