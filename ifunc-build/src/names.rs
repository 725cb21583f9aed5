//! Names of ifuncs. A source finds a library by its name, so each name is one ifunc.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::shared_library::{io, origin_of};
use crate::{BuildError, BuiltIfunc, Progress};

/// The names of one folder of libraries.
#[derive(Debug)]
pub(crate) struct Names {
    folder: PathBuf,
    others: Others,
    /// The location of each name's definition, and its language.
    claimed: BTreeMap<String, (String, Kind)>,
}

/// Packages outside this build: their libraries are not replaced.
#[derive(Debug)]
enum Others {
    /// Every package: C files are built by themselves.
    All,
    /// These ifunc packages of the workspace. Libraries of packages that are gone may be replaced.
    These(BTreeSet<String>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Rust,
    C,
}

/// Precedes a package's name in the origin of a library.
const PACKAGE: &str = "package ";

impl Names {
    /// The names of a folder that packages also build into, for C files that belong to no package.
    pub(crate) fn beside_packages(folder: &Path) -> Self {
        Self {
            folder: folder.into(),
            others: Others::All,
            claimed: BTreeMap::new(),
        }
    }

    /// The names of a folder that the packages `others` also build into.
    pub(crate) fn beside(folder: &Path, others: BTreeSet<String>) -> Self {
        Self {
            others: Others::These(others),
            ..Self::beside_packages(folder)
        }
    }

    /// The folder of the libraries.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The origin in the library of a package.
    pub(crate) fn package_origin(package: &str) -> String {
        format!("{PACKAGE}{package}")
    }

    /// The origin in the library of a C file.
    pub(crate) fn c_origin(package: Option<&str>, file: &Path) -> String {
        match package {
            Some(package) => Self::package_origin(package),
            None => format!("file {}", file.display()),
        }
    }

    /// Removes the libraries of ifuncs that a package no longer has: a source must not find them.
    pub(crate) fn remove_vanished(
        &self,
        package: &str,
        built: &[BuiltIfunc],
        progress: &mut dyn Progress,
    ) -> Result<(), BuildError> {
        let Ok(entries) = std::fs::read_dir(&self.folder) else {
            return Ok(());
        };
        let origin = Self::package_origin(package);
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            let Some(name) = path.file_stem().and_then(|stem| stem.to_str()) else {
                continue;
            };
            if path.extension().is_none_or(|extension| extension != "so")
                || built.iter().any(|ifunc| ifunc.name == name)
                || origin_of(&path, name).as_ref() != Some(&origin)
            {
                continue;
            }
            std::fs::remove_file(&path).map_err(io("remove", &path))?;
            progress.removed(&path);
        }
        Ok(())
    }

    /// Claims a name for a Rust ifunc.
    pub(crate) fn claim_rust(&mut self, name: &str, package: &str) -> Result<(), BuildError> {
        self.claim(name, format!("package `{package}`"), Kind::Rust)
    }

    /// Claims a name for a C ifunc.
    pub(crate) fn claim_c(&mut self, name: &str, file: &Path) -> Result<(), BuildError> {
        self.claim(name, format!("`{}`", file.display()), Kind::C)
    }

    fn claim(&mut self, name: &str, place: String, kind: Kind) -> Result<(), BuildError> {
        let earlier = self.claimed.get(name).cloned();
        let there = self.library_of_others(name).filter(|_| earlier.is_none());
        let built = there
            .as_ref()
            .map(|package| (format!("package `{package}`"), Kind::Rust));
        let Some((first, first_kind)) = earlier.or(built) else {
            self.claimed.insert(name.into(), (place, kind));
            return Ok(());
        };
        let rename = |place: &str, kind| match kind {
            Kind::Rust => format!(
                "in {place}, write `#[ifunc(name = \"{name}_2\")]`, or give the function another name"
            ),
            Kind::C => format!("in {place}, give the functions `{name}_*` another prefix"),
        };
        let mut help = format!("{}; or {}", rename(&place, kind), rename(&first, first_kind));
        if let Some(package) = there {
            let library = self.library(name);
            // `PACKAGE example NAME` is what an example is called.
            let arguments = package.replace(" example ", " --example ");
            help += &format!(
                "\nhelp: if the other ifunc no longer exists, `{}` is out of date: `cargo ifunc build -p {arguments}` builds the ifuncs that `{package}` has now and removes the libraries of others",
                library.display()
            );
        }
        Err(BuildError::DuplicateName {
            name: name.into(),
            first,
            second: place,
            help,
        })
    }

    fn library(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.so"))
    }

    /// The other package whose library of this name would be replaced.
    fn library_of_others(&self, name: &str) -> Option<String> {
        let origin = origin_of(&self.library(name), name)?;
        let package = origin.strip_prefix(PACKAGE)?;
        match &self.others {
            Others::All => true,
            Others::These(others) => others.contains(package),
        }
        .then(|| package.into())
    }
}
