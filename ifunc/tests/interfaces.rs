//! Interfaces, callbacks, host variables and what `unsafe` imports take, outside an image: as unit tests of ifuncs use them.

#![allow(missing_docs, unreachable_pub, reason = "tests are not documented")]
#![allow(
    clippy::type_complexity,
    reason = "a callback's type is what an author writes"
)]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering::Relaxed;

use ifunc::host::{self, Interface, InterfaceExport};
use ifunc::prelude::*;

/// The crate that host and ifunc share.
mod shared {
    use ifunc::prelude::*;
    use std::ops::ControlFlow;

    #[derive(Layout, Debug, PartialEq, Clone, Copy)]
    #[repr(i32)]
    pub enum KvError {
        EmptyKey = -22,
        Full = -28,
    }

    #[derive(Layout, Debug, PartialEq, Clone, Copy)]
    #[repr(u8)]
    pub enum Order {
        Forwards,
        Backwards,
    }

    #[derive(Layout, Debug, PartialEq, Clone, Copy)]
    #[repr(C)]
    pub struct Span {
        pub keys: u64,
        pub bytes: u32,
        pub longest: u32,
    }

    #[ifunc::interface]
    pub trait Kv {
        /// Stores; returns how many keys there are.
        fn put(&mut self, key: &[u8], value: &[u8]) -> Result<u64, KvError>;
        fn get(&self, key: &[u8]) -> Option<&[u8]>;
        fn first(&self, order: Order) -> Result<&str, KvError>;
        fn scan(&self, prefix: &[u8], each: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>);
        fn span(&self, within: Option<Span>) -> Span;
    }

    #[ifunc::interface(name = "audit_v2")]
    pub trait Audit {
        fn note(&self, what: &str);
    }

    #[ifunc::interface]
    pub trait AuditedKv: Kv + Audit {
        fn notes(&self) -> u64;
    }

    #[ifunc::interface]
    pub trait Both: Kv + Audit {}
}

use shared::{Audit, AuditedKv, Both, Kv, KvError, Order, Span};

#[derive(Default)]
struct Store {
    map: BTreeMap<Vec<u8>, Vec<u8>>,
}

#[ifunc::export]
impl Kv for Store {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<u64, KvError> {
        if key.is_empty() {
            return Err(KvError::EmptyKey);
        }
        self.map.insert(key.into(), value.into());
        Ok(self.map.len() as u64)
    }

    fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.map.get(key).map(Vec::as_slice)
    }

    fn first(&self, order: Order) -> Result<&str, KvError> {
        let key = match order {
            Order::Forwards => self.map.keys().next(),
            Order::Backwards => self.map.keys().next_back(),
        };
        let key = key.ok_or(KvError::Full)?;
        Ok(std::str::from_utf8(key).unwrap_or("?"))
    }

    fn scan(&self, prefix: &[u8], each: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>) {
        for (key, value) in self.map.iter().filter(|(key, _)| key.starts_with(prefix)) {
            if each(key, value).is_break() {
                break;
            }
        }
    }

    fn span(&self, within: Option<Span>) -> Span {
        let keys = self.map.len() as u64;
        Span {
            keys: within.map_or(keys, |within| within.keys.min(keys)),
            bytes: self.map.values().map(|value| value.len() as u32).sum(),
            longest: self.map.keys().map(|key| key.len() as u32).max().unwrap_or(0),
        }
    }
}

/// A generic host: no attribute, because only a target can choose its type.
struct Counted<T>(T, std::cell::Cell<u64>);

impl<T: Send + 'static> Audit for Counted<T> {
    fn note(&self, what: &str) {
        self.1.set(self.1.get() + what.len() as u64);
    }
}

