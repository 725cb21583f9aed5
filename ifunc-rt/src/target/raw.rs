//! Target arguments whose type Rust does not know: what a host in C serves.

use std::any::TypeId;
use std::ffi::c_void;
use std::sync::{Mutex, OnceLock, PoisonError};

use super::argument::{Argument, HostType, hash_of_id};
use super::poll::Polled;
use super::{Target, TargetError};

/// A type of target arguments that the program states as text, because Rust does not know it.
///
/// The text is the one by which ifuncs in Rust state the type that they take (`cargo ifunc inspect` prints it): `u64`, or the
/// layout of a struct. Ifuncs in C state none, and take every pointer.
#[derive(Clone, Copy, Debug)]
pub struct RawType {
    host_type: fn() -> HostType,
    hash: u64,
}

/// A process stated more types of target arguments than it may.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not one of the first {MAX} types of target arguments that this process states; help: state each type once, not per target"
)]
pub struct TooManyTypes {
    text: String,
}

/// Stated types of a process.
const MAX: usize = 64;

/// Their texts. What Rust knows of a type is a function, so each text has one of its own.
static TEXTS: [OnceLock<&'static str>; MAX] = [const { OnceLock::new() }; MAX];

/// The Rust type of all of them, which no other code can name.
enum Unknown {}

fn with_text(text: &'static str) -> HostType {
    HostType {
        id: TypeId::of::<Unknown>(),
        type_name: "a type that the host states as text",
        text,
        earlier: &[],
        named: None,
    }
}

fn unstated() -> HostType {
    with_text("")
}

/// The type whose text has this number.
fn numbered<const NUMBER: usize>() -> HostType {
    with_text(TEXTS[NUMBER].get().unwrap_or(&""))
}

/// The functions of all numbers.
macro_rules! functions {
    ($($tens:literal)+) => {
        [$(
            numbered::<{ $tens }>, numbered::<{ $tens + 1 }>, numbered::<{ $tens + 2 }>, numbered::<{ $tens + 3 }>,
            numbered::<{ $tens + 4 }>, numbered::<{ $tens + 5 }>, numbered::<{ $tens + 6 }>, numbered::<{ $tens + 7 }>,
        )+]
    };
}

static FUNCTIONS: [fn() -> HostType; MAX] = functions!(0 8 16 24 32 40 48 56);

impl RawType {
    /// No type: only ifuncs that state none run, such as those in C.
    #[must_use]
    pub fn unstated() -> Self {
        Self::of(unstated)
    }

    /// The type with this text. The process keeps each text that it states, and may state 64.
    ///
    /// ```
    /// let counter = ifunc_rt::RawType::stated("u64")?;
    /// # Ok::<(), ifunc_rt::TooManyTypes>(())
    /// ```
    ///
    /// # Errors
    /// The process has stated 64 others.
    pub fn stated(text: &str) -> Result<Self, TooManyTypes> {
        static STATING: Mutex<()> = Mutex::new(());
        if text.is_empty() {
            return Ok(Self::unstated());
        }
        let _stating = STATING.lock().unwrap_or_else(PoisonError::into_inner);
        match number_of(text, &TEXTS) {
            Some(number) => Ok(Self::of(FUNCTIONS[number])),
            None => Err(TooManyTypes { text: text.into() }),
        }
    }

    fn of(host_type: fn() -> HostType) -> Self {
        let HostType { id, text, .. } = host_type();
        Self {
            host_type,
            hash: hash_of_id(&(id, text)),
        }
    }
}

/// The place of a text among those that are kept. A new one is kept; `None`: there is no room for it.
fn number_of(text: &str, kept: &[OnceLock<&'static str>]) -> Option<usize> {
    kept.iter()
        .position(|known| *known.get_or_init(|| Box::leak(Box::from(text))) == text)
}

/// Target arguments behind a pointer: any pointer, null included, which ifuncs get as it is.
#[derive(Clone, Copy, Debug)]
pub struct RawArgs {
    pointer: *mut c_void,
    raw_type: RawType,
}

impl RawArgs {
    /// A pointer to target arguments of a type.
    #[must_use]
    pub const fn new(pointer: *mut c_void, raw_type: RawType) -> Self {
        Self { pointer, raw_type }
    }

    #[inline]
    fn argument(self, shared: bool) -> Argument {
        let RawType { host_type, hash } = self.raw_type;
        Argument::raw(self.pointer, host_type, hash, shared)
    }
}

impl Target {
    /// As [`poll`](Self::poll), with target arguments behind a pointer.
    ///
    /// ```no_run
    /// let mut counter = 0u64;
    /// // SAFETY: only processes of this user connect, and they may do here whatever they like.
    /// let mut target = unsafe { ifunc_rt::Target::builder().accept_code() }.listen("shm:counter")?;
    /// let args = ifunc_rt::RawArgs::new((&raw mut counter).cast(), ifunc_rt::RawType::stated("u64")?);
    /// // SAFETY: a `u64`, which nothing else uses meanwhile.
    /// unsafe { target.poll_raw(args) };
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Safety
    /// The pointer must be what the accepted code takes it for: a valid `&mut` of the stated type, until this returns; for code that
    /// states no type, whatever it expects.
    #[inline]
    pub unsafe fn poll_raw(&mut self, args: RawArgs) -> usize {
        match self.links.has_scope() {
            true => self.poll_args::<true>(args),
            false => self.poll_args::<false>(args),
        }
    }

    /// As [`poll_raw`](Self::poll_raw), for one kind of listener, as `Target::poll_target` is.
    #[inline(never)]
    fn poll_args<const IN_SCOPE: bool>(&mut self, args: RawArgs) -> usize {
        self.poll_argument::<IN_SCOPE>(args.argument(false))
    }

    /// As [`serve_until`](Self::serve_until), with target arguments behind a pointer.
    ///
    /// # Safety
    /// As for [`poll_raw`](Self::poll_raw). `done` may use the target arguments.
    ///
    /// # Errors
    /// The kernel's error from waiting.
    pub unsafe fn serve_raw(
        &mut self,
        args: RawArgs,
        mut done: impl FnMut() -> bool,
    ) -> Result<(), TargetError> {
        // SAFETY: the caller's promise.
        self.serve_with(|this| match unsafe { this.poll_raw(args) } {
            0 => Polled::Nothing,
            _ if done() => Polled::Done,
            _ => Polled::Ran,
        })
    }

    /// As [`serve_shared`](Self::serve_shared), with target arguments behind a pointer.
    ///
    /// # Safety
    /// As for [`poll_raw`](Self::poll_raw), for a `&` of a type that several threads may use at once.
    ///
    /// # Errors
    /// As [`serve_shared`](Self::serve_shared).
    pub unsafe fn serve_raw_shared(&mut self, args: RawArgs, threads: usize) -> Result<(), TargetError> {
        // SAFETY: the caller's promise.
        unsafe { self.serve_on(args.argument(true), threads) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use super::{RawType, TooManyTypes, number_of};

    #[test]
    fn a_text_is_kept_once() {
        let of = |text: &str| RawType::stated(text).map(|raw| (raw.host_type)().text);
        let [a, b] = ["raw-test-a", "raw-test-b"].map(|text| (of(text).unwrap(), text));
        assert_eq!((a.0, b.0), (a.1, b.1));
        assert!(std::ptr::eq(of("raw-test-a").unwrap(), a.0));
        assert_ne!(
            RawType::stated(a.1).unwrap().hash,
            RawType::stated(b.1).unwrap().hash
        );
        assert_eq!(of(""), Ok(""));
    }

    #[test]
    fn what_is_shared_is_told_by_the_key() {
        for number in 0..16 {
            let raw = RawType::stated(&format!("raw-test-shared-{number}")).unwrap();
            let args = super::RawArgs::new(std::ptr::null_mut(), raw);
            assert!(!args.argument(false).is_shared() && args.argument(true).is_shared());
        }
    }

    #[test]
    fn there_is_an_end_of_texts() {
        let kept = [const { OnceLock::new() }; 2];
        let numbers = ["a", "b", "c", "a", "b"].map(|text| number_of(text, &kept));
        assert_eq!(numbers, [Some(0), Some(1), None, Some(0), Some(1)]);
        let error = TooManyTypes { text: "c".into() };
        assert!(
            error.to_string().contains("the first 64") && error.to_string().contains("help: "),
            "{error}"
        );
    }
}
