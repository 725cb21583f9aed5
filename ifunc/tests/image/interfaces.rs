//! Interfaces, callbacks, variables and variadics: no errors, and no warnings about the cfgs of image builds.

#![no_std]
#![deny(warnings)]

use core::ffi::{c_char, c_int, c_void};
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicU64, Ordering};
use ifunc::prelude::*;

#[derive(Layout, Clone, Copy)]
#[repr(i32)]
pub enum KvError {
    Empty = -1,
}

#[derive(Layout, Clone, Copy)]
#[repr(C)]
pub struct Span {
    pub keys: u64,
}

/// A store.
#[ifunc::interface(name = "kv_v2")]
pub trait Kv {
    /// Stores.
    fn put(&mut self, _: &[u8], span: Span) -> Result<u64, KvError>;
    fn get(&self, key: &str) -> Option<&[u8]>;
    fn name(&self) -> Result<&str, i32>;
    fn find<'a>(&'a self, among: &'a [u8]) -> Option<&'a Span>;
    fn scan(&self, each: &mut dyn FnMut(&[u8], Span) -> ControlFlow<()>);
    fn pick(&self, each: &dyn Fn(Option<&str>) -> Option<u64>, or: Option<u64>) -> Span;
    /// # Safety
    /// `at` points to a byte.
    unsafe fn peek(&self, at: *const u8) -> u8;
}

#[ifunc::import]
unsafe extern "C" {
    /// Hits.
    pub safe static HITS: AtomicU64;
    static LIMITS: [u32; 4];
    static mut LAST: u64;
    pub fn snprintf(to: *mut c_char, len: usize, format: *const c_char, ...) -> c_int;
    fn visit(each: Option<unsafe extern "C" fn(*mut c_void)>, data: *mut c_void);
    safe fn each_of(numbers: &[u32], each: &mut dyn FnMut(&u32));
}

#[ifunc]
pub fn remember(key: &[u8], kv: &mut dyn Kv) -> u64 {
    let mut bytes = HITS.load(Ordering::Relaxed);
    kv.scan(&mut |key, span| {
        bytes += key.len() as u64 + span.keys;
        ControlFlow::Continue(())
    });
    each_of(&[1, 2], &mut |n| bytes += u64::from(*n));
    kv.put(key, Span { keys: bytes }).unwrap_or(0)
}

#[ifunc]
pub fn look(_: (), kv: &dyn Kv) -> u64 {
    unsafe extern "C" fn nothing(_: *mut c_void) {}
    let mut text = [0; 8];
    // SAFETY: the arguments are what the functions ask for.
    unsafe {
        visit(Some(nothing), text.as_mut_ptr().cast());
        snprintf(text.as_mut_ptr(), 8, c"%d".as_ptr(), 5i32);
        LAST.as_ptr().write(LIMITS.get()[0].into());
    }
    kv.pick(&|name| name.map(|name| name.len() as u64), None).keys
}

pub struct Store;

#[ifunc::export]
impl Kv for Store {
    fn put(&mut self, _: &[u8], _: Span) -> Result<u64, KvError> {
        Err(KvError::Empty)
    }
    fn get(&self, _: &str) -> Option<&[u8]> {
        None
    }
    fn name(&self) -> Result<&str, i32> {
        Ok("store")
    }
    fn find<'a>(&'a self, _: &'a [u8]) -> Option<&'a Span> {
        None
    }
    fn scan(&self, _: &mut dyn FnMut(&[u8], Span) -> ControlFlow<()>) {}
    fn pick(&self, _: &dyn Fn(Option<&str>) -> Option<u64>, _: Option<u64>) -> Span {
        Span { keys: 0 }
    }
    unsafe fn peek(&self, at: *const u8) -> u8 {
        // SAFETY: the caller's promise.
        unsafe { *at }
    }
}

#[ifunc::export]
pub static COUNT: AtomicU64 = AtomicU64::new(0);