/// Stores the payload under itself and counts what begins like it.
#[ifunc]
pub fn remember(key: &[u8], kv: &mut dyn Kv) -> u64 {
    if kv.put(key, key).is_err() {
        return u64::MAX;
    }
    let mut bytes = 0;
    kv.scan(&key[..1], &mut |_, value| {
        bytes += value.len() as u64;
        if bytes > 100 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    bytes
}

#[ifunc]
pub fn look(key: &[u8], kv: &dyn Kv) -> bool {
    kv.get(key).is_some()
}

#[test]
fn an_ifunc_of_an_interface_is_a_function_of_any_implementation() {
    let mut store = Store::default();
    assert_eq!(remember(b"ab", &mut store), 2);
    assert_eq!(remember(b"abc", &mut store), 5);
    assert_eq!(remember(&[b'a'; 200], &mut store), 200);
    assert!(look(b"ab", &store) && !look(b"x", &store));

    /// A stand-in of the test's own.
    struct Nothing;
    impl Kv for Nothing {
        fn put(&mut self, _: &[u8], _: &[u8]) -> Result<u64, KvError> {
            Err(KvError::Full)
        }
        fn get(&self, _: &[u8]) -> Option<&[u8]> {
            None
        }
        fn first(&self, _: Order) -> Result<&str, KvError> {
            Err(KvError::Full)
        }
        fn scan(&self, _: &[u8], _: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>) {}
        fn span(&self, within: Option<Span>) -> Span {
            within.unwrap_or(Span {
                keys: 0,
                bytes: 0,
                longest: 0,
            })
        }
    }
    assert_eq!(remember(b"ab", &mut Nothing), u64::MAX);
}

/// Uses the methods of an interface and of its supertraits.
#[ifunc]
pub fn remember_and_note(key: &[u8], host: &mut dyn AuditedKv) -> u64 {
    if host.put(key, key).is_ok() {
        host.note("put");
    }
    host.notes()
}

/// Uses an interface without methods of its own.
#[ifunc]
pub fn note_all(_: u64, host: &dyn Both) -> u64 {
    let mut count = 0;
    host.scan(b"", &mut |_, _| {
        host.note("scanned");
        count += 1;
        ControlFlow::Continue(())
    });
    count
}

/// A store that counts notes.
#[derive(Default)]
struct Audited(Store, std::cell::Cell<u64>);

impl Kv for Audited {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<u64, KvError> {
        self.0.put(key, value)
    }
    fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.0.get(key)
    }
    fn first(&self, order: Order) -> Result<&str, KvError> {
        self.0.first(order)
    }
    fn scan(&self, prefix: &[u8], each: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>) {
        self.0.scan(prefix, each);
    }
    fn span(&self, within: Option<Span>) -> Span {
        self.0.span(within)
    }
}

impl Audit for Audited {
    fn note(&self, _: &str) {
        self.1.set(self.1.get() + 1);
    }
}

impl AuditedKv for Audited {
    fn notes(&self) -> u64 {
        self.1.get()
    }
}

impl Both for Audited {}

#[test]
fn an_ifunc_of_an_interface_uses_its_supertraits() {
    let mut host = Audited::default();
    assert_eq!(remember_and_note(b"a", &mut host), 1);
    assert_eq!(remember_and_note(b"", &mut host), 1);
    assert_eq!(remember_and_note(b"b", &mut host), 2);
    assert_eq!((note_all(0, &host), host.notes()), (2, 4));
    assert_eq!(
        <remember_and_note as Ifunc>::TARGET.as_str(),
        "interface AuditedKv"
    );
    // It exports its own methods; those of the others are exported with them.
    let names =
        |export: InterfaceExport| -> Vec<_> { export.methods().iter().map(|method| method.name()).collect() };
    assert_eq!(
        names(InterfaceExport::of::<dyn AuditedKv, Audited>()),
        ["AuditedKv_notes"]
    );
    assert!(names(InterfaceExport::of::<dyn Both, Audited>()).is_empty());
}

#[test]
fn the_target_text_names_the_interface_and_not_its_methods() {
    assert_eq!(<remember as Ifunc>::TARGET.as_str(), "interface Kv");
    assert_eq!(<look as Ifunc>::TARGET.as_str(), "interface Kv");
    assert_eq!(<dyn Audit as TargetArgs>::TEXT.as_str(), "interface audit_v2");
}

fn described(export: &InterfaceExport) -> String {
    let methods = export.methods().iter().map(|method| {
        format!(
            "{}\n    {}\n    {}\n",
            method.name(),
            method.signature(),
            method.prototype()
        )
    });
    format!("{}\n", export.interface()) + &methods.collect::<String>()
}

#[test]
fn an_impl_registers_its_methods_for_its_type() {
    let of_store: Vec<_> = host::INTERFACES
        .iter()
        .filter(|export| export.host().id() == std::any::TypeId::of::<Store>())
        .collect();
    let [export] = of_store[..] else {
        panic!("{of_store:?}")
    };
    assert!(export.host().name().ends_with("Store"));
    insta::assert_snapshot!(described(export));
}

#[test]
fn a_generic_host_registers_each_type_by_itself() {
    let one = InterfaceExport::of::<dyn Audit, Counted<u64>>();
    let other = InterfaceExport::of::<dyn Audit, Counted<String>>();
    assert_ne!(one.host().id(), other.host().id());
    assert_eq!(one.methods()[0].name(), "audit_v2_note");
    let counted = Counted(5u64, std::cell::Cell::new(0));
    type Note = unsafe extern "C-unwind" fn(*const Counted<u64>, *const u8, usize);
    // SAFETY: the prototype of the method.
    unsafe {
        let note: Note = std::mem::transmute(<dyn Audit as Interface<Counted<u64>>>::METHODS[0].address());
        note(&counted, b"four".as_ptr(), 4);
    }
    assert_eq!((counted.0, counted.1.get()), (5, 4));
}

/// What C calls, by the prototypes of the snapshot.
#[test]
fn the_methods_are_c_functions() {
    let mut store = Store::default();
    let methods = <dyn Kv as Interface<Store>>::METHODS;
    type Put = unsafe extern "C-unwind" fn(*mut Store, *const u8, usize, *const u8, usize, *mut u64) -> i32;
    type Get = unsafe extern "C-unwind" fn(*const Store, *const u8, usize, *mut usize) -> *const u8;
    type First = unsafe extern "C-unwind" fn(*const Store, u8, *mut *const u8, *mut usize) -> i32;
    type Each = unsafe extern "C-unwind" fn(*mut std::ffi::c_void, *const u8, usize, *const u8, usize) -> u8;
    type Scan =
        unsafe extern "C-unwind" fn(*const Store, *const u8, usize, Option<Each>, *mut std::ffi::c_void);
    type SpanOf = unsafe extern "C-unwind" fn(*const Store, *const Span) -> Span;
    unsafe extern "C-unwind" fn each(
        data: *mut std::ffi::c_void,
        _: *const u8,
        _: usize,
        _: *const u8,
        len: usize,
    ) -> u8 {
        // SAFETY: below, `data` is a list.
        let lens = unsafe { &mut *data.cast::<Vec<usize>>() };
        lens.push(len);
        u8::from(lens.len() == 2)
    }
    // SAFETY: the prototypes of the methods, and valid pointers.
    unsafe {
        let put: Put = std::mem::transmute(methods[0].address());
        let get: Get = std::mem::transmute(methods[1].address());
        let first: First = std::mem::transmute(methods[2].address());
        let scan: Scan = std::mem::transmute(methods[3].address());
        let span: SpanOf = std::mem::transmute(methods[4].address());
        let mut keys = 0;
        assert_eq!(put(&mut store, b"".as_ptr(), 0, b"".as_ptr(), 0, &mut keys), -22);
        for key in [b"k1", b"k2", b"k3"] {
            assert_eq!(put(&mut store, key.as_ptr(), 2, b"vvv".as_ptr(), 3, &mut keys), 0);
        }
        assert_eq!(keys, 3);
        let mut len = 0;
        assert!(get(&store, b"k9".as_ptr(), 2, &mut len).is_null());
        let value = get(&store, b"k1".as_ptr(), 2, &mut len);
        assert_eq!(std::slice::from_raw_parts(value, len), b"vvv");
        let mut key = std::ptr::null();
        assert_eq!(first(&store, 1, &mut key, &mut len), 0);
        assert_eq!(std::slice::from_raw_parts(key, len), b"k3");
        let mut lens: Vec<usize> = Vec::new();
        scan(&store, b"k".as_ptr(), 1, Some(each), (&raw mut lens).cast());
        assert_eq!(lens, [3, 3]);
        let within = Span {
            keys: 2,
            bytes: 0,
            longest: 0,
        };
        assert_eq!(span(&store, &within).keys, 2);
        assert_eq!(
            span(&store, std::ptr::null()),
            Span {
                keys: 3,
                bytes: 9,
                longest: 2
            }
        );
        let wrong = std::panic::catch_unwind(|| first(&store, 7, &mut std::ptr::null(), &mut 0)).unwrap_err();
        assert_eq!(
            *wrong.downcast::<String>().unwrap(),
            "a value that `Order` does not define"
        );
        let null = std::panic::catch_unwind(|| scan(&store, std::ptr::null(), 0, None, std::ptr::null_mut()))
            .unwrap_err();
        assert_eq!(
            *null.downcast::<String>().unwrap(),
            "the ifunc passed a null pointer as `each`"
        );
    }
}

mod host_items {
    use super::shared::Span;
    use std::sync::atomic::AtomicU64;

    #[ifunc::export]
    pub static HITS: AtomicU64 = AtomicU64::new(7);
    #[ifunc::export(name = "limits_v2")]
    pub static LIMITS: [u32; 4] = [1, 2, 3, 4];
    #[ifunc::export]
    pub static mut LAST: u64 = 0;

    #[ifunc::export]
    fn each_of(numbers: &[u32], each: &mut dyn FnMut(usize, &u32) -> Option<u64>) -> u64 {
        numbers.iter().enumerate().map_while(|(i, n)| each(i, n)).sum()
    }

    #[ifunc::export]
    fn apply(f: &dyn Fn(&str, Span), times: u8) {
        for n in 0..times {
            f(
                "span",
                Span {
                    keys: n.into(),
                    bytes: 0,
                    longest: 0,
                },
            );
        }
    }

    #[ifunc::export]
    fn longest<'a>(words: Option<&'a str>, bytes: Option<&mut [u8]>) -> Option<&'a str> {
        if let Some(bytes) = bytes {
            bytes.fill(1);
        }
        words
    }

    /// # Safety
    /// `from` points to `len` numbers.
    #[ifunc::export]
    unsafe fn sum_raw(from: *const u32, len: usize, each: unsafe extern "C" fn(u32) -> u32) -> *const u32 {
        // SAFETY: the caller's promise.
        unsafe {
            let all = std::slice::from_raw_parts(from, len);
            all.iter().find(|n| each(**n) > 2).map_or(std::ptr::null(), |n| n)
        }
    }
}

