//! Memory that other programs reach through UCX: they put to it, get from it, and add to its words.

use std::ffi::c_void;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;

use anyhow::{Context, Result, ensure};
use ucx_sys::*;

use super::{Endpoint, Request, Worker, bytes, hexadecimal};

/// Memory that others reach.
pub(in crate::roles) struct Memory {
    worker: Rc<Worker>,
    handle: ucp_mem_h,
    address: u64,
    len: usize,
    /// By which others reach it.
    key: Vec<u8>,
}

impl Memory {
    /// So many bytes of zero, allocated by UCX, as transports over shared memory need it to be reached without a system call.
    pub(in crate::roles) fn new(worker: &Rc<Worker>, len: usize) -> Result<Self> {
        let Worker { ucx, context, .. } = **worker;
        let params = ucp_mem_map_params_t {
            field_mask: u64::from(UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS),
            length: len,
            flags: UCP_MEM_MAP_ALLOCATE,
            ..ucp_mem_map_params_t::default()
        };
        let mut handle = std::ptr::null_mut();
        // SAFETY: the context is alive, the parameters are as their mask says.
        ucx.check(unsafe { ucx.ucp_mem_map(context, &raw const params, &raw mut handle) })
            .context("allocating memory by UCX")?;
        let mut attr = ucp_mem_attr_t {
            field_mask: u64::from(UCP_MEM_ATTR_FIELD_ADDRESS),
            ..ucp_mem_attr_t::default()
        };
        // SAFETY: the memory was mapped above; the fields of the mask are written.
        ucx.check(unsafe { ucx.ucp_mem_query(handle, &raw mut attr) })
            .context("asking where UCX's memory is")?;
        let (mut key, mut key_len) = (std::ptr::null_mut(), 0);
        // SAFETY: as above; both are written.
        ucx.check(unsafe { ucx.ucp_rkey_pack(context, handle, &raw mut key, &raw mut key_len) })
            .context("packing a remote key")?;
        // SAFETY: UCX wrote a key of that length, which stays until it is released below.
        let bytes = unsafe { std::slice::from_raw_parts(key.cast::<u8>(), key_len) }.to_vec();
        // SAFETY: this is its last use.
        unsafe { ucx.ucp_rkey_buffer_release(key) };
        // SAFETY: UCX allocated that many bytes there; nobody has the key yet.
        unsafe { std::ptr::write_bytes(attr.address.cast::<u8>(), 0, len) };
        Ok(Self {
            worker: Rc::clone(worker),
            handle,
            address: attr.address.expose_provenance() as u64,
            len,
            key: bytes,
        })
    }

    /// Where others find it: the address of the worker, that of the memory, and the key.
    pub(in crate::roles) fn address(&self) -> Result<String> {
        let Self {
            worker, address, key, ..
        } = self;
        Ok(format!("{} {address} {}", worker.address()?, hexadecimal(key)))
    }

    pub(in crate::roles) fn at(&self, offset: usize) -> *const u8 {
        std::ptr::with_exposed_provenance(self.address as usize + offset)
    }

    /// A word of eight bytes at an offset that it is aligned at.
    #[inline]
    pub(in crate::roles) fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset + 8 <= self.len && offset.is_multiple_of(8));
        // SAFETY: the memory is given back with `self`; the word lies in it, and is aligned: memory begins a page. Other processes
        // write it whole: it is eight bytes that are aligned.
        unsafe { &*self.at(offset).cast() }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let Worker { ucx, context, .. } = *self.worker;
        // SAFETY: mapped by `new`, in a context that is alive, and used for the last time: others are told nothing more.
        unsafe { ucx.ucp_mem_unmap(context, self.handle) };
    }
}

/// What is added.
static ONE: u64 = 1;

/// Another program's memory.
pub(in crate::roles) struct Remote {
    endpoint: Endpoint,
    address: u64,
    key: ucp_rkey_h,
}

impl Remote {
    /// Connects to the program whose [`Memory::address`] this is.
    pub(in crate::roles) fn connect(worker: &Rc<Worker>, address: &str) -> Result<Self> {
        let parts: Vec<&str> = address.split(' ').collect();
        ensure!(
            parts.len() == 3,
            "an address of a worker, of memory, and a key, not {address:?}"
        );
        let endpoint = worker.connect(parts[0])?;
        let packed = bytes(parts[2])?;
        let mut key = std::ptr::null_mut();
        // SAFETY: the endpoint is alive; the key was packed by another program of this run, for this worker's like.
        let status = unsafe {
            worker
                .ucx
                .ucp_ep_rkey_unpack(endpoint.ep, packed.as_ptr().cast(), &raw mut key)
        };
        worker.ucx.check(status).context("unpacking a remote key")?;
        Ok(Self {
            endpoint,
            address: parts[1].parse()?,
            key,
        })
    }

    pub(in crate::roles) fn carried_by(&self) -> String {
        self.endpoint.carried_by()
    }

    /// Writes there.
    ///
    /// # Safety
    /// The bytes must stay as they are until the request is done.
    #[inline]
    pub(super) unsafe fn put(
        &self,
        from: *const c_void,
        len: usize,
        offset: usize,
    ) -> Result<Option<Request>> {
        let params = ucp_request_param_t::default();
        let Endpoint { worker, ep } = &self.endpoint;
        // SAFETY: endpoint and key are alive and this thread's; the bytes are the caller's promise; there is room for them.
        let request = unsafe {
            worker.ucx.ucp_put_nbx(
                *ep,
                from,
                len,
                self.address + offset as u64,
                self.key,
                &raw const params,
            )
        };
        self.endpoint.request(request, "putting")
    }

    /// Reads a word. `None`: it is there already.
    ///
    /// # Safety
    /// The place must be writable until the request is done, and nobody else may use it.
    #[inline]
    pub(in crate::roles) unsafe fn get(&self, into: *mut u64, offset: usize) -> Result<Option<Request>> {
        let params = ucp_request_param_t::default();
        let Endpoint { worker, ep } = &self.endpoint;
        // SAFETY: endpoint and key are alive and this thread's; the place is the caller's promise.
        let request = unsafe {
            worker.ucx.ucp_get_nbx(
                *ep,
                into.cast(),
                8,
                self.address + offset as u64,
                self.key,
                &raw const params,
            )
        };
        self.endpoint.request(request, "getting")
    }

    /// Adds one to a word, which is not asked for. That it was added is known after a [flush](Worker::flush) only.
    #[inline]
    pub(in crate::roles) fn increment(&self, offset: usize) -> Result<Option<Request>> {
        let params = ucp_request_param_t {
            op_attr_mask: UCP_OP_ATTR_FIELD_DATATYPE,
            datatype: ucp_dt_make_contig(8),
            ..ucp_request_param_t::default()
        };
        let Endpoint { worker, ep } = &self.endpoint;
        // SAFETY: endpoint and key are alive and this thread's; what is added stays as it is.
        let request = unsafe {
            worker.ucx.ucp_atomic_op_nbx(
                *ep,
                UCP_ATOMIC_OP_ADD,
                (&raw const ONE).cast(),
                1,
                self.address + offset as u64,
                self.key,
                &raw const params,
            )
        };
        self.endpoint.request(request, "adding")
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // SAFETY: unpacked by `meet`, and used for the last time.
        unsafe { self.endpoint.worker.ucx.ucp_rkey_destroy(self.key) };
    }
}
