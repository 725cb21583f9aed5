//! A loader for tests: it turns an image into a function, without the checks of the target's loader.

#![allow(dead_code, missing_docs, unreachable_pub)]

use std::ffi::{CString, c_void};

use ifunc_abi::image::{Image, ImportFlags, Relocation};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// An image in memory that can be written and run: tests trust what they load.
pub struct Loaded {
    base: *mut c_void,
    len: usize,
    entry: usize,
    _got: Vec<usize>,
}

type Main = unsafe extern "C" fn(*mut c_void, usize, *mut c_void, *mut c_void) -> u32;

impl Loaded {
    /// Loads an image; `resolve` returns the addresses of imports.
    pub fn new(image: &[u8], resolve: impl Fn(&str) -> Option<usize>) -> Result<Self, String> {
        let image = Image::parse(image).map_err(|e| e.to_string())?;
        let mut got = Vec::new();
        for import in image.imports() {
            match resolve(import.symbol) {
                Some(address) => got.push(address),
                None if import.flags.contains(ImportFlags::WEAK) => got.push(0),
                None => return Err(format!("unresolved import `{}`", import.symbol)),
            }
        }
        let (rw_at, rw_mem) = image.rw_range().unwrap_or((0, 0));
        let len = image
            .rx()
            .len()
            .max(rw_at as usize + rw_mem as usize)
            .next_multiple_of(4096);
        let protection = ProtFlags::READ | ProtFlags::WRITE | ProtFlags::EXEC;
        // SAFETY: a fresh mapping of our own, anywhere.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), len, protection, MapFlags::PRIVATE) }
            .map_err(|e| e.to_string())?;
        // SAFETY: the mapping has `len` bytes, and nothing else refers to it.
        let memory = unsafe { std::slice::from_raw_parts_mut(base.cast::<u8>(), len) };
        memory[..image.rx().len()].copy_from_slice(image.rx());
        memory[rw_at as usize..][..image.rw().len()].copy_from_slice(image.rw());
        for relocation in image.relocations() {
            let value = match relocation {
                Relocation::Relative { addend, .. } => (base as usize).wrapping_add_signed(addend as isize),
                Relocation::Import { import, addend, .. } => {
                    got[import as usize].wrapping_add_signed(addend as isize)
                }
            };
            memory[relocation.offset() as usize..][..8].copy_from_slice(&value.to_le_bytes());
        }
        if let Some(slot) = image.slot() {
            memory[slot as usize..][..8].copy_from_slice(&(got.as_ptr() as usize).to_le_bytes());
        }
        Ok(Self {
            base,
            len,
            entry: base as usize + image.entries().next().ok_or("no entry")?.main as usize,
            _got: got,
        })
    }

    /// Runs it.
    ///
    /// # Safety
    /// The image must be code that may be run with these arguments.
    pub unsafe fn run<T>(&self, payload: &mut [u8], target: &mut T) -> u32 {
        // SAFETY: the entry lies in the mapping and is an `X_main`.
        let main: Main = unsafe { std::mem::transmute(self.entry) };
        // SAFETY: the caller's promise.
        unsafe {
            main(
                payload.as_mut_ptr().cast(),
                payload.len(),
                std::ptr::from_mut(target).cast(),
                std::ptr::null_mut(),
            )
        }
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and nothing runs in it any more.
        let _ = unsafe { munmap(self.base, self.len) };
    }
}

/// A symbol of this process.
pub fn process_symbol(name: &str) -> Option<usize> {
    let this = libloading::os::unix::Library::this();
    let name = CString::new(name).ok()?;
    // SAFETY: the symbol is only looked up, as an address.
    let symbol = unsafe { this.get::<*mut c_void>(name.as_bytes_with_nul()) }.ok()?;
    Some(symbol.into_raw() as usize)
}
