//! UCX puts, as their users write a ping-pong with them: the payload is put, a fence follows, then a word that says that it is
//! there, which the other one looks at. One message is under way in each direction.

use std::ffi::c_void;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use ifunc_bench_ifuncs::{Fresh, words};
use ucx_sys::*;

use super::{Endpoint, Request, Worker, bytes, hexadecimal};
use crate::pair::Count;
use crate::program::Starter;
use crate::roles::exchange::{self, Node, Patience};
use crate::slots::Payload;

/// Offsets in what a program lets the other one write to: the word that says how many messages have come, one by which the
/// other one asks whether this one is there, and one by which it answers.
const ARRIVED: usize = 0;
const ASKED: usize = 64;
const ANSWERED: usize = 128;
/// And then the payload.
const PAYLOAD: usize = 4096;
/// The largest.
const LARGEST: usize = 1 << 20;

pub(in crate::roles) fn run(starter: Starter) -> Result<()> {
    let worker = Worker::new(UCP_FEATURE_RMA)?;
    let node = Puts {
        memory: Memory::new(&worker)?,
        out: vec![0; LARGEST],
        worker,
        other: None,
        size: 0,
        payload: Payload::Fresh,
        written: 0,
        words: [0; 3],
        questions: 0,
        sent: 0,
        before: 0,
        received: Count::default(),
        under_way: Vec::new(),
    };
    exchange::run(starter, node)
}

/// Memory that the other one puts to.
struct Memory {
    worker: Rc<Worker>,
    handle: ucp_mem_h,
    address: u64,
    /// By which the other one reaches it.
    key: Vec<u8>,
}

impl Memory {
    /// Allocated by UCX, as transports over shared memory need it to be written to without a system call.
    fn new(worker: &Rc<Worker>) -> Result<Self> {
        let Worker { ucx, context, .. } = **worker;
        let params = ucp_mem_map_params_t {
            field_mask: u64::from(UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS),
            length: PAYLOAD + LARGEST,
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
        let (mut key, mut len) = (std::ptr::null_mut(), 0);
        // SAFETY: as above; both are written.
        ucx.check(unsafe { ucx.ucp_rkey_pack(context, handle, &raw mut key, &raw mut len) })
            .context("packing a remote key")?;
        // SAFETY: UCX wrote a key of that length, which stays until it is released below.
        let bytes = unsafe { std::slice::from_raw_parts(key.cast::<u8>(), len) }.to_vec();
        // SAFETY: this is its last use.
        unsafe { ucx.ucp_rkey_buffer_release(key) };
        let address = attr.address.addr();
        // SAFETY: UCX allocated that many bytes there; nobody has the key yet.
        unsafe { std::ptr::write_bytes(attr.address.cast::<u8>(), 0, PAYLOAD + LARGEST) };
        attr.address.expose_provenance();
        Ok(Self {
            worker: Rc::clone(worker),
            handle,
            address: address as u64,
            key: bytes,
        })
    }

    fn at(&self, offset: usize) -> *const u8 {
        std::ptr::with_exposed_provenance(self.address as usize + offset)
    }

    #[inline]
    fn word(&self, offset: usize) -> u64 {
        // SAFETY: the memory is given back with `self`; the word lies in it, and begins a cache line. The other process writes it
        // whole: it is eight bytes that are aligned.
        unsafe { &*self.at(offset).cast::<AtomicU64>() }.load(Ordering::Acquire)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let Worker { ucx, context, .. } = *self.worker;
        // SAFETY: mapped by `new`, in a context that is alive, and used for the last time: the other one is told nothing more.
        unsafe { ucx.ucp_mem_unmap(context, self.handle) };
    }
}

/// The other one's memory.
struct Other {
    endpoint: Endpoint,
    address: u64,
    key: ucp_rkey_h,
}

impl Other {
    /// # Safety
    /// The bytes must stay as they are until the request is done.
    #[inline]
    unsafe fn put(&self, from: *const c_void, len: usize, offset: usize) -> Result<Option<Request>> {
        let params = ucp_request_param_t::default();
        // SAFETY: endpoint and key are alive and this thread's; the bytes are the caller's promise; there is room for them.
        let request = unsafe {
            self.endpoint.worker.ucx.ucp_put_nbx(
                self.endpoint.ep,
                from,
                len,
                self.address + offset as u64,
                self.key,
                &raw const params,
            )
        };
        self.endpoint.request(request, "putting")
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // SAFETY: unpacked by `meet`, and used for the last time.
        unsafe { self.endpoint.worker.ucx.ucp_rkey_destroy(self.key) };
    }
}

struct Puts {
    memory: Memory,
    worker: Rc<Worker>,
    other: Option<Other>,
    /// Where payloads are put from.
    out: Vec<u8>,
    size: usize,
    payload: Payload,
    /// The sum of what is sent that is not written anew.
    written: u64,
    /// Where words are put from: of messages, questions, answers.
    words: [u64; 3],
    questions: u64,
    /// Messages since the beginning.
    sent: u64,
    /// Messages that had come before this slot.
    before: u64,
    received: Count,
    under_way: Vec<Request>,
}

impl Puts {
    fn other(&self) -> Result<&Other> {
        self.other.as_ref().context("the two programs have not met")
    }

