//! Snapshots of the attributes' expansions.

use proc_macro2::TokenStream;
use quote::quote;

fn pretty(tokens: TokenStream) -> String {
    match syn::parse2(tokens.clone()) {
        Ok(file) => prettyplease::unparse(&file),
        Err(error) => panic!("the expansion does not parse: {error}\n{tokens}"),
    }
}

macro_rules! snapshot {
    ($name:ident, $expand:expr) => {
        #[test]
        fn $name() {
            insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
                insta::assert_snapshot!(stringify!($name), pretty($expand));
            });
        }
    };
}

snapshot! { ifunc_by_value, crate::ifunc::ifunc(
    quote!(),
    quote! {
        /// Adds.
        #[cfg(feature = "add")]
        pub fn add(delta: u64, counter: &mut u64) -> u64 {
            *counter += delta;
            *counter
        }
    },
)}

snapshot! { ifunc_postcard, crate::ifunc::ifunc(
    quote!(name = "insert_v2", codec = postcard, idempotent, pinned),
    quote! {
        fn insert<'a>(record: &Record<'a>, store: &Store, ctx: &mut Context) {
            ctx.answer(record.key);
        }
    },
)}

snapshot! { ifunc_misused, crate::ifunc::ifunc(
    quote!(codec = json),
    quote! {
        async fn later(payload: u64) {}
    },
)}

snapshot! { export, crate::export::export(
    quote!(),
    quote! {
        pub fn read(store: &Store, key: &str, out: &mut [u8], only: Option<&Filter>) -> Result<usize, Error> {
            store.read(key, out, only)
        }
    },
)}

snapshot! { import, crate::import::import(
    quote!(),
    quote! {
        unsafe extern "C" {
            /// Reads.
            pub safe fn read(store: &Store, key: &str, out: &mut [u8], only: Option<&Filter>) -> Result<usize, Error>;
            #[link_name = "tick_v2"]
            fn tick(fast: bool) -> f32;
        }
    },
)}

snapshot! { interface, crate::interface::interface(
    quote!(),
    quote! {
        /// A store.
        pub trait Kv {
            /// Stores.
            fn put(&mut self, key: &[u8], order: Order) -> Result<u64, KvError>;
            #[cfg(feature = "scan")]
            fn scan(&self, prefix: &str, each: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>);
        }
    },
)}

snapshot! { interface_misused, crate::interface::interface(
    quote!(version = 2),
    quote! {
        pub unsafe trait Kv<T>: Sync {
            type Key;
            fn new() -> Self;
            fn put(self, key: T) {}
        }
    },
)}

snapshot! { export_interface, crate::export::export(
    quote!(),
    quote! {
        impl shared::Kv for Store {
            fn put(&mut self, key: &[u8], order: Order) -> Result<u64, KvError> { Ok(1) }
        }
    },
)}

snapshot! { export_static, crate::export::export(
    quote!(name = "hits_v2"),
    quote! {
        pub static HITS: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
    },
)}

snapshot! { import_as_c_has_them, crate::import::import(
    quote!(),
    quote! {
        unsafe extern "C" {
            pub safe static HITS: AtomicU64;
            static mut LAST: u64;
            fn printf(format: *const c_char, ...) -> c_int;
            fn qsort(base: *mut c_void, n: usize, size: usize, compare: unsafe extern "C" fn(*const c_void, *const c_void) -> c_int);
            safe fn each_of(numbers: &[u32], each: &mut dyn FnMut(&u32) -> Option<u64>) -> Option<&str>;
        }
    },
)}

snapshot! { ifunc_of_an_interface, crate::ifunc::ifunc(
    quote!(),
    quote! {
        pub fn remember(key: &[u8], kv: &mut dyn Kv) -> u64 { 0 }
    },
)}

snapshot! { ifunc_in_an_impl, crate::ifunc::ifunc(
    quote!(),
    quote! { pub fn add(delta: u64, counter: &mut Option<Self>) {} },
)}

snapshot! { layout_misnamed, crate::layout::derive(quote! {
    #[layout(name = "two words", age = 7)]
    #[repr(C)]
    struct Point(u64);
})}

snapshot! { layout_struct, crate::layout::attribute(
    quote!(name = "shapes.Pair"),
    quote! {
        pub struct Pair<T> {
            pub left: T,
            right: [u8; 4],
        }
    },
)}

snapshot! { derive_layout_struct, crate::layout::derive(quote! {
    #[repr(C)]
    struct Point<T, const N: u8>(T, [f64; N]);
})}

snapshot! { derive_layout_enum, crate::layout::derive(quote! {
    #[repr(i16)]
    enum Level { Low = -1, High }
})}

snapshot! { derive_opaque, crate::opaque::derive(quote! {
    #[opaque("store/1")]
    struct Store(ifunc::Foreign);
})}

snapshot! { derive_shape, crate::shape::derive(quote! {
    enum Event<'a, T> {
        None,
        Named(&'a str, T),
        Full { id: u64, #[serde(skip)] cache: u8, #[serde(rename = "n")] count: Option<u8> },
    }
})}
