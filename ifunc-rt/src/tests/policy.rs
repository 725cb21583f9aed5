//! What a policy refuses: its status at the source, and its line in the target's log.

use std::time::Instant;

use ifunc_abi::image::ImageParts;

use super::images;
use super::logs::Log;
use super::policy_changes::replace;
#[cfg(feature = "ucx")]
use super::running::accepting;
use super::running::{place, source, unique};
use crate::keys::{SecretKey, Signatures};
use crate::observe::LogLimit;
use crate::{
    Allowance, ByName, Error, Grant, Handle, ImageInfo, Policy, Quotas, Rejection, Source, SourceInfo,
    Target, Unsigned, Verdict,
};
#[cfg(feature = "tls")]
use crate::{PolicyError, SourceOptions, TargetError};

pub(super) fn key(seed: u8) -> SecretKey {
    SecretKey::from_seed([seed; 32], "test")
}

/// Signatures of an image by a key.
fn signed(image: &ImageParts, key: &SecretKey) -> Signatures {
    let mut signatures = Signatures::default();
    signatures.add(key.sign(blake3::hash(&image.encode().unwrap()).as_bytes()));
    signatures
}

/// A target that the thread of the test polls, a source of it, and the lines that they log.
pub(super) struct Pair {
    pub(super) target: Target,
    pub(super) source: Source,
    log: Log,
}

impl Pair {
    pub(super) fn new(address: &str, policy: Policy) -> Self {
        let mut target = Target::builder().policy(policy).listen(address).unwrap();
        let address = target.address();
        let source = std::thread::spawn(move || source(&address));
        while !source.is_finished() {
            target.poll(&mut 0u64);
        }
        Self {
            target,
            source: source.join().unwrap(),
            log: Log::new(tracing::Level::WARN),
        }
    }

    /// Loads an image as this key signed it.
    pub(super) fn load(&self, image: &ImageParts, key: Option<&SecretKey>) -> Handle<ByName> {
        if let Some(key) = key {
            self.source.add_signatures(&signed(image, key));
        }
        self.source.load_bytes(&image.encode().unwrap()).unwrap()
    }

    pub(super) fn call(&mut self, handle: &Handle<ByName>, payload: &[u8]) -> Result<Vec<u8>, Error> {
        let log = self.log.clone();
        let _every_line = LogLimit::lift();
        tracing::subscriber::with_default(log, || {
            let start = Instant::now();
            let mut call = loop {
                match handle.try_call(payload) {
                    // The smallest window is closed until the target has polled.
                    Err(Error::WouldBlock { .. }) if start.elapsed().as_secs() < 60 => {
                        self.target.poll(&mut 0u64)
                    }
                    call => break call.unwrap(),
                };
            };
            loop {
                self.target.poll(&mut 0u64);
                if let Some(result) = call.try_wait() {
                    return result;
                }
                assert!(start.elapsed().as_secs() < 60, "no answer");
            }
        })
    }

    /// Calls what fails with one line in the log.
    pub(super) fn call_with_line(&mut self, handle: &Handle<ByName>) -> (Error, String) {
        let before = self.log.lines().len();
        let ended = self.call(handle, &5u64.to_le_bytes()).unwrap_err();
        let mut lines = self.log.lines().split_off(before);
        assert_eq!(lines.len(), 1, "one line is expected: {lines:#?}");
        (ended, lines.remove(0))
    }

    /// As [`call_with_line`](Self::call_with_line), after which other lines may come before that of its end: returns all.
    pub(super) fn call_with_line_after(&mut self, handle: &Handle<ByName>) -> (Error, String) {
        let before = self.log.lines().len();
        let ended = self.call(handle, &5u64.to_le_bytes()).unwrap_err();
        (ended, self.log.lines().split_off(before).join("\n"))
    }

