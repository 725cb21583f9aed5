//! Both sides prove by certificates who they are, and what becomes of those that do not.

use super::authority::{Authority, Says};
use super::*;
use crate::keys::{Certificate, CertificateAuthority, CertificateError, KeyError};
use crate::policy::{Policy, PolicyError};
use rcgen::ExtendedKeyUsagePurpose;

/// The keys of a process with a certificate that says this.
fn certified(authority: &Authority, seed: u8, says: &Says<'_>) -> TlsKeys {
    let certificate = authority.certificate(&key(seed), says);
    TlsKeys::new(key(seed)).certificate(certificate).unwrap()
}

/// A target that is certified as 127.0.0.1 and `store.example`, with this policy.
fn target(authority: &Authority, policy: Policy) -> Box<dyn Listener> {
    let mut config = ListenConfig::new(LIMITS);
    let mut connect = policy.connect;
    connect.tls = Some(certified(
        authority,
        1,
        &Says::names(&["store.example", "127.0.0.1"]),
    ));
    config.connect = connect.into();
    listening(config)
}

/// A source that trusts the authority, with a certificate that says this.
fn source(authority: &Authority, says: &Says<'_>) -> TlsKeys {
    certified(authority, 2, says).authority(authority.trusted())
}

fn refusal(error: &ConnectError) -> &str {
    match error {
        ConnectError::Refused { reason, .. } => reason,
        other => panic!("{other}"),
    }
}

#[test]
fn certified_sides_know_each_other_by_name() {
    let authority = Authority::new("cluster", 10);
    let names = ["spiffe://cluster/ada", "store.workers.example", "127.0.0.1"];
    let policy = Policy::new()
        .connect_certificate(authority.trusted(), names)
        .unwrap()
        .connect_key("bob", key(3).public());
    let mut listener = target(&authority, policy);
    let address = listener.address();
    for (has, known) in [
        (&["other.example", "spiffe://cluster/ada"][..], names[0]),
        // A wildcard of the certificate stands for one label.
        (&["*.workers.example"], names[1]),
        (&["127.0.0.1"], names[2]),
    ] {
        let source = connect(&address, Some(source(&authority, &Says::names(has)))).unwrap();
        let target = accept(&mut *listener);
        let of = |link: &Link| {
            link.peer
                .certified
                .as_ref()
                .map(|certified| certified.name.to_string())
        };
        assert_eq!(
            (of(&target).as_deref(), of(&source).as_deref()),
            (Some(known), Some("127.0.0.1"))
        );
        assert_eq!(target.peer.key, Some(key(2).public()));
    }
    // A raw key beside certificates: of the target, which the source knows; of the source, which asks for a certificate.
    for keys in [
        certified(&authority, 3, &Says::names(&["x"])).peer(key(1).public()),
        TlsKeys::new(key(3)).authority(authority.trusted()),
        TlsKeys::new(key(3))
            .authority(authority.trusted())
            .target_name("store.example"),
        TlsKeys::new(key(3)).peer(key(1).public()),
    ] {
        let _source = connect(&address, Some(keys)).unwrap();
        let peer = accept(&mut *listener).peer;
        assert_eq!((peer.key, peer.certified), (Some(key(3).public()), None));
    }
    // Any name of the authority.
    let mut any = target(
        &authority,
        Policy::new().connect_any_certificate(authority.trusted()),
    );
    let _source = connect(
        &any.address(),
        Some(source(&authority, &Says::names(&["a.example", "spiffe://b/c"]))),
    )
    .unwrap();
    assert_eq!(&*accept(&mut *any).peer.certified.unwrap().name, "spiffe://b/c");
    let nameless = connect(&any.address(), Some(source(&authority, &Says::names(&[])))).unwrap_err();
    assert!(refusal(&nameless).contains("of no name"), "{nameless}");
}

