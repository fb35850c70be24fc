//! Sets the soname of the shared library, which changes when the ABI breaks (`SF_ABI_VERSION`).

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libsteadfast.so.1");
}