    /// Calls an image, which must be refused with this status and one line in the log. Returns the detail at the source.
    pub(super) fn refused(&mut self, image: &ImageParts, key: Option<&SecretKey>, why: Rejection) -> String {
        let handle = self.load(image, key);
        let (ended, line) = self.call_with_line(&handle);
        let detail = match ended {
            Error::Rejected {
                why: found, detail, ..
            } if found == why => detail,
            other => panic!("{why:?} is expected: {other:?}"),
        };
        assert!(
            line.contains(" refused") && line.contains(&format!("reason={why}")),
            "{line}"
        );
        detail
    }

    pub(super) fn runs(&mut self, image: &ImageParts, key: Option<&SecretKey>) {
        let handle = self.load(image, key);
        self.call(&handle, &5u64.to_le_bytes()).unwrap();
    }
}

/// Accepts the code of two keys and of no others; the second one is revoked.
fn two_keys(grant: Grant) -> Policy {
    // SAFETY: the images of these tests.
    let policy = unsafe {
        Policy::new()
            .accept_key("builds", key(1).public(), grant)
            .accept_key("former", key(2).public(), Grant::new())
    };
    policy.revoke(key(2).public())
}

#[test]
fn a_check_refuses_with_a_reason_and_sees_the_imports() {
    let check = |source: &SourceInfo, image: &ImageInfo<'_>| match image.imports {
        [] => Verdict::accept(),
        imports => Verdict::refuse(format!(
            "{} of {} imports {imports:?}",
            image.name, source.connection
        )),
    };
    // SAFETY: the images of these tests.
    let policy = unsafe { Policy::trust_every_peer() }.accept_if(check);
    let mut pair = Pair::new(&unique("loopback"), policy);
    pair.runs(&images::add(), None);
    let detail = pair.refused(&images::panics(), None, Rejection::Policy);
    assert!(
        detail.contains("panics of 1 imports [\"__ifunc_panic\"]"),
        "{detail}"
    );
}

#[test]
fn an_allowance_is_shared_by_connections_and_targets() {
    let tenant = Allowance::new("the tenant `a`", Quotas::UNLIMITED.images(2).payload_bytes(8));
    let pair = || {
        let tenant = tenant.clone();
        // SAFETY: the images of these tests.
        let policy = unsafe { Policy::trust_every_peer() };
        Pair::new(
            &unique("loopback"),
            policy.accept_if(move |_, _| Verdict::accept_within(&tenant)),
        )
    };
    let (mut first, mut second) = (pair(), pair());
    let add = first.load(&images::add(), None);
    first.call(&add, &5u64.to_le_bytes()).unwrap();
    let set = second.load(&images::set(), None);
    second.call(&set, &5u64.to_le_bytes()).unwrap();
    let detail = second.refused(&images::add(), None, Rejection::Quota);
    assert!(
        detail.contains("the tenant `a` may have 2 images bound at a time"),
        "{detail}"
    );
    // What it may send and how often holds for images that are there, too, and for those of a policy that was replaced.
    tenant.set_quotas(Quotas::UNLIMITED.images(2).payload_bytes(4));
    let too_long = |pair: &mut Pair, handle: &Handle<ByName>| {
        let (error, line) = pair.call_with_line(handle);
        assert!(
            matches!(
                error,
                Error::Rejected {
                    why: Rejection::Quota,
                    ..
                }
            ),
            "{error:?}"
        );
        assert!(
            line.contains("the tenant `a` may send payloads of 4 bytes"),
            "{line}"
        );
    };
    too_long(&mut first, &add);
    // SAFETY: the images of these tests.
    let policy = || unsafe { Policy::trust_every_peer() };
    let same = tenant.clone();
    let same = policy().accept_if(move |_, _| Verdict::accept_within(&same));
    replace(&mut first, same);
    too_long(&mut first, &add);
    // The verdict of the new policy counts.
    replace(&mut first, policy());
    assert!(first.call(&add, &5u64.to_le_bytes()).is_ok());
    tenant.set_quotas(Quotas::UNLIMITED);
    assert!(first.call(&add, &5u64.to_le_bytes()).is_ok());
    assert_eq!(tenant.in_flight(), 0);
    // What is dropped counts no more.
    tenant.set_quotas(Quotas::UNLIMITED.images(2));
    drop((add, first));
    second.runs(&images::add(), None);
}

