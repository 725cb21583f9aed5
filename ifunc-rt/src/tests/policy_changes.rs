//! A policy that is replaced while sources are connected.

use std::time::Duration;

use super::images;
use super::policy::{Pair, key};
use super::running::{place, unique};
use crate::{
    Error, Grant, ImageInfo, Level, Policy, PolicyError, Quotas, Rejection, RunnerOptions, SourceInfo,
    Unsigned, Verdict,
};

/// Replaces the policy, and polls until it is applied.
pub(super) fn replace(pair: &mut Pair, policy: Policy) {
    pair.target.policy().replace(policy).unwrap();
    for _ in 0..8 {
        pair.target.poll(&mut 0u64);
    }
}

const FIVE: [u8; 8] = 5u64.to_le_bytes();

/// Accepts the code of these keys.
fn keys(seeds: &[u8], grant: &Grant) -> Policy {
    let accept = |policy: Policy, seed: &u8| {
        // SAFETY: the images of these tests.
        unsafe { policy.accept_key(format!("key {seed}"), key(*seed).public(), grant.clone()) }
    };
    seeds.iter().fold(Policy::new(), accept)
}

fn rejection(error: &Error) -> (Rejection, &str) {
    match error {
        Error::Rejected { why, detail, .. } => (*why, detail),
        other => panic!("{other:?}"),
    }
}

#[test]
fn images_of_a_revoked_key_run_no_more_and_the_connection_goes_on() {
    for transport in super::running::between_processes() {
        let mut pair = Pair::new(&place(transport), keys(&[1, 2, 3], &Grant::new()));
        let [revoked, removed, kept] = [(1, images::add()), (2, images::set()), (3, images::counts())]
            .map(|(seed, image)| pair.load(&image, Some(&key(seed))));
        for handle in [&revoked, &removed, &kept] {
            pair.call(handle, &FIVE).unwrap();
        }
        while pair.target.poll(&mut 0u64) > 0 {}
        // Sent, and not received.
        let mut under_way = revoked.try_call(&FIVE).unwrap();
        let policy = pair.target.policy();
        policy
            .replace(keys(&[1, 3], &Grant::new()).revoke(key(1).public()))
            .unwrap();
        let (error, line) = pair.call_with_line_after(&removed);
        assert_eq!(rejection(&error).0, Rejection::Signature, "{error}");
        assert!(line.contains("image released"), "{line}");
        let ended = under_way
            .try_wait()
            .expect("an earlier call has ended")
            .unwrap_err();
        let (why, detail) = rejection(&ended);
        assert!(
            why == Rejection::Revoked && detail.contains(&key(1).public().to_string()),
            "{ended}"
        );
        let again = pair.call(&revoked, &FIVE).unwrap_err();
        assert_eq!(rejection(&again).0, Rejection::Revoked);
        pair.call(&kept, &FIVE).unwrap();
        assert_eq!(pair.target.connections(), 1);
        // Another image by the revoked key, and one by the other.
        pair.refused(
            &images::named("again", images::add()),
            Some(&key(1)),
            Rejection::Revoked,
        );
        pair.runs(&images::named("more", images::add()), Some(&key(3)));
    }
}

#[test]
fn unsigned_code_imports_and_quotas_follow_the_policy() {
    let unsigned = |grant: Grant| {
        // SAFETY: the images of these tests.
        unsafe { Policy::new().accept_unsigned(Unsigned::SameUser, grant) }
    };
    let no = Quotas::UNLIMITED;
    let mut pair = Pair::new(&unique("shm"), unsigned(Grant::new()));
    let handle = pair.load(&images::add(), None);
    pair.call(&handle, &FIVE).unwrap();
    // Quotas of all unsigned code hold for an image that was installed before them, and again not.
    for (quotas, name) in [
        (no.payload_bytes(7), "payload_bytes"),
        (no.in_flight(0), "in_flight"),
    ] {
        replace(&mut pair, unsigned(Grant::new().quotas(quotas)));
        let error = pair.call(&handle, &FIVE).unwrap_err();
        let (why, detail) = rejection(&error);
        assert!(why == Rejection::Quota && detail.contains(name), "{error}");
        replace(&mut pair, unsigned(Grant::new()));
        pair.call(&handle, &FIVE).unwrap();
    }
    // What was counted before still counts.
    replace(&mut pair, unsigned(Grant::new().quotas(no.images(1))));
    pair.refused(&images::set(), None, Rejection::Quota);
    // Those of each connection.
    replace(
        &mut pair,
        unsigned(Grant::new()).quotas(Quotas::default().images(1)),
    );
    let why = pair.refused(&images::counts(), None, Rejection::Quota);
    assert!(why.contains("this connection"), "{why}");
    replace(&mut pair, unsigned(Grant::new().pure()));
    pair.call(&handle, &FIVE).unwrap();
    let why = pair.refused(
        &images::named("travels", images::travels()),
        None,
        Rejection::NotPure,
    );
    assert!(why.contains("__ifunc_send"), "{why}");
    // None of it.
    replace(&mut pair, Policy::new());
    let error = pair.call(&handle, &FIVE).unwrap_err();
    assert_eq!(rejection(&error).0, Rejection::Policy, "{error}");
}

