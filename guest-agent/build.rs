//! Sets the entry point of the binary: see `src/entry.rs`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-arg-bins=-Wl,-e,sandlot_entry");
}