#[test]
fn a_source_whose_certificate_is_not_admitted_learns_why() {
    let (authority, other) = (Authority::new("cluster", 11), Authority::new("cluster", 12));
    let (ada, days) = (Says::names(&["ada.example"]), |from, to| Says {
        from,
        to,
        ..Says::names(&["ada.example"])
    });
    let trusted = authority.trusted().revoked_by(authority.revoke(&[8, 9])).unwrap();
    let policy = Policy::new()
        .connect_certificate(trusted, ["ada.example"])
        .unwrap();
    let policy = policy.revoke(key(4).public());
    let only_target = [ExtendedKeyUsagePurpose::ServerAuth];
    for (certificate, seed, why) in [
        (authority.certify(&key(2), &ada), 2, None),
        (
            authority.certify(&key(2), &days(-9, -3)),
            2,
            Some("it expired 3 days ago"),
        ),
        (
            authority.certify(&key(2), &days(3, 9)),
            2,
            Some("it is valid in "),
        ),
        (
            other.certify(&key(2), &ada),
            2,
            Some("no authority that is trusted here"),
        ),
        (
            authority.certify(&key(2), &Says::names(&["adam.example", "*.ada.example"])),
            2,
            Some("it is of `adam.example`, `*.ada.example`, which is not the name"),
        ),
        (
            authority.certify(
                &key(2),
                &Says {
                    serial: 9,
                    ..Says::names(&["ada.example"])
                },
            ),
            2,
            Some("it was revoked"),
        ),
        (
            authority.certify(
                &key(2),
                &Says {
                    usages: &only_target,
                    ..Says::names(&["ada.example"])
                },
            ),
            2,
            Some("extended key usage"),
        ),
        (
            authority.certify(&key(4), &ada),
            4,
            Some("revoked this process's key"),
        ),
    ] {
        let mut listener = target(&authority, policy.clone());
        let file = authority.file("source.pem", &certificate);
        let keys = TlsKeys::new(key(seed))
            .certificate(Certificate::read(file).unwrap())
            .unwrap();
        let connected = connect(&listener.address(), Some(keys.authority(authority.trusted())));
        match (connected, why) {
            (Ok(_source), None) => {
                let peer = accept(&mut *listener).peer;
                assert_eq!(&*peer.certified.unwrap().name, "ada.example");
            }
            (Err(error), Some(why)) => {
                assert!(refusal(&error).contains(why), "{error}");
                assert!(!error.may_pass() && listener.accept().is_none());
            }
            (connected, why) => panic!("{why:?}: {:?}", connected.map(drop)),
        }
    }
    // A raw key, where certificates are asked for.
    let listener = target(&authority, policy);
    let error = connect(
        &listener.address(),
        Some(TlsKeys::new(key(2)).authority(authority.trusted())),
    )
    .unwrap_err();
    assert!(refusal(&error).contains("or connect by a certificate"), "{error}");
}

#[test]
fn a_source_sends_nothing_to_a_target_that_is_not_certified() {
    let (authority, other) = (Authority::new("cluster", 13), Authority::new("cluster", 14));
    let only_source = [ExtendedKeyUsagePurpose::ClientAuth];
    let here = Says::names(&["127.0.0.1"]);
    let days = |from, to| Says {
        from,
        to,
        ..Says::names(&["127.0.0.1"])
    };
    let revoking = authority.trusted().revoked_by(authority.revoke(&[7])).unwrap();
    let foreign = authority.trusted().revoked_by(other.revoke(&[])).unwrap();
    let plain = authority.trusted();
    for (certificate, trusted, is_expected) in [
        (
            authority.certify(&key(1), &days(-9, -3)),
            &plain,
            (|error| matches!(error, CertificateError::Expired { since } if since.as_secs() >= 3 * 86_400))
                as fn(&_) -> bool,
        ),
        (authority.certify(&key(1), &days(3, 9)), &plain, |error| {
            matches!(error, CertificateError::NotYetValid { .. })
        }),
        (other.certify(&key(1), &here), &plain, |error| {
            *error == CertificateError::UnknownIssuer
        }),
        (
            authority.certify(&key(1), &Says::names(&["localhost"])),
            &plain,
            |error| matches!(error, CertificateError::Name { names } if *names == ["localhost"]),
        ),
        (authority.certify(&key(1), &here), &revoking, |error| {
            *error == CertificateError::Revoked
        }),
        (
            authority.certify(
                &key(1),
                &Says {
                    usages: &only_source,
                    ..here
                },
            ),
            &plain,
            |error| *error == CertificateError::Purpose,
        ),
        (
            authority.certify(&key(1), &Says::names(&["127.0.0.1"])),
            &foreign,
            |error| matches!(error, CertificateError::Invalid(_)),
        ),
        (String::new(), &plain, |error| *error == CertificateError::Missing),
    ] {
        let mut keys = keys(1, &[2]);
        if !certificate.is_empty() {
            let file = authority.file("target.pem", &certificate);
            keys = keys.certificate(Certificate::read(file).unwrap()).unwrap();
        }
        let mut listener = listening(with_keys(keys));
        let error = connect(
            &listener.address(),
            Some(TlsKeys::new(key(2)).authority(trusted.clone())),
        )
        .unwrap_err();
        let ConnectError::Certificate { problem, .. } = &error else {
            panic!("{error}")
        };
        assert!(is_expected(problem), "{error}");
        assert!(!error.may_pass() && listener.accept().is_none());
    }
    // With an empty list of revoked certificates, and by another name than the host's.
    let trusted = authority.trusted().revoked_by(authority.revoke(&[])).unwrap();
    let keys = certified(&authority, 1, &Says::names(&["spiffe://cluster/store"])).peer(key(2).public());
    let listener = listening(with_keys(keys));
    let source = TlsKeys::new(key(2))
        .authority(trusted)
        .target_name("spiffe://cluster/store");
    let link = connect(&listener.address(), Some(source)).unwrap();
    assert_eq!(&*link.peer.certified.unwrap().name, "spiffe://cluster/store");
}

