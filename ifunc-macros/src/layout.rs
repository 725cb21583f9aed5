//! `#[derive(Layout)]` and `#[ifunc::layout]`: fixed layouts.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::{Attribute, Data, DataEnum, DeriveInput, Field, Fields, GenericParam, Generics, Ident, LitStr};

use crate::errors::{Errors, report, span_of};
use crate::generics;

/// A type of fixed layout.
struct Model {
    input: DeriveInput,
    /// The name in the text.
    name: String,
    kind: Kind,
}

enum Kind {
    Struct {
        fields: Vec<Field>,
        /// Fields may be added at its end.
        grows: bool,
    },
    Enum(Enum),
}

struct Enum {
    repr: Ident,
    variants: Vec<Ident>,
    /// The variant of an enum that may grow that stands for values which this build does not know.
    other: Option<Ident>,
}

/// The representations that a `#[repr(...)]` names.
#[derive(Default)]
struct Repr {
    fixed: bool,
    integer: Option<Ident>,
    span: Option<Span>,
}

const INTEGERS: [&str; 10] = [
    "u8", "u16", "u32", "u64", "usize", "i8", "i16", "i32", "i64", "isize",
];

impl Repr {
    fn of(attrs: &[Attribute], errors: &mut Errors) -> Self {
        let mut repr = Self::default();
        for attr in attrs.iter().filter(|attr| attr.path().is_ident("repr")) {
            repr.span = Some(span_of(attr));
            let parsed = attr.parse_nested_meta(|meta| {
                if meta.path.is_ident("C") || meta.path.is_ident("transparent") {
                    repr.fixed = true;
                } else if let Some(ident) = meta.path.get_ident()
                    && INTEGERS.iter().any(|name| ident == name)
                {
                    repr.integer = Some(ident.clone());
                } else if meta.input.peek(syn::token::Paren) {
                    // The offsets reflect `align(N)` and `packed(N)`.
                    meta.input.parse::<proc_macro2::TokenTree>()?;
                }
                Ok(())
            });
            if let Err(error) = parsed {
                errors.push(error);
            }
        }
        repr
    }
}

impl Model {
    fn new(input: DeriveInput) -> syn::Result<Self> {
        let mut errors = Errors::default();
        let repr = Repr::of(&input.attrs, &mut errors);
        let settings = Settings::of(&input, &mut errors);
        for param in &input.generics.params {
            if let GenericParam::Lifetime(lifetime) = param {
                errors.at(
                    lifetime,
                    "a fixed layout cannot borrow: a reference is valid in one process only",
                    "hold the data itself, as arrays; or send the type by `codec = postcard`, which can borrow",
                );
            }
        }
        let kind = match &input.data {
            Data::Struct(data) => {
                if !repr.fixed {
                    errors.span(
                        repr.span.unwrap_or(input.ident.span()),
                        format_args!(
                            "`{}` has no fixed layout: Rust may order its fields differently in each build",
                            input.ident
                        ),
                        "add `#[repr(C)]`, or `#[repr(transparent)]` for one field",
                    );
                }
                Kind::Struct {
                    fields: data.fields.iter().cloned().collect(),
                    grows: settings.grows.is_some(),
                }
            }
            Data::Enum(data) => {
                if let Some(grows) = settings.grows {
                    errors.span(
                        grows,
                        "an enum that may grow is `#[non_exhaustive]`",
                        "write `#[non_exhaustive]` on the enum, and `#[layout(other)]` on the variant for values that this build does \
                         not know",
                    );
                }
                for variant in &data.variants {
                    if !matches!(variant.fields, Fields::Unit) {
                        errors.at(
                            variant,
                            "a variant of a fixed layout cannot have fields",
                            "split it into a struct and an enum, or send the type by `codec = postcard`",
                        );
                    }
                }
                if data.variants.is_empty() {
                    errors.at(
                        &input.ident,
                        "an enum without variants has no values",
                        "for a type of the host, use `#[derive(Opaque)]` on `pub struct Name(ifunc::Foreign);`",
                    );
                }
                if repr.integer.is_none() {
                    errors.span(
                        repr.span.unwrap_or(input.ident.span()),
                        format_args!(
                            "`{}` has no fixed size: Rust chooses the size of its discriminant",
                            input.ident
                        ),
                        "add an integer representation: `#[repr(u8)]`",
                    );
                }
                let placeholder = || Ident::new("u8", Span::call_site());
                Kind::Enum(Enum {
                    repr: repr.integer.unwrap_or_else(placeholder),
                    variants: data
                        .variants
                        .iter()
                        .map(|variant| variant.ident.clone())
                        .collect(),
                    other: other_variant(&input, data, &mut errors),
                })
            }
            Data::Union(data) => {
                errors.at(
                    data.union_token,
                    "a union cannot be validated",
                    "use a struct, or an enum and a byte array",
                );
                Kind::Struct {
                    fields: Vec::new(),
                    grows: false,
                }
            }
        };
        let name = settings.name;
        errors.or(Self { input, name, kind })
    }

