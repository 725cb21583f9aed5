//! Functions that the attributes' output calls. Not part of the public API.
//!
//! Every function that turns a pointer into a reference takes a `scope: &'a ()`, a borrow of a local variable
//! of the calling entry or shim. The reference lives no longer than that variable, so the borrow checker
//! refuses a function that keeps it.

#![allow(
    clippy::needless_lifetimes,
    clippy::mut_from_ref,
    reason = "these functions choose the lifetime of a reference, which does not point into its scope"
)]

use core::ffi::{c_int, c_void};

pub use ifunc_abi::context::{
    Batch as RawBatch, Context as RawContext, MAIN_BAD_ANSWER, MAIN_BAD_PAYLOAD, MAIN_OK,
};
#[cfg(not(ifunc_image))]
pub use linkme;

pub use crate::context::{finish, finish_by_context};
pub use crate::opaque::NamedType;
#[cfg(not(ifunc_image))]
pub use crate::owned::hand_over;
use crate::payload::EncodeError;
pub use crate::travel::finish_onward;

/// Borrows arguments or a payload that C code passed.
///
/// # Safety
/// `data` is null, or points to `len` bytes that are not written during `'a`.
#[inline]
#[must_use]
pub unsafe fn bytes<'a>(_scope: &'a (), data: *const c_void, len: usize) -> &'a [u8] {
    if data.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { core::slice::from_raw_parts(data.cast(), len) }
}

/// Borrows the target's data, shared with other invocations.
///
/// # Safety
/// `data` points to a `T` that is valid for `'a`.
#[inline]
#[must_use]
pub unsafe fn target<'a, T>(_scope: &'a (), data: *mut c_void) -> &'a T {
    // SAFETY: the caller's promise.
    unsafe { &*data.cast() }
}

/// Borrows the target's data exclusively.
///
/// # Safety
/// `data` points to a `T` that is valid for `'a` and not aliased.
#[inline]
#[must_use]
pub unsafe fn target_mut<'a, T>(_scope: &'a (), data: *mut c_void) -> &'a mut T {
    // SAFETY: the caller's promise.
    unsafe { &mut *data.cast() }
}

/// `X_payload_init`: `encode` writes the payload, `check` decodes it. Returns 0, or 1 if either failed.
///
/// # Safety
/// `payload` is null or points to `*size` initialised bytes that are not aliased; `size` is valid for reads
/// and writes.
#[inline]
pub unsafe fn init(
    payload: *mut c_void,
    size: *mut usize,
    encode: impl FnOnce(&mut [u8]) -> Result<usize, EncodeError>,
    check: impl FnOnce(&[u8]) -> bool,
) -> c_int {
    // SAFETY: the caller's promise.
    let capacity = unsafe { *size };
    let out: &mut [u8] = if payload.is_null() {
        &mut []
    } else {
        // SAFETY: the caller's promise.
        unsafe { core::slice::from_raw_parts_mut(payload.cast(), capacity) }
    };
    match encode(out) {
        Ok(len) if out.get(..len).is_some_and(check) => {
            // SAFETY: the caller's promise.
            unsafe { *size = len };
            0
        }
        _ => 1,
    }
}

/// `X_batch` of an ifunc that may answer: calls `main` for each entry of a batch, as [`RawBatch`] says. One loop, with answers
/// and without, because it travels with every image.
///
/// # Safety
/// `batch` and `ctx` are valid for reads and writes and not aliased; what `batch` describes is as it says.
#[inline]
pub unsafe fn run_batch(
    batch: *mut RawBatch,
    ctx: *mut RawContext,
    main: impl Fn(*const c_void, usize, *mut RawContext) -> u32,
) -> u32 {
    // SAFETY: the caller's promise.
    let (
        started,
        &RawBatch {
            mut payloads,
            payload_size,
            stride,
            count,
            answers_capacity: mut capacity,
            max_answer,
            answer_lens: mut lens,
            answer_lens_stride,
            ..
        },
    ) = (unsafe { &raw mut (*batch).started }, unsafe { &*batch });
    let mut index = 0;
    loop {
        index += 1;
        // Volatile: `main` may end the call from any depth, and the target reads this after it.
        // SAFETY: a field of `batch`; no payload is null.
        unsafe {
            started.write_volatile(index);
            core::hint::assert_unchecked(!payloads.is_null());
        }
        // SAFETY: the caller's promise.
        unsafe { (*ctx).answer_len = 0 };
        let code = main(payloads.cast(), payload_size, ctx);
        // SAFETY: the caller's promise.
        let ctx = unsafe { &mut *ctx };
        let len = ctx.answer_len;
        if code != MAIN_OK || len > max_answer {
            return code;
        }
        // SAFETY: there are `count` lengths, or one.
        unsafe { lens.write(len as u32) };
        lens = lens.wrapping_byte_add(answer_lens_stride);
        let used = len.next_multiple_of(8).min(capacity);
        ctx.answer = ctx.answer.wrapping_add(used);
        capacity -= used;
        payloads = payloads.wrapping_add(stride);
        if index == count || capacity < max_answer {
            return MAIN_OK;
        }
    }
}

