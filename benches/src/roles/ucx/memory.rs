//! Memory that other programs reach through UCX: they put to it, get from it, and add to its words.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use ucx::{Endpoint, Operation, Operations, RemoteMemory, Started};
use ucx_sys::{ucp_ep_h, ucp_rkey_h};

use super::{Nothing, Worker, bytes, hexadecimal};

/// Memory that others reach.
pub(in crate::roles) struct Memory(ucx::Memory);

impl Memory {
    /// So many bytes of zero, allocated by UCX, as transports over shared memory need it to be reached without a system call.
    pub(in crate::roles) fn new(worker: &mut Worker<Nothing>, len: usize) -> Result<Self> {
        let memory = worker.0.allocate(len)?;
        for at in (0..len / 8).map(|word| word * 8) {
            memory.word(at).store(0, Ordering::Relaxed);
        }
        Ok(Self(memory))
    }

    /// Where others find it: the address of the worker, that of the memory, its length, and the key.
    pub(in crate::roles) fn address(&self, worker: &Worker<Nothing>) -> Result<String> {
        let (worker, memory) = (worker.address()?, &self.0);
        let key = hexadecimal(memory.key());
        Ok(format!("{worker} {} {} {key}", memory.address(), memory.len()))
    }

    pub(in crate::roles) fn at(&self, offset: usize) -> *const u8 {
        assert!(offset <= self.0.len());
        self.0.as_ptr().cast_const().wrapping_add(offset)
    }

    /// All words of eight bytes.
    #[inline]
    pub(in crate::roles) fn words(&self) -> &[AtomicU64] {
        self.0.as_ref()
    }

    /// A word of eight bytes at an offset that it is aligned at.
    #[inline]
    pub(in crate::roles) fn word(&self, offset: usize) -> &AtomicU64 {
        self.0.word(offset)
    }
}

/// What is added.
static ONE: [u8; 8] = 1u64.to_ne_bytes();

/// Another program's memory.
pub(in crate::roles) struct Remote {
    endpoint: Endpoint,
    memory: RemoteMemory,
}

impl Remote {
    /// Connects to the program whose [`Memory::address`] this is.
    pub(in crate::roles) fn connect(worker: &mut Worker<Nothing>, address: &str) -> Result<Self> {
        let parts: Vec<&str> = address.split(' ').collect();
        ensure!(
            parts.len() == 4,
            "an address of a worker, of memory, its length, and a key, not {address:?}"
        );
        let endpoint = worker.connect(parts[0])?;
        let (key, at, len) = (bytes(parts[3])?, parts[1].parse()?, parts[2].parse()?);
        // SAFETY: of memory of another program of this run, which has it until the end.
        let memory = unsafe { worker.0.unpack(&endpoint, &key, at, len)? };
        Ok(Self { endpoint, memory })
    }

    pub(in crate::roles) fn carried_by(&self, worker: &Worker<Nothing>) -> String {
        worker.carried_by(&self.endpoint)
    }

    /// The endpoint, an address, and the key, for UCX's own functions.
    #[inline]
    pub(super) fn raw(&self, offset: usize) -> (ucp_ep_h, u64, ucp_rkey_h) {
        let (key, address) = self.memory.as_raw();
        (self.endpoint.as_raw(), address + offset as u64, key)
    }

    fn at(&self, offset: usize) -> ucx::Remote<'_> {
        ucx::Remote {
            endpoint: &self.endpoint,
            memory: &self.memory,
            offset,
        }
    }

    /// Writes the first bytes of a buffer there.
    #[inline]
    pub(super) fn put(
        &self,
        worker: &mut Worker<Nothing>,
        from: Vec<u8>,
        len: usize,
        offset: usize,
    ) -> Result<Started> {
        let put = Operation::Put {
            to: self.at(offset),
            data: 0..len,
        };
        worker.0.start(put, from).context("putting")
    }

    /// Reads a word.
    #[inline]
    pub(in crate::roles) fn get(
        &self,
        worker: &mut Worker<Nothing>,
        into: Vec<u8>,
        offset: usize,
    ) -> Result<Started> {
        let get = Operation::Get {
            from: self.at(offset),
            data: 0..8,
        };
        worker.0.start(get, into).context("getting")
    }

    /// Adds one to a word, which is not asked for. That it was added is known after a flush only.
    #[inline]
    pub(in crate::roles) fn increment(&self, worker: &mut Worker<Nothing>, offset: usize) -> Result<Started> {
        let add = Operation::Add {
            to: self.at(offset),
            operand: 0..8,
        };
        worker.0.start(add, &ONE).context("adding")
    }
}
