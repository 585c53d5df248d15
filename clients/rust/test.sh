#!/bin/sh
# Tests the Rust client against the server's binary, which LIMINA_BIN names.
#
#   test.sh smoke   what every test run includes
#   test.sh full    also all conformance scripts, the examples of the documentation, and the measurement of batching
#
# CARGO names the command that builds; default: cargo.
set -eu

kind=${1:-full}
case $kind in smoke | full) ;; *) echo "usage: test.sh [smoke|full]" >&2 && exit 2 ;; esac
LIMINA_BIN=$(realpath "${LIMINA_BIN:?must name the binary of the server}")
export LIMINA_BIN LIMINA_TEST="$kind"
cd "$(dirname "$0")"
build=${CARGO:-cargo}

$build test --quiet --no-run -p limina-client --lib --tests --examples
cargo test --quiet -p limina-client --lib --tests --examples
if [ "$kind" = full ]; then
  $build test --quiet -p limina-client --doc
fi
