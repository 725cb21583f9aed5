//! The model of an ifunc, read from its signature.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote};
use syn::{FnArg, ItemFn, Pat, PatType, ReturnType, Type};

use super::args::{Args, CodecName};
use crate::errors::Errors;
use crate::{signature, types};

/// An ifunc.
pub(crate) struct Model {
    /// The function as the author wrote it.
    pub(crate) function: ItemFn,
    pub(crate) name: String,
    pub(crate) name_span: Span,
    pub(crate) payload: Payload,
    pub(crate) target: Target,
    pub(crate) has_context: bool,
    pub(crate) answer: Option<Answer>,
    pub(crate) idempotent: bool,
    pub(crate) pinned: bool,
}

/// The implementation of a payload or an answer: a type of `ifunc::codec`.
pub(crate) enum Codec {
    Named(&'static str),
    /// A tuple; whether each part is a reference.
    Parts(Vec<bool>),
}

impl ToTokens for Codec {
    fn to_tokens(&self, out: &mut TokenStream) {
        let of_codec = |name: &str| {
            let name = format_ident!("{name}");
            quote!(::ifunc::codec::#name)
        };
        out.extend(match self {
            Self::Named(name) => of_codec(name),
            Self::Parts(parts) => {
                let codec = of_codec("Parts");
                let kinds = parts
                    .iter()
                    .map(|is_borrowed| of_codec(if *is_borrowed { "Borrowed" } else { "Copied" }));
                quote!(#codec<(#(#kinds,)*)>)
            }
        });
    }
}

/// The first parameter.
pub(crate) struct Payload {
    /// The type that implements `Payload`.
    pub(crate) ty: Type,
    pub(crate) codec: Codec,
    /// Whether the function takes a reference to the decoded value.
    pub(crate) lend: bool,
}

/// The second parameter.
pub(crate) struct Target {
    pub(crate) ty: Type,
    pub(crate) mutable: bool,
    /// `dyn Trait` of an `#[ifunc::interface]`.
    pub(crate) is_interface: bool,
}

/// The return type.
pub(crate) struct Answer {
    /// What sources get.
    pub(crate) ty: Type,
    pub(crate) codec: Codec,
    /// The function returns `Onward<ty>`.
    pub(crate) is_onward: bool,
}

const SHAPE: &str = "write `fn name(payload: P, target: &mut T)`, and `ctx: &mut Context` as a third parameter if it is needed";

impl Model {
    /// Reads the attribute and the function; returns all errors together.
    pub(crate) fn new(args: TokenStream, function: ItemFn) -> syn::Result<Self> {
        let mut errors = Errors::default();
        let args = Args::parse(args, &mut errors);
        let sig = &function.sig;

        signature::refuse_common(sig, "an ifunc", &mut errors);
        signature::refuse_variadic(sig, "an ifunc", &mut errors);
        signature::refuse_receiver(sig, "an ifunc", &mut errors);
        let why = "it becomes a type of the same name";
        signature::refuse_associated(sig, "an ifunc", "ifunc", why, &mut errors);
        signature::refuse_abi(sig, "an ifunc", &mut errors);
        signature::refuse_unsafe(sig, "an ifunc", &mut errors);

        let (name, name_span) = match &args.name {
            Some(name) => (name.value(), name.span()),
            None => (
                syn::ext::IdentExt::unraw(&sig.ident).to_string(),
                sig.ident.span(),
            ),
        };
        match &args.name {
            Some(literal) => signature::check_name(&name, literal, &mut errors),
            None => signature::check_name(&name, &sig.ident, &mut errors),
        }

        let typed: Vec<&PatType> = sig
            .inputs
            .iter()
            .filter_map(|input| match input {
                FnArg::Typed(typed) => Some(typed),
                FnArg::Receiver(_) => None,
            })
            .collect();
        let has_self = sig.receiver().is_some();
        if typed.len() < 2 && !has_self {
            errors.span(
                sig.paren_token.span.join(),
                match typed.len() {
                    0 => "an ifunc takes a payload and the target's data: both parameters are missing",
                    _ => "an ifunc takes a payload and the target's data: one parameter is missing",
                },
                format_args!(
                    "{SHAPE}; use `_: ()` for an empty payload and `_: &mut ()` for a target without data"
                ),
            );
        }
        for extra in typed.iter().skip(3) {
            errors.at(
                extra,
                "an ifunc takes at most three parameters",
                format_args!("{SHAPE}; put more into the payload"),
            );
        }
        for param in &typed {
            if let Some(attr) = param.attrs.iter().find(|attr| attr.path().is_ident("ifunc")) {
                errors.at(
                    attr,
                    "parameters take no `#[ifunc]`",
                    "put the arguments on the function",
                );
            }
            if let Pat::Ident(pat) = &*param.pat
                && let Some(by_ref) = &pat.by_ref
            {
                errors.at(
                    by_ref,
                    "`ref` borrows from the parameter itself",
                    "take a reference: `payload: &P`",
                );
            }
        }

        let payload = typed
            .first()
            .map(|param| payload(&param.ty, args.codec, &mut errors));
        let target = typed.get(1).and_then(|param| target(&param.ty, &mut errors));
        if let Some(param) = typed.get(2) {
            context(&param.ty, &mut errors);
        }
        let answer = answer(&sig.output, args.answer.or(args.codec), &mut errors);

        errors.or(())?;
        let (Some(payload), Some(target)) = (payload, target) else {
            // Every missing part has already reported an error; without one, this macro has a bug.
            return Err(syn::Error::new(
                sig.ident.span(),
                "`#[ifunc]` does not understand this signature",
            ));
        };
        Ok(Self {
            name,
            name_span,
            payload,
            target,
            has_context: typed.len() == 3,
            answer,
            idempotent: args.idempotent,
            pinned: args.pinned,
            function,
        })
    }
}

fn payload(ty: &Type, codec: Option<(CodecName, Span)>, errors: &mut Errors) -> Payload {
    types::refuse_unportable(ty, "a payload", errors);
    let whole = types::bare(ty).clone();
    let Type::Reference(reference) = &whole else {
        let codec = match codec {
            None | Some((CodecName::Zerocopy, _)) => fixed(&whole),
            Some((CodecName::Postcard, _)) => Codec::Named("Postcard"),
            Some((CodecName::Custom, _)) => Codec::Named("Custom"),
            Some((CodecName::Raw, _)) => {
                errors.at(
                    ty,
                    "a `raw` payload is bytes",
                    "take `&[u8]` or `&str`, or choose another codec",
                );
                Codec::Named("Raw")
            }
        };
        if let Codec::Named("Fixed") | Codec::Parts(_) = codec {
            refuse_inner_borrows(&whole, errors);
            refuse_long_tuple(&whole, errors);
        }
        if let Type::Slice(_) = whole {
            errors.at(
                ty,
                "a slice has no size of its own",
                format_args!("take `&{}`", tokens(ty)),
            );
        } else if types::is_named(&whole, "str") {
            errors.at(ty, "`str` has no size of its own", "take `&str`");
        }
        return Payload {
            ty: whole,
            codec,
            lend: false,
        };
    };
    if let Some(token) = &reference.mutability {
        errors.at(
            token,
            "a payload is read-only: it may lie in memory that the source can read",
            "take it by value to change it, or by `&`",
        );
    }
    let inner = &*reference.elem;
    let is_text = types::is_bytes(inner) || types::is_named(inner, "str");
    let (ty, codec, lend) = match codec {
        None if is_text => (whole.clone(), Codec::Named("Raw"), false),
        None | Some((CodecName::Zerocopy, _)) => (whole.clone(), Codec::Named("InPlace"), false),
        Some((CodecName::Raw, _)) => {
            if !is_text {
                errors.at(
                    ty,
                    "a `raw` payload is bytes",
                    "take `&[u8]` or `&str`, or choose another codec",
                );
            }
            (whole.clone(), Codec::Named("Raw"), false)
        }
        // serde borrows these types itself.
        Some((CodecName::Postcard, _)) if is_text => (whole.clone(), Codec::Named("Postcard"), false),
        Some((CodecName::Postcard, _)) => (inner.clone(), Codec::Named("Postcard"), true),
        Some((CodecName::Custom, _)) => (inner.clone(), Codec::Named("Custom"), true),
    };
    Payload { ty, codec, lend }
}

/// The codec of a value of fixed layout, or of a tuple of such values and of borrowed parts.
fn fixed(ty: &Type) -> Codec {
    Codec::Named(match ty {
        Type::Tuple(tuple) if tuple.elems.is_empty() => "Zerocopy",
        Type::Tuple(tuple) => {
            let parts: Vec<bool> = tuple.elems.iter().map(is_reference).collect();
            if parts.contains(&true) {
                return Codec::Parts(parts);
            }
            "Fixed"
        }
        _ if types::is_named(ty, "Option") || types::is_named(ty, "Vec") => "Fixed",
        _ => "Zerocopy",
    })
}

fn is_reference(ty: &Type) -> bool {
    matches!(types::bare(ty), Type::Reference(_))
}

/// Refuses a tuple of more parts than the codecs have implementations for.
fn refuse_long_tuple(ty: &Type, errors: &mut Errors) {
    if let Type::Tuple(tuple) = ty
        && tuple.elems.len() > 6
    {
        errors.at(
            tuple,
            "without a serialiser, a tuple has at most six parts",
            "put the numbers into a struct with `#[ifunc::layout]`; or choose serde: `#[ifunc(codec = postcard)]`",
        );
    }
}

/// Refuses references inside of what is copied: `(u64, Option<&str>)`, and references that change: `(u64, &mut [u8])`.
fn refuse_inner_borrows(ty: &Type, errors: &mut Errors) {
    let parts: Vec<&Type> = match ty {
        Type::Tuple(tuple) => tuple.elems.iter().map(types::bare).collect(),
        other => vec![other],
    };
    for part in parts {
        let borrow = match part {
            Type::Reference(reference) => match &reference.mutability {
                Some(token) => {
                    errors.at(
                        token,
                        "a payload is read-only: it may lie in memory that the source can read",
                        "take it by `&`",
                    );
                    None
                }
                None => types::borrows(&reference.elem),
            },
            part => types::borrows(part),
        };
        if let Some(borrow) = borrow {
            errors.at(
                borrow,
                "without a serialiser, only a whole payload or a part of a tuple can borrow",
                "make it a part: `(&str, u64, &[T])`; or choose serde: `#[ifunc(codec = postcard)]`",
            );
        }
    }
}

fn target(ty: &Type, errors: &mut Errors) -> Option<Target> {
    let Type::Reference(reference) = types::bare(ty) else {
        errors.at(
            ty,
            "an ifunc borrows the target's data and cannot own it",
            format_args!(
                "take `&mut {0}`, or `&{0}` if invocations may run at the same time",
                tokens(types::bare(ty))
            ),
        );
        return None;
    };
    let is_interface = matches!(types::bare(&reference.elem), Type::TraitObject(_));
    if let Type::ImplTrait(inner) = types::bare(&reference.elem) {
        let bounds = &inner.bounds;
        errors.at(
            inner,
            "the target's data cannot be `impl Trait`: machine code exists for concrete types only",
            format_args!(
                "take an interface: `&mut dyn {}`, of a trait with `#[ifunc::interface]`",
                types::spelled(&quote::quote!(#bounds))
            ),
        );
    } else if !is_interface {
        types::refuse_unportable(&reference.elem, "the target's data", errors);
    }
    match types::bare(&reference.elem) {
        Type::TraitObject(object) => {
            let mut bounds = object.bounds.iter();
            let is_alone =
                matches!(bounds.next(), Some(syn::TypeParamBound::Trait(_))) && bounds.next().is_none();
            if !is_alone {
                errors.at(
                    object,
                    "an interface is named by its trait alone",
                    "write `&mut dyn Kv`, without lifetimes and other bounds",
                );
            }
        }
        Type::Slice(_) => errors.at(
            ty,
            "the target passes one pointer, and a slice is two words",
            "take an array `&mut [T; N]`, a struct, or an opaque type with host functions that give access",
        ),
        inner if types::is_named(inner, "str") => errors.at(
            ty,
            "the target passes one pointer, and a `&str` is two words",
            "take a struct, or an opaque type with host functions that give access",
        ),
        inner => {
            if let Some(reference) = types::borrows(inner) {
                errors.at(
                    reference,
                    "the target's data cannot hold references: both sides compile the type separately",
                    "make the type opaque (`#[derive(Opaque)]`) and access what it borrows through host functions",
                );
            }
        }
    }
    Some(Target {
        ty: types::bare(&reference.elem).clone(),
        mutable: reference.mutability.is_some(),
        is_interface,
    })
}

fn context(ty: &Type, errors: &mut Errors) {
    let is_context = matches!(
        types::bare(ty),
        Type::Reference(reference) if reference.mutability.is_some() && types::is_named(&reference.elem, "Context")
    );
    if !is_context {
        errors.at(
            ty,
            "the third parameter of an ifunc is its context",
            "write `ctx: &mut Context`",
        );
    }
}

fn answer(output: &ReturnType, codec: Option<(CodecName, Span)>, errors: &mut Errors) -> Option<Answer> {
    let ReturnType::Type(_, ty) = output else {
        return None;
    };
    let returned = types::bare(ty);
    if types::is_unit(returned) {
        return None;
    }
    let onward = types::arguments_of(returned, "Onward");
    let onward = onward.as_deref().and_then(|arguments| match arguments {
        [ty] => Some(*ty),
        _ => None,
    });
    let ty = onward.map_or(returned, types::bare);
    types::refuse_unportable(ty, "an answer", errors);
    if let Some(reference) = types::borrows(ty) {
        errors.at(
            reference,
            "an answer cannot borrow: another process receives it",
            "return an owned value; for bytes return nothing and call `ctx.answer(..)`",
        );
    }
    let codec = match codec {
        Some((CodecName::Postcard, _)) => Codec::Named("Postcard"),
        Some((CodecName::Raw, _)) if types::is_named(ty, "Vec") => Codec::Named("Raw"),
        _ if types::is_named(ty, "String") => Codec::Named("Raw"),
        _ if types::arguments_of(ty, "Vec")
            .is_some_and(|args| args.iter().all(|ty| types::is_named(ty, "u8"))) =>
        {
            Codec::Named("Raw")
        }
        _ => fixed(ty),
    };
    if let Codec::Named("Fixed") = codec {
        refuse_long_tuple(ty, errors);
    }
    Some(Answer {
        ty: ty.clone(),
        codec,
        is_onward: onward.is_some(),
    })
}

fn tokens(ty: &Type) -> String {
    crate::types::spelled(&ty.to_token_stream())
}
