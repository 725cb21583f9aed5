//! Records results of cases without `core::fmt`, which would otherwise be part of every image.

use alloc::string::String;
use alloc::vec::Vec;

/// Records values as bytes.
pub trait Put {
    /// Appends a value.
    fn put<T: Note>(&mut self, value: T);
}

impl Put for Vec<u8> {
    #[inline]
    fn put<T: Note>(&mut self, value: T) {
        value.note(self);
    }
}

/// A value that can be recorded.
pub trait Note {
    /// Appends its bytes.
    fn note(&self, out: &mut Vec<u8>);
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Note for $number {
            #[inline]
            fn note(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}
numbers!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize);

macro_rules! floats {
    ($($float:ty)*) => {$(
        impl Note for $float {
            /// Normalises NaNs: their bits are unspecified.
            fn note(&self, out: &mut Vec<u8>) {
                let bits = if self.is_nan() { 0 } else { self.to_bits() };
                out.extend_from_slice(&bits.to_le_bytes());
                out.push(u8::from(self.is_nan()));
            }
        }
    )*};
}
floats!(f32 f64);

impl Note for bool {
    fn note(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
}

impl Note for char {
    fn note(&self, out: &mut Vec<u8>) {
        u32::from(*self).note(out);
    }
}

impl Note for str {
    fn note(&self, out: &mut Vec<u8>) {
        self.as_bytes().note(out);
    }
}

impl Note for String {
    fn note(&self, out: &mut Vec<u8>) {
        self.as_str().note(out);
    }
}

impl<T: Note> Note for [T] {
    fn note(&self, out: &mut Vec<u8>) {
        self.len().note(out);
        for value in self {
            value.note(out);
        }
    }
}

impl<T: Note, const N: usize> Note for [T; N] {
    fn note(&self, out: &mut Vec<u8>) {
        self.as_slice().note(out);
    }
}

impl<T: Note> Note for Vec<T> {
    fn note(&self, out: &mut Vec<u8>) {
        self.as_slice().note(out);
    }
}

impl<T: Note + ?Sized> Note for &T {
    fn note(&self, out: &mut Vec<u8>) {
        (**self).note(out);
    }
}

impl<T: Note> Note for Option<T> {
    fn note(&self, out: &mut Vec<u8>) {
        self.is_some().note(out);
        if let Some(value) = self {
            value.note(out);
        }
    }
}

impl<T: Note, U: Note> Note for (T, U) {
    fn note(&self, out: &mut Vec<u8>) {
        self.0.note(out);
        self.1.note(out);
    }
}

impl Note for () {
    fn note(&self, _: &mut Vec<u8>) {}
}
