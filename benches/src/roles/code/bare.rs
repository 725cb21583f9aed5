//! Code that arrives at a target that has nothing but what is needed for it: the bytes cross a bare ring, are written into executable memory
//! that is never writable, hashed there, and called. Two threads of one process share memory as two processes do.
//!
//! The memory is as the runtime's: the private read-execute mapping of a file that is written by a system call. The image is hashed after that,
//! where its source cannot change it any more. It is not parsed: where its function is, both sides know. It imports nothing, and the memory of
//! an old image is written anew after a barrier.

use std::ffi::c_void;
use std::fs::File;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};
use ifunc_abi::context::{self, MAIN_OK};
use ifunc_abi::image::Image;
use ifunc_bench_ifuncs::{Tally, count};
use ifunc_rt::{Policy, Source, Target};
use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::thread::{MembarrierCommand, membarrier};

use super::arrivals::BATCH;
use crate::cores::spawn_on;
use crate::images::Images;
use crate::program::Starter;
use crate::roles::ring::{INLINE, Ring};
use crate::slots::{Sample, Slot, median, quantile};

/// Bytes of code between two barriers, as between those of the runtime.
const LAP: usize = 1 << 20;
/// What code is aligned to: a line holds code of one image.
const LINE: usize = 64;

/// The handlers: the source is done; call the last function; call that of the image that follows.
const END: u64 = 0;
const CALL: u64 = 1;
const RUN: u64 = 2;
/// The answer to what failed.
const FAILED: u64 = u64::MAX;

/// What a slot has: the payload, and the hash of the image.
const PAYLOAD: usize = size_of::<u64>();
const _: () = assert!(PAYLOAD + blake3::OUT_LEN == INLINE);

type Main = unsafe extern "C" fn(*const c_void, usize, *mut c_void, *mut context::Context) -> u32;

/// `BENCH_PEER_CPU` is the target's core. The `size` of a slot is that of the images. The result is the duration of a call with new code minus that
/// of one with the code that came last.
pub(in crate::roles) fn run(mut starter: Starter) -> Result<()> {
    let peer = std::env::var("BENCH_PEER_CPU")?;
    let peer = peer.parse().context("BENCH_PEER_CPU")?;
    let image = image()?;
    let mut images = Images::of(&image, std::process::id())?;
    let mut memory = CodeMemory::new()?;
    while let Some(slot) = starter.next::<Slot>()? {
        let function = Function::of(&images.next(slot.size)?)?;
        let (calls, answers) = (&Ring::new(slot.size), &Ring::new(0));
        let took = std::thread::scope(|scope| {
            let memory = &mut memory;
            let target = spawn_on(scope, peer, move || Some(serve(calls, answers, memory, function)))?;
            let mut arrivals = Arrivals {
                calls,
                answers,
                called: 0,
                released: 0,
            };
            let took = arrivals.all(&mut images, slot);
            arrivals.send(END, [0; INLINE], &[]);
            let served = target.join().map_err(|_| anyhow!("the target panicked"))?;
            served.context("the target did not begin")??;
            took
        })?;
        starter.reply(&Sample {
            ns: median(took.clone()),
            percentiles: Some([0.5, 0.99, 0.999].map(|at| quantile(took.clone(), at))),
        })?;
    }
    Ok(())
}

/// The image of `count`.
fn image() -> Result<Vec<u8>> {
    let address = format!("loopback:ifunc-bench-bare-{}", std::process::id());
    // SAFETY: only this process can reach the target, and runs nothing there.
    let builder = Target::builder().policy(unsafe { Policy::trust_every_peer() });
    let _target = builder.listen(&address)?;
    let source = Source::connect(&address)?;
    Ok(source.register::<count>()?.image().to_vec())
}

/// Where an image has its function.
#[derive(Clone, Copy)]
struct Function {
    /// Offset of the code in the image.
    code: usize,
    /// Offset of the function in the image.
    main: usize,
}

