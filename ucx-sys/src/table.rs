//! From one list of prototypes: a table of functions, and how it is filled.

/// Makes [`Ucx`](crate::Ucx) of the prototypes of each library.
macro_rules! functions {
    (
        ucp { $(fn $ucp:ident($($ucp_arg:ident: $ucp_ty:ty),*) $(-> $ucp_ret:ty)?;)* }
        ucs { $(fn $ucs:ident($($ucs_arg:ident: $ucs_ty:ty),*) $(-> $ucs_ret:ty)?;)* }
    ) => {
        functions!(@table
            $($ucp($($ucp_arg: $ucp_ty),*) $(-> $ucp_ret)?;)*
            $($ucs($($ucs_arg: $ucs_ty),*) $(-> $ucs_ret)?;)*
        );

        /// Fills the table: every symbol, or the name of the first that is missing.
        #[cfg(not(feature = "link"))]
        pub(crate) fn resolve(libraries: &$crate::load::Libraries) -> Result<Ucx, $crate::LoadError> {
            // SAFETY: the prototypes are those of the headers of UCX 1.13, and the caller has found out that the
            // libraries are of that version or of a later one with the same ABI.
            unsafe {
                Ok(Ucx {
                    $($ucp: libraries.symbol(&libraries.ucp, concat!(stringify!($ucp), "\0"))?,)*
                    $($ucs: libraries.symbol(&libraries.ucs, concat!(stringify!($ucs), "\0"))?,)*
                })
            }
        }

        #[cfg(feature = "link")]
        mod linked {
            use super::*;

            #[link(name = "ucp")]
            unsafe extern "C" {
                $(pub(super) fn $ucp($($ucp_arg: $ucp_ty),*) $(-> $ucp_ret)?;)*
            }

            #[link(name = "ucs")]
            unsafe extern "C" {
                $(pub(super) fn $ucs($($ucs_arg: $ucs_ty),*) $(-> $ucs_ret)?;)*
            }
        }

        /// Fills the table with what the program was linked with.
        #[cfg(feature = "link")]
        pub(crate) fn resolve() -> Ucx {
            Ucx {
                $($ucp: linked::$ucp,)*
                $($ucs: linked::$ucs,)*
            }
        }
    };
    (@table $($name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)?;)*) => {
        /// The functions of UCX, found in its libraries. There is one of these per process: [`Ucx::load`].
        ///
        /// Each method is the function of the same name; what it does and asks for is in UCX's manual.
        #[derive(Debug)]
        pub struct Ucx {
            $($name: unsafe extern "C" fn($($arg: $ty),*) $(-> $ret)?,)*
        }

        impl Ucx {
            $(
                #[doc = concat!("`", stringify!($name), "`.")]
                ///
                /// # Safety
                /// What UCX's manual asks of its callers.
                #[inline]
                pub unsafe fn $name(&self, $($arg: $ty),*) $(-> $ret)? {
                    // SAFETY: passed on to the caller.
                    unsafe { (self.$name)($($arg),*) }
                }
            )*
        }
    };
}
