//! Interfaces, callbacks and host variables, by images that were built for them: what runs, and what is refused when one side
//! changed.

#![allow(
    clippy::type_complexity,
    reason = "a callback's type is what an author writes"
)]
#![allow(missing_docs, unreachable_pub, reason = "tests are not documented")]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::common::scratch::Scratch;
use ifunc::prelude::*;
use ifunc_abi::image::{Image, Relocation};
use ifunc_build::LibraryImage;
use ifunc_rt::{Error, Policy, Rejection, Source, Target, TargetBuilder};
use object::{Object, ObjectSymbol, SymbolKind};

/// The ifuncs, with the interface as they know it.
const IFUNCS: &str = r#"
#![no_std]
use core::ffi::{c_char, c_int, c_void};
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use ifunc::prelude::*;

#[derive(Layout, Clone, Copy)]
#[repr(i32)]
pub enum KvError { EmptyKey = -22 }

#[derive(Layout, Clone, Copy)]
#[repr(C)]
pub struct Span { pub keys: u64, pub bytes: u64 }

#[ifunc::interface]
pub trait Kv {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<u64, KvError>;
    fn get(&self, key: &[u8]) -> Option<&[u8]>;
    fn scan(&self, prefix: &[u8], each: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>);
    fn span(&self, at_most: Span) -> Span;
}

#[derive(Layout)]
#[repr(C)]
pub struct Point { pub x: u64, pub y: u64 }

#[ifunc::import]
unsafe extern "C" {
    safe static HITS: AtomicU64;
    static mut LAST: u64;
    fn snprintf(to: *mut c_char, len: usize, format: *const c_char, ...) -> c_int;
    fn qsort(base: *mut c_void, n: usize, size: usize, compare: unsafe extern "C" fn(*const c_void, *const c_void) -> c_int);
    safe fn add_up(numbers: &[u32], each: &dyn Fn(u32) -> Option<u64>) -> u64;
}

mod lost {
    use core::sync::atomic::AtomicU64;
    #[ifunc::import]
    unsafe extern "C" { pub safe static NO_SUCH: AtomicU64; }
}

#[ifunc]
pub fn i_put(key: &[u8], kv: &mut dyn Kv) -> u64 {
    match kv.put(key, &key.len().to_le_bytes()) {
        Ok(keys) => keys,
        Err(KvError::EmptyKey) => u64::MAX,
    }
}

#[ifunc]
pub fn i_get(key: &[u8], kv: &dyn Kv, ctx: &mut Context) {
    ctx.answer(kv.get(key).unwrap_or(b"none"));
}

