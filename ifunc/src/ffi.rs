//! What crosses between an ifunc and its host, and its form in C.
//!
//! The parameters and results of [`#[ifunc::export]`](macro@crate::export) and
//! [`#[ifunc::import]`](macro@crate::import) functions, and of the methods of an
//! [`#[ifunc::interface]`](macro@crate::interface):
//!
//! | Rust | C |
//! |---|---|
//! | integers, `f32`, `f64`; `bool` | the same; `uint8_t` |
//! | a struct or an enum with [`derive(Layout)`](macro@crate::Layout) | the struct; the enum's integer |
//! | `&T`, `&mut T`; `Option<&T>` of a shared layout or an opaque type | a pointer; a nullable pointer |
//! | `&[T]`, `&mut [T]`, `&str` | a pointer and a `size_t` |
//! | `Option<&[T]>`, `Option<&str>` | the same; null for `None` |
//! | `Option<T>` of a fixed layout | a pointer that may be null |
//! | `&mut dyn FnMut(A, B) -> R`, `&dyn Fn(A, B) -> R` | a function and a `void *` that is its first argument |
//! | `&self`, `&mut self` of an interface | `const void *self`, `void *self`: the target arguments |
//! | `-> &[T]`, `-> &str`, and those in an `Option` | a pointer, and a `size_t *` as the last parameter |
//! | `-> Option<T>` | `uint8_t`, 1 for `Some`, and an out pointer |
//! | `-> Result<T, E>` (`E`: `i32` or a C-like enum) | `int32_t`, 0 for `Ok`, and out pointers as the last parameters unless `T` is `()` |
//! | [`Owned<T>`](crate::Owned) of an opaque type, as a parameter and as a result, there in an `Option` or a `Result`, too | a pointer, and the obligation to pass it back or to `__ifunc_release` |
//! | raw pointers, `extern "C" fn(..)`, `...` (`unsafe` functions only; `...`: imports only) | the same |
//!
//! What a callback is given are the same types; it returns nothing, [`ControlFlow<()>`](core::ops::ControlFlow) (a
//! `uint8_t`, 1 for `Break`) or `Option<T>`. A callback that panics unwinds nothing of the host's: it returns `Break` or
//! `None`, so does every later call of it, and when the host's function has returned, the invocation ends with the
//! panic.
//!
//! A variable, `#[ifunc::export] static NAME: T`, is a [`HostStatic`] or a [`HostVariable`] for the ifunc, and
//! `extern T NAME;` in C.

use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;

use ifunc_abi::text::Text;

use crate::layout::Layout;

/// A value that crosses by itself: an integer, a float, a `bool`, or a type with
/// [`derive(Layout)`](macro@crate::Layout), which is passed as C passes it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot cross between an ifunc and its host by value",
    label = "not an integer, a float, a `bool` or a type of fixed layout",
    note = "help: `#[derive(Layout)]` and `#[repr(C)]` on the type; or pass `&{Self}` of an opaque type"
)]
pub trait Value: Sized {
    /// Canonical text of the type.
    const TEXT: Text;
    /// The type in C.
    #[doc(hidden)]
    type C;
    /// The type's name in C.
    #[doc(hidden)]
    const C_NAME: &'static str;
    #[doc(hidden)]
    fn into_c(self) -> Self::C;
    #[doc(hidden)]
    fn from_c(c: Self::C) -> Self;
}

/// The `E` of a `Result` that a host function returns: `i32`, or an enum of an integer representation with
/// [`derive(Layout)`](macro@crate::Layout) and without a variant of value 0.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the error of a host function",
    label = "C receives the error as an `int32_t`",
    note = "help: use `i32`, or an enum with `#[repr(i32)]` and `#[derive(Layout)]` whose values are not 0"
)]
pub trait ErrorCode: Sized {
    /// Canonical text of the type.
    const TEXT: Text;
    /// Whether no value is 0 and all fit an `i32`.
    #[doc(hidden)]
    const VALID: bool;
    #[doc(hidden)]
    fn into_code(self) -> i32;
    #[doc(hidden)]
    fn from_code(code: i32) -> Self;
}

/// A function or a variable that `#[ifunc::import]` declares: a type of its name, with the signature that the target compares.
/// `#[ifunc::export(import = path)]` lets the compiler compare it.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an import",
    label = "not declared by `#[ifunc::import]`",
    note = "help: name the function or the variable of an `#[ifunc::import]` block: `import = my_ifuncs::lookup`"
)]
pub trait Import {
    /// The parts of the canonical text.
    const SIGNATURE: &'static [&'static str];
}

impl ErrorCode for i32 {
    const TEXT: Text = <i32 as Layout>::TEXT;
    const VALID: bool = true;

    /// 0 means `Ok` in C: `Err(0)` crosses as `Err(i32::MIN)`.
    #[inline]
    fn into_code(self) -> i32 {
        if self == 0 { i32::MIN } else { self }
    }

    #[inline]
    fn from_code(code: i32) -> Self {
        code
    }
}

macro_rules! scalars {
    ($($ty:ty = $c:ty, $name:literal;)*) => {$(
        impl Value for $ty {
            const TEXT: Text = <$ty as Layout>::TEXT;
            type C = $c;
            const C_NAME: &'static str = $name;
            #[inline]
            fn into_c(self) -> $c {
                self
            }
            #[inline]
            fn from_c(c: $c) -> Self {
                c
            }
        }
    )*};
}

