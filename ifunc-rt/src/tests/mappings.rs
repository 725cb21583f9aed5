//! No memory of the process is writable and executable at the same time, at any moment: not while images are installed, run, replaced
//! and evicted, at any level of containment.

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use ifunc_abi::image::ImageParts;

use super::images;
use super::machine::SMALL_CACHE;
use super::refuse::is_emulated;
use super::running::{Running, accepting, source, unique};
use crate::Level;

/// Set in the process of [`a_process_that_forbids_such_memory`].
const ALONE: &str = "IFUNC_TEST_MAPPINGS";

/// In a process of its own: no other test maps anything there.
#[test]
fn nothing_is_writable_and_executable_at_any_moment() {
    if is_emulated() {
        eprintln!("SKIPPED: the mappings of an emulated process are those of its emulator");
        return;
    }
    let test = concat!(module_path!(), "::a_process_that_forbids_such_memory");
    let test = test.split_once("::").unwrap().1;
    let output = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--ignored", "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
#[ignore = "role: the process of the other test"]
fn a_process_that_forbids_such_memory() {
    if std::env::var_os(ALONE).is_none() {
        return;
    }
    // A sample misses what lasts for a moment. The kernel does not: from here on it maps no such memory, and makes nothing
    // executable that is mapped already.
    // SAFETY: changes what the kernel allows this process.
    let forbids = unsafe { libc::prctl(libc::PR_SET_MDWE, libc::PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0) } == 0;
    assert_eq!(may_map_both(), !forbids);
    if !forbids {
        println!("not forbidden by this kernel, which is older than 6.3: sampled alone");
    }
    let done = AtomicBool::new(false);
    let samples = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let maps = fs::read_to_string("/proc/self/maps").unwrap();
                let both: Vec<_> = maps.lines().filter(|line| is_both(line)).collect();
                assert!(both.is_empty(), "{both:#?}");
                samples.fetch_add(1, Ordering::Relaxed);
            }
        });
        for level in [Level::Panics, Level::Contained] {
            installs(level);
        }
        done.store(true, Ordering::Relaxed);
    });
    println!("{} samples", samples.load(Ordering::Relaxed));
    assert!(samples.load(Ordering::Relaxed) > 0);
}

/// Whether a line of `/proc/PID/maps` is of memory that is writable and executable.
fn is_both(line: &str) -> bool {
    let access = line.split(' ').nth(1).unwrap();
    access.contains('w') && access.contains('x')
}

fn may_map_both() -> bool {
    let access = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: maps memory at an address that the kernel chooses.
    let memory = unsafe { libc::mmap(std::ptr::null_mut(), 4096, access, flags, -1, 0) };
    if memory == libc::MAP_FAILED {
        return false;
    }
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    assert!(maps.lines().any(is_both));
    // SAFETY: mapped above.
    unsafe { libc::munmap(memory, 4096) };
    true
}

/// Installs more images than there is room for, with and without data, and runs each: it evicts others.
fn installs(level: Level) {
    let address = unique("shm");
    let builder = accepting()
        .code_cache(SMALL_CACHE, 8)
        .map_policy(|policy| policy.level(level));
    let target = Running::start(&address, builder);
    let source = source(&address);
    for n in 0..32 {
        let both: [ImageParts; 2] = [images::add(), images::counts()];
        for (kind, image) in both.into_iter().enumerate() {
            let image = images::named(&format!("image_{kind}_{n}"), image)
                .encode()
                .unwrap();
            let loaded = source.load_bytes(&image).unwrap();
            loaded.call(&1u64.to_le_bytes()).unwrap().wait().unwrap();
        }
    }
    drop(source);
    target.finish();
}
