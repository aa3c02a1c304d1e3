#!/usr/bin/env bash
# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Tests the C++ client as a user gets it: installs a wheel into a fresh folder, and
# builds and runs there what programs do with it. `make cc-test` calls it.
#
#   tools/cc_test.sh MAKE JOBS

set -euo pipefail
cd "$(dirname "$0")/.."

readonly make=$1
readonly jobs=$2
readonly python=$PWD/.venv/bin/python
readonly build=build/cc
export PIP_DISABLE_PIP_VERSION_CHECK=1
# What TensorFlow says while it looks for a GPU.
export TF_CPP_MIN_LOG_LEVEL=${TF_CPP_MIN_LOG_LEVEL:-2}

for tool in cmake pkg-config; do
  if ! command -v "$tool" >/dev/null; then
    echo "$tool was not found: tools/install_packages.sh installs it" >&2
    exit 1
  fi
done

# Away from the checkout, so that nothing is found there by chance.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
readonly site=$work/site-packages

echo "  WHEEL    $site"
mkdir -p $build
"$python" -m pip wheel --quiet --no-build-isolation --no-deps --wheel-dir "$work/wheel" .
"$python" -m pip install --quiet --no-deps --no-compile --target "$site" "$work"/wheel/*.whl
ln -s "$("$python" -c 'import importlib.util as i; print(i.find_spec("tensorflow").submodule_search_locations[0])')" \
  "$site/tensorflow"

# The macro would make Abseil lay out its tables in another way than TensorFlow's
# libraries do.
readonly asan='-fsanitize=address -fno-omit-frame-pointer -U__SANITIZE_ADDRESS__'
libs=$(PKG_CONFIG_PATH=$site/gather_stitch/pkgconfig pkg-config --libs gather_stitch)
$make cc_tests BUILD=$build TF_PYTHON="$python" PACKAGE_LIBS="$libs" \
  PRECOMPILED=$build/tests/cc/graph.h \
  PLUGIN_OPTIMIZE="-O0 -g1 -DNDEBUG $asan" OPTIMIZE="-O0 -g1 $asan"
export GATHER_STITCH_PACKAGE=$site/gather_stitch
for tests in cc_tests cc_package_tests; do
  echo "  RUN      $build/$tests"
  $build/$tests
done

echo "  CMAKE    examples/cc"
cmake -S examples/cc -B "$work/examples" -DCMAKE_PREFIX_PATH="$site/gather_stitch" >"$work/cmake.log" ||
  { cat "$work/cmake.log"; exit 1; }
cmake --build "$work/examples" --parallel "$jobs"
GATHER_STITCH_CC_SITE=$site GATHER_STITCH_CC_EXAMPLES=$work/examples PYTHONPATH=examples \
  "$python" -m pytest --capture=no tests/cc
