//! Imports that resolve to exports of the same process, as in unit tests of ifuncs.

#![allow(missing_docs, unreachable_pub, reason = "tests are not documented")]

use ifunc::prelude::*;

mod ifuncs {
    use super::{Error, Point};
    use ifunc::prelude::*;

    /// The host's store.
    #[derive(Opaque)]
    #[opaque("store/1")]
    pub struct Store(ifunc::Foreign);

    #[ifunc::import]
    unsafe extern "C" {
        /// Inserts.
        pub safe fn insert(store: &mut Store, key: &str, value: &[u8]) -> Result<(), i32>;
        pub safe fn count(store: &Store, only_long: bool) -> usize;
        pub safe fn read(store: &Store, key: &str, out: &mut [u8]) -> Result<usize, Error>;
        pub safe fn center(_: &Point, b: Option<&Point>) -> Option<Point>;
        pub safe fn larger<'a>(a: &'a [u64; 2], b: &'a [u64; 2]) -> &'a [u64; 2];
        pub safe fn positive(a: &i32) -> Option<&i32>;
        pub safe fn tick();
        #[link_name = "tock_v2"]
        pub fn tock(by: i64) -> f32;
        pub safe fn missing(a: u8);
        pub safe fn changed(a: u8) -> u8;
        pub safe fn panics(message: &str);
        pub safe fn zero() -> Result<u8, i32>;
    }

    #[ifunc]
    pub fn put(key: &str, store: &mut Store) -> i32 {
        match insert(store, key, key.as_bytes()) {
            Ok(()) => 0,
            Err(code) => code,
        }
    }
}

#[ifunc::layout]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    x: i32,
    y: i32,
}

/// Why a host function failed.
#[derive(Layout, Debug, PartialEq, Clone, Copy)]
#[repr(u8)]
pub enum Error {
    Missing = 1,
    TooSmall = 2,
}

mod host {
    use super::{Error, Point};
    use ifunc::Opaque;
    use std::collections::BTreeMap;

    #[derive(Opaque, Default)]
    #[opaque("store/1")]
    pub struct Store(pub BTreeMap<String, Vec<u8>>);

    #[ifunc::export]
    fn insert(store: &mut Store, key: &str, value: &[u8]) -> Result<(), i32> {
        if key.is_empty() {
            return Err(-22);
        }
        store.0.insert(key.into(), value.into());
        Ok(())
    }

    #[ifunc::export]
    pub fn count(store: &Store, only_long: bool) -> usize {
        store.0.keys().filter(|key| !only_long || key.len() > 3).count()
    }

    #[ifunc::export]
    fn read(store: &Store, key: &str, out: &mut [u8]) -> Result<usize, Error> {
        let value = store.0.get(key).ok_or(Error::Missing)?;
        out.get_mut(..value.len())
            .ok_or(Error::TooSmall)?
            .copy_from_slice(value);
        Ok(value.len())
    }

    #[ifunc::export]
    fn center(a: &Point, b: Option<&Point>) -> Option<Point> {
        b.map(|b| Point {
            x: (a.x + b.x) / 2,
            y: (a.y + b.y) / 2,
        })
    }

    #[ifunc::export]
    fn larger<'a>(a: &'a [u64; 2], b: &'a [u64; 2]) -> &'a [u64; 2] {
        if a > b { a } else { b }
    }

    #[ifunc::export]
    fn positive(a: &i32) -> Option<&i32> {
        Some(a).filter(|a| **a > 0)
    }

    #[ifunc::export]
    fn tick() {}

    /// # Safety
    /// None: a test calls it.
    #[ifunc::export(name = "tock_v2")]
    unsafe fn tock(by: i64) -> f32 {
        by as f32 / 2.0
    }

    #[ifunc::export]
    fn changed(_: u16) -> u8 {
        0
    }

    #[ifunc::export]
    fn panics(message: &str) {
        panic!("{message}")
    }

    #[ifunc::export]
    fn zero() -> Result<u8, i32> {
        Err(0)
    }
}

/// The target's data as an ifunc receives it.
fn ifunc_store(store: &mut host::Store) -> &mut ifuncs::Store {
    // SAFETY: both types are named "store/1", and the ifunc's type has no contents.
    unsafe { &mut *std::ptr::from_mut(store).cast() }
}

#[test]
fn imports_reach_exports() {
    let mut store = host::Store::default();
    let store = ifunc_store(&mut store);
    assert_eq!(ifuncs::put("long key", store), 0);
    assert_eq!(ifuncs::put("", store), -22);
    assert_eq!(ifuncs::insert(store, "k", b"v"), Ok(()));
    assert_eq!((ifuncs::count(store, false), ifuncs::count(store, true)), (2, 1));
    let mut out = [0; 8];
    assert_eq!(ifuncs::read(store, "long key", &mut out), Ok(8));
    assert_eq!(&out, b"long key");
    assert_eq!(ifuncs::read(store, "long key", &mut []), Err(Error::TooSmall));
    assert_eq!(ifuncs::read(store, "other", &mut out), Err(Error::Missing));
}

