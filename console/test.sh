#!/bin/sh
# Builds and tests the console. The variable LIMINA_BIN names the server's program.
#   install   installs the packages of npm
#   build     bundles the console into the files that the server embeds
#   check     fails if those files are not what the sources give
#   smoke     check, types, and one flow for each screen in a real browser
#   full      the same with more names, long lists, and screenshots of every screen
#   pictures  makes the pictures of the README
# Screenshots are in $LIMINA_SCREENSHOTS, or target/console-screenshots.
set -eu
cd "$(dirname "$0")"
if ! cmp -s package-lock.json node_modules/.installed; then
    npm ci --no-audit --no-fund --ignore-scripts
    cp package-lock.json node_modules/.installed
fi

check() {
    built=$(mktemp -d)
    node build.mjs "$built"
    embedded=../crates/server/assets/console
    same=yes
    diff -rq --exclude='*.gz' "$built" $embedded || same=no
    for file in app.js app.css; do
        gzip -dc $embedded/$file.gz | cmp - "$built/$file" || same=no
    done
    rm -r "$built"
    if [ $same = no ]; then
        echo "the embedded console differs from its sources: run cargo xtask console" >&2
        exit 1
    fi
}

case ${1:-full} in
    install) ;;
    build) node build.mjs ;;
    check) check ;;
    smoke | full)
        check
        node_modules/.bin/tsc
        node --test test/units.mjs
        node test/all.mjs "$1"
        ;;
    pictures) node test/pictures.mjs ;;
    *)
        echo "usage: $0 install|build|check|smoke|full|pictures" >&2
        exit 2
        ;;
esac
