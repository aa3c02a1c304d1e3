#!/usr/bin/env bash
# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
#
# The set-up steps of the Makefile. Each does nothing, and needs no network,
# when its result is already there.
#
#   tools/setup.sh tools CXX                      is there a compiler?
#   tools/setup.sh venv PYTHON TENSORFLOW CXX     .venv with TensorFlow
#   tools/setup.sh cpu_venv CXX                   .venv-cpu with tensorflow-cpu
#   tools/setup.sh extra NAME                     one list of optional packages
#   tools/setup.sh libraries FROM                 copies what make built
#   tools/setup.sh editable                       .venv imports the checkout

set -euo pipefail
cd "$(dirname "$0")/.."

readonly default_python=python3
readonly default_tensorflow='tensorflow~=2.21.0'
readonly package=python/gather_stitch
venv=.venv
marks=$venv/.gather_stitch
readonly build_requirements=('setuptools>=77.0.3' wheel)
export PIP_DISABLE_PIP_VERSION_CHECK=1

problems=()

fail_on_problems() {
  if ((${#problems[@]})); then
    {
      echo
      echo 'gather_stitch can not be built yet:'
      printf '  - %s\n' "${problems[@]}"
      echo
    } >&2
    exit 1
  fi
}

how_to_get() {
  echo "(Debian, Ubuntu: apt-get install $*)"
}

check_tools() {
  local compiler=${1%% *}
  if ! command -v "$compiler" >/dev/null; then
    problems+=("the C++ compiler '$compiler' was not found: install the package g++ $(how_to_get g++)")
  fi
  if ! command -v make >/dev/null; then
    problems+=("make was not found: install the package make $(how_to_get make)")
  fi
}

# Prints the version of an interpreter, or nothing where it does not run.
version_of() {
  "$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null || true
}

is_supported() {
  [[ $1 =~ ^3\.1[0-3]\. ]]
}

# What tells one installed interpreter from another, also through a venv of it.
identity_of() {
  "$1" -c 'import sys; print(sys.base_prefix, "%d.%d.%d" % sys.version_info[:3])' 2>/dev/null || true
}

check_python() {
  local python=$1 version candidate
  version=$(version_of "$python")
  if is_supported "$version"; then
    if ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
      local package=python${version%.*}-venv
      problems+=("'$python' ($version) has no venv module: install the package $package $(how_to_get "$package")")
    fi
    return
  fi
  local found="'$python' does not run, and Python 3.10 to 3.13 is needed"
  if [[ -n $version ]]; then
    found="'$python' is Python $version, and Python 3.10 to 3.13 is needed"
  fi
  for candidate in python3.13 python3.12 python3.11 python3.10 python3; do
    if is_supported "$(version_of "$candidate")"; then
      problems+=("$found: add PYTHON=$candidate to the call of make, which is Python $(version_of "$candidate")")
      return
    fi
  done
  problems+=("$found: install one $(how_to_get python3 python3-venv), and add PYTHON=NAME to the call of make where its name is not python3")
}

make_venv() {
  local python=$1 tensorflow=$2 compiler=$3
  local wanted_tensorflow=${tensorflow:-$(cat $marks/tensorflow 2>/dev/null || echo "$default_tensorflow")}
  check_tools "$compiler"
  if [[ -e $marks/created ]] && is_supported "$(version_of $venv/bin/python)" &&
     [[ -z $python || $(identity_of "$python") == "$(identity_of $venv/bin/python)" ]]; then
    fail_on_problems
  else
    check_python "${python:-$default_python}"
    fail_on_problems
    echo "Making $venv with ${python:-$default_python} ($(version_of "${python:-$default_python}"))"
    "${python:-$default_python}" -m venv --clear $venv
    mkdir -p $marks
    touch $marks/created
  fi
  if [[ $(cat $marks/tensorflow 2>/dev/null) != "$wanted_tensorflow" ]]; then
    echo "Installing $wanted_tensorflow into $venv (a download of up to 600 MB where pip has not cached it)"
    rm -f $marks/tensorflow
    $venv/bin/python -m pip uninstall --yes --quiet tensorflow tensorflow-cpu 2>/dev/null
    $venv/bin/python -m pip install "$wanted_tensorflow" "${build_requirements[@]}"
    echo "$wanted_tensorflow" >$marks/tensorflow
  fi
}

# For the emulated GPU: TensorFlow's own GPU kernels would run into it. The same
# version as that of the libraries.
make_cpu_venv() {
  local python=$PWD/$venv/bin/python version
  version=$(sed -n 's/^TF_VERSION = "\(.*\)"$/\1/p' $package/_build_info.py)
  venv=.venv-cpu
  marks=$venv/.gather_stitch
  make_venv "$python" "tensorflow-cpu==$version" "$1"
  install_extra test
}

install_extra() {
  local name=$1 requirements
  requirements=$($venv/bin/python tools/extra.py "$name")
  if [[ $(cat "$marks/extra-$name" 2>/dev/null) != "$requirements" ]]; then
    echo "Installing what '$name' needs into $venv"
    # shellcheck disable=SC2086  # one requirement a line, none has blanks
    $venv/bin/python -m pip install $requirements
    echo "$requirements" >"$marks/extra-$name"
  fi
}

# A library may be in use by a running program: it is replaced, never written to.
install_libraries() {
  local from=$1 file target
  # One that was not built this time would be loaded beside the others.
  for target in "$package"/*.so; do
    if [[ -e $target && ! -e $from/$(basename "$target") ]]; then rm "$target"; fi
  done
  while IFS= read -r -d '' file; do
    target=$package/${file#"$from"/}
    if ! cmp -s "$file" "$target"; then
      mkdir -p "$(dirname "$target")"
      cp "$file" "$target.new"
      mv "$target.new" "$target"
    fi
  done < <(find "$from" -type f -print0)
}

install_editable() {
  local state
  state=$(cat pyproject.toml setup.py | cksum)
  if [[ $(cat $marks/editable 2>/dev/null) != "$state" ]]; then
    echo "Installing the checkout into $venv"
    $venv/bin/python -m pip install --quiet --no-build-isolation --no-deps --editable .
    echo "$state" >$marks/editable
  fi
}

case ${1-} in
  tools) check_tools "$2"; fail_on_problems ;;
  venv) make_venv "$2" "$3" "$4" ;;
  cpu_venv) make_cpu_venv "$2" ;;
  extra) install_extra "$2" ;;
  libraries) install_libraries "$2" ;;
  editable) install_editable ;;
  *) sed -n '/^#   /s/^#   //p' "$0"; exit 2 ;;
esac