/// A client of another program, which has no certificate.
#[test]
fn a_client_without_a_certificate_does_not_get_past_the_handshake() {
    let authority = Authority::new("cluster", 15);
    let mut listener = target(
        &authority,
        Policy::new().connect_any_certificate(authority.trusted()),
    );
    let mut roots = rustls::RootCertStore::empty();
    for certificate in authority.trusted().certificates() {
        roots.add(certificate.clone()).unwrap();
    }
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"ifunc".to_vec()];
    let name = "store.example".try_into().unwrap();
    let mut tls = rustls::ClientConnection::new(config.into(), name).unwrap();
    let mut socket = std::net::TcpStream::connect(listener.address().trim_start_matches("tls://")).unwrap();
    let ended = loop {
        match tls.complete_io(&mut socket) {
            Ok(_) if tls.is_handshaking() => {}
            Ok(_) => continue,
            Err(error) => break error,
        }
    };
    assert!(ended.to_string().contains("CertificateRequired"), "{ended}");
    assert!(listener.accept().is_none());
}

#[test]
fn files_that_are_no_certificates_are_named() {
    let authority = Authority::new("cluster", 16);
    let other = authority.certificate(&key(2), &Says::names(&["a"]));
    assert_eq!(
        (other.key(), other.names()),
        (key(2).public(), vec!["a".to_owned()])
    );
    let error = TlsKeys::new(key(1)).certificate(other).unwrap_err();
    assert!(
        matches!(&error, KeyError::OtherKey { own, .. } if *own == key(1).public()),
        "{error}"
    );
    let ecdsa = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
    for (text, why) in [
        ("", "holds no certificate"),
        (
            "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
            "it is no PEM",
        ),
        (
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "",
        ),
        (&ecdsa.cert.pem(), "not of an ed25519 key"),
    ] {
        let error = Certificate::read(authority.file("x.pem", text)).unwrap_err();
        assert!(matches!(&error, KeyError::Certificate { .. }), "{error}");
        assert!(
            error.to_string().contains(why) && error.to_string().contains("x.pem"),
            "{error}"
        );
        let trusted = CertificateAuthority::read(authority.file("x.pem", text));
        // An authority may have a key of any kind.
        assert_eq!(trusted.is_ok(), why.contains("ed25519"));
    }
    let none = authority.trusted().revoked_by(authority.own_file()).unwrap_err();
    assert!(none.to_string().contains("no list of revoked"), "{none}");
    let name = Policy::new()
        .connect_certificate(authority.trusted(), ["*.example"])
        .unwrap_err();
    assert!(
        matches!(&name, PolicyError::Name { name } if name == "*.example"),
        "{name}"
    );

    // Keys as OpenSSL writes them.
    let path = authority.file("own.key", &pem::encode(key(5).to_pkcs8()));
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let read = SecretKey::read(&path).unwrap();
    assert_eq!((read.public(), read.name()), (key(5).public(), "own"));
    let path = authority.file("own.key", &ecdsa.signing_key.serialize_pem());
    let error = SecretKey::read(&path).unwrap_err().to_string();
    assert!(error.contains("no ed25519 key in PEM"), "{error}");
}

mod pem {
    /// A PKCS#8 key as text.
    pub(super) fn encode(der: Vec<u8>) -> String {
        let der = rustls::pki_types::PrivatePkcs8KeyDer::from(der);
        let pair = rcgen::KeyPair::from_pkcs8_der_and_sign_algo(&der, &rcgen::PKCS_ED25519).unwrap();
        pair.serialize_pem()
    }
}
