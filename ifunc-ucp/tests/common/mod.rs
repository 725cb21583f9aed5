//! C files of these tests, built into a folder of their own, and the interface as a C program calls it.

#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "every test binary uses a part of it"
)]

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr;

use ifunc_build::{COptions, Quiet, build_c};
use tempfile::TempDir;
use ucp_ifunc::c::{
    ucp_ifunc_msg_create, ucp_ifunc_msg_free, ucp_ifunc_msg_t, ucp_ifunc_reg_param_threechains_t,
    ucp_ifunc_set_lib_dir, ucp_llvm_bc_t, ucp_register_ifunc_im_threechains,
};
pub use ucx_sys::{
    UCS_ERR_CANCELED as CANCELED, UCS_ERR_INVALID_PARAM as INVALID_PARAM, UCS_ERR_IO_ERROR as IO_ERROR,
    UCS_ERR_NO_ELEM as NO_ELEM, UCS_ERR_NO_MESSAGE as NO_MESSAGE, UCS_ERR_UNSUPPORTED as UNSUPPORTED,
    UCS_OK as OK, ucs_status_t as Status,
};

/// What the target keeps: `tally.h`.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Tally {
    pub mark: u64,
    pub messages: u64,
    pub sum: u64,
    pub payload: usize,
}

impl Tally {
    pub fn as_args(&mut self) -> *mut c_void {
        (&raw mut *self).cast()
    }
}

pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name)
}

/// Libraries of C files.
pub struct Libraries(TempDir);

impl Libraries {
    pub fn build(files: &[&str], options: COptions) -> Self {
        let libraries = Self(tempfile::tempdir().unwrap());
        libraries.add(files, options);
        libraries
    }

    /// Builds more, or the same again from other sources.
    pub fn add(&self, files: &[&str], options: COptions) {
        let files: Vec<_> = files.iter().map(|file| source(file)).collect();
        let options = COptions {
            target_dir: Some(self.0.path().to_owned()),
            ..options
        };
        build_c(&files, &options, &mut Quiet).unwrap_or_else(|error| panic!("{error}"));
    }

    pub fn folder(&self) -> PathBuf {
        self.0.path().join("release")
    }

    pub fn bytes(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.folder().join(format!("{name}.so"))).unwrap()
    }
}

/// A context whose libraries lie in a folder. The interface knows contexts by their addresses alone, so this one needs no UCX.
pub struct Context {
    address: Box<u64>,
    libraries: Option<Libraries>,
}

impl Context {
    pub fn new(libraries: &Libraries) -> Self {
        let context = Self {
            address: Box::new(0),
            libraries: None,
        };
        let folder = CString::new(libraries.folder().to_str().unwrap()).unwrap();
        let config = context.pointer();
        // SAFETY: the folder ends in a zero.
        let status = unsafe { ucp_ifunc_set_lib_dir(config, folder.as_ptr()) };
        assert_eq!(status, OK);
        ucp_ifunc::c::ucp_ifunc_context_made(context.pointer(), config);
        ucp_ifunc::c::ucp_ifunc_config_ends(config);
        context
    }

    /// A context with libraries of its own.
    pub fn with(files: &[&str], options: COptions) -> Self {
        let libraries = Libraries::build(files, options);
        let mut context = Self::new(&libraries);
        context.libraries = Some(libraries);
        context
    }

    pub fn pointer<T>(&self) -> *mut T {
        (&raw const *self.address).cast_mut().cast()
    }

    /// Registers by the interface of Three-Chains.
    pub fn try_register(&self, name: &str) -> (Status, *mut c_void) {
        let name = CString::new(name).unwrap();
        let mut handle = ptr::null_mut();
        let param = parameter(&name);
        // SAFETY: the name ends in a zero, and the libraries are of these tests.
        let status =
            unsafe { ucp_ifunc::c::ucp_register_ifunc_threechains(self.pointer(), param, &raw mut handle) };
        (status, handle)
    }

