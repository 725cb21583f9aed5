//! A point in time that crosses between programs with and without `std`.

use core::time::Duration;

use ifunc_abi::text::Text;
use serde::{Deserialize, Serialize};

use crate::Shape;

/// A point in time: `std::time::SystemTime` for ifuncs, which have no `std`. In payloads, answers and the fields of serde types.
///
/// Both convert into each other outside of images, and serde's binary formats write the same bytes for both.
///
/// ```
/// use ifunc::prelude::*;
/// use ifunc::serde::{Deserialize, Serialize};
/// use ifunc::system::SystemTime;
/// use core::time::Duration;
///
/// #[derive(Serialize, Deserialize, Shape)]
/// #[serde(crate = "ifunc::serde")]
/// pub struct Session { user: u64, opened: SystemTime, limit: Duration }
///
/// /// Whether a session is over.
/// #[ifunc(codec = postcard)]
/// pub fn is_over(session: Session, _: &u64) -> bool {
///     SystemTime::now().since(session.opened) > session.limit
/// }
///
/// // In the source:
/// let opened = SystemTime::try_from(std::time::SystemTime::now()).expect("after 1970");
/// # assert!(is_over(Session { user: 1, opened: SystemTime::UNIX_EPOCH, limit: Duration::from_secs(60) }, &0));
/// # assert!(!is_over(Session { user: 1, opened, limit: Duration::from_secs(600) }, &0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SystemTime(Duration);

impl SystemTime {
    /// The beginning of 1970, UTC.
    pub const UNIX_EPOCH: Self = Self(Duration::ZERO);

    /// Now, by the target's clock, which may be set meanwhile.
    #[must_use]
    pub fn now() -> Self {
        Self(super::system::unix_time())
    }

    /// The time since the beginning of 1970.
    #[must_use]
    pub const fn since_epoch(self) -> Duration {
        self.0
    }

    /// The time since `earlier`; none if that is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// So long after the beginning of 1970.
impl From<Duration> for SystemTime {
    fn from(since_epoch: Duration) -> Self {
        Self(since_epoch)
    }
}

#[cfg(not(ifunc_image))]
impl TryFrom<std::time::SystemTime> for SystemTime {
    type Error = std::time::SystemTimeError;

    /// Fails for times before 1970, which serde does not write either.
    fn try_from(time: std::time::SystemTime) -> Result<Self, Self::Error> {
        time.duration_since(std::time::SystemTime::UNIX_EPOCH).map(Self)
    }
}

#[cfg(not(ifunc_image))]
impl TryFrom<SystemTime> for std::time::SystemTime {
    type Error = OutOfRange;

    fn try_from(time: SystemTime) -> Result<Self, Self::Error> {
        Self::UNIX_EPOCH.checked_add(time.0).ok_or(OutOfRange)
    }
}

/// The operating system has no such time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfRange;

impl core::fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the time is later than the operating system can state")
    }
}

impl core::error::Error for OutOfRange {}

impl Shape for SystemTime {
    const TEXT: Text = Text::new().str("SystemTime");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_the_system_does_not_have_are_refused() {
        let now = std::time::SystemTime::now();
        let crossed = SystemTime::try_from(now).unwrap();
        assert_eq!(std::time::SystemTime::try_from(crossed), Ok(now));
        let error = std::time::SystemTime::try_from(SystemTime::from(Duration::MAX)).unwrap_err();
        assert_eq!(error, OutOfRange);
        assert_eq!(
            std::format!("{error}"),
            "the time is later than the operating system can state"
        );
    }
}
