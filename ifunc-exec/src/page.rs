//! The size of pages: 4 KiB on x86-64; 4, 16 or 64 KiB on AArch64, as the kernel was built.

/// Bytes of a page of this machine.
#[inline]
pub(crate) fn page_size() -> usize {
    if cfg!(target_arch = "x86_64") {
        4096
    } else {
        rustix::param::page_size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_has_pages_of_this_size() {
        assert_eq!(page_size(), rustix::param::page_size());
        assert!(page_size().is_power_of_two() && page_size() >= 4096);
    }
}
