#!/usr/bin/env bash
# Each adapter of environments against the package it adapts, in a virtual environment of its own, which is made and removed again:
#     scripts/check_adapters.sh                      all; slow, since each installs torch (1.3 GB for textarena, the smallest)
#     scripts/check_adapters.sh textarena gem        some
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export OMP_NUM_THREADS=1 PIP_DISABLE_PIP_VERSION_CHECK=1
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

check() {
  local name="$1" extras="$2" packages="$3" started=$SECONDS
  "${PYTHON:-python3}" -m venv "$work/$name"
  # torch first and pinned: a range may resolve to a CUDA build of several GB.
  timeout 1800 "$work/$name/bin/pip" install --quiet torch==2.13.0
  timeout 1800 "$work/$name/bin/pip" install --quiet -e ".[$extras]" pytest pytest-timeout $packages
  echo "== $name: installed in $((SECONDS - started)) s, $(du -sm "$work/$name" | cut -f1) MB with torch"
  PATH="$work/$name/bin:$PATH" timeout 900 "$work/$name/bin/python" -m pytest "tests/envs/test_${name}_adapter.py" -rs
  rm -rf "${work:?}/$name"
}

(($#)) || set -- gymnasium textarena gem openenv verifiers
for name in "$@"; do
  case "$name" in
    # Verifiers ships a taskset of TextArena, and starts its own programs with uv.
    verifiers) check verifiers verifiers,textarena uv ;;
    gymnasium | textarena | gem | openenv) check "$name" "$name" "" ;;
    *) echo "no adapter of that name: $name" >&2; exit 1 ;;
  esac
done
