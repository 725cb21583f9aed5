//#Declared: host_add
#![no_std]
mod shop {
    unsafe extern "C" {
        fn host_add(a: u64, b: u64) -> u64;
        fn host_price(item: u64) -> u64;
    }
    pub struct Basket<const N: usize>(pub [u64; N]);
    impl<const N: usize> Basket<N> {
        #[inline(never)]
        pub fn total(&self) -> u64 {
            // SAFETY: the test only links it.
            self.0.iter().fold(0, |sum, &item| unsafe { host_add(sum, host_price(item)) })
        }
    }
}
#[unsafe(no_mangle)]
pub extern "C" fn rust_undeclared_main(a: u64, b: u64) -> u64 {
    shop::Basket([a, b]).total()
}
