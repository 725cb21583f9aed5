//! What a program asks for and cannot have: each error names what was asked for, why not, and what to do.

use ifunc::payload::{DecodeError, EncodeError, Ifunc};
use ifunc_abi::text::Text;

use super::images::{self, Add};
use super::running::{Running, accepting, source, unique};
use crate::group::{Group, GroupError};
use crate::keys::{KeyError, SecretKey};
use crate::policy::{Grant, PolicyError};
use crate::rendezvous::{Rendezvous, RendezvousError};
use crate::{
    AddressError, AddressRange, ConnectError, DuplicateExport, Error, InvalidRange, InvalidSoname,
    LibraryError, ListenError, NotAllSent, Policy, Source, SourceError, StatsError, Target, TargetError,
};

/// Asserts that a message has these parts.
#[track_caller]
fn says(error: &dyn std::error::Error, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

#[test]
fn what_is_no_address_is_refused_on_both_sides() {
    for (address, parts) in [
        (
            "counter",
            ["`counter` names no transport", "help: write `shm:NAME`"],
        ),
        (
            "tcp://host:1",
            ["`tcp://host:1` names no transport", "`ucx://HOST:PORT`"],
        ),
        ("shm:a b", ["`a b` is not a name", "help: write `shm:counter`"]),
        ("loopback:", ["`` is not a name", "1 to 64 letters"]),
        (
            "ucx-worker:12xy",
            ["`ucx-worker:12xy…` (4 characters)", "help: copy it whole"],
        ),
    ] {
        let refused = Target::builder().listen(address).unwrap_err();
        let TargetError::Address(listening) = &refused else {
            panic!("{refused:?}")
        };
        let refused = Source::connect(address).unwrap_err();
        let SourceError::Address(connecting) = &refused else {
            panic!("{refused:?}")
        };
        assert_eq!(listening, connecting);
        says(listening, &parts);
        assert!(match address.split_once(':').unwrap_or_default().0 {
            "" | "tcp" => matches!(listening, AddressError::Scheme(_)),
            "ucx-worker" => matches!(listening, AddressError::Worker { len: 4, .. }),
            _ => matches!(listening, AddressError::Name(_)),
        });
        let joining = Group::new(0).node(1, address).map(drop).unwrap_err();
        assert!(matches!(joining, GroupError::Address(_)), "{joining:?}");
    }
    let refused = Source::connect("ucx-worker:").unwrap_err();
    assert!(
        matches!(refused, SourceError::Connect(ConnectError::Worker)),
        "{refused:?}"
    );
    says(
        &refused,
        &[
            "`ucx-worker:` names no target",
            "help: write what the target said",
        ],
    );
}

#[test]
fn settings_of_a_target_that_cannot_be_are_refused() {
    let refused = |builder: crate::TargetBuilder| builder.listen(&unique("loopback")).unwrap_err();

    let error = refused(accepting().credits(3).ring(1 << 16));
    assert!(
        matches!(
            error,
            TargetError::Listen(ListenError::Ring {
                slots: 3,
                data: 65536
            })
        ),
        "{error:?}"
    );
    says(
        &error,
        &["a ring of 3 slots and 65536 bytes", "help: use powers of two"],
    );

    // SAFETY: nothing of that name is opened.
    let error = refused(unsafe { accepting().allow_library("lib/z") });
    assert!(
        matches!(&error, TargetError::Library(InvalidSoname(name)) if name == "lib/z"),
        "{error:?}"
    );
    says(
        &error,
        &["`lib/z` is not a soname", "help: a name without a path"],
    );

    let [one, other] = [&1u8, &2].map(|value| std::ptr::from_ref(value).cast());
    // SAFETY: no image imports them.
    let symbols = [one, other].map(|pointer| unsafe { crate::Symbol::untyped("twice", pointer) });
    let error = refused(accepting().exports(symbols));
    assert!(
        matches!(&error, TargetError::Export(DuplicateExport(name)) if name == "twice"),
        "{error:?}"
    );
    says(&error, &["`twice`", "help: "]);

    let address = unique("loopback");
    let _first = accepting().listen(&address).unwrap();
    let error = accepting().listen(&address).unwrap_err();
    assert!(
        matches!(error, TargetError::Listen(ListenError::InUse { .. })),
        "{error:?}"
    );
    says(&error, &[&address, "is in use", "help: stop that target"]);
}

#[test]
fn policies_that_contradict_themselves_or_the_address_are_refused() {
    let network = "ucx://127.0.0.1:0";
    // SAFETY: the target listens nowhere.
    let own_user = unsafe { Policy::trust_same_user() };
    let error = Target::builder().policy(own_user).listen(network).unwrap_err();
    assert!(
        matches!(error, TargetError::Policy(PolicyError::NoUsers { .. })),
        "{error:?}"
    );
    says(&error, &[network, "knows no users", "help: sign the images"]);

    let range: AddressRange = "10.0.0.0/8".parse().unwrap();
    let error = accepting()
        .map_policy(|policy| policy.connect_from([range]))
        .listen("ucx-worker:")
        .unwrap_err();
    assert!(
        matches!(error, TargetError::Policy(PolicyError::NoAddresses { .. })),
        "{error:?}"
    );
    says(
        &error,
        &[
            "does not know the addresses of its peers",
            "help: listen at `tls://HOST:PORT`",
        ],
    );

    let key = SecretKey::from_seed([1; 32], "").public();
    // SAFETY: the target listens nowhere.
    let twice = unsafe {
        Policy::new()
            .accept_key("builds", key, Grant::default())
            .accept_key("nightly", key, Grant::default())
    };
    let error = Target::builder()
        .policy(twice)
        .listen(&unique("shm"))
        .unwrap_err();
    assert!(
        matches!(error, TargetError::Policy(PolicyError::SameKey { .. })),
        "{error:?}"
    );
    says(
        &error,
        &[
            "`builds` and `nightly`",
            &key.to_string(),
            "help: keep one of the two",
        ],
    );

    for text in ["10.0.0.0/33", "10.0.0.1/8", "host/8"] {
        let error: InvalidRange = text.parse::<AddressRange>().unwrap_err();
        says(
            &error,
            &[&format!("`{text}` is not a range"), "help: write `10.1.0.0/16`"],
        );
    }
}

#[test]
fn numbers_and_places_of_nodes_are_checked() {
    let error = Group::new(0).node(u32::MAX, "shm:a").map(drop).unwrap_err();
    assert!(
        matches!(error, GroupError::Number { number: u32::MAX, .. }),
        "{error:?}"
    );
    says(
        &error,
        &["node 4294967295 cannot be", "help: choose a smaller one"],
    );

    // The other node never publishes where it is.
    let folder = std::env::temp_dir().join(unique("nodes").replace(':', "-"));
    std::fs::create_dir(&folder).unwrap();
    let meeting = Rendezvous::in_directory(folder.join("absent"), "job").unwrap();
    let mut node = accepting().listen(&unique("shm")).unwrap();
    let error = node.join(Group::meeting(&meeting, 0, 2)).map(drop).unwrap_err();
    let GroupError::Rendezvous(RendezvousError::Io { .. }) = &error else {
        panic!("{error:?}")
    };
    says(&error, &["cannot find the directory", "absent"]);
    std::fs::remove_dir(folder).unwrap();
}

#[test]
fn libraries_that_cannot_be_used_say_why() {
    let address = unique("loopback");
    let _target = Running::start(&address, accepting());
    let source = source(&address);
    let folder = std::env::temp_dir().join(unique("libraries").replace(':', "-"));
    std::fs::create_dir(&folder).unwrap();

    // SAFETY: no library is opened.
    let by_name = |name: &str| unsafe { source.load(name) }.map(drop).unwrap_err();
    let error = by_name("9lives");
    assert!(
        matches!(&error, LibraryError::Name(name) if name == "9lives"),
        "{error:?}"
    );
    says(&error, &["`9lives` is not the name of an ifunc", "C identifier"]);
    let error = by_name("surely_nowhere");
    assert!(matches!(error, LibraryError::NotFound { .. }), "{error:?}");
    says(
        &error,
        &[
            "no library `surely_nowhere.so`",
            "looked in: `",
            "help: `cargo ifunc build`",
        ],
    );

    let at = |name: &str| {
        source
            .register_path::<Add>(folder.join(name))
            .map(drop)
            .unwrap_err()
    };
    let error = at("absent.so");
    assert!(matches!(error, LibraryError::Read { .. }), "{error:?}");
    says(&error, &["cannot read", "absent.so", "No such file"]);

    std::fs::write(folder.join("text.so"), "not a library").unwrap();
    let error = at("text.so");
    assert!(matches!(error, LibraryError::NotALibrary { .. }), "{error:?}");
    says(
        &error,
        &[
            "text.so` is not an ifunc library",
            "help: `cargo ifunc build` makes one",
        ],
    );

    let mut image = images::add().encode().unwrap();
    std::fs::write(folder.join("signed.so"), &image).unwrap();
    std::fs::write(folder.join("signed.sig"), "ifunc-signature ed25519 12 34 56\n").unwrap();
    let error = at("signed.so");
    assert!(
        matches!(error, LibraryError::Signatures(KeyError::Line { line: 1, .. })),
        "{error:?}"
    );
    says(&error, &["signed.sig`, line 1: ", "IMAGE KEY SIGNATURE"]);

    image.pop();
    let error = source.register_bytes::<Add>(&image).map(drop).unwrap_err();
    assert!(matches!(error, LibraryError::Image { .. }), "{error:?}");
    says(
        &error,
        &[
            "the image in `",
            "cannot be used: the header states",
            "help: `cargo ifunc build`",
        ],
    );
    std::fs::remove_dir_all(folder).unwrap();
}

/// `add`, with a codec of its own: it refuses 13, and it reads answers of four bytes.
enum Superstitious {}

impl Ifunc for Superstitious {
    type Payload<'a> = u64;
    type Target = u64;
    type Answer = u32;
    const NAME: &'static str = Add::NAME;
    const PAYLOAD: &'static Text = Add::PAYLOAD;
    const TARGET: &'static Text = Add::TARGET;
    const ANSWER: &'static Text = Add::ANSWER;
    const ALIGN: usize = Add::ALIGN;
    const IDEMPOTENT: bool = false;

    fn bound(payload: &u64) -> usize {
        Add::bound(payload)
    }

    fn encode(payload: &u64, out: &mut [u8]) -> Result<usize, EncodeError> {
        match payload {
            13 => Err(EncodeError::Refused),
            _ => Add::encode(payload, out),
        }
    }

    fn decode_answer(bytes: &[u8]) -> Result<u32, DecodeError> {
        let bytes = bytes.try_into().map_err(|_| DecodeError::Length)?;
        Ok(u32::from_le_bytes(bytes))
    }
}

#[test]
fn what_a_codec_refuses_is_reported() {
    let address = unique("loopback");
    let target = Running::start(&address, accepting());
    let source = source(&address);
    let image = images::add().encode().unwrap();
    let add = source.register_bytes::<Superstitious>(&image).unwrap();

    let error = add.send(&13).unwrap_err();
    assert!(
        matches!(&error, Error::Payload { ifunc, error: EncodeError::Refused } if ifunc == "add"),
        "{error:?}"
    );
    says(&error, &["the payload of `add` cannot be sent: "]);
    let error = add.call(&5).unwrap().wait().unwrap_err();
    assert!(
        matches!(&error, Error::Answer { ifunc, error: DecodeError::Length } if ifunc == "add"),
        "{error:?}"
    );
    says(&error, &["the answer of `add` does not decode: "]);

    let NotAllSent { sent, error } = add.send_many([1, 2, 13, 4]).unwrap_err();
    assert_eq!(sent, 2);
    assert!(matches!(error, Error::Payload { .. }), "{error:?}");
    says(
        &NotAllSent { sent, error },
        &["not sent after 2 others: the payload of `add`"],
    );
    source.flush().unwrap();
    assert_eq!(
        target.finish(),
        5 + 1 + 2,
        "and nothing after the one that was refused"
    );
}

#[test]
fn counters_of_a_target_that_is_gone_cannot_be_read() {
    let address = unique("shm");
    let target = Running::start(&address, accepting());
    let options = crate::SourceOptions::default().reconnect(std::time::Duration::ZERO);
    let source = Source::connect_with(&address, options).unwrap();
    target.finish();
    let error = source
        .target_stats(std::time::Duration::from_secs(20))
        .unwrap_err();
    let StatsError::Source(Error::PeerGone { .. } | Error::Indeterminate { .. }) = &error else {
        panic!("{error:?}")
    };
    says(
        &error,
        &["the question for what the target has counted", "target"],
    );
}

#[cfg(feature = "tls")]
#[test]
fn keys_of_no_peer_are_refused_on_both_sides_of_tls() {
    use crate::SourceOptions;
    use crate::keys::TlsKeys;

    let alone = TlsKeys::new(SecretKey::from_seed([7; 32], "alone"));
    let error = accepting()
        .tls(alone.clone())
        .listen("tls://127.0.0.1:0")
        .unwrap_err();
    assert!(
        matches!(error, TargetError::Listen(ListenError::Keys { .. })),
        "{error:?}"
    );
    says(
        &error,
        &[
            "cannot listen at `tls://127.0.0.1:0`: its policy admits no key",
            "help: `Policy::connect_key`",
        ],
    );
    let options = SourceOptions::default().tls(Some(alone));
    let error = Source::connect_with("tls://127.0.0.1:1", options).unwrap_err();
    assert!(
        matches!(error, SourceError::Connect(ConnectError::Keys { .. })),
        "{error:?}"
    );
    says(
        &error,
        &[
            "cannot connect to `tls://127.0.0.1:1`: this process knows the key of no target",
            "help: `TlsKeys::peer`",
        ],
    );
}