#[test]
fn code_runs_by_the_keys_of_the_policy_alone() {
    for transport in super::running::between_processes() {
        let mut pair = Pair::new(&place(transport), two_keys(Grant::new()));
        pair.runs(&images::add(), Some(&key(1)));
        let unsigned = pair.refused(&images::set(), None, Rejection::Signature);
        assert!(unsigned.contains("cargo ifunc sign"), "{unsigned}");
        let revoked = pair.refused(&images::counts(), Some(&key(2)), Rejection::Revoked);
        assert!(revoked.contains(&key(2).public().to_string()), "{revoked}");
        let unknown = pair.refused(&images::tells(), Some(&key(3)), Rejection::Signature);
        assert!(unknown.contains("does not know the key"), "{unknown}");
        // The signature of another image.
        let fills = images::fills();
        let mut line = key(1).sign(&[7; 32]).to_string();
        let id = crate::keys::Hex(blake3::hash(&fills.encode().unwrap()).as_bytes()).to_string();
        line = line.replace(&"07".repeat(32), &id);
        pair.source.add_signatures(&line.parse().unwrap());
        let wrong = pair.refused(&fills, None, Rejection::Signature);
        assert!(wrong.contains("is not one of this image"), "{wrong}");
        // The connection goes on.
        pair.runs(&images::named("again", images::add()), Some(&key(1)));
    }
}

#[test]
fn unsigned_code_runs_where_its_source_is_trusted() {
    // SAFETY: the images of these tests.
    let policy = unsafe { Policy::trust_same_user() }.revoke(key(2).public());
    let mut pair = Pair::new(&unique("shm"), policy.clone());
    pair.runs(&images::add(), None);
    // A signature by an unknown key proves nothing and hurts nothing; a revoked one is refused.
    pair.runs(&images::set(), Some(&key(3)));
    pair.refused(&images::counts(), Some(&key(2)), Rejection::Revoked);

    let mut nothing = Pair::new(&unique("shm"), Policy::new());
    let why = nothing.refused(&images::add(), None, Rejection::Policy);
    assert!(why.contains("accept_code"), "{why}");

    // On a network no code is accepted by default.
    let error = Target::builder()
        .policy(policy)
        .listen("ucx://127.0.0.1:0")
        .unwrap_err();
    assert!(error.to_string().contains("accept_key"), "{error}");
}

#[test]
fn imports_are_those_of_the_grant() {
    let image = |symbols: &[&str]| ImageParts {
        imports: symbols.iter().map(|symbol| images::import(symbol)).collect(),
        ..images::add()
    };
    let few = Grant::new().imports(["kv_*", "log"]);
    let mut pair = Pair::new(&unique("loopback"), two_keys(few));
    let why = pair.refused(
        &image(&["kv_get", "log", "logs", "qsort", "memcpy", "__ifunc_panic"]),
        Some(&key(1)),
        Rejection::Import,
    );
    assert!(
        why.contains("key `builds` may not import `logs`, `qsort`;"),
        "{why}"
    );
    // What is granted may still not be there.
    let why = pair.refused(&image(&["kv_get"]), Some(&key(1)), Rejection::MissingImport);
    assert!(why.contains("`kv_get`"), "{why}");
    pair.runs(
        &image(&["memcpy", "__ifunc_panic", "__ifunc_send"]),
        Some(&key(1)),
    );

    let mut pair = Pair::new(&unique("loopback"), two_keys(Grant::new().pure()));
    let why = pair.refused(
        &image(&["memcpy", "kv_get", "__ifunc_send"]),
        Some(&key(1)),
        Rejection::NotPure,
    );
    assert!(why.contains("imports `kv_get`, `__ifunc_send`;"), "{why}");
    pair.runs(&image(&["memcpy", "__ifunc_alloc"]), Some(&key(1)));
}