mod imported {
    use super::shared::Span;
    use std::ffi::{c_char, c_int, c_void};
    use std::sync::atomic::AtomicU64;

    #[ifunc::import]
    unsafe extern "C" {
        pub safe static HITS: AtomicU64;
        #[link_name = "limits_v2"]
        pub static LIMITS: [u32; 4];
        pub static mut LAST: u64;
        pub safe fn each_of(numbers: &[u32], each: &mut dyn FnMut(usize, &u32) -> Option<u64>) -> u64;
        pub safe fn apply(f: &dyn Fn(&str, Span), times: u8);
        pub safe fn longest<'a>(words: Option<&'a str>, bytes: Option<&mut [u8]>) -> Option<&'a str>;
        pub fn sum_raw(from: *const u32, len: usize, each: unsafe extern "C" fn(u32) -> u32) -> *const u32;
        pub fn snprintf(to: *mut c_char, len: usize, format: *const c_char, ...) -> c_int;
        pub fn qsort(
            base: *mut c_void,
            count: usize,
            size: usize,
            compare: Option<unsafe extern "C" fn(*const c_void, *const c_void) -> c_int>,
        );
    }
}

#[test]
fn callbacks_and_borrows_cross() {
    let mut seen = Vec::new();
    let sum = imported::each_of(&[1, 2, 3, 4], &mut |i, n| {
        seen.push((i, *n));
        (*n < 4).then_some(u64::from(*n) * 10)
    });
    assert_eq!(sum, 60);
    assert_eq!(seen, [(0, 1), (1, 2), (2, 3), (3, 4)]);
    let total = std::cell::Cell::new(0);
    imported::apply(
        &|name, span| total.set(total.get() + span.keys + name.len() as u64),
        3,
    );
    assert_eq!(total.get(), 15);
    let mut bytes = [0; 3];
    assert_eq!(imported::longest(Some("word"), Some(&mut bytes)), Some("word"));
    assert_eq!((imported::longest(None, None), bytes), (None, [1; 3]));
    let panicked = std::panic::catch_unwind(|| imported::each_of(&[1], &mut |_, _| panic!("in a unit test")));
    assert!(panicked.is_err());
}

