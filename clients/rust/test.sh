#!/bin/sh
# Tests the Rust client against the server's binary, which LIMINA_BIN names.
#
#   test.sh smoke   what every test run includes
#   test.sh full    also all conformance scripts, and the examples of the documentation
#
# CARGO names the command that builds; default: cargo.
set -eu

kind=${1:-full}
case $kind in smoke | full) ;; *) echo "usage: test.sh [smoke|full]" >&2 && exit 2 ;; esac
LIMINA_BIN=$(realpath "${LIMINA_BIN:?must name the binary of the server}")
export LIMINA_BIN LIMINA_TEST="$kind"
cd "$(dirname "$0")"
build=${CARGO:-cargo}

# This builds the examples too, which the tests start.
$build test --quiet --no-run -p limina-client
cargo test --quiet -p limina-client --lib --test all
if [ "$kind" = full ]; then
  $build test --quiet -p limina-client --doc
fi
