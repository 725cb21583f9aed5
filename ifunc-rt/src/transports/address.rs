//! Addresses: `loopback:NAME`, `shm:NAME`.

use std::fmt;
use std::str::FromStr;

/// Where a target listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Address {
    /// A target in the same process.
    Loopback(String),
    /// A target on the same host, by the name of its socket in the user's runtime directory.
    Shm(String),
}

/// Why a text is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// The part before the colon is no transport of this version.
    #[error(
        "`{0}` names no transport; help: write `shm:NAME` for a process of this host, `loopback:NAME` for this process"
    )]
    Scheme(String),
    /// The part behind the colon is no name.
    #[error("`{0}` is not a name: 1 to 64 letters, digits, `-`, `_` and `.`, not starting with `.`")]
    Name(String),
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let Some((scheme, name)) = text.split_once(':') else {
            return Err(AddressError::Scheme(text.into()));
        };
        let fits = (1..=64).contains(&name.len())
            && !name.starts_with('.')
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        let name = || {
            if fits {
                Ok(name.to_owned())
            } else {
                Err(AddressError::Name(name.into()))
            }
        };
        match scheme {
            "loopback" => Ok(Self::Loopback(name()?)),
            "shm" => Ok(Self::Shm(name()?)),
            _ => Err(AddressError::Scheme(text.into())),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loopback(name) => write!(f, "loopback:{name}"),
            Self::Shm(name) => write!(f, "shm:{name}"),
        }
    }
}
