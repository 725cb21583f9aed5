//! An authority of tests: certificates of any names and times, and lists of those that it revoked.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, PKCS_ED25519, RevokedCertParams, SanType,
    SerialNumber,
};

use crate::keys::{Certificate, CertificateAuthority, SecretKey};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// An authority, and a folder for its files.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    folder: PathBuf,
}

/// What a certificate says.
pub(crate) struct Says<'a> {
    pub(crate) names: &'a [&'a str],
    /// Days from now.
    pub(crate) from: i64,
    pub(crate) to: i64,
    pub(crate) usages: &'a [ExtendedKeyUsagePurpose],
    pub(crate) serial: u64,
}

pub(crate) const BOTH: &[ExtendedKeyUsagePurpose] = &[
    ExtendedKeyUsagePurpose::ServerAuth,
    ExtendedKeyUsagePurpose::ClientAuth,
];

impl<'a> Says<'a> {
    pub(crate) fn names(names: &'a [&'a str]) -> Self {
        Self {
            names,
            from: -1,
            to: 30,
            usages: BOTH,
            serial: 7,
        }
    }
}

fn pair(key: &SecretKey) -> KeyPair {
    let der = rustls::pki_types::PrivatePkcs8KeyDer::from(key.to_pkcs8());
    KeyPair::from_pkcs8_der_and_sign_algo(&der, &PKCS_ED25519).unwrap()
}

fn in_days(days: i64) -> SystemTime {
    let now = SystemTime::now();
    match u32::try_from(days) {
        Ok(days) => now + DAY * days,
        Err(_) => now - DAY * u32::try_from(-days).unwrap(),
    }
}

impl Authority {
    /// An authority of this name, whose key the seed makes.
    pub(crate) fn new(name: &str, seed: u8) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = pair(&SecretKey::from_seed([seed; 32], name));
        let pem = params.self_signed(&key).unwrap().pem();
        let folder =
            std::env::temp_dir().join(format!("ifunc-authority-{}-{seed}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        Self {
            issuer: Issuer::new(params, key),
            pem,
            folder,
        }
    }

    /// A file with this text.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// The file of its own certificate.
    pub(crate) fn own_file(&self) -> PathBuf {
        self.file("authority.pem", &self.pem)
    }

    pub(crate) fn trusted(&self) -> CertificateAuthority {
        CertificateAuthority::read(self.own_file()).unwrap()
    }

    /// A certificate of this key, as text.
    pub(crate) fn certify(&self, key: &SecretKey, says: &Says<'_>) -> String {
        let mut params = CertificateParams::default();
        params.subject_alt_names = says
            .names
            .iter()
            .map(|name| match name.parse() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) if name.contains("://") => SanType::URI((*name).try_into().unwrap()),
                Err(_) => SanType::DnsName((*name).try_into().unwrap()),
            })
            .collect();
        params.not_before = in_days(says.from).into();
        params.not_after = in_days(says.to).into();
        params.extended_key_usages = says.usages.to_vec();
        params.serial_number = Some(says.serial.into());
        params.signed_by(&pair(key), &self.issuer).unwrap().pem()
    }

    pub(crate) fn certificate(&self, key: &SecretKey, says: &Says<'_>) -> Certificate {
        Certificate::read(self.file("leaf.pem", &self.certify(key, says))).unwrap()
    }

    /// The file of a list that revokes certificates of these serial numbers.
    pub(crate) fn revoke(&self, serials: &[u64]) -> PathBuf {
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: in_days(-1).into(),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: in_days(-1).into(),
            next_update: in_days(1).into(),
            crl_number: 1.into(),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = params.signed_by(&self.issuer).unwrap().pem().unwrap();
        self.file("revoked.pem", &list)
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
