#!/usr/bin/env bash
# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Installs the Debian packages that the targets of the Makefile use: what
# `make demo` and `make test` need, and what the other targets call. Packages that
# are there already are left alone, and then no network is needed.

set -euo pipefail

packages=(
  g++
  make
  # make cc-test
  cmake
  pkg-config
  # make core-bench, make instruction-counts
  libbenchmark-dev
  valgrind
  # make aarch64
  g++-aarch64-linux-gnu
  qemu-user
  # make bazel
  bazel-bootstrap
  bazel-rules-java
  bazel-rules-proto
)
# An interpreter from elsewhere serves as well and brings its own venv module.
if ! python3 -c 'import venv, ensurepip' 2>/dev/null; then
  packages+=(python3 python3-venv)
fi

missing=()
for package in "${packages[@]}"; do
  if [[ $(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null) != installed ]]; then
    missing+=("$package")
  fi
done
if ((${#missing[@]} == 0)); then
  echo "All Debian packages are there: ${packages[*]}"
  exit
fi

as_root=()
if ((EUID != 0)); then as_root=(sudo); fi
echo "Installing the Debian packages ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update
"${as_root[@]}" apt-get install --yes --no-install-recommends "${missing[@]}"
