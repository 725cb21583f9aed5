//! Each refusal of a policy on each transport: its status at the source, and one line in the target's log.

use ifunc_abi::image::ImageParts;

use super::policy::{Pair, key};
use super::running::{between_processes, place};
use super::{images, machine};
use crate::{Error, Failure, Grant, Policy, Quotas, Rejection};

/// What each key may, by the number of its seed.
fn grants(len: usize) -> [Grant; 9] {
    let no = Quotas::UNLIMITED;
    let quotas = |quotas: Quotas| Grant::new().quotas(quotas);
    [
        Grant::new().imports(["kv_*"]),
        Grant::new().pure(),
        quotas(no.image_bytes(len - 1)),
        quotas(no.code_bytes(len - 1)),
        quotas(no.images(0)),
        quotas(no.payload_bytes(7)),
        quotas(no.in_flight(0)),
        quotas(no.installs_per_second(0)),
        quotas(no.answer_bytes(7)),
    ]
}

/// Allocates where the stack of half a mebibyte is nearly used up.
fn uses_the_stack_up() -> ImageParts {
    let (rx, slot) = machine::uses_the_stack_up();
    ImageParts {
        rx,
        slot: Some(slot),
        imports: vec![images::import("__ifunc_alloc")],
        ..images::named("deep", images::add())
    }
}

/// An image of its own for each case: what is installed is not installed again.
fn named(number: u8, image: ImageParts) -> ImageParts {
    images::named(&format!("case_{number}"), image)
}

#[test]
fn each_refusal_has_its_status_and_one_line_on_each_transport() {
    let len = named(9, images::add()).encode().unwrap().len();
    let importing = |symbol| ImageParts {
        imports: vec![images::import(symbol)],
        ..images::add()
    };
    let mut transports = between_processes();
    if transports.contains(&"ucx") {
        transports.push("ucx-put");
    }
    transports.push("loopback");
    for transport in transports {
        let address = place(transport);
        let mut policy = Policy::new().revoke(key(100).public()).stack(512 << 10);
        for (number, grant) in (1..).zip(grants(len)) {
            // SAFETY: the images of these tests.
            policy = unsafe { policy.accept_key(format!("key {number}"), key(number).public(), grant) };
        }
        // SAFETY: as above.
        policy = unsafe { policy.accept_key("former", key(100).public(), Grant::new()) };
        // SAFETY: as above.
        policy = unsafe { policy.accept_key("all", key(101).public(), Grant::new()) };
        let mut pair = Pair::new(&address, policy);
        // Who made it.
        pair.refused(&named(0, images::add()), None, Rejection::Signature);
        pair.refused(&named(0, images::set()), Some(&key(200)), Rejection::Signature);
        pair.refused(&named(0, images::counts()), Some(&key(100)), Rejection::Revoked);
        // What it imports.
        let kv = named(1, importing("log_line"));
        pair.refused(&kv, Some(&key(1)), Rejection::Import);
        let travels = named(2, importing("__ifunc_send"));
        pair.refused(&travels, Some(&key(2)), Rejection::NotPure);
        // What its key may use.
        for (number, quota) in [
            (3, "image_bytes"),
            (4, "code_bytes"),
            (5, "images"),
            (6, "payload_bytes"),
            (7, "in_flight"),
            (8, "installs_per_second"),
        ] {
            let why = pair.refused(
                &named(number, images::add()),
                Some(&key(number)),
                Rejection::Quota,
            );
            assert!(
                why.contains(&format!("key `key {number}`")) && why.contains(&format!("`{quota}`")),
                "{transport}: {why}"
            );
        }
        // An answer and a stack are used by what runs: the invocation fails.
        for (image, signer, expected) in [
            (named(9, images::add()), 9, Failure::Answer),
            (uses_the_stack_up(), 101, Failure::StackLow),
        ] {
            let handle = pair.load(&image, Some(&key(signer)));
            let (failed, line) = pair.call_with_line(&handle);
            assert!(
                matches!(failed, Error::Failed { why, .. } if why == expected),
                "{transport}: {failed}"
            );
            assert!(
                line.contains(&format!("reason={expected}")),
                "{transport}: {line}"
            );
        }
        // The connection goes on.
        pair.runs(&named(10, images::add()), Some(&key(101)));
    }
}