    fn expand(self) -> TokenStream {
        let Self { input, name, kind } = self;
        let ident = &input.ident;
        let generics = generics::with_bound(&input.generics, &quote!(::ifunc::Layout));
        let (impl_generics, ty_generics, where_clause) = generics.split_for_impl();
        let (text, earlier, code) = match &kind {
            Kind::Struct { fields, grows } => (
                struct_text(&name, &input.generics, fields),
                grows.then(|| earlier_texts(&name, &input.generics, fields)),
                struct_value(&input, &ident.unraw().to_string()),
            ),
            Kind::Enum(model) => (
                model.text(&name),
                None,
                [model.error_code(ident, &name), model.value(ident, &name)]
                    .into_iter()
                    .collect(),
            ),
        };
        let earlier = earlier.map(|texts| quote!(const EARLIER: &'static [&'static str] = #texts;));
        quote! {
            // SAFETY: the representation is fixed, the text states every offset, and every field is of fixed
            // layout.
            #[automatically_derived]
            unsafe impl #impl_generics ::ifunc::Layout for #ident #ty_generics #where_clause {
                const TEXT: ::ifunc::abi::text::Text = #text;
                const ALIGN: usize = ::core::mem::align_of::<Self>();
                #earlier
            }
            #code
        }
    }
}

/// What `#[layout(..)]` on a type says.
struct Settings {
    /// The name of the type in texts: its own, or the chosen one.
    name: String,
    /// Where it says that fields may be added at the end.
    grows: Option<Span>,
}

impl Settings {
    fn of(input: &DeriveInput, errors: &mut Errors) -> Self {
        let mut settings = Self {
            name: input.ident.unraw().to_string(),
            grows: None,
        };
        for attr in input.attrs.iter().filter(|attr| attr.path().is_ident("layout")) {
            let parsed = attr.parse_nested_meta(|meta| {
                if meta.path.is_ident("grows") {
                    settings.grows = Some(span_of(&meta.path));
                    return Ok(());
                }
                if !meta.path.is_ident("name") {
                    return Err(meta.error("unknown argument"));
                }
                let literal: LitStr = meta.value()?.parse()?;
                settings.name = literal.value();
                let is_word = |word: &str| {
                    !word.is_empty()
                        && word
                            .chars()
                            .all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c))
                };
                if !settings.name.split("::").all(is_word) {
                    errors.at(
                        &literal,
                        "the name of a type in texts is ASCII letters, digits, `_-./` and `::`",
                        "give the type the same name on both sides: `name = \"geometry.Point\"`",
                    );
                }
                Ok(())
            });
            if let Err(error) = parsed {
                errors.span(
                    error.span(),
                    &error,
                    "the arguments are the name of the type in texts, `#[layout(name = \"..\")]`, and `#[layout(grows)]` for a struct to \
                     which later builds add fields at the end",
                );
            }
        }
        settings
    }
}

