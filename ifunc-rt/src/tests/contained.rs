//! Faults and deadlines of ifuncs, at the level `Contained`: each ends its invocation, with its reason.

use std::process::Command;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ifunc_abi::image::ImageParts;

use super::images::{self, Add};
use super::machine::{self, RW_AT};
use super::running::{Running, accepting, roomy, source, unique};
use crate::{AfterEscape, Error, Escaped, Failure, Level, Target, TargetBuilder};

fn image(name: &str, rx: &[u8]) -> ImageParts {
    ImageParts {
        rx: rx.to_vec(),
        ..images::named(name, images::add())
    }
}

fn contained(builder: TargetBuilder) -> TargetBuilder {
    builder.map_policy(|policy| policy.level(Level::Contained))
}

/// Kilobytes of this process that are no file.
fn memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// So many faults of each kind, and a tenth of that of invocations that run too long, with honest calls between them.
fn escapes(faults: usize) {
    for transport in ["shm", "loopback"] {
        let address = unique(transport);
        let builder = contained(roomy()).map_policy(|policy| policy.max_run_time(Duration::from_millis(20)));
        // The value must survive what ends early: `loops` changes it first.
        let last = Arc::new(Mutex::new(0u64));
        let repaired = Arc::clone(&last);
        let builder = builder.on_escape(move |escaped| {
            if let Some(value) = escaped.target_mut::<u64>() {
                *value = *repaired.lock().unwrap();
            }
            AfterEscape::Continue
        });
        let target = Running::start(&address, builder);
        let source = source(&address);
        let add = source
            .register_bytes::<Add>(&images::add().encode().unwrap())
            .unwrap();
        let cases = machine::ends_early();
        let images: Vec<_> = cases
            .iter()
            .map(|(name, rx, _)| image(name, rx).encode().unwrap())
            .collect();
        let failing: Vec<_> = images
            .iter()
            .map(|image| source.load_bytes(image).unwrap())
            .collect();
        let mut sum = 0;
        let (mut after_some, mut stopped) = (0, 0);
        for round in 0..faults {
            for ((name, _, starts), failing) in cases.iter().zip(&failing) {
                if *name == "loops" && round % 10 != 0 {
                    continue;
                }
                // A busy machine may stop a thread for as long as the limit. The hook has repaired the value then.
                let mut until_done = |call: &dyn Fn() -> Result<u64, Error>| loop {
                    match call() {
                        Err(Error::Failed {
                            why: Failure::Deadline,
                            ..
                        }) if *name != "loops" => stopped += 1,
                        ended => break ended,
                    }
                };
                let failed =
                    until_done(&|| failing.call(&1u64.to_le_bytes())?.wait().map(|_| 0)).unwrap_err();
                assert!(failed.to_string().contains(starts), "{name}: {failed}");
                sum += round as u64;
                let answer = until_done(&|| add.call(&(round as u64))?.wait());
                assert_eq!(answer.unwrap(), sum, "after {name}");
                *last.lock().unwrap() = sum;
            }
            if round == faults / 10 {
                after_some = memory();
            }
        }
        // Few run beside other tests, which take memory.
        if faults >= 1000 {
            let grown = memory().saturating_sub(after_some);
            println!("{transport}: {faults} faults of each kind, memory + {grown} KiB");
            assert!(grown < 4 << 10, "{grown} KiB");
        }
        let stats = source.target_stats(Duration::from_secs(20)).unwrap();
        let counted: Vec<_> = stats.total.failed.iter().collect();
        let loops = faults.div_ceil(10) as u64 + stopped;
        assert_eq!(
            counted,
            [(Failure::Fault, 5 * faults as u64), (Failure::Deadline, loops)]
        );
        drop(source);
        assert_eq!(target.finish(), sum);
    }
}

#[test]
fn faults_end_their_invocations_and_nothing_else() {
    escapes(11);
}

/// Set in the process of [`thousand_faults_alone`].
const ALONE: &str = "IFUNC_THOUSAND_FAULTS";

#[test]
#[ignore = "nightly: a thousand faults of each kind, and a hundred invocations that run into their limit, twice"]
fn a_thousand_faults_of_each_kind_end_their_invocations_and_nothing_else() {
    let test = concat!(module_path!(), "::thousand_faults_alone");
    let alone = Command::new(std::env::current_exe().unwrap())
        .args([
            test.split_once("::").unwrap().1,
            "--exact",
            "--ignored",
            "--nocapture",
        ])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&alone.stdout);
    assert!(
        alone.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&alone.stderr)
    );
}

#[test]
#[ignore = "role: the process whose memory the other test measures"]
fn thousand_faults_alone() {
    if std::env::var_os(ALONE).is_some() {
        escapes(1000);
    }
}

