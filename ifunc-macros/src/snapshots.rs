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

snapshot! { layout_struct, crate::layout::attribute(
    quote!(),
    quote! {
        pub struct Pair<T> {
            pub left: T,
            right: [u8; 4],
        }
    },
)}

snapshot! { derive_layout_struct, crate::layout::derive(quote! {
    #[repr(C)]
    struct Point<T>(T, f64);
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