/// As [`run_batch`], of an ifunc that does not see its context: it answers nothing.
///
/// # Safety
/// As [`run_batch`].
#[inline]
pub unsafe fn run_batch_without_answers(
    batch: *mut RawBatch,
    main: impl Fn(*const c_void, usize) -> u32,
) -> u32 {
    // SAFETY: the caller's promise.
    let (
        started,
        &RawBatch {
            mut payloads,
            payload_size,
            stride,
            count,
            ..
        },
    ) = (unsafe { &raw mut (*batch).started }, unsafe { &*batch });
    let mut index = 0;
    loop {
        index += 1;
        // Volatile: as above.
        // SAFETY: a field of `batch`; no payload is null.
        unsafe {
            started.write_volatile(index);
            core::hint::assert_unchecked(!payloads.is_null());
        }
        let code = main(payloads.cast(), payload_size);
        if code != MAIN_OK || index == count {
            return code;
        }
        payloads = payloads.wrapping_add(stride);
    }
}

/// Length of [`concat`]'s result.
#[must_use]
pub const fn total(parts: &[&str]) -> usize {
    let mut len = 0;
    let mut i = 0;
    while i < parts.len() {
        len += parts[i].len();
        i += 1;
    }
    len
}

/// Concatenates `parts`.
#[must_use]
pub const fn concat<const N: usize>(parts: &[&str]) -> [u8; N] {
    let mut out = [0; N];
    let mut at = 0;
    let mut i = 0;
    while i < parts.len() {
        let part = parts[i].as_bytes();
        let mut j = 0;
        while j < part.len() {
            out[at] = part[j];
            at += 1;
            j += 1;
        }
        i += 1;
    }
    out
}

/// Compares the signatures of an export and of its import.
///
/// # Panics
/// If they differ: in a constant, a compile error.
pub const fn same_signature(export: &[&str], import: &[&str]) {
    use ifunc_abi::text::Text;

    const fn joined(mut text: Text, parts: &[&str]) -> Text {
        let mut i = 0;
        while i < parts.len() {
            text = text.str(parts[i]);
            i += 1;
        }
        text
    }
    let (ours, theirs) = (joined(Text::new(), export), joined(Text::new(), import));
    let (a, b) = (ours.as_str().as_bytes(), theirs.as_str().as_bytes());
    let mut is_same = a.len() == b.len();
    let mut i = 0;
    while is_same && i < a.len() {
        is_same = a[i] == b[i];
        i += 1;
    }
    if !is_same {
        let message = Text::new().str("the export and its import have different signatures\n  export: ");
        let message = message.text(&ours).str("\n  import: ").text(&theirs);
        let message = message.str("\nhelp: a target would refuse the ifuncs that import it; declare both alike, and give both the same name");
        panic!("{}", message.as_str());
    }
}

/// Canonical text of an answer given through the context.
pub const RAW_BYTES: ifunc_abi::text::Text = ifunc_abi::text::Text::new().str("raw bytes");

/// The items of the first block in an image, those of the second elsewhere.
#[cfg(ifunc_image)]
#[doc(hidden)]
#[macro_export]
macro_rules! __ifunc_in_image {
    ({ $($image:tt)* } { $($other:tt)* }) => { $($image)* };
}

