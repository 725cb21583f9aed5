//! Types that an ifunc passes on without access to their contents.

use core::any::TypeId;
use core::cell::UnsafeCell;
use core::marker::PhantomData;

/// The placeholder, in an ifunc's crate, for a type of the host.
///
/// It cannot be constructed, and so neither can the struct that holds it: every reference to that struct
/// comes from the target.
///
/// ```
/// use ifunc::prelude::*;
///
/// /// The target's store.
/// #[derive(Opaque)]
/// #[opaque("store/1")]
/// pub struct Store(ifunc::Foreign);
/// ```
///
/// It is neither [`Send`] nor [`Sync`]: the host's type may hold a [`Cell`](core::cell::Cell), or change
/// while an ifunc holds a `&Store`. An ifunc that takes `&Store` may nevertheless run on several threads of
/// its target at the same time: it can only pass the reference to host functions, and a target serves on
/// several threads only if its type is `Sync`.
#[derive(Debug)]
#[repr(C)]
pub struct Foreign {
    _nothing: UnsafeCell<[u8; 0]>,
    _unknown: PhantomData<*mut ()>,
}

/// A type that ifuncs know by a name alone. Two sides that were compiled together compare the types; the name is for the sides
/// that were not.
#[derive(Clone, Copy)]
pub struct NamedType {
    text: &'static str,
    id: fn() -> TypeId,
    type_name: fn() -> &'static str,
    is_placeholder: bool,
}

impl NamedType {
    /// The type `T` with the text by which ifuncs know it.
    #[must_use]
    pub const fn of<T: 'static>(text: &'static str) -> Self {
        Self {
            text,
            id: TypeId::of::<T>,
            type_name: core::any::type_name::<T>,
            is_placeholder: false,
        }
    }

    /// A type with a [`Foreign`], which stands for whatever type the host has by that name.
    #[must_use]
    pub const fn placeholder<T: 'static>(text: &'static str) -> Self {
        Self {
            is_placeholder: true,
            ..Self::of::<T>(text)
        }
    }

    /// The canonical text of the name.
    #[must_use]
    pub const fn text(&self) -> &'static str {
        self.text
    }

    /// The type.
    #[must_use]
    pub fn id(&self) -> TypeId {
        (self.id)()
    }

    /// The path of the type, for messages.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        (self.type_name)()
    }

    /// Whether it stands for a type of the host.
    #[must_use]
    pub const fn is_placeholder(&self) -> bool {
        self.is_placeholder
    }
}

impl core::fmt::Debug for NamedType {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("NamedType")
            .field(&self.text)
            .field(&self.type_name())
            .finish()
    }
}
