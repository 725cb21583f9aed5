//! The tables of the whole daemon: what it logs, how it runs ifuncs, and what it offers.

use std::path::Path;
use std::time::Duration;

use ifunc_rt::{Level, Quotas, RunnerOptions};
use toml::Spanned;

use super::check::Check;
use super::file::{FaultsTable, FilesTable, LogTable, QuotasTable, RunnersTable, Size, StoreTable, Time};
use super::{Faults, Files, Log, Store};

impl Check<'_> {
    pub(super) fn log(&mut self, table: &LogTable) -> Log {
        let level = table.level.as_ref().map(|level| match level.get_ref().as_str() {
            "error" => Ok(tracing::Level::ERROR),
            "warn" => Ok(tracing::Level::WARN),
            "info" => Ok(tracing::Level::INFO),
            "debug" => Ok(tracing::Level::DEBUG),
            other => Err((
                level.span(),
                format!("there is no level `{other}`"),
                Some("write `\"error\"`, `\"warn\"`, `\"info\"` or `\"debug\"`".to_owned()),
            )),
        });
        let level = level.and_then(|level| self.or_note("log.level", level));
        let audit = table.audit.as_ref().map(|file| {
            let path = self.path_of(file);
            self.parent_exists("log.audit", file, &path);
            path
        });
        Log {
            level: level.unwrap_or(tracing::Level::INFO),
            audit,
        }
    }

    fn parent_exists(&mut self, key: &str, file: &Spanned<String>, path: &Path) {
        let parent = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        if !parent.is_dir() {
            self.wrong(
                key,
                file.span(),
                format!("the folder `{}` of this file is not there", parent.display()),
                "make it, or name another file",
            );
        }
    }

    pub(super) fn faults(&mut self, table: &FaultsTable, runners: &RunnersTable) -> Faults {
        let level = table.level.as_ref().map(|level| match level.get_ref().as_str() {
            "process" => Ok(Level::Process),
            "contained" => Ok(Level::Contained),
            "panics" => Ok(Level::Panics),
            other => Err((
                level.span(),
                format!("there is no level `{other}`"),
                Some("write `\"process\"`, `\"contained\"` or `\"panics\"`".to_owned()),
            )),
        });
        let level = level
            .and_then(|level| self.or_note("faults.level", level))
            .unwrap_or(Level::Process);
        let least = 512 << 10;
        if let Some(bytes) = table
            .stack_bytes
            .as_ref()
            .filter(|bytes| bytes.get_ref().0 < least)
        {
            self.wrong(
                "faults.stack-bytes",
                bytes.span(),
                "the stack is too small",
                "write at least `524_288`",
            );
        }
        let mut options = RunnerOptions::new().without_landlock(runners.without_landlock);
        // The daemon is its own runner program.
        if let Ok(program) = std::env::current_exe() {
            options = options.program(program);
        }
        if let Some(Size(bytes)) = runners.memory_bytes {
            options = options.memory(bytes);
        }
        if let Some(Time(time)) = runners.cpu_time {
            options = options.cpu_time(time);
        }
        if let Some(count) = &runners.max_runners {
            if *count.get_ref() == 0 {
                self.wrong(
                    "runners.max-runners",
                    count.span(),
                    "0 processes run nothing",
                    "write at least 1",
                );
            }
            options = options.max_runners(*count.get_ref() as usize);
        }
        Faults {
            level,
            max_run_time: table
                .max_run_time
                .map_or(Duration::from_secs(10), |Time(time)| time),
            stack_bytes: table
                .stack_bytes
                .as_ref()
                .map_or(4 << 20, |bytes| bytes.get_ref().usize()),
            runners: options,
        }
    }

    pub(super) fn store(&mut self, table: &StoreTable) -> Store {
        let file = self.path_of(&table.file);
        self.parent_exists("store.file", &table.file, &file);
        let durability = table
            .durability
            .as_ref()
            .map(|durability| match durability.get_ref().as_str() {
                "immediate" => Ok(true),
                "second" => Ok(false),
                other => Err((
                    durability.span(),
                    format!("there is no durability `{other}`"),
                    Some(
                        "write `\"immediate\"`, or `\"second\"`: on the disk within about a second"
                            .to_owned(),
                    ),
                )),
            });
        Store {
            file,
            is_immediate: durability
                .and_then(|it| self.or_note("store.durability", it))
                .unwrap_or(true),
            cache_bytes: table.cache_bytes.map_or(64 << 20, Size::usize),
        }
    }

    pub(super) fn files(&mut self, table: &FilesTable) -> Files {
        let folder = self.path_of(&table.folder);
        let why = match std::fs::metadata(&folder) {
            Ok(about) if about.is_dir() => None,
            Ok(_) => Some(format!("`{}` is not a folder", folder.display())),
            Err(error) => Some(format!("`{}`: {error}", folder.display())),
        };
        if let Some(why) = why {
            self.wrong(
                "files.folder",
                table.folder.span(),
                why,
                "name a folder that the daemon may read",
            );
        }
        Files {
            folder,
            is_writable: table.writable,
            max_file_bytes: table.max_file_bytes.map_or(1 << 30, |Size(bytes)| bytes),
        }
    }
}

/// What each connection may use.
pub(super) fn quotas_of(table: &QuotasTable) -> Quotas {
    let mut quotas = Quotas::default();
    let set = |value: Option<Size>, field: &mut usize| {
        if let Some(size) = value {
            *field = size.usize();
        }
    };
    set(table.image_bytes, &mut quotas.image_bytes);
    set(table.code_bytes, &mut quotas.code_bytes);
    set(table.payload_bytes, &mut quotas.payload_bytes);
    set(table.answer_bytes, &mut quotas.answer_bytes);
    if let Some(images) = table.images {
        quotas.images = images as usize;
    }
    if let Some(rate) = table.installs_per_second {
        quotas.installs_per_second = rate;
    }
    quotas
}
