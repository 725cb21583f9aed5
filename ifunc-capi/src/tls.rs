//! The keys and certificates by which a process connects over `tls://`.

use std::ffi::c_char;

use ifunc_rt::keys::{Certificate, CertificateAuthority, PublicKey, SecretKey, TlsKeys};

use crate::guard::{Fault, enter};
use crate::source::ifunc_source_options;
use crate::status::ifunc_status;
use crate::target_options::ifunc_target_options;

/// The keys of a process for `tls://HOST:PORT`: its own, and those of its peers. One thread at a time may use them.
pub struct ifunc_tls_keys {
    keys: TlsKeys,
    /// The authority of the targets, and their name if it is not that of their hosts.
    targets: Option<(CertificateAuthority, Option<String>)>,
}

impl ifunc_tls_keys {
    fn all(&self) -> TlsKeys {
        let keys = self.keys.clone();
        match self.targets.clone() {
            None => keys,
            Some((authority, None)) => keys.authority(authority),
            Some((authority, Some(name))) => keys.authority(authority).target_name(&name),
        }
    }
}

/// A problem with a file.
fn invalid(error: impl std::fmt::Display) -> Fault {
    Fault::invalid(error.to_string())
}

/// Reads the secret key of this process from the file `path`, which `cargo ifunc keygen` or `openssl genpkey -algorithm ed25519` wrote, and
/// which its owner alone may read. `ifunc_tls_keys_destroy` frees `*keys`. Nothing may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_tls_keys_read(
    path: *const c_char,
    keys: *mut *mut ifunc_tls_keys,
) -> ifunc_status {
    enter(|| {
        let out = out!(keys);
        let key = SecretKey::read(text!(path)).map_err(invalid)?;
        let keys = TlsKeys::new(key);
        Ok(out.set(ifunc_tls_keys { keys, targets: None }))
    })
}

/// Adds the public key of a peer, in the file `path`: a target to which sources connect, or a source that a target admits. Nothing may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_tls_keys_add_peer(
    keys: *mut ifunc_tls_keys,
    path: *const c_char,
) -> ifunc_status {
    enter(|| {
        let keys = object_mut!(keys);
        let (peer, _) = PublicKey::read(text!(path)).map_err(invalid)?;
        keys.keys = keys.keys.clone().peer(peer);
        Ok(ifunc_status::Ok)
    })
}

/// Proves by the certificate in the file `path`, in PEM, who this process is. It is of the process's own key. Which certificates a target
/// admits is in its policy (`ifunc_target_options_read_policy`). Nothing may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_tls_keys_set_certificate(
    keys: *mut ifunc_tls_keys,
    path: *const c_char,
) -> ifunc_status {
    enter(|| {
        let keys = object_mut!(keys);
        let certificate = Certificate::read(text!(path)).map_err(invalid)?;
        keys.keys = keys.keys.clone().certificate(certificate).map_err(invalid)?;
        Ok(ifunc_status::Ok)
    })
}

/// Connects to targets that the authority certifies whose certificate is in the file `path`, in PEM, instead of those whose keys are known.
/// Their certificates must be of the name `target`; null: of the host of each address. `keys` and `path` must not be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_tls_keys_set_authority(
    keys: *mut ifunc_tls_keys,
    path: *const c_char,
    target: *const c_char,
) -> ifunc_status {
    enter(|| {
        let keys = object_mut!(keys);
        let authority = CertificateAuthority::read(text!(path)).map_err(invalid)?;
        let name = text_or_null!(target).map(str::to_owned);
        keys.targets = Some((authority, name));
        Ok(ifunc_status::Ok)
    })
}

/// Frees keys; options keep what they were given. Null: does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_tls_keys_destroy(keys: *mut ifunc_tls_keys) {
    destroy!(keys);
}

/// The keys of a source at `tls://` and at `ucx://`. Default: the files that IFUNC_TLS_KEY, IFUNC_TLS_PEERS, IFUNC_TLS_CERTIFICATE and IFUNC_TLS_AUTHORITY
/// name. Nothing may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_source_options_set_tls(
    options: *mut ifunc_source_options,
    keys: *const ifunc_tls_keys,
) -> ifunc_status {
    enter(|| {
        let options = object_mut!(options);
        options.0.tls = Some(object!(keys).all());
        Ok(ifunc_status::Ok)
    })
}

/// The keys of a target that listens at `tls://`, or at `ucx://`. It admits their peers, and those of its policy. Default: as
/// `ifunc_source_options_set_tls` says. Nothing may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ifunc_target_options_set_tls(
    options: *mut ifunc_target_options,
    keys: *const ifunc_tls_keys,
) -> ifunc_status {
    enter(|| {
        let options = object_mut!(options);
        let keys = object!(keys).all();
        options.set(move |builder| builder.tls(keys.clone()))
    })
}
