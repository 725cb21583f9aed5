//! Makes `ifunc_rt.h`: the arguments are the folder of `ifunc-capi` and the file to write.

mod interface;

use std::path::PathBuf;

fn main() {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (package, header) = (arguments.next(), arguments.next());
    let (Some(package), Some(header)) = (package, header) else {
        eprintln!("usage: ifunc-capi-generate PACKAGE HEADER");
        std::process::exit(2);
    };
    let config = cbindgen::Config::from_file(package.join("cbindgen.toml")).expect("cbindgen.toml");
    let mut text = Vec::new();
    cbindgen::Builder::new()
        .with_crate(&package)
        .with_config(config)
        .generate()
        .expect("the sources of ifunc-capi")
        .write(&mut text);
    text.extend_from_slice(interface::mark(&interface::digest(&package)).as_bytes());
    std::fs::write(&header, text).expect("the header can be written");
}