#[test]
fn values_cross() {
    let (a, b) = (Point { x: 0, y: 2 }, Point { x: 4, y: 6 });
    assert_eq!(ifuncs::center(&a, Some(&b)), Some(Point { x: 2, y: 4 }));
    assert_eq!(ifuncs::center(&a, None), None);
    assert_eq!(ifuncs::larger(&[1, 2], &[1, 3]), &[1, 3]);
    assert_eq!((ifuncs::positive(&3), ifuncs::positive(&-3)), (Some(&3), None));
    ifuncs::tick();
    // SAFETY: `tock` has no preconditions.
    assert_eq!(unsafe { ifuncs::tock(5) }, 2.5);
    assert_eq!(ifuncs::zero(), Err(i32::MIN));
}

#[test]
#[should_panic = "no export provides the host's `missing`: fn missing(u8)"]
fn a_missing_export_is_named() {
    ifuncs::missing(1);
}

#[test]
#[should_panic = "imported: fn changed(u8)->u8\n  exported: fn changed(u16)->u8"]
fn another_signature_is_shown() {
    ifuncs::changed(1);
}

#[test]
#[should_panic = "through the shim"]
fn panics_propagate_without_a_call_gate() {
    ifuncs::panics("through the shim");
}

#[test]
fn exports_describe_themselves() {
    let mut all: Vec<String> = ifunc::host::EXPORTS
        .iter()
        .map(|export| {
            format!(
                "{}\n    {}\n    {}\n",
                export.name(),
                export.signature(),
                export.prototype()
            )
        })
        .collect();
    all.sort();
    insta::assert_snapshot!(all.concat(), @r"
    center
        fn center(&struct Point{0:x:i32,4:y:i32}[8,4],Option<&struct Point{0:x:i32,4:y:i32}[8,4]>)->Option<struct Point{0:x:i32,4:y:i32}[8,4]>
        uint8_t center(const struct Point *a, const struct Point *b, struct Point *out);
    changed
        fn changed(u16)->u8
        uint8_t changed(uint16_t arg0);
    count
        fn count(&opaque store/1,bool)->usize
        size_t count(const struct Store *store, uint8_t only_long);
    insert
        fn insert(&mut opaque store/1,&str,&[u8])->Result<(),i32>
        int32_t insert(struct Store *store, const char *key, size_t key_len, const uint8_t *value, size_t value_len);
    larger
        fn larger(&[u64;2],&[u64;2])->&[u64;2]
        const uint64_t *larger(const uint64_t *a, const uint64_t *b);
    panics
        fn panics(&str)
        void panics(const char *message, size_t message_len);
    positive
        fn positive(&i32)->Option<&i32>
        const int32_t *positive(const int32_t *a);
    read
        fn read(&opaque store/1,&str,&mut [u8])->Result<usize,enum Error:u8{Missing=1,TooSmall=2}[1,1]>
        int32_t read(const struct Store *store, const char *key, size_t key_len, uint8_t *out, size_t out_len, size_t *out_value);
    tick
        fn tick()
        void tick(void);
    tock_v2
        unsafe fn tock_v2(i64)->f32
        float tock_v2(int64_t by);
    zero
        fn zero()->Result<u8,i32>
        int32_t zero(uint8_t *out);
    ");
    // The host's own code calls the functions directly.
    assert_eq!(host::count(&host::Store::default(), false), 0);
}

#[test]
fn c_passes_null_and_bytes() {
    let find = |name| {
        ifunc::host::EXPORTS
            .iter()
            .find(|export| export.name() == name)
            .unwrap()
            .address()
    };
    type Insert = unsafe extern "C-unwind" fn(*mut host::Store, *const u8, usize, *const u8, usize) -> i32;
    // SAFETY: the shim of `insert` has this type, as its prototype says.
    let insert: Insert = unsafe { std::mem::transmute(find("insert")) };
    let mut store = host::Store::default();
    // SAFETY: valid pointers; null is the empty slice.
    let code = unsafe { insert(&mut store, b"k".as_ptr(), 1, std::ptr::null(), 9) };
    assert_eq!((code, store.0.len()), (0, 1));
    let refused = |key: *const u8, len, store: *mut host::Store| {
        // SAFETY: the shim validates the arguments before it uses them.
        std::panic::catch_unwind(|| unsafe { insert(store, key, len, std::ptr::null(), 0) }).unwrap_err()
    };
    let not_text = refused(b"\xff".as_ptr(), 1, &mut store);
    assert_eq!(
        *not_text.downcast::<String>().unwrap(),
        "the ifunc passed `key` that is not UTF-8"
    );
    let null = refused(b"k".as_ptr(), 1, std::ptr::null_mut());
    assert_eq!(
        *null.downcast::<String>().unwrap(),
        "the ifunc passed a null pointer as `store`"
    );
}

mod strange {
    use ifunc::prelude::*;

    /// Not the type that the export takes.
    #[derive(Opaque)]
    #[opaque("store/1")]
    pub struct Store(#[allow(dead_code, reason = "it has a size")] pub u64);

    #[ifunc::import]
    unsafe extern "C" {
        pub safe fn count(store: &Store, only_long: bool) -> usize;
    }
}

#[test]
#[should_panic(
    expected = "the opaque name `store/1` stands for two types\n  `imports::host::Store`: the export `count`\n  \
                           `imports::strange::Store`: the import `count`"
)]
fn another_type_of_the_name_is_not_passed() {
    strange::count(&strange::Store(7), false);
}