impl Function {
    fn of(image: &[u8]) -> Result<Self> {
        let parsed = Image::parse(image)?;
        let is_plain =
            parsed.slot().is_none() && parsed.imports().len() == 0 && parsed.relocation_count() == 0;
        ensure!(is_plain, "the image has to be relocated");
        ensure!(parsed.rx_align() <= LINE, "the image needs a larger alignment");
        let entry = parsed.entries().next().context("the image has no entry")?;
        let code = parsed.rx().as_ptr().addr() - image.as_ptr().addr();
        let main = code + entry.main as usize;
        Ok(Self { code, main })
    }
}

/// The source.
struct Arrivals<'a> {
    calls: &'a Ring,
    answers: &'a Ring,
    /// Messages so far.
    called: u64,
    /// Those that the target is known to be done with.
    released: u64,
}

impl Arrivals<'_> {
    /// The nanoseconds of each arrival.
    fn all(&mut self, images: &mut Images, slot: Slot) -> Result<Vec<f64>> {
        let mut took = Vec::with_capacity(slot.operations as usize);
        // There is a function to call.
        let first = images.next(slot.size)?;
        let mut counted = self.call(RUN, 0, &first)?;
        let mut timed = |arrivals: &mut Self, handler, image: &[u8], id: [u8; 32]| {
            let begin = Instant::now();
            let answer = arrivals.call_with(handler, 1, id, image);
            let took = begin.elapsed().as_nanos() as f64;
            counted += 1;
            ensure!(answer == counted, "the target counted {answer}, not {counted}");
            Ok(took)
        };
        let mut left = slot.operations;
        while left > 0 {
            let batch = left.min(BATCH);
            left -= batch;
            let fresh = (0..batch)
                .map(|_| {
                    images
                        .next(slot.size)
                        .map(|image| (*blake3::hash(&image).as_bytes(), image))
                })
                .collect::<Result<Vec<_>>>()?;
            let there = (0..batch)
                .map(|_| timed(self, CALL, &[], [0; 32]))
                .collect::<Result<Vec<_>>>()?;
            let there = median(there);
            for (id, image) in &fresh {
                took.push(timed(self, RUN, image, *id)? - there);
            }
        }
        Ok(took)
    }

    fn call(&mut self, handler: u64, more: u64, image: &[u8]) -> Result<u64> {
        let answer = self.call_with(handler, more, *blake3::hash(image).as_bytes(), image);
        ensure!(answer != FAILED, "the target failed");
        Ok(answer)
    }

    #[inline]
    fn call_with(&mut self, handler: u64, more: u64, id: [u8; 32], image: &[u8]) -> u64 {
        let mut inside = [0; INLINE];
        inside[..PAYLOAD].copy_from_slice(&more.to_le_bytes());
        inside[PAYLOAD..].copy_from_slice(&id);
        let number = self.send(handler, inside, image);
        self.answers.wait_for(number);
        // SAFETY: the target has written the answer, and writes there again after later calls.
        let answer = unsafe { self.answers.inside(number).cast::<u64>().read() };
        self.answers.release(number + 1);
        answer
    }

    fn send(&mut self, handler: u64, inside: [u8; INLINE], image: &[u8]) -> u64 {
        let number = self.called;
        self.called += 1;
        self.calls.wait_for_room(number, &mut self.released);
        // SAFETY: the target is done with this memory, and reads it again after the message is committed. It was made for images of this length.
        unsafe {
            self.calls.inside(number).cast::<[u8; INLINE]>().write(inside);
            std::ptr::copy_nonoverlapping(image.as_ptr(), self.calls.beside(number), image.len());
        }
        self.calls.commit(number, handler, image.len());
        number
    }
}

/// The target: answers each call, until the source is done. It ends with the first call that fails.
fn serve(calls: &Ring, answers: &Ring, memory: &mut CodeMemory, function: Function) -> Result<()> {
    let (mut tally, mut main) = (Tally::default(), None);
    let mut released = 0;
    for number in 0.. {
        calls.wait_for(number);
        let (handler, len) = calls.header(number);
        if handler == END {
            break;
        }
        // SAFETY: the source has committed the message, which has so many bytes, and writes there again when it is released.
        let (inside, image) = unsafe {
            let image = std::slice::from_raw_parts(calls.beside(number), len);
            (&*calls.inside(number).cast::<[u8; INLINE]>(), image)
        };
        let (payload, id) = inside.split_at(PAYLOAD);
        let ran = match handler {
            RUN => memory.install(image, id, function).map(|new| {
                main = Some(new);
            }),
            _ => Ok(()),
        };
        let answer = ran.and_then(|()| {
            let main = main.context("a call before any code")?;
            call(main, payload, &mut tally)
        });
        calls.release(number + 1);
        answers.wait_for_room(number, &mut released);
        // SAFETY: the source is done with the answer that was there, and reads this one after it is committed.
        unsafe {
            answers
                .inside(number)
                .cast::<u64>()
                .write(*answer.as_ref().unwrap_or(&FAILED))
        };
        answers.commit(number, 0, size_of::<u64>());
        answer?;
    }
    Ok(())
}

