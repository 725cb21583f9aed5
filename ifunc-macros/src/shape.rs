//! `#[derive(Shape)]`: a description of what serde writes for a type.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::{Attribute, Data, DeriveInput, Field, Fields};

use crate::errors::{Errors, span_of};
use crate::generics;

struct Model {
    input: DeriveInput,
    parts: Vec<Part>,
}

/// A part of the text.
enum Part {
    Literal(String),
    Type(Box<syn::Type>),
}

/// serde attributes that do not change postcard's output, which contains no names.
const HARMLESS: [&str; 10] = [
    "rename",
    "rename_all",
    "rename_all_fields",
    "alias",
    "default",
    "borrow",
    "bound",
    "crate",
    "deny_unknown_fields",
    "expecting",
];

impl Model {
    fn new(input: DeriveInput) -> syn::Result<Self> {
        let mut errors = Errors::default();
        let mut parts = Vec::new();
        serde_skips(&input.attrs, &mut errors);
        let name = input.ident.unraw();
        match &input.data {
            Data::Struct(data) => {
                parts.push(Part::Literal(format!("struct {name}")));
                fields(&data.fields, &mut parts, &mut errors);
            }
            Data::Enum(data) => {
                parts.push(Part::Literal(format!("enum {name}{{")));
                for (i, variant) in data.variants.iter().enumerate() {
                    // A skipped variant keeps its number, so it stays in the text.
                    serde_skips(&variant.attrs, &mut errors);
                    let comma = if i > 0 { "," } else { "" };
                    parts.push(Part::Literal(format!("{comma}{}", variant.ident.unraw())));
                    fields(&variant.fields, &mut parts, &mut errors);
                }
                parts.push(Part::Literal("}".to_owned()));
            }
            Data::Union(data) => errors.at(data.union_token, "serde cannot write a union", "use an enum"),
        }
        errors.or(Self { input, parts })
    }

    fn expand(self) -> TokenStream {
        let Self { input, parts } = self;
        let ident = &input.ident;
        let generics = generics::with_bound(&input.generics, &quote!(::ifunc::Shape));
        let (impl_generics, ty_generics, where_clause) = generics.split_for_impl();
        let parts = parts.iter().map(|part| match part {
            Part::Literal(text) => quote!(.str(#text)),
            Part::Type(ty) => {
                let text = quote_spanned!(span_of(ty)=> &<#ty as ::ifunc::Shape>::TEXT);
                quote!(.text(#text))
            }
        });
        quote! {
            #[automatically_derived]
            impl #impl_generics ::ifunc::Shape for #ident #ty_generics #where_clause {
                const TEXT: ::ifunc::abi::text::Text = ::ifunc::abi::text::Text::new() #(#parts)*;
            }
        }
    }
}

fn fields(fields: &Fields, parts: &mut Vec<Part>, errors: &mut Errors) {
    let (open, close) = match fields {
        Fields::Named(_) => ("{", "}"),
        Fields::Unnamed(_) => ("(", ")"),
        Fields::Unit => return,
    };
    parts.push(Part::Literal(open.to_owned()));
    let mut first = true;
    for Field { attrs, ident, ty, .. } in fields {
        if serde_skips(attrs, errors) {
            continue;
        }
        let comma = if first { "" } else { "," };
        first = false;
        let named = ident
            .as_ref()
            .map(|ident| format!("{}:", ident.unraw()))
            .unwrap_or_default();
        parts.push(Part::Literal(format!("{comma}{named}")));
        parts.push(Part::Type(Box::new(ty.clone())));
    }
    parts.push(Part::Literal(close.to_owned()));
}

/// Whether serde skips the item with these attributes. Reports attributes that change serde's output.
fn serde_skips(attrs: &[Attribute], errors: &mut Errors) -> bool {
    let mut skip = false;
    for attr in attrs.iter().filter(|attr| attr.path().is_ident("serde")) {
        let parsed = attr.parse_nested_meta(|meta| {
            let name = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
            if name == "skip" {
                skip = true;
            } else if !HARMLESS.contains(&name.as_str()) {
                errors.at(
                    &meta.path,
                    format_args!(
                        "`#[serde({name})]` changes what serde writes, and `derive(Shape)` cannot describe it"
                    ),
                    "write `impl Shape` by hand, with a text that changes with the format: \
                     `const TEXT: Text = Text::new().str(\"record/1\");`",
                );
            }
            while !meta.input.is_empty() && !meta.input.peek(syn::Token![,]) {
                meta.input.parse::<proc_macro2::TokenTree>()?;
            }
            Ok(())
        });
        if let Err(error) = parsed {
            errors.push(error);
        }
    }
    skip
}

/// `#[derive(Shape)]`.
pub(crate) fn derive(input: TokenStream) -> TokenStream {
    match syn::parse2(input).and_then(Model::new) {
        Ok(model) => model.expand(),
        Err(error) => error.to_compile_error(),
    }
}
