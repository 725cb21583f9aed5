//! Memory that peers reach by puts, gets and atomic operations.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use ucx_sys::{
    UCP_MEM_ATTR_FIELD_ADDRESS, UCP_MEM_ATTR_FIELD_LENGTH, UCP_MEM_MAP_ALLOCATE, UCP_MEM_MAP_NONBLOCK,
    UCP_MEM_MAP_PARAM_FIELD_FLAGS, UCP_MEM_MAP_PARAM_FIELD_LENGTH, UCS_ERR_NO_MEMORY, UCS_ERR_UNSUPPORTED,
    ucp_ep_h, ucp_mem, ucp_mem_attr_t, ucp_mem_map_params_t, ucp_rkey, ucp_rkey_h,
};

use crate::endpoint::Endpoint;
use crate::handler::Handler;
use crate::inner::Inner;
use crate::library::{Error, check};
use crate::shared::{Deferred, Handle, Shared};
use crate::worker::{Mode, Worker};

/// Alignment that every memory has.
const ALIGN: usize = 64;
/// Bytes that UCX may read after a key, whose length it does not get: for each of at most 64 memory domains a length of one byte
/// and as many bytes.
const KEY_PADDING: usize = 64 * 512;

/// Memory that UCX allocated, and that peers with its [key](Self::key) reach. A peer may write it at any time: this side
/// uses atomics and copies. When it is dropped, its worker gives it back at its next progress: close the endpoints of the peers
/// first, or they may write what is used for something else by then.
#[derive(Debug)]
pub struct Memory {
    handle: Handle<ucp_mem>,
    /// Reached by atomics, and by raw pointers whose use is unsafe.
    base: Handle<u8>,
    len: usize,
    key: Vec<u8>,
    shared: Arc<Shared>,
}

impl<H: Handler, M: Mode> Worker<H, M> {
    /// Memory that peers reach. Over shared memory only what UCX allocates itself is written without a system call.
    ///
    /// # Errors
    /// UCX has none.
    pub fn allocate(&mut self, len: usize) -> Result<Memory, Error> {
        let inner = self.inner();
        let (ucx, context) = (inner.ucx(), inner.shared.context());
        if inner.is_attached() {
            return Err(Error {
                doing: "allocating memory in an application's context",
                status: ucx.status(UCS_ERR_UNSUPPORTED),
            });
        }
        let params = ucp_mem_map_params_t {
            field_mask: u64::from(UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS),
            length: len,
            flags: UCP_MEM_MAP_ALLOCATE | UCP_MEM_MAP_NONBLOCK,
            ..ucp_mem_map_params_t::default()
        };
        let mut handle = std::ptr::null_mut();
        // SAFETY: the context is alive; the parameters are as their mask says.
        let status = unsafe { ucx.ucp_mem_map(context, &raw const params, &raw mut handle) };
        check(ucx, status, "asking UCX for memory that peers reach")?;
        let mut memory = Memory {
            handle: Handle(handle),
            base: Handle(std::ptr::null_mut()),
            len,
            key: Vec::new(),
            shared: Arc::clone(&inner.shared),
        };
        let mut attr = ucp_mem_attr_t {
            field_mask: u64::from(UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH),
            ..ucp_mem_attr_t::default()
        };
        // SAFETY: the memory is mapped; the fields of the mask are written.
        let status = unsafe { ucx.ucp_mem_query(handle, &raw mut attr) };
        check(ucx, status, "asking UCX where its memory is")?;
        let fits = attr.length >= len && attr.address.addr().is_multiple_of(ALIGN);
        if !fits || attr.address.is_null() {
            return Err(Error {
                doing: "asking UCX for memory that peers reach: it is too short, or not aligned",
                status: ucx.status(UCS_ERR_NO_MEMORY),
            });
        }
        memory.base = Handle(attr.address.cast());
        let (mut key, mut key_len): (*mut c_void, usize) = (std::ptr::null_mut(), 0);
        // SAFETY: context and memory are alive; both results are written.
        let status = unsafe { ucx.ucp_rkey_pack(context, handle, &raw mut key, &raw mut key_len) };
        check(ucx, status, "asking UCX for the key of its memory")?;
        // SAFETY: UCX wrote a key of that length, which is copied and then released, once.
        unsafe {
            memory.key = std::slice::from_raw_parts(key.cast::<u8>(), key_len).to_vec();
            ucx.ucp_rkey_buffer_release(key);
        }
        Ok(memory)
    }

