//! Slices for other machines that accompany an image: which ones a target keeps, written by hand.

use ifunc_abi::frame::{CompanionHead, Header, InstallHead, Kind};
use ifunc_abi::image::{ARCH_AARCH64, ImageFlags, ImageParts};
use ifunc_abi::machine::Machine;
use ifunc_abi::slices::{NATIVE, Slice, encode};
use ifunc_abi::status::{Rejection, Status};
use zerocopy::IntoBytes as _;

use super::hostile_sources::Raw;
use super::images;
use super::policy::key;
use super::running::{accepting, source, unique, with_quotas};
use crate::{Allowance, Grant, LibraryError, Policy, Quotas, Target, TargetBuilder, Verdict};

/// The image for another machine.
fn for_arm(image: ImageParts) -> Vec<u8> {
    let parts = ImageParts {
        arch: ARCH_AARCH64,
        ..image
    };
    parts.encode().unwrap()
}

/// A companion: its head, and its bytes.
fn companion(image: &[u8]) -> Vec<u8> {
    let head = CompanionHead::new(*blake3::hash(image).as_bytes(), image.len() as u32, false);
    [head.as_bytes(), image].concat()
}

/// Sends an image with companions, and returns what became of it.
fn install(raw: &mut Raw, handle: u32, image: &[u8], companions: &[Vec<u8>]) -> (Status, String) {
    let head = InstallHead::unsigned(*blake3::hash(image).as_bytes(), 1);
    let head = head.with_companions(companions.len() as u16);
    let body = [head.as_bytes(), &companions.concat(), image].concat();
    raw.send(Header::new(Kind::Install, handle, 9), &body);
    raw.completion()
}

/// What becomes of an image with one companion.
fn with_one(builder: TargetBuilder, companion: Vec<u8>) -> (Status, String) {
    let serving = builder.listen(&unique("loopback")).unwrap().spawn(0u64).unwrap();
    let mut raw = Raw::connect(serving.address());
    let image = images::travels().encode().unwrap();
    let installed = install(&mut raw, 1, &image, &[companion]);
    serving.stop().unwrap();
    installed
}

#[test]
fn a_companion_is_an_image_that_the_target_would_accept() {
    let good = for_arm(images::travels());
    assert_eq!(with_one(accepting(), companion(&good)).0, Status::Executed);
    let mut renamed = images::named("sub", images::travels());
    renamed.imports.clear();
    let mut changed = companion(&good);
    let last = changed.len() - 1;
    changed[last] ^= 1;
    let mut unknown = companion(&good);
    // The scheme of a signature.
    unknown[38] = 7;
    for (companion, reason, text) in [
        (
            changed,
            Rejection::IdMismatch,
            "slice for another machine, which would be sent on: the bytes",
        ),
        (
            companion(b"IFNC"),
            Rejection::BadImage,
            "4 bytes are too few for an image header",
        ),
        (
            companion(&for_arm(renamed)),
            Rejection::BadImage,
            "slice for AArch64, which would be sent on: its entries are other than those of the first slice",
        ),
        (
            unknown,
            Rejection::Signature,
            "slice for AArch64, which would be sent on: ",
        ),
    ] {
        let (status, why) = with_one(accepting(), companion);
        assert_eq!(status, Status::Rejected(reason), "{why}");
        assert!(why.contains(text), "{why}");
    }
}

#[test]
fn an_image_that_does_not_travel_has_no_companions() {
    let serving = accepting()
        .listen(&unique("loopback"))
        .unwrap()
        .spawn(0u64)
        .unwrap();
    let mut raw = Raw::connect(serving.address());
    // They are not looked at.
    let (status, why) = install(
        &mut raw,
        1,
        &images::add().encode().unwrap(),
        &[companion(b"no image")],
    );
    assert_eq!((status, &*why), (Status::Executed, ""));
    serving.stop().unwrap();
}

#[test]
fn companions_count_among_the_bytes_of_an_image() {
    let image = images::travels().encode().unwrap();
    let other = for_arm(images::travels());
    let both = image.len() + other.len();
    for (limit, expected) in [
        (both, Status::Executed),
        (both - 1, Status::Rejected(Rejection::TooLarge)),
    ] {
        let builder = with_quotas(accepting(), |quotas| quotas.image_bytes(limit));
        let (status, why) = with_one(builder, companion(&other));
        assert_eq!(status, expected, "{why}");
    }
    // Those of a grant and of an allowance, too.
    for (limit, expected) in [
        (both, Status::Executed),
        (both - 1, Status::Rejected(Rejection::Quota)),
    ] {
        let quotas = Quotas::UNLIMITED.image_bytes(limit);
        for policy in [
            granting(Grant::new().quotas(quotas)),
            allowing(&Allowance::new("the tenant", quotas)),
        ] {
            let (status, why) = with_one(Target::builder().policy(policy), companion(&other));
            assert_eq!(status, expected, "{why}");
            assert_eq!(why.contains("`image_bytes`"), limit < both, "{why}");
        }
    }
    // And among those that a connection has in memory.
    let builder = with_quotas(accepting(), |quotas| quotas.code_bytes(both));
    let (status, why) = with_one(builder, companion(&other));
    assert_eq!(status, Status::Rejected(Rejection::Quota), "{why}");
    assert!(why.contains("`code_bytes`"), "{why}");
}

