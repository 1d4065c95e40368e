#!/usr/bin/env bash
# Builds libneuralnetworks.so and installs it with its header and pkg-config file, below /usr/local or the folder given.
# DESTDIR is put in front of all paths, for packages; LIBDIR names the folder of libraries below the prefix, lib if unset.
set -euo pipefail
cd "$(dirname "$0")/.."

prefix="${1:-/usr/local}"
target="${CARGO_TARGET_DIR:-target}"
version="$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)"

# Of this kind alone, since a library that other crates may link too is not optimised as a whole.
cargo rustc --release --locked -p nnhal-capi --lib --crate-type cdylib

into="${DESTDIR:-}$prefix"
lib="${LIBDIR:-lib}"
install -d "$into/$lib/pkgconfig" "$into/include/android"
# The SONAME has no number, since programs ask for exactly that name; the file says which version it is.
install -m 755 "$target/release/libneuralnetworks.so" "$into/$lib/libneuralnetworks.so.$version"
ln -sf "libneuralnetworks.so.$version" "$into/$lib/libneuralnetworks.so"
# Where programs for NNAPI look for it.
install -m 644 capi/include/NeuralNetworks.h "$into/include/android/NeuralNetworks.h"
sed -e "s|@PREFIX@|$prefix|" -e "s|@LIBDIR@|$lib|" -e "s|@VERSION@|$version|" capi/neuralnetworks.pc.in \
    >"$into/$lib/pkgconfig/neuralnetworks.pc"
chmod 644 "$into/$lib/pkgconfig/neuralnetworks.pc"