#[ifunc]
pub fn i_count(prefix: &[u8], kv: &dyn Kv) -> u64 {
    let mut count = 0;
    kv.scan(prefix, &mut |key, _| {
        count += key.len() as u64;
        if count > 5 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    count
}

/// The callback calls a method of the host's, whose callback calls another one.
#[ifunc]
pub fn i_nested(prefix: &[u8], kv: &dyn Kv) -> u64 {
    let mut total = 0;
    kv.scan(prefix, &mut |outer, _| {
        kv.scan(prefix, &mut |inner, value| {
            if kv.get(inner) == Some(value) && inner <= outer { total += 1 }
            ControlFlow::Continue(())
        });
        ControlFlow::Continue(())
    });
    total
}

#[ifunc]
pub fn i_panics(prefix: &[u8], kv: &dyn Kv) -> u64 {
    let mut seen = 0;
    kv.scan(prefix, &mut |_, _| {
        seen += 1;
        assert!(seen < 2, "the callback saw {seen} keys");
        ControlFlow::Continue(())
    });
    seen
}

#[ifunc]
pub fn i_panics_deep(prefix: &[u8], kv: &dyn Kv) -> u64 {
    kv.scan(prefix, &mut |_, _| {
        kv.scan(prefix, &mut |_, _| panic!("below two scans"));
        ControlFlow::Continue(())
    });
    0
}

#[ifunc]
pub fn i_span(keys: u64, kv: &dyn Kv) -> u64 {
    let span = kv.span(Span { keys, bytes: 7 });
    span.keys * 1000 + span.bytes
}

#[ifunc]
pub fn i_hit(by: u64, _: &mut u64) -> u64 {
    unsafe { LAST.as_ptr().write(by) };
    HITS.fetch_add(by, Relaxed) + by
}

#[ifunc]
pub fn i_lost(by: u64, _: &mut u64) -> u64 { lost::NO_SUCH.fetch_add(by, Relaxed) }

#[ifunc]
pub fn i_add_up(limit: u64, _: &mut u64) -> u64 {
    add_up(&[1, 2, 3, 4], &|n| (u64::from(n) <= limit).then_some(u64::from(n) * 2))
}

unsafe extern "C" fn descending(a: *const c_void, b: *const c_void) -> c_int {
    unsafe { (*b.cast::<u32>()).cmp(&*a.cast::<u32>()) as c_int }
}

#[ifunc]
pub fn i_as_c(n: u32, _: &mut u64, ctx: &mut Context) {
    let mut numbers = [1, n, 2];
    let mut text = [0u8; 32];
    let len = unsafe {
        qsort(numbers.as_mut_ptr().cast(), 3, 4, descending);
        snprintf(text.as_mut_ptr().cast(), 32, c"%u>%u>%u".as_ptr(), numbers[0], numbers[1], numbers[2])
    };
    ctx.answer(&text[..len as usize]);
}

#[ifunc]
pub fn i_shift(by: u64, at: &mut Point) -> u64 { at.y += by; at.x + at.y }

trait Step { fn step(&self, by: u64) -> u64; }
struct Up(u64);
struct Down(u64);
impl Step for Up { fn step(&self, by: u64) -> u64 { by + self.0 } }
impl Step for Down { fn step(&self, by: u64) -> u64 { by - self.0 } }

/// Which of them it calls is known when it runs.
#[ifunc]
pub fn i_of_vtable(by: u64, _: &mut u64) -> u64 {
    let steps: [&dyn Step; 2] = core::hint::black_box([&Up(1), &Down(1)]);
    steps[(by & 1) as usize].step(by)
}
"#;

/// An interface `Kv` as a host knows it, and a store that implements it. The first block are the types, the second is the
/// interface, the third its implementation.
macro_rules! host {
    ($module:ident { $($types:item)* } { $($methods:tt)* } { $($bodies:tt)* }) => {
        mod $module {
            #[allow(unused_imports)]
            use super::*;
            $($types)*

            #[derive(Layout, Clone, Copy)]
            #[repr(i32)]
            pub enum KvError { EmptyKey = -22 }

            #[ifunc::interface]
            pub trait Kv { $($methods)* }

            #[derive(ifunc::Opaque, Default)]
            #[opaque(interfaces)]
            pub struct Store { pub map: BTreeMap<Vec<u8>, Vec<u8>> }

            impl Kv for Store { $($bodies)* }
        }
    };
}

fn put(map: &mut BTreeMap<Vec<u8>, Vec<u8>>, key: &[u8], value: &[u8]) -> Option<u64> {
    if key.is_empty() {
        return None;
    }
    map.insert(key.into(), value.into());
    Some(map.len() as u64)
}

type Each<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>;

/// Scans that returned to their caller.
static SCANS: AtomicU64 = AtomicU64::new(0);

fn scan(map: &BTreeMap<Vec<u8>, Vec<u8>>, prefix: &[u8], each: Each<'_>) {
    struct Counted;
    impl Drop for Counted {
        fn drop(&mut self) {
            SCANS.fetch_add(1, Relaxed);
        }
    }
    let _counted = Counted;
    for (key, value) in map.iter().filter(|(key, _)| key.starts_with(prefix)) {
        if each(key, value).is_break() {
            return;
        }
    }
}

host! { same {
    #[derive(Layout, Clone, Copy)]
    #[repr(C)]
    pub struct Span { pub keys: u64, pub bytes: u64 }
} {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<u64, KvError>;
    fn get(&self, key: &[u8]) -> Option<&[u8]>;
    fn scan(&self, prefix: &[u8], each: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>);
    fn span(&self, at_most: Span) -> Span;
} {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<u64, KvError> { put(&mut self.map, key, value).ok_or(KvError::EmptyKey) }
    fn get(&self, key: &[u8]) -> Option<&[u8]> { self.map.get(key).map(Vec::as_slice) }
    fn scan(&self, prefix: &[u8], each: Each<'_>) { scan(&self.map, prefix, each) }
    fn span(&self, at_most: Span) -> Span { Span { keys: at_most.keys.min(self.map.len() as u64), bytes: at_most.bytes } }
} }

// A method was added, between others; a method that the images do not use was changed, and a type with a field more.
host! { grown {
    #[derive(Layout, Clone, Copy)]
    #[repr(C)]
    pub struct Span { pub keys: u64, pub bytes: u64, pub longest: u64 }
} {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<u64, KvError>;
    fn remove(&mut self, key: &[u8]) -> bool;
    fn get(&self, key: &[u8], or: &[u8]) -> Option<u64>;
    fn span(&self, at_most: Span) -> Span;
} {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<u64, KvError> { put(&mut self.map, key, value).ok_or(KvError::EmptyKey) }
    fn remove(&mut self, key: &[u8]) -> bool { self.map.remove(key).is_some() }
    fn get(&self, key: &[u8], _: &[u8]) -> Option<u64> { self.map.get(key).map(|value| value.len() as u64) }
    fn span(&self, at_most: Span) -> Span { at_most }
} }

host! { reordered {
    #[derive(Layout, Clone, Copy)]
    #[repr(C)]
    pub struct Span { pub bytes: u64, pub keys: u64 }
} {
    fn put(&mut self, key: &str, value: &[u8]) -> Result<u64, KvError>;
    fn span(&self, at_most: Span) -> Span;
} {
    fn put(&mut self, key: &str, value: &[u8]) -> Result<u64, KvError> { put(&mut self.map, key.as_bytes(), value).ok_or(KvError::EmptyKey) }
    fn span(&self, at_most: Span) -> Span { at_most }
} }

host! { retyped {
    #[derive(Layout, Clone, Copy)]
    #[repr(C)]
    pub struct Span { pub keys: u64, pub bytes: f64 }
} {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<u64, KvError>;
    fn span(&self, at_most: Span) -> Span;
} {
    fn put(&self, _: &[u8], _: &[u8]) -> Result<u64, KvError> { Ok(self.map.len() as u64) }
    fn span(&self, at_most: Span) -> Span { at_most }
} }

/// Another host of the same interface, of any key.
#[derive(ifunc::Opaque, Default)]
#[opaque(interfaces)]
struct Generic<K> {
    store: same::Store,
    _key: std::marker::PhantomData<K>,
}

impl<K: 'static> same::Kv for Generic<K> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<u64, same::KvError> {
        Ok(same::Kv::put(&mut self.store, key, value)? + size_of::<K>() as u64 * 100)
    }
    fn get(&self, key: &[u8]) -> Option<&[u8]> {
        same::Kv::get(&self.store, key)
    }
    fn scan(&self, prefix: &[u8], each: Each<'_>) {
        same::Kv::scan(&self.store, prefix, each);
    }
    fn span(&self, at_most: same::Span) -> same::Span {
        at_most
    }
}

mod points {
    macro_rules! point {
        ($module:ident { $($fields:tt)* }) => {
            pub mod $module {
                #[derive(ifunc::Layout, Default)]
                #[repr(C)]
                pub struct Point { $($fields)* }
            }
        };
    }
    point! { same { pub x: u64, pub y: u64 } }
    point! { added { pub x: u64, pub y: u64, pub z: u64 } }
    point! { reordered { pub y: u64, pub x: u64 } }
    point! { retyped { pub x: u64, pub y: i64 } }
}

#[ifunc::export]
static HITS: AtomicU64 = AtomicU64::new(100);
#[ifunc::export]
static mut LAST: u64 = 0;

#[ifunc::export]
fn add_up(numbers: &[u32], each: &dyn Fn(u32) -> Option<u64>) -> u64 {
    numbers.iter().map_while(|n| each(*n)).sum()
}

fn builder() -> TargetBuilder {
    // SAFETY: only this test knows the address.
    Target::builder().policy(unsafe { Policy::trust_every_peer() })
}

/// A target that serves `value`, and the ifuncs from a source that is connected to it.
struct Served<T: 'static> {
    source: Source,
    serving: ifunc_rt::Serving<T>,
}

