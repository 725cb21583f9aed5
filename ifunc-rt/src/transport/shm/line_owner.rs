//! Which of the two sides has the cache lines of frames that were consumed.
//!
//! On AMD's processors, a store to a line that the other core has read but not written waits for it alone: 28 ns between near cores, up to
//! 135 ns between distant ones, and the stores behind it wait as well. A line that the other core has written comes at another price: many
//! are under way at once. So a consumer there stores into each line that it has read (13 stores to each of 256 lines: 30 → 9 ns a line).
//! A stream gains by that (8 bytes 75 → 12 ns between distant cores, 18 → 10 ns between near ones); a message and its answer take as long
//! as before. It stores neither into bodies from 4 KiB on, which may be staged, nor into those with an image, of which it reads one line.
//! Not measured on others, whose consumers store nothing.

/// Whether a consumer stores into the lines that it has read.
pub(super) fn consumer_takes() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let vendor = std::arch::x86_64::__cpuid(0);
        [vendor.ebx, vendor.edx, vendor.ecx]
            .map(u32::to_le_bytes)
            .as_flattened()
            == b"AuthenticAMD"
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    false
}