#[test]
fn a_key_has_quotas_of_its_own() {
    let add = images::add();
    let len = add.encode().unwrap().len();
    let pair = |quotas: Quotas| Pair::new(&unique("loopback"), two_keys(Grant::new().quotas(quotas)));
    let no = Quotas::UNLIMITED;
    for (quotas, name) in [
        (no.image_bytes(len - 1), "image_bytes"),
        (no.code_bytes(len - 1), "code_bytes"),
        (no.images(0), "images"),
        (no.payload_bytes(7), "payload_bytes"),
        (no.in_flight(0), "in_flight"),
        (no.installs_per_second(0), "installs_per_second"),
    ] {
        let why = pair(quotas).refused(&add, Some(&key(1)), Rejection::Quota);
        assert!(
            why.contains("code of the key `builds`") && why.contains(&format!("`{name}`")),
            "{why}"
        );
    }
    // Those of an answer fail the invocation, which has run.
    let mut small = pair(no.answer_bytes(7));
    let handle = small.load(&add, Some(&key(1)));
    let failed = small.call(&handle, &5u64.to_le_bytes()).unwrap_err();
    assert!(failed.to_string().contains("the answer does not fit"), "{failed}");

    let mut enough = pair(
        no.image_bytes(len)
            .images(1)
            .payload_bytes(8)
            .answer_bytes(8)
            .in_flight(1)
            .installs_per_second(1),
    );
    let handle = enough.load(&add, Some(&key(1)));
    for _ in 0..3 {
        enough.call(&handle, &5u64.to_le_bytes()).unwrap();
    }
    // All connections share them.
    let mut policy = two_keys(Grant::new().quotas(no.images(1)));
    // SAFETY: the images of these tests.
    policy = unsafe { policy.accept_unsigned(Unsigned::SameUser, Grant::new()) };
    let mut pair = Pair::new(&unique("loopback"), policy);
    let held = pair.load(&add, Some(&key(1)));
    pair.call(&held, &5u64.to_le_bytes()).unwrap();
    let address = pair.target.address();
    let other = std::mem::replace(&mut pair.source, source(&address));
    pair.refused(&images::set(), Some(&key(1)), Rejection::Quota);
    // Not unsigned code.
    pair.runs(&images::counts(), None);
    drop((held, other));
    while pair.target.connections() > 1 {
        pair.target.poll(&mut 0u64);
    }
    pair.runs(&images::set(), Some(&key(1)));
}

