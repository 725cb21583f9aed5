//! `#[derive(Opaque)]`: types that an ifunc passes on without access to their contents.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::parse::{Parse, ParseStream};
use syn::{Data, DeriveInput, Fields, Ident, LitStr, Member};

use crate::errors::Errors;
use crate::types;

struct Model {
    input: DeriveInput,
    name: Name,
}

/// The argument of `#[opaque(..)]`.
enum Name {
    /// `"store/1"`: the name by which ifuncs take the type.
    Literal(LitStr),
    /// `interfaces`: ifuncs take the interfaces that the type exports, and never the type itself.
    Interfaces(Ident),
}

impl Parse for Name {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        if input.peek(Ident) {
            let ident: Ident = input.parse()?;
            if ident == "interfaces" {
                return Ok(Self::Interfaces(ident));
            }
            return Err(syn::Error::new(ident.span(), "expected the name of the type"));
        }
        input.parse().map(Self::Literal)
    }
}

const HELP: &str = "give the type the same name on both sides, with a version: `#[opaque(\"store/1\")]`; a host type that ifuncs reach \
                    through `#[ifunc::interface]`s alone has none: `#[opaque(interfaces)]`";

const ALONE: &str = "help: in the ifunc's package write `pub struct Name(ifunc::Foreign);`, and define the type with its fields in \
                     the host's; access its contents through host functions";

impl Model {
    fn new(input: DeriveInput) -> syn::Result<Self> {
        let mut errors = Errors::default();
        let mut name = None;
        for attr in input.attrs.iter().filter(|attr| attr.path().is_ident("opaque")) {
            if name.is_some() {
                errors.at(attr, "the type has two names", "keep one");
            }
            match attr.parse_args::<Name>() {
                Ok(Name::Interfaces(ident)) => {
                    if foreign(&input.data).is_some() {
                        errors.at(
                            &ident,
                            "an ifunc takes an interface itself, and no type for it",
                            "write `kv: &mut dyn Kv` in the ifunc; `#[opaque(interfaces)]` is for the host's type",
                        );
                    }
                    name = Some(Name::Interfaces(ident));
                }
                Ok(Name::Literal(literal)) => {
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
                    name = Some(Name::Literal(literal));
                }
                Err(error) => errors.span(error.span(), "expected the name of the type", HELP),
            }
        }
        if name.is_none() && !input.attrs.iter().any(|attr| attr.path().is_ident("opaque")) {
            errors.at(
                &input.ident,
                "an opaque type needs a name that both sides use",
                HELP,
            );
        }
        let is_named = !matches!(name, Some(Name::Interfaces(_)));
        for param in input.generics.params.iter().filter(|_| is_named) {
            errors.at(
                param,
                "an opaque type cannot be generic: one name would denote many types",
                "wrap one instance: `pub struct Store(Generic<u64>);`; or let ifuncs take interfaces of it: `#[opaque(interfaces)]`",
            );
        }
        let makeable = match &input.data {
            Data::Struct(data) => matches!(data.fields, Fields::Unit),
            Data::Enum(data) => data.variants.is_empty(),
            Data::Union(_) => false,
        };
        if makeable && is_named {
            errors.at(
                &input.ident,
                "safe code could construct this type, which only the host may do",
                "write `pub struct Name(ifunc::Foreign);`, which cannot be constructed",
            );
        }
        let name = name.unwrap_or_else(|| Name::Literal(LitStr::new("", input.ident.span())));
        errors.or(Self { input, name })
    }

    fn expand(self) -> TokenStream {
        let Self { input, name } = self;
        let ident = &input.ident;
        let text = match &name {
            Name::Literal(name) => format!("opaque {}", name.value()),
            Name::Interfaces(_) => "opaque, reached through interfaces".to_owned(),
        };
        let (impl_generics, ty_generics, where_clause) = input.generics.split_for_impl();
        // A type that is reached through interfaces is in no signature of an ifunc.
        let named = matches!(name, Name::Literal(_)).then(|| {
            let side = match foreign(&input.data) {
                Some(_) => quote!(placeholder),
                None => quote!(of),
            };
            quote! {
                fn named_type() -> ::core::option::Option<::ifunc::__private::NamedType> {
                    ::core::option::Option::Some(::ifunc::__private::NamedType::#side::<Self>(#text))
                }
            }
        });
        let in_images = match foreign(&input.data) {
            Some(member) => held(ident, &member),
            None => missing(ident),
        };
        quote! {
            // SAFETY: in an image the type holds a `Foreign` and nothing else, as the checks below enforce:
            // it cannot be constructed and has no contents.
            #[automatically_derived]
            unsafe impl #impl_generics ::ifunc::TargetArgs for #ident #ty_generics #where_clause {
                const TEXT: ::ifunc::abi::text::Text = ::ifunc::abi::text::Text::new().str(#text);
                #named
            }
            #in_images
        }
    }
}

/// The checks of a type with a `Foreign`: the field has that type and, in an image, it is the only one.
fn held(ident: &Ident, member: &Member) -> TokenStream {
    let message = format!(
        "`{ident}` has fields beside its `ifunc::Foreign`, which an ifunc would access in the host's memory\n\n{ALONE}"
    );
    let span = ident.span().resolved_at(Span::call_site());
    let empty = quote_spanned!(span=> ::core::mem::size_of::<#ident>() == 0 && ::core::mem::align_of::<#ident>() == 1);
    quote! {
        // The outer item allows `unexpected_cfgs`: on the item with the `cfg` itself, it would have no
        // effect.
        #[allow(unexpected_cfgs)]
        const _: () = {
            // Reads the field, so that it is not reported as dead code.
            #[allow(dead_code)]
            fn read(it: &#ident) -> &::ifunc::Foreign {
                &it.#member
            }
            #[cfg(ifunc_image)]
            const _: () = assert!(#empty, #message);
        };
    }
}

/// The error, in an image, for a type without a `Foreign`. Outside an image it may be the host's own type.
fn missing(ident: &Ident) -> TokenStream {
    let message = format!("only the host can access the contents of `{ident}` and construct one\n\n{ALONE}");
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
