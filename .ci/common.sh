#!/usr/bin/env bash
# Sourced by run and nightly: one scratch folder, one environment, and the checks that both make.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null

root=$PWD
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Test and worker processes share few cores: one numerical thread each.
export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
# pip says only what is wrong, and leaves modules that nobody imports uncompiled: half the time. The
# others are compiled once for all processes, outside of the checkout: else each process that a test
# starts compiles NumPy, SciPy and Dask again, 10 s instead of 2.
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_QUIET=2 PIP_COMPILE=0 PYTHONPYCACHEPREFIX=$scratch/bytecode
unset PYTHONDONTWRITEBYTECODE
if [ -z "${MSCAM_DATA:-}" ] && [ -d ../shared/data ]; then
  MSCAM_DATA=$(cd ../shared/data && pwd)
  export MSCAM_DATA
fi

step() { printf '\n== %s\n' "$1"; }

# The environment of all checks.
environment() {
  step "environment"
  python3 -m venv --upgrade-deps "$scratch/venv"   # an old pip takes a minute more to resolve
  "$scratch/venv/bin/pip" install --editable ".[dev]"
}

# Tests of the dashboard page and of reports need Debian's browser; without it they are skipped
# with the reason, and everything else is checked.
browser() {
  step "browser"
  if ! command -v chromedriver >/dev/null && [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
    (timeout 300 apt-get update && DEBIAN_FRONTEND=noninteractive timeout 600 \
      apt-get install -y --no-install-recommends chromium chromium-driver) >"$scratch/apt.log" 2>&1 ||
      tail -n 3 "$scratch/apt.log"
  fi
  if command -v chromedriver >/dev/null; then
    chromium --version
  else
    echo "none, and it could not be installed: tests that need one will be skipped"
  fi
}

# Prints what these checks print, without the paths of this machine.
report() {
  local shorten=(-e "s#$scratch#<tmp>#g" -e "s#$root#.#g")
  [ "$(dirname "$root")" = / ] || shorten+=(-e "s#$(dirname "$root")#..#g")
  [ "${#HOME}" -le 1 ] || shorten+=(-e "s#$HOME#~#g")
  "$@" 2>&1 | sed -u "${shorten[@]}"
}