    pub fn register(&self, name: &str) -> *mut c_void {
        let (status, handle) = self.try_register(name);
        assert_eq!((status, handle.is_null()), (OK, false), "{name}");
        handle
    }

    /// Registers code in memory as `tally`, for the machines of these triples.
    pub fn register_code(&self, codes: &[(&str, &[u8])], deps: &[&str]) -> (Status, *mut c_void) {
        let name = CString::new("tally").unwrap();
        let triples: Vec<CString> = codes
            .iter()
            .map(|(triple, _)| CString::new(*triple).unwrap())
            .collect();
        let mut bcs: Vec<ucp_llvm_bc_t> = codes
            .iter()
            .zip(&triples)
            .map(|((_, bytes), triple)| ucp_llvm_bc_t {
                triple: triple.as_ptr().cast_mut(),
                bc: bytes.as_ptr().cast_mut().cast(),
                size: bytes.len() as u32,
            })
            .collect();
        let deps: Vec<CString> = deps.iter().map(|dep| CString::new(*dep).unwrap()).collect();
        let mut deps: Vec<_> = deps.iter().map(|dep| dep.as_ptr().cast_mut()).collect();
        let mut handle = ptr::null_mut();
        // SAFETY: arrays of these lengths, whose code is of these tests.
        let status = unsafe {
            ucp_register_ifunc_im_threechains(
                self.pointer(),
                parameter(&name),
                bcs.as_mut_ptr(),
                bcs.len() as c_int,
                deps.as_mut_ptr(),
                deps.len() as c_int,
                &raw mut handle,
            )
        };
        (status, handle)
    }

    pub fn deregister(&self, handle: *mut c_void) {
        ucp_ifunc::c::ucp_deregister_ifunc(self.pointer(), handle);
    }

    /// The frame of a message of a registered ifunc.
    pub fn frame(&self, name: &str, args: &[u8]) -> Vec<u8> {
        frame(self.register(name), args)
    }

    /// Polls by the interface of the paper.
    pub fn poll(&self, buffer: &mut [u8], tally: &mut Tally) -> Status {
        // SAFETY: the buffer is readable and writable; its messages are of these tests.
        unsafe { self.poll_at(buffer.as_mut_ptr(), buffer.len(), tally.as_args()) }
    }

    /// # Safety
    /// The memory is readable and writable; `args` are what its messages take.
    pub unsafe fn poll_at(&self, at: *mut u8, len: usize, args: *mut c_void) -> Status {
        // SAFETY: the caller's promise.
        unsafe { ucp_ifunc::c::ucp_poll_ifunc_paper(self.pointer(), at.cast(), len, args) }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        ucp_ifunc::c::ucp_ifunc_context_ends(self.pointer());
    }
}

pub fn parameter(name: &CString) -> ucp_ifunc_reg_param_threechains_t {
    ucp_ifunc_reg_param_threechains_t {
        name: name.as_ptr().cast_mut().cast::<c_char>(),
        pure_code: 0 as c_int,
        llvm_bc: 1,
    }
}

pub fn message(handle: *mut c_void, args: &[u8]) -> Result<ucp_ifunc_msg_t, Status> {
    let mut msg = ucp_ifunc_msg_t {
        ifunc_h: ptr::null_mut(),
        frame: ptr::null_mut(),
        frame_size: 0,
    };
    let args_at = args.as_ptr().cast_mut().cast();
    // SAFETY: readable arguments.
    match unsafe { ucp_ifunc_msg_create(handle, args_at, args.len(), &raw mut msg) } {
        0 => Ok(msg),
        status => Err(status),
    }
}

/// A copy of the frame of a message: what a put writes.
pub fn frame(handle: *mut c_void, args: &[u8]) -> Vec<u8> {
    let msg = message(handle, args).unwrap();
    // SAFETY: a message that was not freed; and then it is.
    unsafe {
        let frame = std::slice::from_raw_parts(msg.frame.cast::<u8>(), msg.frame_size).to_vec();
        ucp_ifunc_msg_free(msg);
        frame
    }
}