/// The items of the first block in an image, those of the second elsewhere.
#[cfg(not(ifunc_image))]
#[doc(hidden)]
#[macro_export]
macro_rules! __ifunc_in_image {
    ({ $($image:tt)* } { $($other:tt)* }) => { $($other)* };
}

pub use __ifunc_in_image as in_image;

/// The type of an interface in an image: `#[ifunc::interface]` implements it for `dyn Trait`.
#[cfg(ifunc_image)]
pub trait Guest {
    /// A type without contents that implements the trait by imports.
    type Guest;
}

/// The type behind an interface in an image. It has no contents.
#[cfg(ifunc_image)]
pub trait GuestValue {}

/// Compiles if `I` is an interface.
pub const fn is_interface<I: crate::TargetArgs + ?Sized>() {}

/// The address of a host function or variable of this process, for unit tests of ifuncs.
///
/// # Panics
/// If no export has this name and signature; the message says what to do.
#[cfg(not(ifunc_image))]
#[must_use]
pub fn resolve(name: &str, signature: &str, types: NamedTypesOf) -> *const () {
    find(name, signature, types).unwrap_or_else(|| {
        panic!(
            "no export provides the host's `{name}`: {signature}\nhelp: outside an image, imports resolve to \
             the `#[ifunc::export]`s linked into this process; define one in the test, and if it lies in another crate \
             write `use that_crate as _;`"
        )
    })
}

/// As [`resolve`], for an `unsafe` function: one that no export provides is looked up in this process, which finds the
/// functions of the C library.
///
/// # Panics
/// As [`resolve`].
#[cfg(not(ifunc_image))]
#[must_use]
pub fn resolve_unsafe(name: &str, signature: &str, types: NamedTypesOf) -> *const () {
    unsafe extern "C" {
        fn dlsym(handle: *mut c_void, name: *const core::ffi::c_char) -> *mut c_void;
    }
    if let Some(address) = find(name, signature, types) {
        return address;
    }
    let symbol = std::ffi::CString::new(name).unwrap_or_default();
    // SAFETY: the name ends in a zero byte; null is `RTLD_DEFAULT`.
    let address = unsafe { dlsym(core::ptr::null_mut(), symbol.as_ptr()) };
    if address.is_null() {
        return resolve(name, signature, types);
    }
    address.cast_const().cast()
}

/// The types that a signature names: what [`Export::with_types`](crate::host::Export::with_types) takes.
#[cfg(not(ifunc_image))]
pub type NamedTypesOf = &'static [fn() -> Option<crate::host::NamedType>];

/// The address of an export.
///
/// # Panics
/// If it has another signature, or one of the same text in which an opaque name stands for another type.
#[cfg(not(ifunc_image))]
fn find(name: &str, signature: &str, types: NamedTypesOf) -> Option<*const ()> {
    let mut other = None;
    for export in crate::host::EXPORTS {
        if export.name() == name {
            if export.signature() == signature {
                same_types(export, types);
                return Some(export.address());
            }
            other = Some(export.signature());
        }
    }
    let other = other?;
    panic!("the host's `{name}` has another signature here\n  imported: {signature}\n  exported: {other}")
}

/// Panics if an opaque name stands for one type in an export or its import, and for another in what was resolved before.
/// Placeholders do not count: their values come from exports.
#[cfg(not(ifunc_image))]
fn same_types(export: &crate::host::Export, imported: NamedTypesOf) {
    use std::sync::{Mutex, PoisonError};

    static RESOLVED: Mutex<crate::host::NamedTypes> = Mutex::new(crate::host::NamedTypes::new());

    let imported = imported.iter().filter_map(|named| named());
    let (mut exported, mut imported) = (
        export.types().map(|named| (named, "export")),
        imported
            .filter(|named| !named.is_placeholder())
            .map(|named| (named, "import")),
    );
    let mut known = RESOLVED.lock().unwrap_or_else(PoisonError::into_inner);
    let added = exported
        .by_ref()
        .chain(imported.by_ref())
        .try_for_each(|(named, side)| {
            let user = std::format!("the {side} `{}`", export.name());
            known.add(named, &user)
        });
    drop(known);
    if let Err(conflict) = added {
        panic!("{conflict}");
    }
}