/// Runs the code of this user within a grant.
pub(super) fn granting(grant: Grant) -> Policy {
    // SAFETY: the images of these tests.
    unsafe { Policy::new().accept_unsigned(crate::Unsigned::EveryPeer, grant) }
}

/// Runs all code within an allowance.
pub(super) fn allowing(allowance: &Allowance) -> Policy {
    let allowance = allowance.clone();
    granting(Grant::new()).accept_if(move |_, _| Verdict::accept_within(&allowance))
}

#[test]
fn companions_of_a_pinned_image_count_each_time_and_as_long_as_they_are_kept() {
    let pinned = |rx: usize| ImageParts {
        flags: ImageFlags::PINNED,
        rx: [images::travels().rx, vec![0; rx]].concat(),
        ..images::travels()
    };
    let (image, other) = (
        pinned(0).encode().unwrap(),
        companion(&for_arm(pinned(300 << 10))),
    );
    let target = with_quotas(accepting().ring(1 << 20), |quotas| quotas.code_bytes(512 << 10));
    let serving = target.listen(&unique("loopback")).unwrap().spawn(0u64).unwrap();
    let mut raw = Raw::connect(serving.address());
    let bring = |raw: &mut Raw, handle| install(raw, handle, &image, std::slice::from_ref(&other));
    assert_eq!(bring(&mut raw, 1).0, Status::Executed);
    let (status, why) = bring(&mut raw, 2);
    assert_eq!(status, Status::Rejected(Rejection::Quota), "{why}");
    assert!(why.contains("`code_bytes`"), "{why}");
    raw.send(Header::new(Kind::Unbind, 1, 0), b"");
    let (status, why) = bring(&mut raw, 3);
    assert_eq!(status, Status::Executed, "{why}");
    serving.stop().unwrap();
}

#[test]
fn companions_stay_by_the_rule_by_which_their_image_stays() {
    let key = key(1);
    let trusting = || granting(Grant::new());
    let target = Target::builder()
        .policy(trusting())
        .listen(&unique("loopback"))
        .unwrap();
    let policy = target.policy();
    let serving = target.spawn(0u64).unwrap();
    let mut raw = Raw::connect(serving.address());
    let (image, other) = (images::travels().encode().unwrap(), for_arm(images::travels()));
    let [id, other_id] = [&image, &other].map(|bytes| *blake3::hash(bytes).as_bytes());
    let body = [
        InstallHead::signed(id, 1).with_companions(1).as_bytes(),
        key.sign(&id).raw().as_bytes(),
        CompanionHead::new(other_id, other.len() as u32, true).as_bytes(),
        key.sign(&other_id).raw().as_bytes(),
        &other,
        &image,
    ]
    .concat();
    raw.send(Header::new(Kind::Install, 1, 9), &body);
    assert_eq!(raw.completion().0, Status::Executed);
    // The key is known now: what was accepted as unsigned code stays that. The check sees what is installed.
    // SAFETY: the images of these tests.
    let knows = unsafe { trusting().accept_key("later", key.public(), Grant::new()) };
    for new in [knows, trusting().accept_if(|_, image| image.is_installed)] {
        policy.replace(new).unwrap();
        raw.send(Header::new(Kind::Exec, 1, 7), &5u64.to_le_bytes());
        let (status, why) = raw.completion();
        assert_eq!(status, Status::Executed, "{why}");
    }
    // A revoked key releases both.
    policy.replace(trusting().revoke(key.public())).unwrap();
    raw.send(Header::new(Kind::Exec, 1, 7), &5u64.to_le_bytes());
    assert_eq!(raw.completion().0, Status::Rejected(Rejection::Revoked));
    serving.stop().unwrap();
}

