//! Names the library as programs ask for it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libneuralnetworks.so");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--no-undefined");
}
