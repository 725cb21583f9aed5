//! Where the sockets of a user's targets are.
//!
//! `$IFUNC_RUNTIME_DIR`, if it is set: a directory that the administrator prepared, used as it is unless every
//! user may write to it. It lets the users of a group share targets; a source still checks whose target it reached. Otherwise `$XDG_RUNTIME_DIR/ifunc`,
//! otherwise `/tmp/ifunc-UID`: created with mode 0700 and used only if they belong to this user alone, so
//! that the process that answers there is the same user's.

use std::env;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::net::SocketAddrUnix;
use rustix::process::geteuid;

use crate::transport::{ConnectError, ListenError};

/// A directory that cannot be trusted, or could not be created.
#[derive(Debug)]
pub(super) struct Untrusted {
    pub(super) path: PathBuf,
    pub(super) problem: String,
}

impl From<Untrusted> for ListenError {
    fn from(Untrusted { path, problem }: Untrusted) -> Self {
        Self::Directory { path, problem }
    }
}

impl From<Untrusted> for ConnectError {
    fn from(Untrusted { path, problem }: Untrusted) -> Self {
        Self::Directory { path, problem }
    }
}

/// A directory for sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Directory {
    path: PathBuf,
    /// The administrator prepared it.
    prepared: bool,
}

/// Where to look for targets, in this order. A target listens at the first. (A login session has
/// `XDG_RUNTIME_DIR` set and a service of the same user may not: so a source looks further.)
pub(super) fn candidates() -> Vec<Directory> {
    choose(
        env::var_os("IFUNC_RUNTIME_DIR").map(PathBuf::from),
        env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from),
        geteuid().as_raw(),
    )
}

fn choose(prepared: Option<PathBuf>, session: Option<PathBuf>, uid: u32) -> Vec<Directory> {
    if let Some(path) = prepared.filter(|path| !path.as_os_str().is_empty()) {
        return vec![Directory { path, prepared: true }];
    }
    let session = session
        .filter(|path| path.is_absolute())
        .map(|path| path.join("ifunc"));
    let fallback = PathBuf::from(format!("/tmp/ifunc-{uid}"));
    let directory = |path| Directory {
        path,
        prepared: false,
    };
    session.into_iter().chain([fallback]).map(directory).collect()
}

impl Directory {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether nothing is in it but what this transport made.
    pub(super) fn is_ours(&self) -> bool {
        !self.prepared
    }

    /// The socket of the target `name`, and its address if its path is not too long for one.
    pub(super) fn socket(&self, name: &str) -> (PathBuf, Result<SocketAddrUnix, Untrusted>) {
        let path = self.path.join(format!("{name}.sock"));
        let address = SocketAddrUnix::new(&path).map_err(|_| {
            self.untrusted("with the name, it is longer than the 107 bytes of a socket's path; help: set IFUNC_RUNTIME_DIR to a shorter one".into())
        });
        (path, address)
    }

    /// Makes it if it is not there, and checks it.
    pub(super) fn prepare(&self) -> Result<(), Untrusted> {
        if !self.prepared
            && let Err(error) = std::fs::DirBuilder::new().mode(0o700).create(&self.path)
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(self.untrusted(format!("it cannot be created ({error}); help: set XDG_RUNTIME_DIR to a directory that only you can use")));
        }
        if !self.check()? {
            let problem = "it does not exist; help: create it, or unset IFUNC_RUNTIME_DIR";
            return Err(self.untrusted(problem.into()));
        }
        Ok(())
    }

    /// Whether it is there; an error if it can not be trusted.
    pub(super) fn check(&self) -> Result<bool, Untrusted> {
        let metadata = match std::fs::symlink_metadata(&self.path) {
            // A prepared directory may be a link.
            Ok(link) if link.is_symlink() && self.prepared => std::fs::metadata(&self.path),
            other => other,
        };
        let metadata = match metadata {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(self.untrusted(format!("it cannot be examined ({error})"))),
        };
        let problem = if !metadata.is_dir() {
            "it is not a directory; help: remove it".into()
        } else if self.prepared {
            // Sticky or not: another user who may write takes a name before its target does.
            if metadata.mode() & 0o002 == 0 {
                return Ok(true);
            }
            "every user can write to it, and answer there in place of a target; help: chmod o-w, and give it a group whose users share it".into()
        } else if metadata.uid() != geteuid().as_raw() {
            format!(
                "it belongs to user {} and not to this one; help: set XDG_RUNTIME_DIR to a directory of your own",
                metadata.uid()
            )
        } else if metadata.mode() & 0o077 != 0 {
            format!(
                "other users can get in (mode {:03o}); help: chmod 700",
                metadata.mode() & 0o777
            )
        } else {
            return Ok(true);
        };
        Err(self.untrusted(problem))
    }

    fn untrusted(&self, problem: String) -> Untrusted {
        Untrusted {
            path: self.path.clone(),
            problem,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn the_first_that_is_set_wins() {
        let dirs = |prepared: &str, session: &str| {
            choose(Some(prepared.into()), Some(session.into()), 7)
                .into_iter()
                .map(|dir| dir.path)
                .collect::<Vec<_>>()
        };
        assert_eq!(dirs("", ""), [Path::new("/tmp/ifunc-7")]);
        assert_eq!(dirs("", "relative"), [Path::new("/tmp/ifunc-7")]);
        assert_eq!(
            dirs("", "/run/user/7"),
            [Path::new("/run/user/7/ifunc"), Path::new("/tmp/ifunc-7")]
        );
        assert_eq!(dirs("/srv/ifunc", "/run/user/7"), [Path::new("/srv/ifunc")]);
    }

    #[test]
    fn a_directory_that_others_reach_is_not_trusted() {
        let base = env::temp_dir().join(format!("ifunc-directory-{}", std::process::id()));
        std::fs::create_dir(&base).unwrap();
        let own = |name: &str| Directory {
            path: base.join(name),
            prepared: false,
        };
        let set_mode = |name: &str, mode| {
            std::fs::set_permissions(base.join(name), std::fs::Permissions::from_mode(mode)).unwrap();
        };
        assert!(!own("fresh").check().unwrap());
        own("fresh").prepare().unwrap();
        own("fresh").prepare().unwrap();
        set_mode("fresh", 0o750);
        assert!(own("fresh").prepare().unwrap_err().problem.contains("mode 750"));
        symlink(base.join("fresh"), base.join("link")).unwrap();
        assert!(
            own("link")
                .check()
                .unwrap_err()
                .problem
                .contains("not a directory")
        );
        let prepared = Directory {
            prepared: true,
            ..own("fresh")
        };
        assert!(prepared.check().unwrap());
        assert!(!prepared.is_ours() && own("fresh").is_ours());
        // A prepared one may be a link.
        let linked = Directory {
            prepared: true,
            ..own("link")
        };
        assert!(linked.check().unwrap());
        std::fs::write(base.join("file"), "").unwrap();
        let below = own("file/below").check().unwrap_err();
        assert!(below.problem.contains("cannot be examined"), "{below:?}");
        set_mode("fresh", 0o777);
        assert!(prepared.check().is_err());
        set_mode("fresh", 0o1777);
        assert!(prepared.check().unwrap_err().problem.contains("chmod o-w"));
        set_mode("fresh", 0o2770);
        assert!(prepared.check().unwrap());
        assert!(
            Directory {
                prepared: true,
                ..own("missing")
            }
            .prepare()
            .is_err()
        );
        std::fs::remove_dir_all(base).unwrap();
    }
}