impl<T: TargetArgs + Send + 'static> Served<T> {
    fn new(builder: TargetBuilder, value: T) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let address = format!("loopback:interfaces-{}-{number}", std::process::id());
        let serving = builder.listen(&address).unwrap().spawn(value).unwrap();
        Self {
            source: Source::connect(&address).unwrap(),
            serving,
        }
    }

    fn call(&self, path: PathBuf, payload: &[u8]) -> Result<Vec<u8>, Error> {
        // SAFETY: built by this test.
        let loaded = unsafe { self.source.load_path(path).unwrap() };
        loaded
            .call(payload)
            .unwrap()
            .wait_timeout(Duration::from_secs(30))
    }

    fn number(&self, path: PathBuf, payload: &[u8]) -> u64 {
        let answer = self.call(path, payload).unwrap();
        u64::from_le_bytes(answer.try_into().unwrap())
    }

    fn refusal(&self, path: PathBuf, payload: &[u8]) -> (Rejection, String) {
        match self.call(path, payload) {
            Err(error @ Error::Rejected { why, .. }) => (why, error.to_string()),
            other => panic!("{other:?}"),
        }
    }

    fn stop(self) -> T {
        drop(self.source);
        self.serving.stop().unwrap()
    }
}

fn assert_all(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "lacks `{part}`:\n{text}");
    }
}