/// The variant `#[layout(other)]` of a `#[non_exhaustive]` enum.
fn other_variant(input: &DeriveInput, data: &DataEnum, errors: &mut Errors) -> Option<Ident> {
    let mut other: Option<Ident> = None;
    for variant in &data.variants {
        for attr in variant.attrs.iter().filter(|attr| attr.path().is_ident("layout")) {
            let parsed = attr.parse_nested_meta(|meta| match meta.path.is_ident("other") {
                true => Ok(()),
                false => Err(meta.error("unknown argument")),
            });
            if let Err(error) = parsed {
                errors.span(
                    error.span(),
                    &error,
                    "the only argument on a variant is `#[layout(other)]`: it stands for values that this build does not know",
                );
            } else if other.replace(variant.ident.clone()).is_some() {
                errors.at(
                    variant,
                    "two variants stand for values that this build does not know",
                    "leave `#[layout(other)]` on one of them",
                );
            }
        }
    }
    let grows = input
        .attrs
        .iter()
        .find(|attr| attr.path().is_ident("non_exhaustive"));
    match (grows, &other) {
        (None, None) => {}
        (None, Some(other)) => errors.at(
            other,
            "only an enum that may grow has values that a build does not know",
            "write `#[non_exhaustive]` on the enum, or remove `#[layout(other)]`",
        ),
        (Some(attr), None) => errors.at(
            attr,
            format_args!(
                "`{}` may grow, and no variant stands for the values that an earlier build does not know",
                input.ident
            ),
            "mark one: `#[layout(other)] Other = -1`; where a build receives a value that it does not know, it is this one",
        ),
        (Some(_), Some(_)) => {
            for variant in data
                .variants
                .iter()
                .filter(|variant| variant.discriminant.is_none())
            {
                errors.at(
                    variant,
                    "in an enum that may grow each variant states its value: to add one must not renumber another",
                    format_args!("`{} = 1`, and never change or reuse the value", variant.ident),
                );
            }
        }
    }
    other
}

fn struct_text(name: &str, generics: &Generics, fields: &[Field]) -> TokenStream {
    with_size(&fields_text(name, generics, fields))
}

