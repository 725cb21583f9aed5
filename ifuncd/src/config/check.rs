//! From the text of a file to a configuration.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ifunc_rt::keys::PublicKey;
use toml::Spanned;

use super::error::Reader;
use super::file::ConfigFile;
use super::peers::{key_named, public_key};
use super::tables::quotas_of;
use super::{Config, ConfigError};
use crate::capability::Capability;
use crate::peer::PeerSettings;

/// Where the problem is, and what it is; the help follows.
pub(super) type Wrong = (Range<usize>, String, Option<String>);

pub(super) fn of_text(text: &str, path: &Path) -> Result<Config, ConfigError> {
    let mut check = Check {
        reader: Reader {
            path,
            text,
            problems: Vec::new(),
        },
        folder: path.parent().unwrap_or(Path::new("")),
    };
    let file: ConfigFile = toml::from_str(text).map_err(|error| {
        let span = error.span().unwrap_or(0..0);
        let key = check.reader.key_at(span.start);
        let why = error.message().to_owned();
        ConfigError::Lines(vec![check.reader.problem(&key, span, why, None)])
    })?;
    let config = check.config(file);
    check
        .reader
        .problems
        .sort_by_key(|problem| (problem.line, problem.column));
    match check.reader.problems.is_empty() {
        true => Ok(config),
        false => Err(ConfigError::Lines(check.reader.problems)),
    }
}

pub(super) struct Check<'a> {
    pub(super) reader: Reader<'a>,
    pub(super) folder: &'a Path,
}

impl Check<'_> {
    pub(super) fn wrong(&mut self, key: &str, span: Range<usize>, why: impl Into<String>, help: &str) {
        let help = (!help.is_empty()).then(|| help.to_owned());
        self.reader.note(key, span, why.into(), help);
    }

    /// The value, or the problem is noted.
    pub(super) fn or_note<T>(&mut self, key: &str, result: Result<T, Wrong>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err((span, why, help)) => {
                self.reader.note(key, span, why, help);
                None
            }
        }
    }

    pub(super) fn path_of(&self, path: &Spanned<String>) -> PathBuf {
        self.folder.join(path.get_ref())
    }

    fn config(&mut self, file: ConfigFile) -> Config {
        let ConfigFile {
            listen,
            metrics,
            log,
            faults,
            runners,
            quotas,
            store,
            files,
            memory,
            signer,
            peer,
        } = file;
        let at_listen = listen.span();
        let listen = self.listen(listen.into_inner());
        let metrics = metrics.and_then(|table| {
            let parsed = table.address.get_ref().parse();
            parsed
                .map_err(|_| {
                    self.wrong(
                        "metrics.address",
                        table.address.span(),
                        format!("`{}` is not an address and a port", table.address.get_ref()),
                        "write `\"127.0.0.1:9177\"`, or `\"[::1]:9177\"`",
                    )
                })
                .ok()
        });
        let log = self.log(&log);
        let faults = self.faults(&faults, &runners);
        let store = store.map(|table| self.store(&table));
        let files = files.map(|table| self.files(&table));
        let memory = memory.map(|table| table.max_bytes.0);
        let mut signers = Vec::<(String, PublicKey)>::new();
        for table in signer {
            let key = public_key(
                &table.name,
                table.public.as_ref(),
                table.file.as_ref(),
                self.folder,
            );
            let Some(key) = self.or_note(key_named("signer", table.public.is_some()), key) else {
                continue;
            };
            if signers
                .iter()
                .any(|(name, known)| name == table.name.get_ref() || *known == key)
            {
                self.wrong(
                    "signer.name",
                    table.name.span(),
                    "two signers have this name or this key",
                    "keep one of them",
                );
            }
            signers.push((table.name.into_inner(), key));
        }
        let has = |capability| match capability {
            Capability::Store => store.is_some(),
            Capability::Files => files.is_some(),
            Capability::Memory => memory.is_some(),
            Capability::Time | Capability::Random | Capability::Log => true,
        };
        let is_writable = files.as_ref().is_some_and(|files| files.is_writable);
        let mut peers = Vec::<PeerSettings>::new();
        let mut known = HashMap::new();
        let mut names = HashSet::new();
        for table in peer {
            let span = table.name.span();
            let Some(settings) = self.peer(table, &has, is_writable, &signers, &listen) else {
                continue;
            };
            if !names.insert(Arc::clone(&settings.name)) {
                self.wrong(
                    "peer.name",
                    span.clone(),
                    format!("two peers are called `{}`", settings.name),
                    "give each peer a name of its own",
                );
            }
            if let Some(other) = known.insert(settings.identity.clone(), Arc::clone(&settings.name)) {
                self.wrong(
                    "peer.name",
                    span,
                    format!(
                        "the peers `{other}` and `{}` are recognised by the same key, certificate or user",
                        settings.name
                    ),
                    "keep one of them",
                );
            }
            peers.push(settings);
        }
        if peers.is_empty() && self.reader.problems.is_empty() {
            self.wrong(
                "peer",
                at_listen,
                "no source may connect: there is no `[[peer]]`",
                "add `[[peer]]` with a `name`, a `file` or a `user`, and `capabilities`",
            );
        }
        Config {
            path: self.reader.path.to_owned(),
            listen,
            metrics,
            log,
            faults,
            quotas: quotas_of(&quotas),
            store,
            files,
            memory,
            signers,
            peers,
        }
    }
}
