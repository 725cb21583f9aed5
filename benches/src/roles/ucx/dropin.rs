//! The UCX ifunc interface of the systems before this one, as its programs use it: a frame with the code in it is put into the other
//! program's memory, which polls. One message is under way in each direction.

use std::ffi::{CString, c_void};
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, ensure};
use ifunc_bench_ifuncs::{Fresh, Tally, words};
use ucp_ifunc::c;
use ucx::{Features, Request, Started};

use super::am::finished;
use super::memory::{Memory, Remote};
use super::{Nothing, Worker};
use crate::pair::Count;
use crate::program::Starter;
use crate::roles::exchange::{self, Node, Timeout};
use crate::slots::Payload;

/// The ifunc that travels.
pub(crate) const NAME: &str = "sum";
/// Offsets in what a program lets the other one write to: a word by which the other one asks whether this one is there, one by which
/// it answers, and the buffer that is polled.
const ASKED: usize = 0;
const ANSWERED: usize = 64;
const SLOT: usize = 4096;
const SLOT_LEN: usize = 1 << 20;
/// Names where the other program is not known yet.
const NOT_MET: &str = "the two programs are not connected";

/// The library of the ifunc, which `cargo xtask bench` has built.
pub(crate) fn library() -> Result<PathBuf> {
    let folder =
        std::env::var_os("IFUNC_LIB_DIR").context("IFUNC_LIB_DIR must be the folder of the ifuncs")?;
    Ok(PathBuf::from(folder).join(format!("{NAME}.so")))
}

pub(in crate::roles) fn run(starter: Starter) -> Result<()> {
    exchange::run(starter, Frames::new()?)
}

struct Frames {
    memory: Memory,
    other: Option<Remote>,
    ifunc: c::ucp_ifunc_h,
    message: Option<Message>,
    tally: Tally,
    size: usize,
    payload: Payload,
    /// The sum of what is sent that is not written anew.
    written: u64,
    /// Where words are put from: questions and answers.
    words: [Vec<u8>; 2],
    answered: u64,
    questions: u64,
    under_way: Vec<(Request, usize)>,
    /// The last to go: requests give their memory back to it.
    worker: Worker<Nothing>,
}

/// A message, and where its payload is.
struct Message {
    raw: c::ucp_ifunc_msg_t,
    payload: *mut u8,
    len: usize,
}

impl Message {
    fn new(ifunc: c::ucp_ifunc_h, payload: &mut [u8]) -> Result<Self> {
        let mut raw = c::ucp_ifunc_msg_t {
            ifunc_h: ifunc,
            frame: ptr::null_mut(),
            frame_size: 0,
        };
        let (mut at, mut len): (*mut c_void, usize) = (ptr::null_mut(), 0);
        // SAFETY: the source arguments of `sum` are bytes; the others are variables of this function.
        let statuses = unsafe {
            [
                c::ucp_ifunc_msg_create(ifunc, payload.as_mut_ptr().cast(), payload.len(), &raw mut raw),
                c::ucp_ifunc_msg_get_payload_ptr(&raw mut raw, &raw mut at, &raw mut len),
            ]
        };
        ensure!(statuses == [0, 0], "a message is not made: statuses {statuses:?}");
        ensure!(
            raw.frame_size <= SLOT_LEN,
            "the largest frame is {SLOT_LEN} bytes"
        );
        Ok(Self {
            raw,
            payload: at.cast(),
            len,
        })
    }

    fn payload(&mut self) -> &mut [u8] {
        // SAFETY: of a frame that is freed with this value, and that UCX is done with: the other program has run it.
        unsafe { std::slice::from_raw_parts_mut(self.payload, self.len) }
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        // SAFETY: made by `new`; UCX is done with it, as above.
        unsafe { c::ucp_ifunc_msg_free(self.raw) };
    }
}

impl Frames {
    fn new() -> Result<Self> {
        let mut worker = Worker::new(Features::RMA, Nothing)?;
        let memory = Memory::new(&mut worker, SLOT + SLOT_LEN)?;
        let (context, _) = worker.0.as_raw();
        let folder = library()?.with_file_name("");
        let folder = CString::new(folder.into_os_string().into_encoded_bytes())?;
        let name = CString::new(NAME)?;
        let mut ifunc = ptr::null_mut();
        // SAFETY: strings that end in a zero byte, and a variable of this function; the library is one of the benchmark's.
        let status = unsafe {
            let config = context.cast_const().cast();
            c::ucp_ifunc_set_lib_dir(config, folder.as_ptr());
            c::ucp_ifunc_context_made(context, config);
            c::ucp_register_ifunc_paper(context, name.as_ptr(), &raw mut ifunc)
        };
        ensure!(status == 0, "`{NAME}` is not registered: status {status}");
        Ok(Self {
            memory,
            other: None,
            ifunc,
            message: None,
            tally: Tally::default(),
            size: 0,
            payload: Payload::Fresh,
            written: 0,
            words: [vec![0; 8], vec![0; 8]],
            answered: 0,
            questions: 0,
            under_way: Vec::new(),
            worker,
        })
    }

