//#Flags: -Clinker-plugin-lto
#![no_std]
#[unsafe(no_mangle)]
pub extern "C" fn rust_bitcode_main() -> u64 {
    7
}
