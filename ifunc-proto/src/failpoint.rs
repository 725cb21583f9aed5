//! Points at which a test stops the connection. They exist only with the feature `failpoints`.

#[cfg(feature = "failpoints")]
use std::sync::OnceLock;

#[cfg(feature = "failpoints")]
static HOOK: OnceLock<fn(&'static str)> = OnceLock::new();

/// Sets the function that each failpoint calls with its name. The first call wins.
#[cfg(feature = "failpoints")]
pub fn set_hook(hook: fn(&'static str)) {
    let _ = HOOK.set(hook);
}

#[cfg(feature = "failpoints")]
pub(crate) fn hit(name: &'static str) {
    if let Some(hook) = HOOK.get() {
        hook(name);
    }
}

/// Calls the hook with the name of a failpoint.
macro_rules! failpoint {
    ($name:literal) => {
        #[cfg(feature = "failpoints")]
        $crate::failpoint::hit($name);
    };
}
