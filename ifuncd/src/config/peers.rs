//! The tables of sources and of keys.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ifunc_rt::Quotas;
use ifunc_rt::keys::{KeyError, PublicKey};
use toml::Spanned;

use super::Listen;
use super::check::{Check, Wrong};
use super::file::{PeerTable, Size, Time, User};
use crate::capability::{Capabilities, Capability};
use crate::peer::{Identity, PeerSettings};

impl Check<'_> {
    /// What the configuration says of a source.
    pub(super) fn peer(
        &mut self,
        table: PeerTable,
        has: &dyn Fn(Capability) -> bool,
        is_writable: bool,
        signers: &[(String, PublicKey)],
        listen: &Listen,
    ) -> Option<PeerSettings> {
        let name = self.name("peer.name", &table.name)?;
        let identity = self.identity(&table, listen);
        let mut capabilities = Capabilities::default();
        for capability in table.capabilities.get_ref() {
            match Capability::by_name(capability.get_ref()) {
                None => {
                    let names: Vec<_> = Capability::ALL.iter().map(|one| format!("`\"{one}\"`")).collect();
                    let help = format!("write some of {}", names.join(", "));
                    self.wrong(
                        "peer.capabilities",
                        capability.span(),
                        format!("there is no capability `{}`", capability.get_ref()),
                        &help,
                    );
                }
                Some(one) if !has(one) => {
                    let help = format!("add the table `[{one}]`, or leave the capability out");
                    self.wrong(
                        "peer.capabilities",
                        capability.span(),
                        format!("the node has no `{one}`: there is no table `[{one}]`"),
                        &help,
                    );
                }
                Some(one) => capabilities.add(one),
            }
        }
        for signer in table.signers.iter().flatten() {
            if !signers.iter().any(|(name, _)| name == signer.get_ref()) {
                self.wrong(
                    "peer.signers",
                    signer.span(),
                    format!("there is no `[[signer]]` called `{}`", signer.get_ref()),
                    "add it, with its key",
                );
            }
        }
        if !table.unsigned && signers.is_empty() {
            self.wrong(
                "peer.unsigned",
                table.name.span(),
                "this peer may send signed code only, and there is no `[[signer]]`",
                "add `[[signer]]` with a `name` and a `file`, or `unsigned = true` to the peer",
            );
        }
        let namespace = match &table.namespace {
            Some(namespace) => self.name("peer.namespace", namespace)?,
            None => Arc::clone(&name),
        };
        let writes = table
            .writes_files
            .as_ref()
            .is_some_and(|writes| *writes.get_ref());
        if let Some(writes) = table.writes_files.as_ref().filter(|_| writes && !is_writable) {
            self.wrong(
                "peer.writes-files",
                writes.span(),
                "no source may write files: `files.writable` is not true",
                "write `writable = true` in `[files]`, or leave this out",
            );
        }
        let folder = table
            .folder
            .as_ref()
            .map_or("", |folder| folder.get_ref().as_str());
        if folder.starts_with('/') || folder.split('/').any(|part| part == "..") {
            let span = table.folder.as_ref().map_or(0..0, Spanned::span);
            self.wrong(
                "peer.folder",
                span,
                format!("`{folder}` leads out of the folder of the node"),
                "write a path below `files.folder`: `folder = \"ada\"`",
            );
        }
        let quotas = &table.quotas;
        let or = |size: Option<Size>, default: usize| size.map_or(default, Size::usize);
        let count = |number: Option<u32>| number.map_or(usize::MAX, |number| number as usize);
        let unlimited = Quotas::UNLIMITED;
        Some(PeerSettings {
            name,
            identity: identity?,
            namespace,
            capabilities,
            unsigned: table.unsigned,
            signers: table
                .signers
                .map(|all| all.into_iter().map(Spanned::into_inner).collect()),
            folder: folder.to_owned(),
            writes_files: writes,
            quotas: unlimited
                .image_bytes(or(quotas.image_bytes, unlimited.image_bytes))
                .code_bytes(or(quotas.code_bytes, unlimited.code_bytes))
                .images(count(quotas.images))
                .installs_per_second(quotas.installs_per_second.unwrap_or(u32::MAX))
                .payload_bytes(or(quotas.payload_bytes, unlimited.payload_bytes))
                .answer_bytes(or(quotas.answer_bytes, unlimited.answer_bytes))
                .in_flight(count(quotas.in_flight))
                .invocations_per_second(quotas.invocations_per_second.unwrap_or(u32::MAX))
                .run_time(quotas.run_time.map_or(Duration::MAX, |Time(time)| time))
                .run_time_per_second(
                    quotas
                        .run_time_per_second
                        .map_or(Duration::MAX, |Time(time)| time),
                ),
            calls_per_second: quotas.calls_per_second,
            store_bytes: quotas.store_bytes.map_or(64 << 20, |Size(bytes)| bytes),
            memory_bytes: quotas.memory_bytes.map_or(16 << 20, |Size(bytes)| bytes),
        })
    }

    fn name(&mut self, key: &str, name: &Spanned<String>) -> Option<Arc<str>> {
        let text = name.get_ref();
        let is_name = (1..=64).contains(&text.len())
            && text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_.@".contains(c));
        if !is_name {
            self.wrong(
                key,
                name.span(),
                format!("`{text}` is not a name here"),
                "write 1 to 64 letters, digits, `-`, `_`, `.` and `@`",
            );
        }
        is_name.then(|| text.as_str().into())
    }

    fn identity(&mut self, table: &PeerTable, listen: &Listen) -> Option<Identity> {
        let span = table.name.span();
        let has_key = table.public.is_some() || table.file.is_some();
        let given = [has_key, table.certificate.is_some(), table.user.is_some()];
        if given.iter().filter(|given| **given).count() != 1 {
            self.wrong("peer.name", span, "a peer is recognised by one of: a key, a certificate, a user", "write `file = \"ada.pub\"` or `public = \"KEY\"`, `certificate = \"NAME\"`, or `user = 1000`");
            return None;
        }
        if let Some(user) = &table.user {
            let has_shm = listen.addresses.iter().any(|address| address.starts_with("shm:"));
            if !has_shm {
                self.wrong(
                    "peer.user",
                    user.span(),
                    "users are known over shared memory only, and the daemon has no `shm:` address",
                    "add `\"shm:ifuncd\"` to `listen.addresses`, or give the peer a key",
                );
            }
            return Some(Identity::User(match user.get_ref() {
                User::Own => rustix::process::geteuid().as_raw(),
                User::Number(number) => *number,
            }));
        }
        if let Some(name) = &table.certificate {
            if listen.authority.is_none() {
                self.wrong(
                    "peer.certificate",
                    name.span(),
                    "there is no authority whose certificates are believed",
                    "name its file: `authority = \"cluster.pem\"` in `[listen]`",
                );
            }
            return Some(Identity::Certificate(name.get_ref().clone()));
        }
        let key = public_key(
            &table.name,
            table.public.as_ref(),
            table.file.as_ref(),
            self.folder,
        );
        self.or_note(key_named("peer", table.public.is_some()), key)
            .map(Identity::Key)
    }
}

