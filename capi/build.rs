//! Names the library as programs ask for it, and its functions with the versions that they have on Android.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs, io};

/// The version of NNAPI's functions, as in Android's own library.
const PUBLIC: &str = "LIBNEURALNETWORKS";

/// The version of the functions that nnhal adds.
const OWN: &str = "NNHAL_1.0";

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/exports");
    println!("cargo::rustc-check-cfg=cfg(symbol_versions)");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libneuralnetworks.so");
    println!("cargo::rustc-cdylib-link-arg=-Wl,--no-undefined");
    // Its threads go on when a program closes it, and what it has told the C library to call at the exit
    // stays.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    if takes_a_second_version_script() {
        version_symbols(Path::new(&env::var("OUT_DIR").map_err(io::Error::other)?))?;
    }
    Ok(())
}

/// Whether rustc links with lld, which takes another version script beside the compiler's own; GNU ld does
/// not.
fn takes_a_second_version_script() -> bool {
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    is("CARGO_CFG_TARGET_ARCH", "x86_64")
        && is("CARGO_CFG_TARGET_OS", "linux")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
}

/// Gives every exported function its version: what the assembler is told, and the versions' script for the
/// linker.
fn version_symbols(out: &Path) -> io::Result<()> {
    let mut assembly = String::new();
    let mut sources: Vec<_> = fs::read_dir("src/exports")?.collect::<io::Result<_>>()?;
    sources.sort_by_key(fs::DirEntry::file_name);
    for source in sources {
        let text = fs::read_to_string(source.path())?;
        let after = text.split("pub extern \"C\" fn ").skip(1);
        for name in after.filter_map(|after| after.split('(').next()) {
            let version = if name.starts_with("ANeuralNetworks") {
                PUBLIC
            } else {
                OWN
            };
            writeln!(assembly, ".symver {name}, {name}@@{version}").map_err(io::Error::other)?;
        }
    }
    fs::write(out.join("symbol_versions.s"), assembly)?;
    let script = out.join("symbol_versions.map");
    fs::write(&script, format!("{PUBLIC} {{ }};\n{OWN} {{ }};\n"))?;
    println!("cargo::rustc-cfg=symbol_versions");
    println!(
        "cargo::rustc-cdylib-link-arg=-Wl,--version-script={}",
        script.display()
    );
    Ok(())
}
