//! Failpoints: named places at which a process reports its position and stops, so that a test can kill, stop or
//! restart it, or its peer, exactly there. Only the feature `failpoints` compiles them in, and only the project's own
//! `cargo xtask faults` enables it.
//!
//! (The crate `fail` controls a process's points from within that process. Here another process decides, and needs a
//! report that the point was reached.)

/// A place where a test can stop the process: `failpoint!("target.install")`.
macro_rules! failpoint {
    ($name:literal) => {
        #[cfg(feature = "failpoints")]
        $crate::failpoint::failpoints::reach($name);
    };
}

/// Places where this process reports its position and stops.
///
/// `IFUNC_FAILPOINT` names them when the process starts, and [`arm`](failpoints::arm) adds to them: `NAME`, or
/// `NAME:3` for the third time that the process reaches the place, or `NAME:3:pass` to report it and go on. Commas
/// separate several. A process that reaches one prints the line `failpoint: NAME` on its standard output. Then it
/// stops until another process opens the named pipe `IFUNC_FAILPOINT_GO` for writing; without such a pipe it stops
/// for ever. Each counts once.
#[cfg(feature = "failpoints")]
pub mod failpoints {
    use std::io::Write;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Mutex, Once, PoisonError};

    #[derive(Debug)]
    struct Armed {
        name: String,
        /// How many more times the process reaches it before it counts.
        left: u32,
        passes: bool,
    }

    static ARMED: Mutex<Vec<Armed>> = Mutex::new(Vec::new());
    /// Length of [`ARMED`], readable without the lock.
    static COUNT: AtomicUsize = AtomicUsize::new(0);

    /// Malformed failpoint: neither a name, nor a name and a count, nor both and `pass`.
    #[derive(Debug, thiserror::Error)]
    #[error("`{0}` is not a failpoint; help: NAME, NAME:TIMES or NAME:TIMES:pass")]
    pub struct NoFailpoint(String);

    /// Makes the failpoints of the protocol stop this process, too.
    pub(crate) fn hook_protocol() {
        ifunc_proto::set_failpoint_hook(reach);
    }

    /// Arms the failpoints that `points` lists.
    ///
    /// # Errors
    /// A text that does not parse; the failpoints before the error are armed.
    pub fn arm(points: &str) -> Result<(), NoFailpoint> {
        for point in points.split(',').filter(|point| !point.is_empty()) {
            let wrong = || NoFailpoint(point.to_owned());
            let mut fields = point.split(':');
            let name = fields.next().filter(|name| !name.is_empty()).ok_or_else(wrong)?;
            let left = fields
                .next()
                .map_or(Ok(1), |times| times.parse().map_err(|_| wrong()))?;
            let passes = match fields.next() {
                None => false,
                Some("pass") => true,
                Some(_) => return Err(wrong()),
            };
            if left == 0 || fields.next().is_some() {
                return Err(wrong());
            }
            let mut armed = ARMED.lock().unwrap_or_else(PoisonError::into_inner);
            armed.push(Armed {
                name: name.to_owned(),
                left,
                passes,
            });
            COUNT.store(armed.len(), Ordering::Release);
        }
        Ok(())
    }

    /// Reports that this process has reached the place `name`.
    ///
    /// # Panics
    /// When `IFUNC_FAILPOINT` does not parse: a test that waits for such a place would wait for ever.
    pub fn reach(name: &str) {
        static ENVIRONMENT: Once = Once::new();
        ENVIRONMENT.call_once(|| {
            let points = std::env::var("IFUNC_FAILPOINT").unwrap_or_default();
            arm(&points).unwrap_or_else(|error| panic!("IFUNC_FAILPOINT: {error}"));
        });
        if COUNT.load(Ordering::Acquire) > 0
            && let Some(passes) = take(name)
        {
            println!("failpoint: {name}");
            let _ = std::io::stdout().flush();
            if !passes {
                stand();
            }
        }
    }

    /// Returns whether the failpoint passes, if it counts now.
    fn take(name: &str) -> Option<bool> {
        let mut armed = ARMED.lock().unwrap_or_else(PoisonError::into_inner);
        let place = armed.iter().position(|point| point.name == name)?;
        armed[place].left -= 1;
        if armed[place].left > 0 {
            return None;
        }
        let point = armed.remove(place);
        COUNT.store(armed.len(), Ordering::Release);
        Some(point.passes)
    }

    fn stand() {
        if let Some(go) = std::env::var_os("IFUNC_FAILPOINT_GO") {
            // A named pipe is open when both ends are.
            match std::fs::File::open(&go) {
                Ok(_) => return,
                Err(error) => eprintln!("`{}`: {error}", go.display()),
            }
        }
        loop {
            std::thread::park();
        }
    }

    #[cfg(test)]
    mod tests {
        use super::{arm, take};

        #[test]
        fn a_point_counts_once_when_its_time_has_come() {
            arm("here:2:pass,there").unwrap();
            assert_eq!(take("here"), None);
            assert_eq!(take("elsewhere"), None);
            assert_eq!(take("here"), Some(true));
            assert_eq!(take("here"), None);
            assert_eq!(take("there"), Some(false));
            for wrong in ["a:0", "a:x", ":1", "a:1:stay", "a:1:pass:b"] {
                assert!(arm(wrong).is_err(), "{wrong}");
            }
        }
    }
}