#[test]
fn variables_are_those_of_the_host() {
    assert_eq!(imported::HITS.fetch_add(1, Relaxed), 7);
    assert_eq!(host_items::HITS.load(Relaxed), 8);
    // SAFETY: the host does not write it.
    assert_eq!(unsafe { *imported::LIMITS.get() }, [1, 2, 3, 4]);
    // SAFETY: this test alone uses it.
    unsafe { imported::LAST.as_ptr().write(9) };
    // SAFETY: as above.
    assert_eq!(unsafe { (&raw const host_items::LAST).read() }, 9);
    let all: BTreeMap<&str, (&str, &str)> = host::EXPORTS
        .iter()
        .filter(|export| export.kind() == host::ExportKind::Data)
        .map(|export| (export.name(), (export.signature(), export.prototype())))
        .collect();
    assert_eq!(
        all["HITS"],
        ("static HITS:atomic u64", "extern _Atomic uint64_t HITS;")
    );
    assert_eq!(
        all["limits_v2"],
        ("static limits_v2:[u32;4]", "extern uint32_t limits_v2[4];")
    );
    assert_eq!(all["LAST"], ("static mut LAST:u64", "extern uint64_t LAST;"));
}

#[test]
fn unsafe_imports_take_what_c_takes() {
    unsafe extern "C" fn same(n: u32) -> u32 {
        n
    }
    let numbers = [1u32, 2, 3];
    // SAFETY: as `sum_raw` asks.
    let found = unsafe { imported::sum_raw(numbers.as_ptr(), 3, same) };
    assert_eq!(found, &raw const numbers[2]);
    let mut text = [0u8; 32];
    // SAFETY: the format takes an int and a string.
    let len = unsafe {
        imported::snprintf(
            text.as_mut_ptr().cast(),
            text.len(),
            c"%d-%s".as_ptr(),
            42i32,
            c"x".as_ptr(),
        )
    };
    assert_eq!(&text[..len as usize], b"42-x");
    unsafe extern "C" fn compare(a: *const std::ffi::c_void, b: *const std::ffi::c_void) -> i32 {
        // SAFETY: `qsort` passes two elements.
        unsafe { (*a.cast::<u32>()).cmp(&*b.cast::<u32>()) as i32 }
    }
    let mut values = [3u32, 1, 2];
    // SAFETY: three elements of four bytes.
    unsafe { imported::qsort(values.as_mut_ptr().cast(), 3, 4, Some(compare)) };
    assert_eq!(values, [1, 2, 3]);
}
