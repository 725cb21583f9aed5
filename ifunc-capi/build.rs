//! Names the shared library as programs that link with it look for it at run time.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libifunc_rt.so.0");
    // The bounds of the lists of exports, which the linker defines.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,start-stop-visibility=hidden");
}
