//! Direct calls of the same code in this process.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use corpus_case::{Run, World};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::Failure;
use crate::outcome::Outcome;

thread_local! {
    /// The last panic of a case: its message and location.
    static PANIC: RefCell<Option<(String, String, u32)>> = const { RefCell::new(None) };
}

/// Calls a Rust case.
pub(crate) fn rust(run: Run, input: &[u8], world: &mut World) -> Outcome {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(|info| {
        let location = info.location();
        let message = info.payload_as_str().unwrap_or_default().to_owned();
        let file = location.map_or_else(String::new, |location| location.file().to_owned());
        let line = location.map_or(0, |location| location.line());
        PANIC.set(Some((message, file, line)));
    }));
    let result = catch_unwind(AssertUnwindSafe(|| run(input, world)));
    std::panic::set_hook(before);
    let left = world.take();
    match (result, PANIC.take()) {
        (Ok(answer), _) => Outcome::Ran { answer, left },
        (Err(_), Some((message, file, line))) => Outcome::Panicked {
            message,
            file,
            line,
            left,
        },
        (Err(_), None) => Outcome::Lost("it unwound without a panic".into()),
    }
}

/// A C case in a shared library of its own.
#[derive(Debug)]
pub(crate) struct Compiled {
    library: Library,
}

type Main = unsafe extern "C" fn(*const u8, usize, *mut World);

impl Compiled {
    /// Opens the library.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        // SAFETY: a library of cases of this checkout, which have no constructors.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }?;
        Ok(Self { library })
    }

    /// Calls the entry of an ifunc.
    pub(crate) fn call(&self, name: &str, input: &[u8], world: &mut World) -> Result<Outcome, Failure> {
        // SAFETY: entries have this type (`CASE` in `corpus.h`).
        let main = unsafe { self.library.get::<Main>(format!("{name}_main\0").as_bytes()) }?;
        // SAFETY: the input is valid for its length, and `struct world` has the layout of `World`.
        unsafe { main(input.as_ptr(), input.len(), world) };
        Ok(Outcome::Ran {
            answer: Vec::new(),
            left: world.take(),
        })
    }
}
