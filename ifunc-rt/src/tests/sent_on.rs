//! What an invocation sends on, to other nodes and to its own: by which quotas it runs, and how long its companions are kept.

use std::time::{Duration, Instant};

use ifunc_abi::image::{ARCH_AARCH64, ARCH_X86_64, ImageParts};
use ifunc_abi::machine::Machine;
use ifunc_abi::slices::{NATIVE, Slice, encode};
use ifunc_abi::status::{Failure, Rejection};

use super::companions::{allowing, granting};
use super::groups::{group, start};
use super::images;
use super::running::{accepting, source, unique};
use crate::group::Group;
use crate::{Allowance, Error, Grant, Policy, Quotas, Target};

/// The table of [`images::forwards`] for this machine, with a slice of 300 KiB for another one.
fn forwards_with_companion() -> Vec<u8> {
    let other = match ifunc_exec::ARCH {
        ARCH_X86_64 => ARCH_AARCH64,
        _ => ARCH_X86_64,
    };
    let here = images::forwards();
    let there = ImageParts {
        arch: other,
        rx: [&here.rx[..], &[0; 300 << 10]].concat(),
        ..images::forwards()
    };
    let images = [(ifunc_exec::ARCH, here), (other, there)].map(|(arch, parts)| {
        let cpu_features = 0;
        (Machine { arch, cpu_features }, parts.encode().unwrap())
    });
    let slices = images.each_ref().map(|(machine, bytes)| Slice {
        kind: NATIVE,
        machine: *machine,
        id: *blake3::hash(bytes).as_bytes(),
        bytes,
    });
    encode(&slices).unwrap()
}

#[test]
fn companions_are_released_with_their_connection_wherever_they_were_sent() {
    let table = forwards_with_companion();
    let call = |address: &str| {
        let source = source(address);
        let begins = source.load_entry(&table, "begins").unwrap();
        begins.call(b"").unwrap().wait()
    };
    // From node 0 to itself, and from node 1.
    for count in [1, 2] {
        let targets: Vec<_> = (0..count)
            .map(|number| {
                let has_room_for_one = number == count - 1;
                let builder = match has_room_for_one {
                    true => accepting().code_cache(512 << 10, 64),
                    false => accepting(),
                };
                builder.listen(&unique("loopback")).unwrap()
            })
            .collect();
        let addresses: Vec<_> = targets.iter().map(Target::address).collect();
        let nodes = start(targets, |number| group(number, &addresses));
        let address = addresses.last().unwrap();
        assert_eq!(call(address).unwrap().len(), 8);
        // The target learns that the source left.
        let until = Instant::now() + Duration::from_secs(5);
        let second = loop {
            match call(address) {
                Err(Error::Rejected {
                    why: Rejection::CacheFull,
                    ..
                }) if Instant::now() < until => {}
                ended => break ended,
            }
        };
        assert_eq!(second.unwrap().len(), 8);
        for (serving, _) in nodes {
            serving.stop().unwrap();
        }
    }
}

#[test]
fn what_code_sends_to_its_own_node_runs_within_its_quotas() {
    let call = |policy: Policy| {
        let mut target = Target::builder()
            .policy(policy)
            .listen(&unique("loopback"))
            .unwrap();
        target.join(Group::new(0)).unwrap();
        let serving = target.spawn(0u64).unwrap();
        let source = source(serving.address());
        let image = images::forwards().encode().unwrap();
        let begins = source.load_entry(&image, "begins").unwrap();
        let ended = begins.call(b"").unwrap().wait();
        serving.stop().unwrap();
        ended
    };
    let few = Quotas::UNLIMITED.answer_bytes(7);
    let allowance = Allowance::new("the tenant", few);
    for policy in [granting(Grant::new().quotas(few)), allowing(&allowance)] {
        let failed = call(policy).unwrap_err();
        assert!(
            matches!(
                failed,
                Error::Failed {
                    why: Failure::Answer,
                    ..
                }
            ),
            "{failed}"
        );
    }
    assert_eq!(allowance.in_flight(), 0);
    allowance.set_quotas(Quotas::UNLIMITED.payload_bytes(0));
    assert_eq!(call(allowing(&allowance)).unwrap().len(), 8);
}
