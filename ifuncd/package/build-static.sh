#!/bin/sh
# Builds an ifuncd that needs no file of the system: build-static.sh FILE. Without UCX, which is found at run time by a loader that such a
# program has not.
set -eu
triple="${TRIPLE:-$(rustc --print host-tuple)}"
RUSTFLAGS="-Ctarget-feature=+crt-static -Crelocation-model=pie ${RUSTFLAGS:-}" \
    cargo build --release --locked --package ifuncd --no-default-features --target "$triple" --target-dir target/static
install -m 755 "target/static/$triple/release/ifuncd" "$1"
