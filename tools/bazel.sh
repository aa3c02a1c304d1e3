#!/usr/bin/env bash
# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds everything and runs the C++ tests with Debian's Bazel, offline, with
# all that Bazel keeps below build/bazel.

set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v bazel >/dev/null; then
  echo "bazel was not found: tools/install_packages.sh installs Debian's bazel-bootstrap" >&2
  exit 1
fi

# Debian's Bazel lacks the rule repositories that upstream's has built in. Two are
# Debian packages of their own; its rules_cc is too new for its Bazel, so ours
# maps them to the native rules.
readonly rules=(
  --override_repository=remote_coverage_tools="$PWD/tf/remote_coverage_tools"
  --override_repository=rules_cc="$PWD/tf/rules_cc"
  --override_repository=rules_java=/usr/share/bazel/rules/java
  --override_repository=rules_proto=/usr/share/bazel/rules/proto
)

call_bazel() {
  local command=$1
  shift
  PYTHON="${PYTHON:-$PWD/.venv/bin/python}" bazel --output_user_root="$PWD/build/bazel" \
    "$command" "${rules[@]}" --symlink_prefix=build/bazel- "$@"
}

# The server would otherwise stay for hours.
trap 'bazel --output_user_root="$PWD/build/bazel" shutdown' EXIT
call_bazel build //:all
call_bazel test //:all