/// The function of a callback that an ifunc passed to a host function.
///
/// # Panics
/// If it is null: a C ifunc may pass that.
#[inline]
#[must_use]
pub fn callback<F>(function: Option<F>, name: &str) -> F {
    match function {
        Some(function) => function,
        None => null(name),
    }
}

/// The value that an ifunc passed by a pointer that may be null.
///
/// # Safety
/// `pointer` is null, or points to a `T` that the caller gives up.
#[inline]
#[must_use]
pub unsafe fn optional_value<T>(pointer: *const T) -> Option<T> {
    // SAFETY: the caller's promise.
    (!pointer.is_null()).then(|| unsafe { pointer.read() })
}

/// A slice that a host function returned.
///
/// # Safety
/// `data` points to `len` values that are valid for `'a`.
#[inline]
#[must_use]
pub unsafe fn returned<'a, T>(data: *const T, len: usize) -> &'a [T] {
    // SAFETY: the caller's promise.
    unsafe { core::slice::from_raw_parts(data, len) }
}

/// As [`returned`], exclusive.
///
/// # Safety
/// `data` points to `len` values that are valid for `'a` and not aliased.
#[inline]
#[must_use]
pub unsafe fn returned_mut<'a, T>(data: *mut T, len: usize) -> &'a mut [T] {
    // SAFETY: the caller's promise.
    unsafe { core::slice::from_raw_parts_mut(data, len) }
}

/// A string that a host function returned.
///
/// # Safety
/// `data` points to `len` bytes of UTF-8 that are valid for `'a`.
#[inline]
#[must_use]
pub unsafe fn returned_str<'a>(data: *const u8, len: usize) -> &'a str {
    // SAFETY: the caller's promise.
    unsafe { core::str::from_utf8_unchecked(returned(data, len)) }
}

/// Borrows a reference that an ifunc passed to a host function.
///
/// # Safety
/// `pointer` is null or valid for `'a`.
///
/// # Panics
/// If it is null: a C ifunc may pass that.
#[inline]
#[must_use]
pub unsafe fn reference<'a, T>(scope: &'a (), pointer: *const T, name: &str) -> &'a T {
    // SAFETY: the caller's promise.
    match unsafe { optional(scope, pointer) } {
        Some(reference) => reference,
        None => null(name),
    }
}

/// As [`reference`], exclusive.
///
/// # Safety
/// `pointer` is null, or valid for `'a` and not aliased.
///
/// # Panics
/// If it is null.
#[inline]
#[must_use]
pub unsafe fn reference_mut<'a, T>(scope: &'a (), pointer: *mut T, name: &str) -> &'a mut T {
    // SAFETY: the caller's promise.
    match unsafe { optional_mut(scope, pointer) } {
        Some(reference) => reference,
        None => null(name),
    }
}

/// Borrows an optional reference that an ifunc passed to a host function.
///
/// # Safety
/// `pointer` is null or valid for `'a`.
#[inline]
#[must_use]
pub unsafe fn optional<'a, T>(_scope: &'a (), pointer: *const T) -> Option<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }
}

/// As [`optional`], exclusive.
///
/// # Safety
/// `pointer` is null, or valid for `'a` and not aliased.
#[inline]
#[must_use]
pub unsafe fn optional_mut<'a, T>(_scope: &'a (), pointer: *mut T) -> Option<&'a mut T> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_mut() }
}

/// Borrows a slice that an ifunc passed to a host function; null is the empty slice.
///
/// # Safety
/// `data` is null or points to `len` values that are valid for `'a`.
#[inline]
#[must_use]
pub unsafe fn slice<'a, T>(_scope: &'a (), data: *const T, len: usize) -> &'a [T] {
    if data.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { core::slice::from_raw_parts(data, len) }
}

/// As [`slice`], exclusive.
///
/// # Safety
/// `data` is null or points to `len` values that are valid for `'a` and not aliased.
#[inline]
#[must_use]
pub unsafe fn slice_mut<'a, T>(_scope: &'a (), data: *mut T, len: usize) -> &'a mut [T] {
    if data.is_null() {
        return &mut [];
    }
    // SAFETY: the caller's promise.
    unsafe { core::slice::from_raw_parts_mut(data, len) }
}