#[test]
#[ignore = "nightly: builds a package of ifuncs"]
fn interfaces_run_and_mismatches_are_refused() {
    let scratch = Scratch::new("interface-ifuncs");
    let built = scratch.build(IFUNCS);
    methods_are_called_without_vtables(&built);
    runs(&built);
    callbacks_that_panic(&built);
    as_c_has_them(&built);
    methods_differ(&built);
    hosts_differ(&built);
    target_types_differ(&built);
}

/// Link-time optimisation makes each call of a method a call of an import, through the GOT: no table of the image has the address
/// of a method. Two kinds of tables stay: a callback is called through the one of its closure, and a panic formats its message
/// through another. A callback that captures the interface (`i_nested`) calls it through a vtable, too: the host has had the
/// closure in between.
fn methods_are_called_without_vtables(built: &impl Fn(&str) -> PathBuf) {
    let in_tables = |name: &str, method: &str| {
        let library = ifunc_build::read_library(built(name)).unwrap();
        let mut images = library.images.into_iter();
        let built = images.find(|image| image.name == name).unwrap();
        let image = Image::parse(&built.image).unwrap();
        let imports: Vec<_> = image.imports().map(|import| import.symbol).collect();
        assert!(
            method.is_empty() || imports.contains(&method),
            "{name} imports {imports:?}"
        );
        code_in_tables(&built)
    };
    assert_eq!(in_tables("i_get", "Kv_get"), [""; 0]);
    assert_eq!(in_tables("i_span", "Kv_span"), [""; 0]);
    for (name, method) in [("i_put", "Kv_put"), ("i_count", "Kv_scan")] {
        let code = in_tables(name, method);
        assert!(code.iter().all(|function| !function.contains("Kv")), "{code:?}");
    }
    // A vtable is found where there is one.
    let code = in_tables("i_of_vtable", "");
    let steps = code.iter().filter(|function| function.contains("Step"));
    assert_eq!(steps.count(), 2, "{code:?}");
}

/// The functions whose addresses an image has in its data.
fn code_in_tables(built: &LibraryImage) -> Vec<String> {
    let object = object::File::parse(&*built.debug).unwrap();
    let functions: Vec<_> = object
        .symbols()
        .filter(|symbol| symbol.kind() == SymbolKind::Text)
        .collect();
    let relocations = Image::parse(&built.image).unwrap().relocations();
    relocations
        .filter_map(|relocation| {
            let Relocation::Relative { addend, .. } = relocation else {
                return None;
            };
            let address = addend as u64;
            let is_in = |function: &&object::Symbol<'_, '_>| {
                (function.address()..function.address() + function.size().max(1)).contains(&address)
            };
            Some(functions.iter().find(is_in)?.name().unwrap().to_owned())
        })
        .collect()
}