#[inline]
fn call(main: Main, payload: &[u8], tally: &mut Tally) -> Result<u64> {
    unsafe extern "C" fn log(_: *mut context::Context, _: u32, _: *const u8, _: usize) {}
    let mut answer = 0u64;
    let mut context = context::Context {
        version: ifunc_abi::ABI_VERSION.into(),
        size: size_of::<context::Context>() as u32,
        sender: 0,
        answer: (&raw mut answer).cast(),
        answer_capacity: size_of::<u64>(),
        answer_len: 0,
        log,
        host: std::ptr::null_mut(),
    };
    let target = std::ptr::from_mut(tally).cast();
    // SAFETY: the function of `count`, whose hash was compared. It takes a word, and is of the data of these targets.
    let result = unsafe { main(payload.as_ptr().cast(), payload.len(), target, &raw mut context) };
    ensure!(
        result == MAIN_OK && context.answer_len == size_of::<u64>(),
        "the function returned {result}"
    );
    Ok(answer)
}

/// Memory for code.
struct CodeMemory {
    file: File,
    /// The only mapping of the file: read-execute.
    base: *mut u8,
    used: usize,
    len: usize,
}

// SAFETY: the mapping belongs to this value; it is bound to no thread.
unsafe impl Send for CodeMemory {}

impl CodeMemory {
    fn new() -> Result<Self> {
        membarrier(MembarrierCommand::RegisterPrivateExpeditedSyncCore).context("there is no barrier")?;
        let file = rustix::fs::memfd_create("bench-code", MemfdFlags::CLOEXEC | MemfdFlags::EXEC)
            .or_else(|_| rustix::fs::memfd_create("bench-code", MemfdFlags::CLOEXEC))?;
        rustix::fs::ftruncate(&file, LAP as u64)?;
        let (prot, flags) = (ProtFlags::READ | ProtFlags::EXEC, MapFlags::PRIVATE);
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), LAP, prot, flags, &file, 0)? };
        Ok(Self {
            file: file.into(),
            base: base.cast(),
            used: 0,
            len: LAP,
        })
    }

    /// Writes an image over what was there a lap before, and compares its hash. Returns its function.
    #[inline]
    fn install(&mut self, image: &[u8], id: &[u8], function: Function) -> Result<Main> {
        ensure!(
            function.main < image.len() && image.len() <= self.len - LINE,
            "an image of {} bytes",
            image.len()
        );
        // The code begins a line.
        let shift = function.code.next_multiple_of(LINE) - function.code;
        let mut at = self.used + shift;
        if at + image.len() > self.len {
            membarrier(MembarrierCommand::PrivateExpeditedSyncCore)?;
            at = shift;
        }
        self.used = (at + image.len()).next_multiple_of(LINE);
        let written = rustix::io::pwrite(&self.file, image, at as u64)?;
        ensure!(written == image.len(), "the kernel wrote {written} bytes");
        // SAFETY: inside the mapping, which shows the file. Nothing writes there before the next lap.
        let there = unsafe { std::slice::from_raw_parts(self.base.add(at), image.len()) };
        ensure!(
            blake3::hash(there).as_bytes() == id,
            "the image is not what was sent"
        );
        let main: *const u8 = &there[function.main];
        // SAFETY: the function of an image of `count`, by its hash.
        Ok(unsafe { std::mem::transmute::<*const u8, Main>(main) })
    }
}

impl Drop for CodeMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and no thread runs in it: the target has ended.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.len) };
    }
}