/// The texts of the structs that have only the first fields, one at least: what a build had before the others were added. A text is empty
/// if the next field lies in what was the padding at the end of such a struct, which a write of the whole struct overwrites.
fn earlier_texts(name: &str, generics: &Generics, fields: &[Field]) -> TokenStream {
    let types: Vec<_> = fields.iter().map(|field| &field.ty).collect();
    let texts = (1..fields.len()).map(|n| {
        let text = fields_text(name, generics, &fields[..n]);
        let (kept, all) = (&types[..n], &types);
        let (last, next) = (member(n - 1, &fields[n - 1]), member(n, &fields[n]));
        let last_type = types[n - 1];
        quote! {
            const {
                &::ifunc::__private::earlier_text(
                    #text,
                    ::core::mem::offset_of!(Self, #last) + ::core::mem::size_of::<#last_type>(),
                    &[#(::core::mem::align_of::<#kept>()),*],
                    &[#(::core::mem::align_of::<#all>()),*],
                    ::core::mem::align_of::<Self>(),
                    ::core::mem::offset_of!(Self, #next),
                )
            }
            .as_str()
        }
    });
    quote!(&[#(#texts),*])
}

/// How code names field `i`.
fn member(i: usize, field: &Field) -> TokenStream {
    match &field.ident {
        Some(ident) => ident.to_token_stream(),
        None => syn::Index::from(i).to_token_stream(),
    }
}

/// The text of a struct of these fields, without its size.
fn fields_text(name: &str, generics: &Generics, fields: &[Field]) -> TokenStream {
    let open = format!("struct {name}");
    let params = parameters(generics);
    let fields = fields.iter().enumerate().map(|(i, field)| {
        let member = member(i, field);
        let named = format!(
            ":{}:",
            field
                .ident
                .as_ref()
                .map_or(i.to_string(), |ident| ident.unraw().to_string())
        );
        let comma = (i > 0).then(|| quote!(.str(",")));
        let ty = &field.ty;
        let field_text = quote_spanned!(span_of(ty)=> &<#ty as ::ifunc::Layout>::TEXT);
        quote!(#comma.number(::core::mem::offset_of!(Self, #member)).str(#named).text(#field_text))
    });
    let text = quote!(::ifunc::abi::text::Text::new().str(#open));
    let text = params.into_iter().fold(text, |text, param| param(&text));
    quote!(#text.str("{") #(#fields)* .str("}"))
}

/// Functions that add the parameters of a generic type to its text: two instances may differ in a `PhantomData` alone.
fn parameters(generics: &Generics) -> Vec<impl Fn(&TokenStream) -> TokenStream> {
    let params: Vec<_> = generics
        .params
        .iter()
        .filter(|param| !matches!(param, GenericParam::Lifetime(_)))
        .cloned()
        .collect();
    let last = params.len();
    let params = params.into_iter().enumerate().map(move |(i, param)| {
        let (open, close) = (
            if i == 0 { "<" } else { "," },
            (i + 1 == last).then(|| quote!(.str(">"))),
        );
        move |text: &TokenStream| match &param {
            GenericParam::Const(param) => {
                let ident = &param.ident;
                quote!(::ifunc::__private::integer(#text.str(#open), #ident as i128)#close)
            }
            GenericParam::Type(param) => {
                let ident = &param.ident;
                quote!(#text.str(#open).text(&<#ident as ::ifunc::Layout>::TEXT)#close)
            }
            GenericParam::Lifetime(_) => text.clone(),
        }
    });
    params.collect()
}

/// `text` followed by `[size,align]`.
fn with_size(text: &TokenStream) -> TokenStream {
    quote! {
        #text.str("[").number(::core::mem::size_of::<Self>()).str(",").number(::core::mem::align_of::<Self>()).str("]")
    }
}

/// Implements `Value`: a struct crosses as C passes it.
fn struct_value(input: &DeriveInput, name: &str) -> TokenStream {
    let ident = &input.ident;
    let generics = generics::with_bound(&input.generics, &quote!(::ifunc::Layout));
    let (impl_generics, ty_generics, where_clause) = generics.split_for_impl();
    let c_name = format!("struct {name}");
    quote! {
        #[automatically_derived]
        impl #impl_generics ::ifunc::ffi::Value for #ident #ty_generics #where_clause {
            const TEXT: ::ifunc::abi::text::Text = <Self as ::ifunc::Layout>::TEXT;
            type C = Self;
            const C_NAME: &'static str = #c_name;
            #[inline]
            fn into_c(self) -> Self {
                self
            }
            #[inline]
            fn from_c(c: Self) -> Self {
                c
            }
        }
    }
}

impl Enum {
    fn text(&self, name: &str) -> TokenStream {
        let Self { repr, variants, .. } = self;
        let open = format!("enum {name}:{repr}{{");
        let mut text = quote!(::ifunc::abi::text::Text::new().str(#open));
        for (i, variant) in variants.iter().enumerate() {
            let named = format!("{}{}=", if i > 0 { "," } else { "" }, variant.unraw());
            text = quote!(::ifunc::__private::integer(#text.str(#named), Self::#variant as i128));
        }
        // An enum's alignment may exceed that of its integer, and then so does its size.
        with_size(&quote!(#text.str("}")))
    }

    /// The text where the enum crosses as an integer. If it may grow, the text names no variant, so that all its builds have one.
    fn integer_text(&self, name: &str) -> TokenStream {
        match &self.other {
            None => quote!(<Self as ::ifunc::Layout>::TEXT),
            Some(_) => {
                let text = format!("enum {name}:{}{{..}}", self.repr);
                quote!(::ifunc::abi::text::Text::new().str(#text))
            }
        }
    }

    /// Implements `Value`: an enum crosses as its integer.
    fn value(&self, ident: &Ident, name: &str) -> TokenStream {
        let Self {
            repr,
            variants,
            other,
        } = self;
        let text = self.integer_text(name);
        let name = ident.unraw().to_string();
        let unknown = match other {
            Some(other) => quote!(Self::#other),
            None => quote!(::ifunc::__private::unknown_value(#name)),
        };
        quote! {
            #[automatically_derived]
            impl ::ifunc::ffi::Value for #ident {
                const TEXT: ::ifunc::abi::text::Text = #text;
                type C = #repr;
                const C_NAME: &'static str = <#repr as ::ifunc::ffi::Value>::C_NAME;
                #[inline]
                fn into_c(self) -> #repr {
                    self as #repr
                }
                #[inline]
                fn from_c(c: #repr) -> Self {
                    #(if c == Self::#variants as #repr { return Self::#variants; })*
                    #unknown
                }
            }
        }
    }

    /// Implements `ErrorCode`, so that the enum may be the error of a host function.
    fn error_code(&self, ident: &Ident, name: &str) -> TokenStream {
        let Self { variants, other, .. } = self;
        let text = self.integer_text(name);
        let unknown = match other {
            Some(other) => quote!(Self::#other),
            None => quote!(::ifunc::__private::unknown_code()),
        };
        quote! {
            #[automatically_derived]
            impl ::ifunc::ffi::ErrorCode for #ident {
                const TEXT: ::ifunc::abi::text::Text = #text;
                const VALID: bool = true #(
                    && Self::#variants as i128 != 0 && Self::#variants as i128 == Self::#variants as i32 as i128
                )*;
                fn into_code(self) -> i32 {
                    self as i32
                }
                fn from_code(code: i32) -> Self {
                    #(if code == Self::#variants as i32 { return Self::#variants; })*
                    #unknown
                }
            }
        }
    }
}

/// `#[derive(Layout)]`.
pub(crate) fn derive(input: TokenStream) -> TokenStream {
    match syn::parse2(input).and_then(Model::new) {
        Ok(model) => model.expand(),
        Err(error) => error.to_compile_error(),
    }
}

/// `#[ifunc::layout]`: the representation and the derives that let a type travel by its bytes.
pub(crate) fn attribute(args: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    // The derive checks them.
    let name = (!args.is_empty()).then(|| quote!(#[layout(#args)]));
    let input: DeriveInput = match syn::parse2(item.clone()) {
        Ok(input) => input,
        Err(_) => {
            errors.at(
                &item,
                "`#[ifunc::layout]` goes on a struct or an enum",
                "move it to one",
            );
            return errors
                .or(())
                .map_or_else(|error| report(&error, item.clone()), |()| item.clone());
        }
    };
    let repr = Repr::of(&input.attrs, &mut errors);
    if matches!(input.data, Data::Enum(_)) && repr.integer.is_none() {
        errors.at(
            &input.ident,
            "an enum of fixed layout needs an integer representation",
            "add `#[repr(u8)]`, or another integer, after the attribute",
        );
    }
    if let Err(error) = errors.or(()) {
        return report(&error, item);
    }
    let ident = &input.ident;
    let mut generics = generics::with_bound(&input.generics, &quote!(::ifunc::Portable));
    if !generics.params.is_empty() {
        // zerocopy's derives bound some type parameters: the type is portable where these bounds hold.
        generics.make_where_clause().predicates.push(syn::parse_quote! {
            Self: ::ifunc::zerocopy::TryFromBytes
                + ::ifunc::zerocopy::IntoBytes
                + ::ifunc::zerocopy::Immutable
                + ::ifunc::zerocopy::KnownLayout
        });
    }
    let (impl_generics, ty_generics, where_clause) = generics.split_for_impl();
    let fixed = (matches!(input.data, Data::Struct(_)) && !repr.fixed).then(|| quote!(#[repr(C)]));
    quote! {
        #[derive(
            ::ifunc::Layout,
            ::ifunc::zerocopy::TryFromBytes,
            ::ifunc::zerocopy::IntoBytes,
            ::ifunc::zerocopy::Immutable,
            ::ifunc::zerocopy::KnownLayout,
        )]
        #[zerocopy(crate = "::ifunc::zerocopy")]
        #name
        #fixed
        #input

        #[automatically_derived]
        impl #impl_generics ::ifunc::Portable for #ident #ty_generics #where_clause {}
    }
}