#[test]
fn the_companions_of_all_sources_share_one_bound() {
    let large = ImageParts {
        rx: vec![0; 300 << 10],
        ..images::travels()
    };
    let large = companion(&for_arm(large));
    let target = accepting().ring(1 << 20).code_cache(512 << 10, 64);
    let serving = target.listen(&unique("loopback")).unwrap().spawn(0u64).unwrap();
    let image = images::travels().encode().unwrap();
    let mut first = Raw::connect(serving.address());
    let mut second = Raw::connect(serving.address());
    assert_eq!(
        install(&mut first, 1, &image, std::slice::from_ref(&large)).0,
        Status::Executed
    );
    let (status, why) = install(&mut second, 1, &image, std::slice::from_ref(&large));
    assert_eq!(status, Status::Rejected(Rejection::CacheFull));
    assert!(why.contains("of 524288; help: release handles"), "{why}");
    // Released with the handle.
    first.send(Header::new(Kind::Unbind, 1, 0), b"");
    first.send(Header::new(Kind::Sync, 0, 8), b"");
    assert_eq!(first.completion().0, Status::Executed);
    assert_eq!(install(&mut second, 2, &image, &[large]).0, Status::Executed);
    serving.stop().unwrap();
}

#[test]
fn what_the_policy_grants_holds_for_companions() {
    let granted = |names: &[&str]| {
        // SAFETY: the images of these tests.
        unsafe {
            Policy::new().accept_unsigned(
                crate::Unsigned::SameUser,
                Grant::new().imports(names.iter().copied()),
            )
        }
    };
    let mut imports_more = images::travels();
    imports_more.imports.push(images::import("open_files"));
    let other = companion(&for_arm(imports_more));
    let builder = || Target::builder().policy(granted(&["counter_*"]).quotas(Quotas::UNLIMITED));
    let (status, why) = with_one(builder(), other.clone());
    assert_eq!(status, Status::Rejected(Rejection::Import), "{why}");
    assert!(
        why.contains("slice for AArch64") && why.contains("open_files"),
        "{why}"
    );
    // A policy that took back what an earlier one granted.
    let policy = granted(&["open_*"]).quotas(Quotas::UNLIMITED);
    let target = Target::builder()
        .policy(policy)
        .listen(&unique("loopback"))
        .unwrap();
    let policy = target.policy();
    let serving = target.spawn(0u64).unwrap();
    let mut raw = Raw::connect(serving.address());
    let image = images::travels().encode().unwrap();
    assert_eq!(install(&mut raw, 1, &image, &[other]).0, Status::Executed);
    policy
        .replace(granted(&["counter_*"]).quotas(Quotas::UNLIMITED))
        .unwrap();
    // The target's thread may be in a poll that began before, and one in eight that find something looks for another policy.
    for token in 10..19 {
        raw.send(Header::new(Kind::Sync, 0, token), b"");
        assert_eq!(raw.completion().0, Status::Executed);
    }
    raw.send(Header::new(Kind::Exec, 1, 7), &5u64.to_le_bytes());
    let (status, why) = raw.completion();
    assert_eq!(status, Status::Rejected(Rejection::Import), "{why}");
    assert!(why.contains("slice for AArch64"), "{why}");
    serving.stop().unwrap();
}

#[test]
fn a_table_of_slices_is_loaded_as_an_image_is() {
    let (here, there) = (images::add().encode().unwrap(), for_arm(images::add()));
    let slice = |bytes: &'static [u8], machine, id| Slice {
        kind: NATIVE,
        machine,
        id,
        bytes,
    };
    let here: &'static [u8] = here.leak();
    let there: &'static [u8] = there.leak();
    let arm = Machine {
        arch: ARCH_AARCH64,
        cpu_features: 0,
    };
    let x86_64 = Machine {
        arch: ifunc_exec::ARCH,
        cpu_features: 0,
    };
    let of = |bytes: &'static [u8], machine| slice(bytes, machine, *blake3::hash(bytes).as_bytes());
    let unknown = Slice {
        kind: 77,
        ..slice(b"what this version does not know", arm, [0; 32])
    };
    let table = encode(&[unknown, of(there, arm), of(here, x86_64)]).unwrap();
    let serving = accepting()
        .listen(&unique("loopback"))
        .unwrap()
        .spawn(0u64)
        .unwrap();
    let source = source(serving.address());
    let add = source.load_bytes(&table).unwrap();
    assert_eq!(
        add.call(&5u64.to_le_bytes()).unwrap().wait().unwrap(),
        5u64.to_le_bytes()
    );
    assert_eq!(add.image(), here);
    // An image under the id of another one, for another machine than it states, or none at all.
    let swapped = encode(&[slice(here, x86_64, *blake3::hash(there).as_bytes())]).unwrap();
    let misplaced = encode(&[of(here, x86_64), of(here, arm)]).unwrap();
    let none = encode(&[unknown]).unwrap();
    for (table, why) in [
        (swapped, "its slice for x86-64-v1 was changed"),
        (misplaced, "the slice for AArch64"),
        (none, "it holds no slice of machine code"),
    ] {
        let error = source.load_bytes(&table).unwrap_err();
        assert!(
            matches!(
                error,
                LibraryError::NotALibrary { .. } | LibraryError::Slices { .. }
            ),
            "{error}"
        );
        assert!(error.to_string().contains(why), "{error}");
    }
    serving.stop().unwrap();
}