#[test]
fn a_connection_has_quotas() {
    let pair = |quotas: Quotas| {
        // SAFETY: the images of these tests.
        let policy = unsafe { Policy::trust_same_user() };
        Pair::new(&unique("shm"), policy.quotas(quotas))
    };
    let some = Quotas::default();
    for (quotas, name) in [
        (some.code_bytes(10), "code_bytes"),
        (some.images(0), "images"),
        (some.installs_per_second(0), "installs_per_second"),
    ] {
        let why = pair(quotas).refused(&images::add(), None, Rejection::Quota);
        assert!(
            why.contains("this connection") && why.contains(&format!("`{name}`")),
            "{why}"
        );
    }
    // A call of an ifunc that travels may wait for its answer.
    let travels = images::travels();
    let why = pair(some.in_flight(0)).refused(&travels, None, Rejection::Quota);
    assert!(why.contains("`in_flight`"), "{why}");
    pair(some.in_flight(1)).runs(&travels, None);
    // What the target states is refused by the source itself.
    let (image, payload) = (pair(some.image_bytes(10)), pair(some.payload_bytes(7)));
    let try_call = |pair: &Pair| {
        let handle = pair.load(&images::add(), None);
        handle.try_call(&5u64.to_le_bytes()).map(drop)
    };
    let error = try_call(&image).unwrap_err();
    assert!(matches!(error, Error::ImageTooLarge { limit: 10, .. }), "{error}");
    assert!(error.to_string().contains("help: `image_bytes`"), "{error}");
    let error = try_call(&payload).unwrap_err();
    assert!(
        matches!(error, Error::PayloadTooLarge { limit: 7, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("help: `payload_bytes`"), "{error}");
}

#[test]
fn one_key_has_one_grant() {
    // SAFETY: the images of these tests.
    let policy = unsafe { two_keys(Grant::new()).accept_key("again", key(1).public(), Grant::new()) };
    let error = Target::builder()
        .policy(policy)
        .listen(&unique("loopback"))
        .unwrap_err();
    assert!(error.to_string().contains("`builds` and `again`"), "{error}");
    let policy = Policy::new().connect_from(["10.0.0.0/8".parse().unwrap()]);
    let error = Target::builder()
        .policy(policy)
        .listen("ucx-worker:")
        .unwrap_err();
    assert!(error.to_string().contains("connect_from"), "{error}");
}

/// The first source signs, the second one does not: the image is installed, and each of them needs a right of its own.
#[test]
fn an_installed_image_is_no_permission() {
    let mut pair = Pair::new(&unique("shm"), two_keys(Grant::new()));
    let held = pair.load(&images::add(), Some(&key(1)));
    pair.call(&held, &5u64.to_le_bytes()).unwrap();
    let address = pair.target.address();
    let connecting = std::thread::spawn(move || source(&address));
    while !connecting.is_finished() {
        pair.target.poll(&mut 0u64);
    }
    let signs = std::mem::replace(&mut pair.source, connecting.join().unwrap());
    pair.refused(&images::add(), None, Rejection::Signature);
    drop(signs);
}

#[cfg(feature = "tls")]
#[test]
fn a_peer_with_another_key_is_told_so_and_runs_nothing() {
    use crate::keys::TlsKeys;
    let keys = |own: u8, peer: u8| TlsKeys::new(key(own)).peer(key(peer).public());
    // SAFETY: the images of these tests.
    let policy = unsafe { Policy::trust_every_peer() };
    let policy = policy
        .connect_key("ada", key(2).public())
        .connect_key("former", key(3).public())
        .revoke(key(3).public());
    let builder = Target::builder().policy(policy).tls(keys(1, 9));
    let mut target = builder.listen("tls://127.0.0.1:0").unwrap();
    let connect = |own| {
        let options = SourceOptions::default().tls(Some(keys(own, 1)));
        Source::connect_with(&target.address(), options)
    };
    let connected = [connect(2), connect(9), connect(3), connect(4)];
    let [Ok(ada), Ok(_nine), Err(revoked), Err(unknown)] = connected else {
        panic!("{connected:?}")
    };
    assert!(revoked.to_string().contains("revoked"), "{revoked}");
    assert!(unknown.to_string().contains("Policy::connect_key"), "{unknown}");
    let add = ada
        .register_bytes::<images::Add>(&images::add().encode().unwrap())
        .unwrap();
    let mut call = add.try_call(&5).unwrap();
    let mut counter = 0u64;
    let answer = loop {
        target.poll(&mut counter);
        if let Some(answer) = call.try_wait() {
            break answer.unwrap();
        }
    };
    assert_eq!((answer, target.connections()), (5, 2));
    // Over other transports the policy would promise what nothing checks.
    let by_key = Policy::new().connect_key("ada", key(2).public());
    let error = Target::builder()
        .policy(by_key.clone())
        .listen("ucx://127.0.0.1:0");
    let error = error.map(drop).unwrap_err();
    assert!(
        matches!(error, TargetError::Policy(PolicyError::NoPeerKeys { .. })),
        "{error}"
    );
}

#[cfg(feature = "ucx")]
#[test]
fn a_peer_of_another_address_is_told_so() {
    if !super::running::between_processes().contains(&"ucx") {
        return;
    }
    let connect = |range: &str| {
        let builder = accepting().map_policy(|policy| policy.connect_from([range.parse().unwrap()]));
        let mut target = builder.listen("ucx://127.0.0.1:0").unwrap();
        let address = target.address();
        let source = std::thread::spawn(move || Source::connect(&address).map(drop));
        while !source.is_finished() {
            target.poll(&mut 0u64);
        }
        source.join().unwrap().map_err(|error| error.to_string())
    };
    assert_eq!(connect("127.0.0.0/8"), Ok(()));
    let why = connect("10.0.0.0/8").unwrap_err();
    assert!(
        why.contains("does not admit 127.0.0.1") && why.contains("connect_from"),
        "{why}"
    );
}