#[test]
fn an_image_that_the_check_of_the_new_policy_refuses_is_released() {
    // SAFETY: the images of these tests.
    let trusting = || unsafe { Policy::trust_every_peer() };
    let mut pair = Pair::new(
        &unique("shm"),
        trusting().accept_if(|_, image| !image.is_installed),
    );
    let (add, set) = (pair.load(&images::add(), None), pair.load(&images::set(), None));
    pair.call(&add, &FIVE).unwrap();
    pair.call(&set, &FIVE).unwrap();
    let bytes = images::add().encode().unwrap();
    let (id, len) = (*blake3::hash(&bytes).as_bytes(), bytes.len());
    let one = move |_: &SourceInfo, image: &ImageInfo<'_>| match image.name {
        "add" if image.is_installed && *image.id == id && image.len == len => Verdict::refuse("no longer"),
        _ => Verdict::accept(),
    };
    replace(&mut pair, trusting().accept_if(one));
    let error = pair.call(&add, &FIVE).unwrap_err();
    assert_eq!(rejection(&error), (Rejection::Policy, "no longer"), "{error}");
    // The other one stays, until a check refuses it, too.
    pair.call(&set, &FIVE).unwrap();
    replace(&mut pair, trusting().accept_if(|_, _| false));
    let error = pair.call(&set, &FIVE).unwrap_err();
    assert_eq!(rejection(&error).0, Rejection::Policy, "{error}");
    assert_eq!(pair.target.connections(), 1);
}

#[test]
fn a_policy_that_cannot_be_applied_changes_nothing() {
    let mut pair = Pair::new(&unique("shm"), keys(&[1], &Grant::new()));
    let handle = pair.load(&images::add(), Some(&key(1)));
    let policy = pair.target.policy();
    let empty = Policy::new;
    for (changed, what) in [
        (empty().level(Level::Contained), "`level`"),
        (empty().stack(1 << 20), "`stack-bytes`"),
        (empty().max_run_time(Duration::from_secs(1)), "`max-run-time`"),
        (
            empty().runners(RunnerOptions::new().memory(64 << 20)),
            "`[runners]`",
        ),
        (
            empty().quotas(Quotas::default().payload_bytes(7)),
            "`payload-bytes`",
        ),
        (empty().connect_users([12345]), "other users"),
    ] {
        let error = policy.replace(changed).unwrap_err();
        assert!(
            matches!(&error, PolicyError::Fixed { what: found } if found.contains(what)),
            "{error}"
        );
    }
    let twice = policy.replace(keys(&[1, 1], &Grant::new())).unwrap_err();
    assert!(matches!(twice, PolicyError::SameKey { .. }), "{twice}");
    pair.call(&handle, &FIVE).unwrap();
    // SAFETY: it does not parse.
    let text = unsafe { Policy::from_toml("[connect]\nusers = [1]\n[quotas]\nimages = 'few'") };
    assert!(text.unwrap_err().to_string().contains("line 4: "));
}

#[cfg(feature = "tls")]
mod peers {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;
    use std::thread;
    use std::time::Instant;

    use super::*;
    use crate::keys::TlsKeys;
    use crate::transport::authority::{Authority, Says};
    use crate::{Source, SourceError, SourceOptions, Target};

    /// Runs the code of all peers, of which these are named.
    fn admitting(seeds: &[u8]) -> Policy {
        // SAFETY: the images of these tests.
        let policy = unsafe { Policy::trust_every_peer() };
        let admit =
            |policy: Policy, seed: &u8| policy.connect_key(format!("peer {seed}"), key(*seed).public());
        seeds.iter().fold(policy, admit)
    }

    fn options(keys: TlsKeys) -> SourceOptions {
        SourceOptions::default()
            .tls(Some(keys))
            .connect_timeout(Duration::from_secs(30))
    }

    fn connect(address: &str, seed: u8) -> Result<Source, SourceError> {
        Source::connect_with(address, options(TlsKeys::new(key(seed)).peer(key(1).public())))
    }

