//! Certificates that `keygen` makes.

use std::path::Path;
use std::time::{Duration, SystemTime};

use ifunc_rt::keys::SecretKey;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};

use crate::error::Failure;

const DAY: Duration = Duration::from_secs(24 * 3600);
/// How long the certificate of an authority is valid.
const AUTHORITY_DAYS: u32 = 3650;

/// The certificate of an authority that has this key, in PEM.
pub(super) fn authority(key: &SecretKey) -> Result<String, Failure> {
    let certificate = of_authority(key).self_signed(&pair(key)?);
    Ok(certificate.map_err(failed)?.pem())
}

/// A certificate of this key for these names, in PEM, which the authority issues whose key is in the file `by`.
pub(super) fn certificate(
    key: &SecretKey,
    names: &[String],
    days: u32,
    by: &Path,
) -> Result<String, Failure> {
    let authority = SecretKey::read(by)?;
    let issuer = Issuer::new(of_authority(&authority), pair(&authority)?);
    let mut params = valid(days);
    params.distinguished_name.push(DnType::CommonName, key.name());
    let names = names.iter().map(|name| alternative(name));
    params.subject_alt_names = names.collect::<Result<_, _>>()?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    // A node is on both sides.
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    let certificate = params.signed_by(&pair(key)?, &issuer);
    Ok(certificate.map_err(failed)?.pem())
}

/// What the certificate of an authority says. Its name is that of its key, and the certificates that it issues name it by that.
fn of_authority(key: &SecretKey) -> CertificateParams {
    let mut params = valid(AUTHORITY_DAYS);
    params.distinguished_name.push(DnType::CommonName, key.name());
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// Valid from now, on clocks that are an hour late, too.
fn valid(days: u32) -> CertificateParams {
    let now = SystemTime::now();
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.not_before = (now - DAY / 24).into();
    params.not_after = (now + DAY * days).into();
    params
}

fn alternative(name: &str) -> Result<SanType, Failure> {
    if let Ok(address) = name.parse() {
        return Ok(SanType::IpAddress(address));
    }
    let is_dns = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '*');
    let kind = match name.try_into() {
        Ok(text) if name.contains("://") => Some(SanType::URI(text)),
        Ok(text) if !name.is_empty() && name.chars().all(is_dns) => Some(SanType::DnsName(text)),
        _ => None,
    };
    kind.ok_or_else(|| {
        Failure::Usage(format!(
            "`{name}` is no name for a certificate\nhelp: write a DNS name, an IP address or a URI, such as `store.example`, `10.1.0.7` or `spiffe://cluster/store`"
        ))
    })
}

fn pair(key: &SecretKey) -> Result<KeyPair, Failure> {
    KeyPair::try_from(key.to_pkcs8()).map_err(failed)
}

fn failed(error: rcgen::Error) -> Failure {
    Failure::Message(format!("cannot make a certificate: {error}"))
}
