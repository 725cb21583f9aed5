//! Failpoints: named places at which a process says where it is and stands still, so that a test can kill, stop or
//! restart it, or its peer, exactly there. Without the feature `failpoints`, which nothing but the project's own
//! `cargo xtask faults` turns on, there is no code of them.
//!
//! (The crate `fail` steers a process's points from within the process. Here another process decides, and has to be told
//! that the place was reached.)

/// A place where a process may be made to stand still: `failpoint!("target.install")`.
macro_rules! failpoint {
    ($name:literal) => {
        #[cfg(feature = "failpoints")]
        $crate::failpoint::failpoints::reach($name);
    };
}

/// Places where this process says that it is there, and stands still.
///
/// `IFUNC_FAILPOINT` holds them when the process starts, and [`arm`](failpoints::arm) adds to them: `NAME`, or `NAME:3` for the third time that the place is
/// reached, or `NAME:3:pass` to say so and go on; several are separated by commas. A process that reaches one prints the line `failpoint: NAME` on its standard output.
/// Then it stands still until somebody opens the named pipe `IFUNC_FAILPOINT_GO` for writing; for ever if there is none. Each counts once.
#[cfg(feature = "failpoints")]
pub mod failpoints {
    use std::io::Write;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Mutex, Once, PoisonError};

    #[derive(Debug)]
    struct Armed {
        name: String,
        /// How often it is reached until it counts.
        left: u32,
        passes: bool,
    }

    static ARMED: Mutex<Vec<Armed>> = Mutex::new(Vec::new());
    /// How many there are.
    static COUNT: AtomicUsize = AtomicUsize::new(0);

    /// A place that is no place: neither a name, nor a name and how often, nor both and `pass`.
    #[derive(Debug, thiserror::Error)]
    #[error("`{0}` is no failpoint; help: NAME, NAME:TIMES or NAME:TIMES:pass")]
    pub struct NoFailpoint(String);

    /// Arms what `points` says.
    ///
    /// # Errors
    /// A text that does not parse; what stands before it is armed.
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

    /// This process is at the place `name`.
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

    /// Whether it counts now, and what then.
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