/// Borrows a string that an ifunc passed to a host function.
///
/// # Safety
/// As for [`slice`].
///
/// # Panics
/// If it is not UTF-8: a C ifunc may pass that.
#[inline]
#[must_use]
pub unsafe fn string<'a>(scope: &'a (), data: *const u8, len: usize, name: &str) -> &'a str {
    // SAFETY: the caller's promise.
    match core::str::from_utf8(unsafe { slice(scope, data, len) }) {
        Ok(string) => string,
        Err(_) => panic!("the ifunc passed `{name}` that is not UTF-8"),
    }
}

#[cold]
fn null(name: &str) -> ! {
    panic!("the ifunc passed a null pointer as `{name}`")
}

/// Panics because a host function returned an error code that its enum does not define.
///
/// # Panics
/// Always.
#[cold]
pub fn unknown_code() -> ! {
    panic!("the host function returned an unknown error code")
}

/// Panics because C passed a number that an enum does not define.
///
/// # Panics
/// Always.
#[cold]
pub fn unknown_value(name: &str) -> ! {
    panic!("a value that `{name}` does not define")
}

/// The text of a struct that has the first fields of another one: `text` with the size and the alignment that it has.
/// - `end`: where its last field ends
/// - `kept`, `all`: alignments of its fields, and of all fields
/// - `align`: alignment of the other struct, which `align(N)` may raise and `packed` lower
/// - `next`: offset of the first field that it does not have
///
/// Empty if that field lies in its last bytes, which are padding.
#[must_use]
pub const fn earlier_text(
    text: ifunc_abi::text::Text,
    end: usize,
    kept: &[usize],
    all: &[usize],
    align: usize,
    next: usize,
) -> ifunc_abi::text::Text {
    const fn max(aligns: &[usize]) -> usize {
        let (mut max, mut i) = (1, 0);
        while i < aligns.len() {
            if aligns[i] > max {
                max = aligns[i];
            }
            i += 1;
        }
        max
    }
    let align = if align > max(all) || max(kept) > align {
        align
    } else {
        max(kept)
    };
    let size = end.next_multiple_of(align);
    if next < size {
        return ifunc_abi::text::Text::new();
    }
    text.str("[").number(size).str(",").number(align).str("]")
}

/// `text` followed by a signed number.
#[must_use]
pub const fn integer(text: ifunc_abi::text::Text, n: i128) -> ifunc_abi::text::Text {
    let text = if n < 0 { text.str("-") } else { text };
    // Discriminants of more than 64 bits do not exist.
    text.number(n.unsigned_abs() as usize)
}

/// The result of [`concat`] as a string.
#[must_use]
pub const fn text(bytes: &[u8]) -> &str {
    match core::str::from_utf8(bytes) {
        Ok(text) => text,
        // `concat` joins whole strings only.
        Err(_) => "",
    }
}

/// Tests whether a concrete type is `Sync`: `{ use NotShared as _; Shared::<T>::FLAG }`.
#[derive(Debug)]
pub struct Shared<T: ?Sized>(core::marker::PhantomData<T>);

impl<T: ?Sized + Sync> Shared<T> {
    /// The flag in an ifunc's record. Method resolution prefers it to that of [`NotShared`] where the bound
    /// holds.
    pub const FLAG: &'static str = " shared";
}

/// The fallback of [`Shared`] for other types.
pub trait NotShared {
    /// The flag for an opaque type or an interface; the empty string otherwise. An ifunc can only pass its `&T` of
    /// an opaque type to host functions, and a target serves on several threads only if its own type is `Sync`.
    const FLAG: &'static str;
}

impl<T: crate::TargetArgs + ?Sized> NotShared for Shared<T> {
    const FLAG: &'static str = if is_opaque(T::TEXT.as_str()) {
        Shared::<()>::FLAG
    } else {
        ""
    };
}