scalars! {
    u8 = u8, "uint8_t";
    u16 = u16, "uint16_t";
    u32 = u32, "uint32_t";
    u64 = u64, "uint64_t";
    usize = usize, "size_t";
    i8 = i8, "int8_t";
    i16 = i16, "int16_t";
    i32 = i32, "int32_t";
    i64 = i64, "int64_t";
    isize = isize, "ptrdiff_t";
    f32 = f32, "float";
    f64 = f64, "double";
}

impl Value for bool {
    const TEXT: Text = <bool as Layout>::TEXT;
    type C = u8;
    const C_NAME: &'static str = "uint8_t";
    #[inline]
    fn into_c(self) -> u8 {
        u8::from(self)
    }
    #[inline]
    fn from_c(c: u8) -> Self {
        c != 0
    }
}

/// A variable of the host that safe code may use: `safe static NAME: T;` in an
/// [`#[ifunc::import]`](macro@crate::import) block. It dereferences to the variable.
///
/// The reference ends with the statement: a target may replace what it exports between two invocations.
///
/// ```
/// use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
///
/// mod host {
///     #[ifunc::export]
///     static HITS: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(7);
/// }
///
/// #[ifunc::import]
/// unsafe extern {
///     safe static HITS: AtomicU64;
/// }
/// # fn main() {
/// assert_eq!(HITS.fetch_add(1, Relaxed), 7);
/// # }
/// ```
pub struct HostStatic<T>(HostVariable<T>);

impl<T> HostStatic<T> {
    /// The variable at the address that `address` returns.
    ///
    /// # Safety
    /// It returns the address of a variable that any thread may use by `&T`.
    #[doc(hidden)]
    #[must_use]
    pub const unsafe fn new(address: fn() -> *mut T) -> Self {
        Self(HostVariable {
            address,
            _type: PhantomData,
        })
    }

    /// The address of the variable.
    #[inline]
    #[must_use]
    pub fn as_ptr(&self) -> *mut T {
        self.0.as_ptr()
    }
}

impl<T> Deref for HostStatic<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `new` was promised that safe code may do this.
        unsafe { &*self.0.as_ptr() }
    }
}

impl<T> fmt::Debug for HostStatic<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostStatic").finish_non_exhaustive()
    }
}

/// A variable of the host: `static NAME: T;` or `static mut NAME: T;` in an [`#[ifunc::import]`](macro@crate::import)
/// block.
pub struct HostVariable<T> {
    address: fn() -> *mut T,
    _type: PhantomData<T>,
}

/// Does nothing: a constant with a destructor is not promoted, so that no borrow of it is `'static`.
impl<T> Drop for HostVariable<T> {
    #[inline]
    fn drop(&mut self) {}
}

impl<T> HostVariable<T> {
    /// The variable at the address that `address` returns.
    ///
    /// # Safety
    /// It returns the address of a `T`.
    #[doc(hidden)]
    #[must_use]
    pub const unsafe fn new(address: fn() -> *mut T) -> Self {
        Self {
            address,
            _type: PhantomData,
        }
    }

    /// The address of the variable.
    #[inline]
    #[must_use]
    pub fn as_ptr(&self) -> *mut T {
        (self.address)()
    }

    /// Borrows the variable.
    ///
    /// # Safety
    /// Nothing writes to it meanwhile, except through interior mutability; other threads of the target may use it.
    #[inline]
    #[must_use]
    pub unsafe fn get(&self) -> &T {
        // SAFETY: the caller's promise.
        unsafe { &*self.as_ptr() }
    }
}

impl<T> fmt::Debug for HostVariable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostVariable").finish_non_exhaustive()
    }
}

/// A variadic function of the host, outside an image: it dereferences to a function pointer, so that it is called as the
/// function that it is in an image.
#[cfg(not(ifunc_image))]
pub struct Variadic<F: 'static> {
    function: &'static Resolved<F>,
    address: fn() -> *const (),
}

/// Where [`Variadic`] keeps its address.
#[cfg(not(ifunc_image))]
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Resolved<F>(std::sync::OnceLock<F>);

#[cfg(not(ifunc_image))]
impl<F> Resolved<F> {
    /// Not resolved yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(std::sync::OnceLock::new())
    }
}

#[cfg(not(ifunc_image))]
impl<F: Copy> Variadic<F> {
    /// The function at the address that `address` returns.
    ///
    /// # Safety
    /// `F` is the type of a function pointer, and the address is that of such a function.
    #[doc(hidden)]
    #[must_use]
    pub const unsafe fn new(function: &'static Resolved<F>, address: fn() -> *const ()) -> Self {
        Self { function, address }
    }
}

#[cfg(not(ifunc_image))]
impl<F: Copy> Deref for Variadic<F> {
    type Target = F;

    fn deref(&self) -> &F {
        self.function.0.get_or_init(|| {
            let address = (self.address)();
            // SAFETY: `new` was promised that `F` is a function pointer, and that this is the address of such a function.
            unsafe { core::mem::transmute_copy::<*const (), F>(&address) }
        })
    }
}

#[cfg(not(ifunc_image))]
impl<F> fmt::Debug for Variadic<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Variadic").finish_non_exhaustive()
    }
}
