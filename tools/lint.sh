#!/usr/bin/env bash
# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Checks formatting, types and the rules of tools/lint_sources.py; with --fix it
# rewrites what a formatter can. All checks run, then the first failure counts.

set -euo pipefail
cd "$(dirname "$0")/.."

readonly bin=.venv/bin
python_sources=()
for source in setup.py python tests benchmarks examples tools; do
  if [[ -e $source ]]; then python_sources+=("$source"); fi
done
mapfile -d '' cpp_sources < <(find tf_ops tests benchmarks examples -type f \( -name '*.h' -o -name '*.cc' \) -print0)

if [[ ${1-} == --fix ]]; then
  "$bin/clang-format" -i "${cpp_sources[@]}"
  "$bin/ruff" check --fix "${python_sources[@]}"
  "$bin/ruff" format "${python_sources[@]}"
  exit
fi

status=0
check() {
  echo "$1"
  shift
  "$@" || status=1
}
check 'C++ format' "$bin/clang-format" --dry-run --Werror "${cpp_sources[@]}"
check 'C++ includes, header guards, licence' "$bin/python" tools/lint_sources.py
check 'Python style' "$bin/ruff" check "${python_sources[@]}"
check 'Python format' "$bin/ruff" format --check "${python_sources[@]}"
check 'Python types' "$bin/mypy"
exit $status
