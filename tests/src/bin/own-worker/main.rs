//! A program that uses UCX itself, with ifunc inside of it: one context, one worker, one endpoint to one peer, as a rank of an
//! MPI or OpenSHMEM program has them. Both processes are source and target at once, and on the same worker they send each
//! other messages by tag, and active messages of another id.
//!
//! It prints the address of its worker, reads that of its peer, and at the end says what was counted. `own-worker LIBRARY ROUNDS
//! [ifunc|application] [wakeup]`: what makes progress, and whether waits may sleep.

mod application;

use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

use application::Application;
use ifunc_rt::ucx::{Worker, WorkerOptions};
use ifunc_rt::{Call, Error, Policy, Source, SourceOptions, Target};
use ifunc_tests::State;

/// The id of ifunc's active messages: the application does not use it.
const IFUNC: u16 = 17;
/// Calls that are under way at a time.
const AHEAD: usize = 8;
/// Longer than this takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let library = args.next().ok_or("which library?")?;
    let rounds: u64 = args.next().ok_or("how many rounds?")?.parse()?;
    let words: Vec<String> = args.collect();
    let progress = !words.iter().any(|word| word == "application");
    let wakeup = words.iter().any(|word| word == "wakeup");

    // What such a program has anyway.
    let mut application = Application::new(wakeup)?;
    println!("address {}", application.address()?);
    std::io::stdout().flush()?;
    let mut peer = String::new();
    std::io::stdin().lock().read_line(&mut peer)?;
    application.connect(peer.trim())?;

    // What it adds.
    let options = WorkerOptions::new(IFUNC).progress(progress).wakeup(wakeup);
    let (context, worker) = application.worker();
    // SAFETY: both are alive until `close` below; the context has the features that are said; this thread alone uses them,
    // and the application uses another id.
    let worker = unsafe { Worker::from_raw(context, worker, options)? };
    // SAFETY: the peer is this program again.
    let mut target = Target::builder()
        .policy(unsafe { Policy::trust_every_peer() })
        .listen_on(&worker)?;
    let mut state = State::default();
    // The peer connects to us while we connect to it: neither may wait for the other.
    // SAFETY: of that worker, and closed after the source.
    let mut connecting = unsafe { worker.call(application.endpoint(), SourceOptions::default())? };
    let deadline = Instant::now() + PATIENCE;
    let source = loop {
        application.progress();
        target.poll(&mut state);
        if let Some(source) = connecting.poll()? {
            break source;
        }
        late(deadline, "connecting")?;
    };
    println!("over {}", source.transport());

    let answered = work(
        &mut application,
        &mut target,
        &mut state,
        &source,
        &library,
        rounds,
    )?;
    // Until the peer has all that it waits for.
    application.tell_done();
    while !application.is_told_done() {
        application.progress();
        target.poll(&mut state);
        late(deadline, "the peer's end")?;
    }
    println!(
        "tags {} messages {} answered {answered} executed {} last {}",
        application.tags_received, application.messages_received, state.changes, state.counter
    );
    drop((source, target));
    worker.close()?;
    // The worker is the application's alone again, and works on.
    application.goodbye();
    application.end();
    println!("closed");
    Ok(())
}

/// Everything at once: messages by tag, active messages, calls, and what the peer calls; how many calls were answered.
fn work(
    application: &mut Application,
    target: &mut Target,
    state: &mut State,
    source: &Source,
    library: &str,
    rounds: u64,
) -> Result<u64, Failure> {
    // SAFETY: a library of these tests.
    let add = unsafe { source.load_path(library)? };
    let deadline = Instant::now() + PATIENCE;
    let mut calls: Vec<Call<Vec<u8>>> = Vec::new();
    let (mut sent, mut called, mut answered, mut sum) = (0, 0, 0, 0);
    while answered < rounds
        || application.tags_received < rounds
        || application.messages_received < rounds
        || state.changes < rounds
        || !application.is_idle()
    {
        late(deadline, "the rounds")?;
        if sent < rounds && application.has_room() {
            application.send(sent);
            sent += 1;
        }
        if called < rounds && calls.len() < AHEAD {
            // Without waiting for room: the peer, which would make some, may be waiting for us.
            match add.try_call(&u64::to_le_bytes(called + 1)) {
                Ok(call) => {
                    called += 1;
                    calls.push(call);
                }
                Err(Error::WouldBlock { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // The application's own; with `progress(false)` there is no other.
        application.progress();
        target.poll(state);
        if let Some(result) = calls.first_mut().and_then(|call| call.try_wait()) {
            let answer = result?;
            answered += 1;
            sum += answered;
            if answer != u64::to_le_bytes(sum) {
                return Err(format!("answer {answered} is {answer:?}, not {sum}").into());
            }
            drop(calls.remove(0));
        }
    }
    Ok(answered)
}

fn late(deadline: Instant, what: &str) -> Result<(), Failure> {
    if Instant::now() > deadline {
        return Err(format!("waited in vain for {what}").into());
    }
    Ok(())
}