/// Where the key of a table is.
pub(super) fn key_named(table: &str, is_public: bool) -> &'static str {
    match (table, is_public) {
        ("signer", true) => "signer.public",
        ("signer", false) => "signer.file",
        (_, true) => "peer.public",
        (_, false) => "peer.file",
    }
}

/// The key of a table.
pub(super) fn public_key(
    name: &Spanned<String>,
    public: Option<&Spanned<String>>,
    file: Option<&Spanned<String>>,
    folder: &Path,
) -> Result<PublicKey, Wrong> {
    // The help of these errors is for programs.
    let first = |why: String| why.split("; help: ").next().unwrap_or_default().to_owned();
    match (public, file) {
        (Some(public), None) => public.get_ref().parse().map_err(|error: KeyError| {
            let help = "write the 64 hexadecimal digits of a file that `cargo ifunc keygen` wrote".to_owned();
            (public.span(), first(error.to_string()), Some(help))
        }),
        (None, Some(file)) => {
            let read = PublicKey::read(folder.join(file.get_ref())).map(|(key, _)| key);
            read.map_err(|error| {
                let help = "name a file `NAME.pub` that `cargo ifunc keygen` wrote".to_owned();
                (file.span(), first(error.to_string()), Some(help))
            })
        }
        _ => {
            let help = "write `file = \"NAME.pub\"`, or `public = \"KEY\"`".to_owned();
            Err((
                name.span(),
                "a key has either `file` or `public`".to_owned(),
                Some(help),
            ))
        }
    }
}
