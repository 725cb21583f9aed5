#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ifunc_fuzz::hello::run(data));
