#!/bin/sh
# Tests the Rust client against the server's binary, which LIMINA_BIN names.
#
#   test.sh smoke   what every test run includes
#   test.sh full    also all conformance scripts, and the examples of the documentation
#   test.sh package  packages the client and the two crates that it consists of, and builds what was packaged
#
# CARGO names the command that builds; default: cargo.
set -eu

kind=${1:-full}
case $kind in smoke | full | package) ;; *) echo "usage: test.sh [smoke|full|package]" >&2 && exit 2 ;; esac
if [ "$kind" = package ]; then
  cd "$(dirname "$0")"
  # What is not committed is packaged too, so that it can be checked before the commit.
  exec ${CARGO:-cargo} package --quiet --allow-dirty -p limina-openapi-off -p limina-api -p limina-client
fi
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
