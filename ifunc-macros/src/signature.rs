//! What `#[ifunc]`, `#[ifunc::export]` and `#[ifunc::import]` refuse of a function's signature alike.

use quote::ToTokens;
use syn::spanned::Spanned;
use syn::{FnArg, GenericParam, Safety, Signature};

use crate::errors::Errors;
use crate::types;

/// Refuses `async`, generics, bounds, `'static`, variadics and `self`; `what` names the function, as in "an ifunc".
pub(crate) fn refuse_common(sig: &Signature, what: &str, errors: &mut Errors) {
    if let Some(token) = sig.asyncness {
        errors.at(
            token,
            format_args!("{what} cannot be `async`: there is no executor on the other side"),
            "remove `async`; the source awaits the completion instead",
        );
    }
    if let Some(token) = sig.constness {
        errors.at(
            token,
            format_args!("{what} cannot be `const`: it runs in another process"),
            "remove `const`",
        );
    }
    for param in &sig.generics.params {
        match param {
            GenericParam::Lifetime(lifetime) if lifetime.bounds.is_empty() => {}
            GenericParam::Lifetime(_) => errors.at(
                param,
                format_args!(
                    "a lifetime of {what} cannot have bounds: all that is borrowed is borrowed for the call"
                ),
                "remove the bounds; where two borrows must last alike, give them one lifetime",
            ),
            GenericParam::Type(_) | GenericParam::Const(_) => errors.at(
                param,
                format_args!("{what} cannot be generic: machine code is of one type"),
                "name the type; write one function for each type that is needed",
            ),
        }
    }
    if let Some(clause) = &sig.generics.where_clause {
        errors.at(
            clause,
            format_args!("{what} cannot have a `where` clause"),
            "remove it; the types are concrete",
        );
    }
    for input in &sig.inputs {
        if let FnArg::Typed(typed) = input {
            types::refuse_static(&typed.ty, errors);
        }
    }
    if let Some(variadic) = &sig.variadic {
        errors.at(
            variadic,
            format_args!("{what} cannot be variadic"),
            "take a slice",
        );
    }
    if let Some(receiver) = sig.receiver() {
        errors.at(
            receiver,
            format_args!("{what} cannot be a method: `self` lies in one process only"),
            "move it out of the `impl` and take the value as a parameter of its own",
        );
    }
}

/// Refuses a written ABI.
pub(crate) fn refuse_abi(sig: &Signature, what: &str, errors: &mut Errors) {
    if let Some(abi) = &sig.abi {
        errors.at(
            abi,
            format_args!("{what} is an ordinary Rust function: its C entry is generated"),
            "remove `extern`",
        );
    }
}

/// Refuses `unsafe`.
pub(crate) fn refuse_unsafe(sig: &Signature, what: &str, errors: &mut Errors) {
    if let Safety::Unsafe(token) = sig.safety {
        errors.at(
            token,
            format_args!("{what} cannot be `unsafe`: nobody on the target could keep its promises"),
            "remove `unsafe` and check what comes in",
        );
    }
}

/// Refuses a reserved name or one that C cannot spell.
pub(crate) fn check_name(name: &str, at: impl ToTokens, errors: &mut Errors) {
    let identifier = !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if name.is_empty() || !identifier || name.len() > 255 {
        errors.span(
            at.to_token_stream().span(),
            format_args!("`{name}` is no C identifier of at most 255 bytes, and the name becomes a C symbol"),
            "use ASCII letters, digits and `_`, not beginning with a digit: `name = \"insert_v2\"`",
        );
    } else if name.starts_with("__ifunc") {
        errors.span(
            at.to_token_stream().span(),
            format_args!("names that begin with `__ifunc` are the runtime's own"),
            "choose another name",
        );
    }
}
