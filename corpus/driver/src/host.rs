//! The host's functions and data for cases: exports for Rust, allowed symbols for C.

use std::ffi::{CStr, CString, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;

use corpus_case::World;
use libloading::os::unix::{Library as Opened, RTLD_GLOBAL, RTLD_NOW};

use crate::{Failure, Places};

/// Functions and data of `host.c` that C cases may use.
const NAMES: [&str; 12] = [
    "host_table",
    "host_counter",
    "host_names",
    "host_add",
    "host_mul",
    "host_many",
    "host_variadic",
    "host_each",
    "host_apply",
    "host_pair",
    "host_wide",
    "host_mean",
];
/// Symbols of the C library that C cases may use. The host allows them by name.
const LIBC: [&str; 33] = [
    "__errno_location",
    "abort",
    "atan2",
    "atoi",
    "bsearch",
    "ceil",
    "cos",
    "exp",
    "floor",
    "fmod",
    "log",
    "lround",
    "pow",
    "qsort",
    "round",
    "sin",
    "sincos",
    "snprintf",
    "sprintf",
    "sqrt",
    "sqrtf",
    "strcat",
    "strchr",
    "strcmp",
    "strcpy",
    "strcspn",
    "strncat",
    "strncmp",
    "strrchr",
    "strspn",
    "strstr",
    "strtod",
    "strtok_r",
];
const MORE_LIBC: [&str; 7] = [
    "strtol",
    "strtoul",
    "strtoull",
    "stpcpy",
    "trunc",
    "vsnprintf",
    "__isoc99_sscanf",
];

/// The library built from `host.c`, opened by the driver: C cases for direct calls bind to it.
#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) path: PathBuf,
    /// The one for the platform of the other process.
    pub(crate) of_target: PathBuf,
    /// Keeps the library open.
    _opened: Opened,
}

impl Library {
    /// Compiles it for both processes, and opens it.
    pub(crate) fn build(places: &Places) -> Result<Self, Failure> {
        std::fs::create_dir_all(&places.target)?;
        let path = places.target.join("libcorpus_host.so");
        compile("cc", places, &path)?;
        let of_target = match &places.other {
            None => path.clone(),
            Some(other) => {
                let path = places.target.join(format!("libcorpus_host-{}.so", other.triple));
                let tools = other.triple.replace("-unknown", "");
                compile(&format!("{tools}-gcc"), places, &path)?;
                path
            }
        };
        Ok(Self {
            _opened: open(&path)?,
            path,
            of_target,
        })
    }
}

fn compile(compiler: &str, places: &Places, library: &Path) -> Result<(), Failure> {
    let source = places.root.join("corpus/c/host/host.c");
    let output = Command::new(compiler)
        .args(["-O1", "-fPIC", "-shared", "-o"])
        .args([library, &source])
        .arg("-lm")
        .output()
        .map_err(|error| format!("cannot run `{compiler}`: {error}\nhelp: install a C compiler"))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(format!("`{}` does not compile:\n{stderr}", source.display()).into())
}

fn open(path: &Path) -> Result<Opened, Failure> {
    // SAFETY: `host.c` has no constructors.
    Ok(unsafe { Opened::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }?)
}

/// The symbols that C cases may use, with their addresses in this process.
pub(crate) fn names(library: &Path) -> Result<Vec<(&'static str, *const c_void)>, Failure> {
    let host = open(library)?;
    // SAFETY: the maths library of the process's own C library.
    let maths = unsafe { Opened::open(Some("libm.so.6"), RTLD_NOW | RTLD_GLOBAL) }?;
    let of_host = NAMES.iter().map(|name| (&host, name));
    let of_libc = LIBC.iter().chain(&MORE_LIBC).map(|name| (&maths, name));
    let found = of_host
        .chain(of_libc)
        .map(|(library, name)| Ok((*name, find(library, name)?)));
    let found = found.collect();
    // Keeps both open for the lifetime of the process: images hold the addresses.
    std::mem::forget((host, maths));
    found
}

/// Finds a symbol in a library or in its dependencies.
fn find(library: &Opened, name: &str) -> Result<*const c_void, Failure> {
    let c_name = CString::new(name)?;
    let bytes = CStr::to_bytes_with_nul(&c_name);
    // SAFETY: only the address is used.
    let symbol = unsafe { library.get::<*const c_void>(bytes) };
    Ok(symbol
        .map_err(|error| format!("the host has no `{name}`: {error}"))?
        .into_raw()
        .cast_const())
}

#[ifunc::export]
fn host_mix(a: u64, b: u64) -> u64 {
    a.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) ^ b
}

#[ifunc::export]
fn host_spread(a: u64, b: u64) -> u64 {
    a.wrapping_add(b.swap_bytes())
}

#[ifunc::export]
fn host_sum(values: &[u64]) -> u64 {
    values.iter().copied().fold(0, u64::wrapping_add)
}

#[ifunc::export]
fn host_fill(values: &mut [u8], with: u8) {
    values.iter_mut().for_each(|value| *value ^= with);
}

#[ifunc::export]
fn host_measure(text: &str) -> Result<u64, i32> {
    if text.is_empty() {
        Err(-7)
    } else {
        Ok(text.chars().count() as u64)
    }
}

#[ifunc::export]
fn host_find(bytes: &[u8], byte: u8) -> Option<u64> {
    bytes.iter().position(|b| *b == byte).map(|at| at as u64)
}

#[ifunc::export]
fn host_halve(value: f64) -> f64 {
    value / 2.0
}

#[ifunc::export]
fn host_or_seven(value: Option<&u64>) -> u64 {
    value.copied().unwrap_or(7)
}

#[ifunc::export]
fn host_count(world: &mut World) {
    world.calls += 100;
}

/// # Safety
/// `function` is the address of an `extern "C" fn(u64) -> u64`.
#[ifunc::export]
unsafe fn host_call_back(function: usize, value: u64) -> u64 {
    let function = std::ptr::with_exposed_provenance::<()>(function);
    // SAFETY: the caller's promise.
    let function = unsafe { std::mem::transmute::<*const (), extern "C" fn(u64) -> u64>(function) };
    function(value) ^ function(value.wrapping_add(1))
}