/// `SECURITY.md`: containment is for bugs that crash. A write to a wrong address that belongs to the process is none, and stays.
#[test]
fn a_wild_write_that_hits_data_of_the_host_is_not_noticed() {
    static OF_THE_HOST: AtomicU32 = AtomicU32::new(7);
    let address = unique("shm");
    let target = Running::start(&address, contained(roomy()));
    let source = source(&address);
    let rx = machine::writes_anywhere();
    let writes = image("writes_anywhere", &rx).encode().unwrap();
    let writes = source.load_bytes(&writes).unwrap();
    let write = |address: u64| writes.call(&address.to_le_bytes()).unwrap().wait();
    let hit = OF_THE_HOST.as_ptr().expose_provenance() as u64;
    assert!(write(hit).is_ok());
    assert_eq!(OF_THE_HOST.load(Ordering::Relaxed), 0xbad);
    // A write to an address that is not mapped, or to a page that is read-only, ends the invocation alone.
    let constant = (&raw const *"a text").cast::<u8>().expose_provenance() as u64;
    for missed in [0x18, constant] {
        match write(missed) {
            Err(Error::Failed {
                why: Failure::Fault,
                detail,
                ..
            }) => assert!(
                detail.starts_with("SIGSEGV") && detail.contains(&format!("address {missed:#x}")),
                "{detail}"
            ),
            other => panic!("{other:?}"),
        }
    }
    drop(source);
    assert_eq!(target.finish(), 0);
}

/// A fault in a batch fails its entry alone.
#[test]
fn a_fault_in_a_batch_is_that_of_its_entry() {
    let address = unique("shm");
    let target = Running::start(&address, contained(roomy()));
    let source = source(&address);
    let rx = machine::adds_what_it_finds();
    let image = images::with_batch(image("adds_what_it_finds", &rx));
    let found = 1u64;
    let adds = source.load_bytes(&image.encode().unwrap()).unwrap();
    let payloads = (0..100).map(|n| match n % 10 {
        7 => 0u64,
        _ => (&raw const found).addr() as u64,
    });
    let calls: Vec<_> = payloads
        .map(|payload| adds.call(&payload.to_le_bytes()).unwrap())
        .collect();
    for (n, call) in calls.into_iter().enumerate() {
        let outcome = call.wait();
        match n % 10 {
            7 => assert!(
                matches!(
                    outcome,
                    Err(Error::Failed {
                        why: Failure::Fault,
                        ..
                    })
                ),
                "{outcome:?}"
            ),
            _ => drop(outcome.unwrap()),
        }
    }
    drop(source);
    assert_eq!(target.finish(), 90);
}

/// Allocates a mebibyte, writes to it, and executes no valid instruction. `static_data`: it keeps the pointer, and reads what the
/// invocation before it has left there.
fn allocates_and_faults(static_data: bool) -> ImageParts {
    let (rx, slot) = machine::allocates_and_faults(static_data);
    let name = if static_data { "keeps" } else { "keeps_nothing" };
    ImageParts {
        slot: Some(slot),
        imports: vec![images::import("__ifunc_alloc")],
        rw_at: if static_data { RW_AT } else { 0 },
        rw_mem: if static_data { 8 } else { 0 },
        ..image(name, &rx)
    }
}

/// Mebibytes of this process's address space that are private and writable.
fn data_size() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmData:"));
    let kilobytes = line.unwrap().trim().trim_end_matches(" kB");
    kilobytes.parse::<usize>().unwrap() >> 10
}

#[test]
fn memory_of_what_ends_early_goes_back_unless_static_data_may_point_to_it() {
    const FAULTS: usize = 1000;
    for static_data in [false, true] {
        let address = unique("shm");
        let target = Running::start(&address, contained(roomy()));
        let source = source(&address);
        let image = allocates_and_faults(static_data).encode().unwrap();
        let failing = source.load_bytes(&image).unwrap();
        let before = data_size();
        for _ in 0..FAULTS {
            let failed = failing.call(&1u64.to_le_bytes()).unwrap().wait().unwrap_err();
            // What the invocation before has left is still there: reading it raises no SIGSEGV.
            assert!(failed.to_string().contains("SIGILL"), "{failed}");
        }
        let grown = data_size().saturating_sub(before);
        // Beside it other tests run.
        assert_eq!(grown > FAULTS / 2, static_data, "{grown} MiB");
        drop(source);
        target.finish();
    }
}

/// A hook ends the service after a fault of an ifunc, whose source learns of the fault.
fn ends_after_a_fault(hook: impl Fn(&mut Escaped<'_>) -> AfterEscape + Send + Sync + 'static) {
    let address = unique("loopback");
    let mut target = contained(accepting()).on_escape(hook).listen(&address).unwrap();
    let serving = std::thread::spawn(move || target.serve(&mut 0u64).map(|()| target));
    let source = source(&address);
    let image = image("is_illegal", &machine::is_illegal()).encode().unwrap();
    let failing = source.load_bytes(&image).unwrap();
    let call = failing.call(&1u64.to_le_bytes()).unwrap();
    let target: Target = serving.join().unwrap().unwrap();
    assert!(matches!(
        call.wait(),
        Err(Error::Failed {
            why: Failure::Fault,
            ..
        })
    ));
    drop(target);
}

#[test]
fn a_hook_that_panics_stops_the_target_and_the_source_learns_what_failed() {
    ends_after_a_fault(|_| panic!("a hook of the test"));
}

#[test]
fn the_host_may_stop_after_what_ended_early() {
    let seen = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&seen);
    ends_after_a_fault(move |escaped| {
        assert_eq!((escaped.ifunc(), escaped.why()), ("is_illegal", Failure::Fault));
        assert!(escaped.detail().starts_with("SIGILL"), "{escaped:?}");
        assert!(escaped.target_mut::<u32>().is_none() && escaped.target_shared::<u64>().is_none());
        count.fetch_add(1, Ordering::Relaxed);
        AfterEscape::Stop
    });
    assert_eq!(seen.load(Ordering::Relaxed), 1);
}