    /// A peer's memory of `len` bytes at `address`, by its [key](Memory::key), for operations over `endpoint`.
    ///
    /// # Errors
    /// No transport of the endpoint reaches it.
    ///
    /// # Safety
    /// Key, address and length are those of a [`Memory`] of the peer's that exists: UCX does not validate them.
    pub unsafe fn unpack(
        &mut self,
        endpoint: &Endpoint,
        key: &[u8],
        address: u64,
        len: usize,
    ) -> Result<RemoteMemory, Error> {
        let inner = self.inner();
        let (ucx, ep) = (inner.ucx(), endpoint.of(inner));
        let mut padded = key.to_vec();
        padded.resize(key.len() + KEY_PADDING, 0);
        let mut key = std::ptr::null_mut();
        // SAFETY: the endpoint is alive; the key is one by the caller's promise, and the bytes that UCX may read after it are there.
        let status = unsafe { ucx.ucp_ep_rkey_unpack(ep, padded.as_ptr().cast(), &raw mut key) };
        // Where it fails UCX leaves a key that it has freed.
        check(ucx, status, "taking the key of a peer's memory")?;
        inner.keys.borrow_mut().push(key);
        Ok(RemoteMemory {
            key: Handle(key),
            address,
            len,
            endpoint: endpoint.serial,
            shared: Arc::clone(&inner.shared),
        })
    }
}

impl RemoteMemory {
    /// The key, and the address of the first byte, for UCX's own functions. The key is of this memory's endpoint and lives as long
    /// as this value.
    #[must_use]
    #[inline]
    pub fn as_raw(&self) -> (ucx_sys::ucp_rkey_h, u64) {
        (self.key.0, self.address)
    }
}

impl Memory {
    /// Where it begins: at a multiple of 64.
    #[must_use]
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.base.0
    }

    /// Its address, which peers [unpack](crate::Worker::unpack) it with.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.base.0.expose_provenance() as u64
    }

    /// How many bytes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The key that peers need. What has it may write the memory.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The word at an offset that is a multiple of 8. Peers write words whole.
    ///
    /// # Panics
    /// If it is not inside the memory, or not aligned.
    #[must_use]
    #[inline]
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8), "a word at {offset}");
        &self.as_ref()[offset / 8]
    }
}

/// The words. Peers write words whole.
impl AsRef<[AtomicU64]> for Memory {
    #[inline]
    fn as_ref(&self) -> &[AtomicU64] {
        // SAFETY: mapped as long as `self`, and aligned. This process reaches it by atomics only.
        unsafe { std::slice::from_raw_parts(self.base.0.cast(), self.len / 8) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.shared.defer(Deferred::Memory(Handle(self.handle.0)));
    }
}

/// A peer's memory, reached over one endpoint.
#[derive(Debug)]
pub struct RemoteMemory {
    key: Handle<ucp_rkey>,
    address: u64,
    len: usize,
    /// The serial number of the endpoint.
    endpoint: u64,
    shared: Arc<Shared>,
}

/// A place in a peer's memory.
#[derive(Clone, Copy, Debug)]
pub struct Remote<'a> {
    /// The endpoint that the memory was [unpacked](crate::Worker::unpack) for.
    pub endpoint: &'a Endpoint,
    /// The memory.
    pub memory: &'a RemoteMemory,
    /// Where in the memory.
    pub offset: usize,
}

impl Remote<'_> {
    /// Endpoint, key, and the address of `len` bytes, for an operation of the worker.
    #[inline(always)]
    pub(crate) fn of<H: Handler>(self, inner: &Inner<H>, len: usize) -> (ucp_ep_h, ucp_rkey_h, u64) {
        let Self {
            endpoint,
            memory,
            offset,
        } = self;
        assert!(
            memory.endpoint == endpoint.serial,
            "a peer's memory is used over another endpoint than its own"
        );
        let is_inside = offset.checked_add(len).is_some_and(|end| end <= memory.len);
        assert!(is_inside, "{len} bytes at {offset} of a peer's {}", memory.len);
        (endpoint.of(inner), memory.key.0, memory.address + offset as u64)
    }
}

impl Drop for RemoteMemory {
    fn drop(&mut self) {
        self.shared.defer(Deferred::Key(Handle(self.key.0)));
    }
}
