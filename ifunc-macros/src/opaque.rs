//! `#[derive(Opaque)]`: types that an ifunc names but never sees.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{Data, DeriveInput, Fields, Ident, LitStr, Member};

use crate::errors::Errors;
use crate::types;

struct Model {
    input: DeriveInput,
    name: LitStr,
}

const HELP: &str = "name the type, the same on both sides, with a version: `#[opaque(\"store/1\")]`";

const ALONE: &str = "help: in the ifunc's package write `pub struct Name(ifunc::Foreign);`, and leave the type with the fields in \
                     the host's; reach what is inside by host functions";

impl Model {
    fn new(input: DeriveInput) -> syn::Result<Self> {
        let mut errors = Errors::default();
        let mut name = None;
        for attr in input.attrs.iter().filter(|attr| attr.path().is_ident("opaque")) {
            if name.is_some() {
                errors.at(attr, "the type is named twice", "keep one");
            }
            match attr.parse_args::<LitStr>() {
                Ok(literal) => {
                    let value = literal.value();
                    if value.is_empty()
                        || !value
                            .chars()
                            .all(|c| c.is_ascii_alphanumeric() || "_-./:".contains(c))
                    {
                        errors.at(
                            &literal,
                            "the name of an opaque type is ASCII letters, digits and `_-./:`",
                            HELP,
                        );
                    }
                    name = Some(literal);
                }
                Err(error) => errors.span(error.span(), "the name of the type is expected", HELP),
            }
        }
        if name.is_none() && !input.attrs.iter().any(|attr| attr.path().is_ident("opaque")) {
            errors.at(
                &input.ident,
                "an opaque type needs a name that both sides know",
                HELP,
            );
        }
        for param in &input.generics.params {
            errors.at(
                param,
                "an opaque type cannot be generic: one name would stand for many types",
                "wrap the type that is meant: `pub struct Store(Generic<u64>);`",
            );
        }
        let makeable = match &input.data {
            Data::Struct(data) => matches!(data.fields, Fields::Unit),
            Data::Enum(data) => data.variants.is_empty(),
            Data::Union(_) => false,
        };
        if makeable {
            errors.at(
                &input.ident,
                "this type stands for the host's, yet safe code could make one out of nothing",
                "write `pub struct Name(ifunc::Foreign);`, which nobody can make",
            );
        }
        let name = name.unwrap_or_else(|| LitStr::new("", input.ident.span()));
        errors.or(Self { input, name })
    }

    fn expand(self) -> TokenStream {
        let Self { input, name } = self;
        let ident = &input.ident;
        let text = format!("opaque {}", name.value());
        let in_images = match foreign(&input.data) {
            Some(member) => held(ident, &member),
            None => missing(ident),
        };
        quote! {
            // SAFETY: in an image the type holds a `Foreign` and nothing else, as is checked below: nobody can make one,
            // and there is nothing inside.
            #[automatically_derived]
            unsafe impl ::ifunc::TargetArgs for #ident {
                const TEXT: ::ifunc::abi::text::Text = ::ifunc::abi::text::Text::new().str(#text);
            }
            #in_images
        }
    }
}

/// What is checked of a type with a `Foreign`: that the field is one, and in an image that there is nothing beside it.
fn held(ident: &Ident, member: &Member) -> TokenStream {
    let message = format!(
        "`{ident}` has fields beside its `ifunc::Foreign`, and an ifunc would look for them in the host's\n\n{ALONE}"
    );
    let span = ident.span().resolved_at(Span::call_site());
    let empty = quote_spanned!(span=> ::core::mem::size_of::<#ident>() == 0 && ::core::mem::align_of::<#ident>() == 1);
    quote! {
        // `unexpected_cfgs` is allowed here, on the outer item: on what has the `cfg` it would not help.
        #[allow(unexpected_cfgs)]
        const _: () = {
            // Nobody reads a `Foreign`: say that it is meant to be there.
            #[allow(dead_code)]
            fn read(it: &#ident) -> &::ifunc::Foreign {
                &it.#member
            }
            #[cfg(ifunc_image)]
            const _: () = assert!(#empty, #message);
        };
    }
}

/// What is said, in an image, of a type without a `Foreign`. Elsewhere it may be the host's own.
fn missing(ident: &Ident) -> TokenStream {
    let message = format!("only the host can look inside of `{ident}` and make one\n\n{ALONE}");
    let error = quote_spanned!(ident.span()=> ::core::compile_error!(#message););
    quote! {
        #[allow(unexpected_cfgs)]
        const _: () = {
            #[cfg(ifunc_image)]
            #error
        };
    }
}

/// The field that is a `Foreign`.
fn foreign(data: &Data) -> Option<Member> {
    let Data::Struct(data) = data else { return None };
    let fields = data.fields.iter().enumerate();
    fields
        .filter(|(_, field)| types::is_named(&field.ty, "Foreign"))
        .map(|(i, field)| match &field.ident {
            Some(ident) => Member::Named(ident.clone()),
            None => Member::Unnamed(i.into()),
        })
        .next()
}

/// `#[derive(Opaque)]`.
pub(crate) fn derive(input: TokenStream) -> TokenStream {
    match syn::parse2(input).and_then(Model::new) {
        Ok(model) => model.expand(),
        Err(error) => error.to_compile_error(),
    }
}