/// Whether `#[derive(Opaque)]` or `#[ifunc::interface]` wrote `text`.
const fn is_opaque(text: &str) -> bool {
    matches!(
        text.as_bytes(),
        [b'o', b'p', b'a', b'q', b'u', b'e', b' ', ..]
            | [b'i', b'n', b't', b'e', b'r', b'f', b'a', b'c', b'e', b' ', ..]
    )
}

/// Canonical text of an ifunc's target type.
#[must_use]
pub const fn target_text<F: crate::Ifunc>() -> &'static ifunc_abi::text::Text {
    &<F::Target as crate::TargetArgs>::TEXT
}

#[cfg(test)]
mod tests {
    use core::ffi::c_void;
    use core::ptr;

    use super::{MAIN_BAD_PAYLOAD, MAIN_OK, NotShared as _, RawBatch, RawContext, Shared};

    unsafe extern "C" fn log(_: *mut RawContext, _: u32, _: *const u8, _: usize) {}

    /// An entry may end the whole call: the target then reads which one it was.
    #[test]
    fn a_batch_notes_an_entry_before_it_runs() {
        const STRIDE: usize = 8;
        let payloads = [0u64, 1, 2, 3];
        for fails_at in [1, 2, u64::MAX] {
            for answers in [false, true] {
                let mut len = 0;
                let mut batch = RawBatch {
                    version: ifunc_abi::ABI_VERSION.into(),
                    size: size_of::<RawBatch>() as u32,
                    payloads: payloads.as_ptr().cast(),
                    payload_size: STRIDE,
                    stride: STRIDE,
                    count: payloads.len() as u32,
                    started: 0,
                    answers: ptr::null_mut(),
                    answers_capacity: 0,
                    max_answer: 0,
                    answer_lens: &raw mut len,
                    answer_lens_stride: 0,
                };
                let mut ctx = RawContext {
                    version: ifunc_abi::ABI_VERSION.into(),
                    size: size_of::<RawContext>() as u32,
                    sender: 0,
                    answer: ptr::null_mut(),
                    answer_capacity: 0,
                    answer_len: 0,
                    log,
                    host: ptr::null_mut(),
                };
                let batch = &raw mut batch;
                let entry = |payload: *const c_void| {
                    // SAFETY: one of the payloads above.
                    let number = unsafe { *payload.cast::<u64>() };
                    // SAFETY: the batch is a local.
                    assert_eq!(u64::from(unsafe { (*batch).started }), number + 1);
                    if number == fails_at {
                        MAIN_BAD_PAYLOAD
                    } else {
                        MAIN_OK
                    }
                };
                // SAFETY: a batch of payloads, and a context.
                let code = unsafe {
                    match answers {
                        true => super::run_batch(batch, &raw mut ctx, |payload, _, _| entry(payload)),
                        false => super::run_batch_without_answers(batch, |payload, _| entry(payload)),
                    }
                };
                let (started, fails) = match fails_at {
                    u64::MAX => (4, false),
                    number => (number as u32 + 1, true),
                };
                // SAFETY: as above.
                assert_eq!((unsafe { (*batch).started }, code != MAIN_OK), (started, fails));
            }
        }
    }

    #[test]
    fn only_what_is_sync_is_shared() {
        struct Store(#[allow(dead_code)] crate::Foreign);
        struct Unsynchronised(#[allow(dead_code)] core::cell::Cell<u64>);
        // SAFETY: a `u64`.
        unsafe impl crate::TargetArgs for Unsynchronised {
            const TEXT: ifunc_abi::text::Text =
                ifunc_abi::text::Text::new().str("struct Unsynchronised{0:0:u64}[8,8]");
        }
        // SAFETY: the test does not access the contents.
        unsafe impl crate::TargetArgs for Store {
            const TEXT: ifunc_abi::text::Text = ifunc_abi::text::Text::new().str("opaque store/1");
        }

        assert_eq!(Shared::<[u64; 2]>::FLAG, " shared");
        assert_eq!(Shared::<core::sync::atomic::AtomicU64>::FLAG, " shared");
        assert_eq!(Shared::<Unsynchronised>::FLAG, "");
        assert_eq!(Shared::<Store>::FLAG, " shared");
        assert_eq!((size_of::<Store>(), align_of::<Store>()), (0, 1));
    }
}