    fn is_refused(error: &Error, why: &str) -> bool {
        matches!(error, Error::PeerGone { why: text, .. } if text.contains("refused the connection") && text.contains(why))
            || matches!(error, Error::Rejected { why: Rejection::Revoked, detail, .. } if detail.contains(why))
    }

    #[test]
    fn a_connection_by_a_revoked_key_is_ended_and_its_calls_learn_why() {
        for is_revoked in [true, false] {
            let builder = Target::builder()
                .policy(admitting(&[2, 3]))
                .credits(64)
                .tls(TlsKeys::new(key(1)));
            let mut target = builder.listen("tls://127.0.0.1:0").unwrap();
            let (address, policy) = (target.address(), target.policy());
            let sources = [2, 3].map(|seed| connect(&address, seed).unwrap());
            let [revoked, kept] = sources.each_ref().map(|source| {
                source
                    .register_bytes::<images::Add>(&images::add().encode().unwrap())
                    .unwrap()
            });
            let mut counter = 0u64;
            while target.poll(&mut counter) > 0 {}
            let mut under_way: Vec<_> = (0..10).map(|_| revoked.try_call(&5).unwrap()).collect();
            let next = match is_revoked {
                true => admitting(&[2, 3]).revoke(key(2).public()),
                false => admitting(&[3]),
            };
            policy.replace(next).unwrap();
            let mut kept_call = kept.try_call(&5).unwrap();
            let deadline = Instant::now() + Duration::from_secs(30);
            let mut ended = Vec::new();
            let answer = loop {
                target.poll(&mut counter);
                under_way.retain_mut(|call| match call.try_wait() {
                    Some(end) => {
                        ended.push(end);
                        false
                    }
                    None => true,
                });
                if ended.len() == 10
                    && target.connections() == 1
                    && let Some(answer) = kept_call.try_wait()
                {
                    break answer;
                }
                assert!(Instant::now() < deadline, "{ended:?}");
            };
            assert_eq!((answer.unwrap(), counter), (5, 5));
            for ended in ended {
                let error = ended.unwrap_err();
                let (why, detail) = rejection(&error);
                assert!(
                    why == Rejection::Revoked && detail.contains(&key(2).public().to_string()),
                    "{error}"
                );
            }
            // Nor does it connect again.
            let error = revoked.call(&5).and_then(|call| call.wait()).unwrap_err();
            assert!(is_refused(&error, &key(2).public().to_string()), "{error}");
        }
    }

    #[test]
    fn a_target_that_sleeps_ends_what_its_policy_revokes() {
        let authority = Authority::new("changes", 30);
        let certified = |seed: u8, serial| {
            let says = Says {
                serial,
                ..Says::names(&["127.0.0.1", "peer.example"])
            };
            let keys = TlsKeys::new(key(seed)).certificate(authority.certificate(&key(seed), &says));
            keys.unwrap().authority(authority.trusted())
        };
        let policy = |trusted| admitting(&[]).connect_any_certificate(trusted);
        let builder = Target::builder()
            .policy(policy(authority.trusted()))
            .tls(certified(1, 7));
        let target = builder.listen("tls://127.0.0.1:0").unwrap();
        let changes = target.policy();
        let serving = target.spawn_shared(Arc::new(AtomicU64::new(0)), 2).unwrap();
        let sources = [(2, 8), (3, 9)].map(|(seed, serial)| {
            Source::connect_with(serving.address(), options(certified(seed, serial))).unwrap()
        });
        let [revoked, kept] = sources.each_ref().map(|source| {
            source
                .load_bytes(&images::adds_shared().encode().unwrap())
                .unwrap()
        });
        for handle in [&revoked, &kept] {
            handle.call(&FIVE[..]).unwrap().wait().unwrap();
        }
        // The target sleeps, or the next call finds it awake.
        thread::sleep(Duration::from_millis(20));
        let trusted = authority.trusted().revoked_by(authority.revoke(&[8])).unwrap();
        changes.replace(policy(trusted)).unwrap();
        let error = loop {
            // Until the target has applied it.
            match revoked.call(&FIVE[..]).and_then(|call| call.wait()) {
                Ok(_) => thread::yield_now(),
                // Sent before the end, and not received.
                Err(Error::Indeterminate { .. }) => {}
                Err(error @ (Error::Rejected { .. } | Error::PeerGone { .. })) => break error,
                Err(error) => panic!("{error}"),
            }
        };
        assert!(is_refused(&error, "it was revoked"), "{error}");
        kept.call(&FIVE[..]).unwrap().wait().unwrap();
        drop((revoked, kept, sources));
        serving.stop().unwrap();
    }
}