fn runs(built: &impl Fn(&str) -> PathBuf) {
    let target = Served::new(
        builder().export_interface::<dyn same::Kv, same::Store>(),
        same::Store::default(),
    );
    for (i, key) in ["a", "ab", "abc", "b"].into_iter().enumerate() {
        assert_eq!(target.number(built("i_put"), key.as_bytes()), i as u64 + 1);
    }
    assert_eq!(target.number(built("i_put"), b""), u64::MAX);
    assert_eq!(target.call(built("i_get"), b"abc").unwrap(), 3usize.to_le_bytes());
    assert_eq!(target.call(built("i_get"), b"x").unwrap(), b"none");
    assert_eq!(target.number(built("i_count"), b"a"), 6);
    assert_eq!(target.number(built("i_nested"), b"a"), 6);
    assert_eq!(target.number(built("i_span"), &2u64.to_le_bytes()), 2007);
    assert_eq!(target.stop().map.len(), 4);

    // A generic host, of which two targets of the process choose different types.
    let wide = Served::new(
        builder().export_interface::<dyn same::Kv, Generic<u64>>(),
        Generic::<u64>::default(),
    );
    let narrow = Served::new(
        builder().export_interface::<dyn same::Kv, Generic<u8>>(),
        Generic::<u8>::default(),
    );
    assert_eq!(wide.number(built("i_put"), b"k"), 801);
    assert_eq!(narrow.number(built("i_put"), b"k"), 101);
}

fn callbacks_that_panic(built: &impl Fn(&str) -> PathBuf) {
    let mut store = same::Store::default();
    for key in ["a", "ab", "abc"] {
        store.map.insert(key.into(), Vec::new());
    }
    let target = Served::new(builder().export_interface::<dyn same::Kv, same::Store>(), store);
    for (name, says, scans) in [
        ("i_panics", "the callback saw 2 keys", 1),
        ("i_panics_deep", "below two scans", 2),
    ] {
        for _ in 0..3 {
            let before = SCANS.load(Relaxed);
            match target.call(built(name), b"a") {
                Err(Error::Panic { message, file, .. }) => {
                    assert_eq!((message.as_str(), file.as_str()), (says, "src/lib.rs"));
                }
                other => panic!("{other:?}"),
            }
            // Every function of the host that was under way has returned, and dropped what it owned.
            assert_eq!(SCANS.load(Relaxed) - before, scans);
        }
        assert_eq!(target.number(built("i_count"), b"abc"), 3, "the target serves on");
    }
}

fn as_c_has_them(built: &impl Fn(&str) -> PathBuf) {
    let target = Served::new(builder().allow_set(ifunc_rt::NamedSet::Libc), 0u64);
    assert_eq!(target.number(built("i_hit"), &5u64.to_le_bytes()), 105);
    assert_eq!(target.number(built("i_hit"), &7u64.to_le_bytes()), 112);
    assert_eq!(HITS.load(Relaxed), 112);
    // SAFETY: no invocation runs.
    assert_eq!(unsafe { (&raw const LAST).read() }, 7);
    assert_eq!(target.number(built("i_add_up"), &3u64.to_le_bytes()), 12);
    assert_eq!(
        target.call(built("i_as_c"), &9u32.to_le_bytes()).unwrap(),
        b"9>2>1"
    );
    let (why, text) = target.refusal(built("i_lost"), &1u64.to_le_bytes());
    assert_eq!(why, Rejection::MissingImport);
    assert_all(&text, &["`#[ifunc::export] static NO_SUCH:atomic u64 = ..;`"]);
}

