#!/bin/sh
# Tests the TypeScript client against the server's binary, which LIMINA_BIN names.
#
#   test.sh smoke   what every test run includes
#   test.sh full    also all conformance scripts, the README's examples, a browser, and the package
#   test.sh package  builds the package, and checks that every kind of user can import it
set -eu

kind=${1:-full}
case $kind in smoke | full | package) ;; *) echo "usage: test.sh [smoke|full|package]" >&2 && exit 2 ;; esac
if [ "$kind" != package ]; then
  LIMINA_BIN=$(realpath "${LIMINA_BIN:?must name the binary of the server}")
  export LIMINA_BIN LIMINA_TEST="$kind"
fi
cd "$(dirname "$0")"

# Installing takes longer than the smoke tests, so it is left out where nothing has changed.
if ! cmp -s package-lock.json node_modules/.installed; then
  npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
  cp package-lock.json node_modules/.installed
fi
export PATH="$PWD/node_modules/.bin:$PATH"

rm -rf dist build
tsc -p .
if [ "$kind" = package ]; then
  tools=build/package-tools
  npm install --prefix "$tools" --no-save --ignore-scripts --no-audit --no-fund --loglevel=error \
    publint@0.3.25 @arethetypeswrong/cli@0.18.5
  packed=$(npm pack --silent --ignore-scripts --pack-destination build)
  tar --list --file "build/$packed" | grep -q "^package/LICENSE$"
  "$tools/node_modules/.bin/publint" run --strict --pack false .
  # The package is for `import` only, as all its versions of Node.js know it.
  "$tools/node_modules/.bin/attw" "build/$packed" --profile esm-only --no-emoji
  exit
fi
tests="build/test/*.test.js"
if [ "$kind" = smoke ]; then
  tsc -p test --noCheck
else
  tsc -p test
  tests="$tests build/test/full/*.test.js"
fi

# Most tests mostly wait, so several files run at a time.
# shellcheck disable=SC2086 # The patterns are to be expanded.
node --test --test-reporter=dot --test-concurrency=4 $tests