    /// Puts one of the words.
    fn say(&mut self, which: usize, offset: usize, value: u64) -> Result<()> {
        self.settle()?;
        let other = self.other.as_ref().context(NOT_MET)?;
        let mut word = std::mem::take(&mut self.words[which]);
        word.copy_from_slice(&value.to_ne_bytes());
        match other.put(&mut self.worker, word, 8, offset)? {
            Started::Done(word) => self.words[which] = word.into_vec(),
            Started::UnderWay(request) => self.under_way.push((request, which)),
        }
        Ok(())
    }

    /// Waits until UCX is done with the words.
    fn settle(&mut self) -> Result<()> {
        let mut timeout = Timeout::new();
        while let Some((request, which)) = self.under_way.pop() {
            if request.is_done(&self.worker.0) {
                self.words[which] = finished(request, &mut self.worker.0)?.into_vec();
                continue;
            }
            self.under_way.push((request, which));
            self.worker.progress();
            timeout.check()?;
        }
        Ok(())
    }

    fn word(&self, offset: usize) -> u64 {
        self.memory.word(offset).load(Ordering::Acquire)
    }
}

impl Node for Frames {
    fn address(&self) -> Result<String> {
        self.memory.address(&self.worker)
    }

    fn connect(&mut self, address: &str) -> Result<()> {
        self.other = Some(Remote::connect(&mut self.worker, address)?);
        self.flush()
    }

    fn carried_by(&self) -> String {
        let other = self.other.as_ref();
        other.map_or_else(String::new, |other| other.carried_by(&self.worker))
    }

    fn begin(&mut self, size: usize, payload: Payload) -> Result<()> {
        ensure!(payload != Payload::Untouched, "our target reads every payload");
        (self.size, self.payload, self.tally) = (size, payload, Tally::default());
        let mut bytes = vec![0; size];
        Fresh { len: size, seed: 1 }.write(&mut bytes);
        self.written = words(&bytes);
        self.message = Some(Message::new(self.ifunc, &mut bytes)?);
        Ok(())
    }

    #[inline]
    fn send(&mut self, seed: u64) -> Result<()> {
        let message = self.message.as_mut().context("no slot has begun")?;
        if self.payload == Payload::Fresh {
            Fresh { len: self.size, seed }.write(message.payload());
        }
        let other = self.other.as_ref().context(NOT_MET)?;
        let (endpoint, address, key) = other.raw(SLOT);
        // SAFETY: a message, and the other program's buffer, which is as large as the largest frame.
        let status = unsafe { c::ucp_ifunc_send_nbix(endpoint, message.raw, address, key) };
        ensure!(status >= 0, "a message is not sent: status {status}");
        Ok(())
    }

    #[inline]
    fn sum(&self, seed: u64) -> u64 {
        self.payload.sum(self.size, seed, self.written)
    }

    #[inline]
    fn poll(&mut self) -> Result<()> {
        let (context, worker) = self.worker.0.as_raw();
        let buffer = self.memory.at(SLOT).cast_mut().cast();
        let tally = (&raw mut self.tally).cast();
        // SAFETY: the memory is given back with `self`; the other program of this run puts the code of `sum` there, which takes a `Tally`.
        let status = unsafe { c::ucp_poll_ifunc_threechains(context, buffer, SLOT_LEN, tally, worker) };
        match status {
            0 => return Ok(()),
            -1 => {}
            status => anyhow::bail!("a message does not run: status {status}"),
        }
        let asked = self.word(ASKED);
        if asked != self.answered && self.other.is_some() {
            self.answered = asked;
            self.say(1, ANSWERED, asked)?;
        }
        Ok(())
    }

    #[inline]
    fn received(&mut self) -> Count {
        Count {
            messages: self.tally.count,
            sum: self.tally.sum,
        }
    }

    fn flush(&mut self) -> Result<()> {
        self.questions += 1;
        let question = self.questions;
        self.say(0, ASKED, question)?;
        let mut timeout = Timeout::new();
        while self.word(ANSWERED) != question {
            self.poll()?;
            timeout.check()?;
        }
        self.settle()
    }
}
