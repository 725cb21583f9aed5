//! `#[derive(Opaque)]`: types that an ifunc names but never sees.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Fields, LitStr, Member};

use crate::errors::Errors;
use crate::types;

struct Model {
    input: DeriveInput,
    name: LitStr,
}

const HELP: &str = "name the type, the same on both sides, with a version: `#[opaque(\"store/1\")]`";

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
        // Nobody reads a `Foreign`: say that it is meant to be there.
        let read = foreign(&input.data).map(|member| {
            quote! {
                const _: () = {
                    #[allow(dead_code)]
                    fn read(it: &#ident) -> &::ifunc::Foreign {
                        &it.#member
                    }
                };
            }
        });
        quote! {
            // SAFETY: who derives this on an ifunc's side holds a `Foreign`, which has nothing inside.
            #[automatically_derived]
            unsafe impl ::ifunc::TargetArgs for #ident {
                const TEXT: ::ifunc::abi::text::Text = ::ifunc::abi::text::Text::new().str(#text);
            }
            #read
        }
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