    /// Puts one of the words.
    #[inline]
    fn say(&mut self, which: usize, offset: usize, value: u64) -> Result<()> {
        self.words[which] = value;
        let from = (&raw const self.words[which]).cast();
        // SAFETY: the word is not written again before `settle`, and stays where it is as long as this process uses UCX.
        if let Some(request) = unsafe { self.other()?.put(from, 8, offset)? } {
            self.under_way.push(request);
        }
        Ok(())
    }

    /// Waits until UCX is done with what was put.
    #[inline]
    fn settle(&mut self) -> Result<()> {
        let mut patience = Patience::new();
        while let Some(last) = self.under_way.last() {
            if last.is_done()? {
                self.under_way.pop();
                continue;
            }
            self.worker.progress();
            patience.ask()?;
        }
        Ok(())
    }
}

impl Node for Puts {
    fn address(&self) -> Result<String> {
        let Memory { address, key, .. } = &self.memory;
        Ok(format!(
            "{} {address} {}",
            self.worker.address()?,
            hexadecimal(key)
        ))
    }

    fn meet(&mut self, address: &str) -> Result<()> {
        let mut parts = address.split(' ');
        let (Some(worker), Some(memory), Some(key)) = (parts.next(), parts.next(), parts.next()) else {
            anyhow::bail!("an address of a worker, of memory, and a key, not {address:?}")
        };
        let endpoint = self.worker.connect(worker)?;
        let packed = bytes(key)?;
        let ucx = self.worker.ucx;
        let mut key = std::ptr::null_mut();
        // SAFETY: the endpoint is alive; the key was packed by the other program of this run, for this worker's like.
        let status = unsafe { ucx.ucp_ep_rkey_unpack(endpoint.ep, packed.as_ptr().cast(), &raw mut key) };
        ucx.check(status).context("unpacking a remote key")?;
        self.other = Some(Other {
            endpoint,
            address: memory.parse()?,
            key,
        });
        self.flush()
    }

    fn carried_by(&self) -> String {
        self.other
            .as_ref()
            .map_or_else(String::new, |other| other.endpoint.carried_by())
    }

    fn begin(&mut self, size: usize, payload: Payload) -> Result<()> {
        ensure!(size <= LARGEST, "no more than {LARGEST} bytes are put");
        self.settle()?;
        (self.size, self.payload) = (size, payload);
        self.before += self.received.messages;
        self.received = Count::default();
        Fresh { len: size, seed: 1 }.write(&mut self.out[..size]);
        self.written = words(&self.out[..size]);
        Ok(())
    }

    #[inline]
    fn send(&mut self, seed: u64) -> Result<()> {
        self.settle()?;
        let size = self.size;
        if self.payload == Payload::Fresh {
            Fresh { len: size, seed }.write(&mut self.out[..size]);
        }
        let from = self.out.as_ptr().cast();
        // SAFETY: the payload is not written again before `settle`, and stays where it is as long as this process uses UCX.
        if let Some(request) = unsafe { self.other()?.put(from, size, PAYLOAD)? } {
            self.under_way.push(request);
        }
        // SAFETY: the worker is alive and this thread's.
        let status = unsafe { self.worker.ucx.ucp_worker_fence(self.worker.worker) };
        self.worker.ucx.check(status).context("a fence")?;
        self.sent += 1;
        self.say(0, ARRIVED, self.sent)
    }

    #[inline]
    fn sum(&self, seed: u64) -> u64 {
        self.payload.sum(self.size, seed, self.written)
    }

    #[inline]
    fn look(&mut self) -> Result<()> {
        if self.memory.word(ARRIVED) > self.before + self.received.messages {
            // SAFETY: the memory is given back with `self`, and holds the largest payload. The other one puts the next payload when
            // this one is answered.
            let payload = unsafe { std::slice::from_raw_parts(self.memory.at(PAYLOAD), self.size) };
            self.received.messages += 1;
            if self.payload != Payload::Untouched {
                self.received.sum = self.received.sum.wrapping_add(words(payload));
            }
            return Ok(());
        }
        self.worker.progress();
        let asked = self.memory.word(ASKED);
        if asked != self.words[2] && self.other.is_some() {
            self.settle()?;
            self.say(2, ANSWERED, asked)?;
        }
        Ok(())
    }

    #[inline]
    fn received(&self) -> Count {
        self.received
    }

    fn flush(&mut self) -> Result<()> {
        self.settle()?;
        self.questions += 1;
        let question = self.questions;
        self.say(1, ASKED, question)?;
        let mut patience = Patience::new();
        while self.memory.word(ANSWERED) != question {
            self.look()?;
            patience.ask()?;
        }
        self.settle()
    }
}
