//! `#[derive(Shape)]`: a description of what serde writes for a type.

use std::iter::Peekable;

use proc_macro2::{Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::{Attribute, Data, DeriveInput, Field, Fields};

use crate::errors::{Errors, span_of};
use crate::generics;
use crate::types::spelled;

struct Model {
    input: DeriveInput,
    parts: Vec<Part>,
    /// Whether a field holds the type itself.
    is_recursive: bool,
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
        let itself = itself();
        let mut is_recursive = false;
        for part in &mut parts {
            if let Part::Type(ty) = part
                && let Some(other) = without_itself(ty, &input.ident, &itself)
            {
                is_recursive = true;
                **ty = other;
            }
        }
        errors.or(Self {
            input,
            parts,
            is_recursive,
        })
    }

    fn expand(self) -> TokenStream {
        let Self {
            input,
            parts,
            is_recursive,
        } = self;
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
        let implementation = quote! {
            #[automatically_derived]
            impl #impl_generics ::ifunc::Shape for #ident #ty_generics #where_clause {
                const TEXT: ::ifunc::abi::text::Text = ::ifunc::abi::text::Text::new() #(#parts)*;
            }
        };
        if !is_recursive {
            return implementation;
        }
        let (itself, text) = (itself(), format!("^{}", ident.unraw()));
        quote! {
            const _: () = {
                // The text of a type that holds itself would have no end.
                #[derive(Clone)]
                struct #itself;
                impl ::ifunc::Shape for #itself {
                    const TEXT: ::ifunc::abi::text::Text = ::ifunc::abi::text::Text::new().str(#text);
                }
                #implementation
            };
        }
    }
}

/// The type that stands for the type itself, inside of itself.
fn itself() -> Ident {
    Ident::new("__IfuncItself", Span::mixed_site())
}

/// `ty` with `itself` in the place of the type `name`; `None` if it does not hold that type.
fn without_itself(ty: &syn::Type, name: &Ident, itself: &Ident) -> Option<syn::Type> {
    fn replace(tokens: TokenStream, name: &Ident, itself: &Ident, found: &mut bool) -> TokenStream {
        let mut tokens = tokens.into_iter().peekable();
        let mut out = TokenStream::new();
        let mut is_in_path = false;
        while let Some(token) = tokens.next() {
            let is_it = matches!(&token, TokenTree::Ident(ident) if ident == "Self" || ident == name);
            if is_it && !is_in_path {
                *found = true;
                itself.to_tokens(&mut out);
                skip_arguments(&mut tokens);
                continue;
            }
            is_in_path = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == ':');
            match token {
                TokenTree::Group(group) => {
                    let inner = replace(group.stream(), name, itself, found);
                    out.extend([TokenTree::from(Group::new(group.delimiter(), inner))]);
                }
                token => out.extend([token]),
            }
        }
        out
    }
    let mut found = false;
    let tokens = replace(ty.to_token_stream(), name, itself, &mut found);
    if !found {
        return None;
    }
    syn::parse2(tokens).ok()
}

/// Skips `<..>`.
fn skip_arguments(tokens: &mut Peekable<impl Iterator<Item = TokenTree>>) {
    let is = |token: &TokenTree, c| matches!(token, TokenTree::Punct(punct) if punct.as_char() == c);
    if !tokens.peek().is_some_and(|token| is(token, '<')) {
        return;
    }
    let mut depth = 0;
    for token in tokens.by_ref() {
        depth += i32::from(is(&token, '<')) - i32::from(is(&token, '>'));
        if depth == 0 {
            return;
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
        let (with, is_by_name) = described(attrs, errors);
        if skips(attrs, with.is_some(), errors) {
            continue;
        }
        let comma = if first { "" } else { "," };
        first = false;
        let named = ident
            .as_ref()
            .map(|ident| format!("{}:", ident.unraw()))
            .unwrap_or_default();
        parts.push(Part::Literal(format!("{comma}{named}")));
        if is_by_name {
            parts.push(Part::Literal(format!("^{}", spelled(&ty.to_token_stream()))));
            continue;
        }
        parts.push(Part::Type(Box::new(with.unwrap_or_else(|| ty.clone()))));
    }
    parts.push(Part::Literal(close.to_owned()));
}

/// The type of `#[shape(with = TYPE)]`: what serde writes for the field has its shape. And whether there is `#[shape(by_name)]`: the
/// field is described by the name of its type alone.
fn described(attrs: &[Attribute], errors: &mut Errors) -> (Option<syn::Type>, bool) {
    let (mut with, mut is_by_name) = (None, false);
    for attr in attrs.iter().filter(|attr| attr.path().is_ident("shape")) {
        let parsed = attr.parse_nested_meta(|meta| {
            if meta.path.is_ident("by_name") {
                is_by_name = true;
            } else if meta.path.is_ident("with") {
                with = Some(meta.value()?.parse()?);
            } else {
                return Err(meta.error("unknown argument"));
            }
            Ok(())
        });
        if let Err(error) = parsed {
            errors.span(
                error.span(),
                &error,
                "the arguments are the type whose shape serde writes, `#[shape(with = u64)]`, and `#[shape(by_name)]` for a type that \
                 holds this one",
            );
        }
    }
    (with, is_by_name)
}

/// Whether serde skips the item with these attributes. Reports attributes that change serde's output.
fn serde_skips(attrs: &[Attribute], errors: &mut Errors) -> bool {
    skips(attrs, false, errors)
}

/// As [`serde_skips`]; `is_described`: the author states what serde writes.
fn skips(attrs: &[Attribute], is_described: bool, errors: &mut Errors) -> bool {
    const WRITERS: [&str; 3] = ["with", "serialize_with", "deserialize_with"];
    let mut skip = false;
    for attr in attrs.iter().filter(|attr| attr.path().is_ident("serde")) {
        let parsed = attr.parse_nested_meta(|meta| {
            let name = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
            if name == "skip" {
                skip = true;
            } else if !(HARMLESS.contains(&name.as_str()) || is_described && WRITERS.contains(&name.as_str())) {
                errors.at(
                    &meta.path,
                    format_args!(
                        "`#[serde({name})]` changes what serde writes, and `derive(Shape)` cannot describe it"
                    ),
                    "say what it writes for a field by `#[shape(with = TYPE)]`, or write `impl Shape` by hand, with a text that changes with the format: \
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