fn methods_differ(built: &impl Fn(&str) -> PathBuf) {
    // Methods added, and changes of methods that an image does not use: it runs.
    let grown = Served::new(
        builder().export_interface::<dyn grown::Kv, grown::Store>(),
        grown::Store::default(),
    );
    assert_eq!(grown.number(built("i_put"), b"k"), 1);
    // Changed: another parameter and result; both texts.
    let (why, text) = grown.refusal(built("i_get"), b"k");
    assert_eq!(why, Rejection::ImportSignature);
    assert_all(
        &text,
        &[
            "fn Kv_get(&self,&[u8])->Option<&[u8]>",
            "fn Kv_get(&self,&[u8],&[u8])->Option<u64>",
        ],
    );
    // Removed.
    let (why, text) = grown.refusal(built("i_count"), b"k");
    assert_eq!(why, Rejection::MissingImport);
    assert_all(
        &text,
        &[
            "fn Kv_scan(&self,&[u8],&mut FnMut(&[u8],&[u8])->ControlFlow<()>)",
            "no such method",
            "`fn scan` of `Kv`",
        ],
    );
    // A field added to a type of the method; the image's and the target's.
    const SPAN: &str = "struct Span{0:keys:u64,8:bytes:u64}[16,8]";
    let (why, text) = grown.refusal(built("i_span"), &1u64.to_le_bytes());
    assert_eq!(why, Rejection::ImportSignature);
    assert_all(
        &text,
        &[SPAN, "struct Span{0:keys:u64,8:bytes:u64,16:longest:u64}[24,8]"],
    );

    // Fields reordered; a parameter's type changed.
    let reordered = Served::new(
        builder().export_interface::<dyn reordered::Kv, reordered::Store>(),
        reordered::Store::default(),
    );
    let (why, text) = reordered.refusal(built("i_span"), &1u64.to_le_bytes());
    assert_eq!(why, Rejection::ImportSignature);
    assert_all(&text, &[SPAN, "struct Span{0:bytes:u64,8:keys:u64}[16,8]"]);
    let (why, text) = reordered.refusal(built("i_put"), b"k");
    assert_eq!(why, Rejection::ImportSignature);
    assert_all(
        &text,
        &[
            "fn Kv_put(&mut self,&[u8],&[u8])",
            "fn Kv_put(&mut self,&str,&[u8])",
        ],
    );

    // A field retyped; a receiver changed.
    let retyped = Served::new(
        builder().export_interface::<dyn retyped::Kv, retyped::Store>(),
        retyped::Store::default(),
    );
    let (why, text) = retyped.refusal(built("i_span"), &1u64.to_le_bytes());
    assert_eq!(why, Rejection::ImportSignature);
    assert_all(&text, &[SPAN, "struct Span{0:keys:u64,8:bytes:f64}[16,8]"]);
    let (why, text) = retyped.refusal(built("i_put"), b"k");
    assert_eq!(why, Rejection::ImportSignature);
    assert_all(
        &text,
        &["fn Kv_put(&mut self,&[u8],&[u8])", "fn Kv_put(&self,&[u8],&[u8])"],
    );
}

fn hosts_differ(built: &impl Fn(&str) -> PathBuf) {
    // No export: what to write.
    let none = Served::new(builder(), same::Store::default());
    let (why, text) = none.refusal(built("i_put"), b"k");
    assert_eq!(why, Rejection::TargetType);
    assert_all(
        &text,
        &[
            "the image:  interface Kv",
            "the target: opaque, reached through interfaces",
            "`#[ifunc::export]` on the target's `impl Kv for`",
        ],
    );
    // An export for another type than the one that is served.
    let other = Served::new(
        builder().export_interface::<dyn same::Kv, Generic<u64>>(),
        same::Store::default(),
    );
    let (why, text) = other.refusal(built("i_put"), b"k");
    assert_eq!(why, Rejection::TargetType);
    assert_all(
        &text,
        &[
            "exports `Kv` for `",
            "Generic<u64>",
            "export_interface::<dyn Kv, ",
            "same::Store>()`",
        ],
    );
    // An image of another target type on a host of interfaces.
    let (why, text) = none.refusal(built("i_shift"), &1u64.to_le_bytes());
    assert_eq!(why, Rejection::TargetType);
    assert_all(&text, &["struct Point{0:x:u64,8:y:u64}[16,8]"]);
}

fn target_types_differ(built: &impl Fn(&str) -> PathBuf) {
    const IMAGE: &str = "the image:  struct Point{0:x:u64,8:y:u64}[16,8]";
    let same = Served::new(builder(), points::same::Point { x: 1, y: 2 });
    assert_eq!(same.number(built("i_shift"), &3u64.to_le_bytes()), 6);
    fn refused<T: TargetArgs + Send + Default + 'static>(path: PathBuf, theirs: &str) {
        let target = Served::new(builder(), T::default());
        let (why, text) = target.refusal(path, &3u64.to_le_bytes());
        assert_eq!(why, Rejection::TargetType);
        assert_all(&text, &[IMAGE, &format!("the target: {theirs}")]);
    }
    refused::<points::added::Point>(built("i_shift"), "struct Point{0:x:u64,8:y:u64,16:z:u64}[24,8]");
    refused::<points::reordered::Point>(built("i_shift"), "struct Point{0:y:u64,8:x:u64}[16,8]");
    refused::<points::retyped::Point>(built("i_shift"), "struct Point{0:x:u64,8:y:i64}[16,8]");
}
