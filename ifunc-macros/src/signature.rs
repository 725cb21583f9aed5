//! Checks that the attributes share.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::{FnArg, GenericParam, Safety, Signature, Type};

use crate::errors::Errors;
use crate::{place, types};

/// Refuses `async`, generics, bounds and `'static`; `what` names the function, as in "an ifunc".
pub(crate) fn refuse_common(sig: &Signature, what: &str, errors: &mut Errors) {
    if let Some(token) = sig.asyncness {
        errors.at(
            token,
            format_args!("{what} cannot be `async`: the target has no executor for it"),
            "remove `async`; the source can await the completion",
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
                format_args!("a lifetime of {what} cannot have bounds: every borrow ends with the call"),
                "remove the bounds; give two borrows that must be equally long one lifetime",
            ),
            GenericParam::Type(_) | GenericParam::Const(_) => errors.at(
                param,
                format_args!("{what} cannot be generic: machine code exists for concrete types only"),
                "write one function for each concrete type",
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
}

/// Refuses `self`.
pub(crate) fn refuse_receiver(sig: &Signature, what: &str, errors: &mut Errors) {
    if let Some(receiver) = sig.receiver() {
        errors.at(
            receiver,
            format_args!("{what} cannot be a method: `self` exists in one process only"),
            "move it out of the `impl` and take the value as an ordinary parameter",
        );
    }
}

/// Refuses a function without `self` in an `impl` or a `trait`, for this reason; `attribute` is the name of the current one.
pub(crate) fn refuse_associated(
    sig: &Signature,
    what: &str,
    attribute: &str,
    why: &str,
    errors: &mut Errors,
) {
    fn find(tokens: TokenStream) -> Option<Ident> {
        tokens.into_iter().find_map(|token| match token {
            TokenTree::Ident(ident) if ident == "Self" => Some(ident),
            TokenTree::Group(group) => find(group.stream()),
            _ => None,
        })
    }
    if sig.receiver().is_some() {
        return;
    }
    if let Some(holder) = place::holder(attribute, &sig.ident) {
        let holder = holder.name();
        errors.at(
            &sig.ident,
            format_args!("{what} cannot be in {holder}: {why}, which {holder} cannot hold"),
            "move it out, to the module around it; in its types, replace `Self` by the type's name",
        );
        return;
    }
    // Where the source is not known, only this shows that it is in one.
    let types = [sig.inputs.to_token_stream(), sig.output.to_token_stream()];
    if let Some(token) = types.into_iter().find_map(find) {
        errors.at(
            token,
            format_args!("{what} cannot be in an `impl`: {why}, which an `impl` cannot hold"),
            "move it out of the `impl` and name the type",
        );
    }
}

/// Refuses `...`.
pub(crate) fn refuse_variadic(sig: &Signature, what: &str, errors: &mut Errors) {
    if let Some(variadic) = &sig.variadic {
        errors.at(
            variadic,
            format_args!("{what} cannot be variadic"),
            "take a slice",
        );
    }
}

/// Refuses a written ABI.
pub(crate) fn refuse_abi(sig: &Signature, what: &str, errors: &mut Errors) {
    if let Some(abi) = &sig.abi {
        errors.at(
            abi,
            format_args!("{what} cannot have an ABI: the attribute generates its C entry"),
            "remove `extern`",
        );
    }
}

/// Refuses `unsafe`.
pub(crate) fn refuse_unsafe(sig: &Signature, what: &str, errors: &mut Errors) {
    if let Safety::Unsafe(token) = sig.safety {
        errors.at(
            token,
            format_args!("{what} cannot be `unsafe`: the target cannot uphold its safety contract"),
            "remove `unsafe` and validate the input",
        );
    }
}

/// Refuses a type that a variable of the host cannot have.
pub(crate) fn check_variable(ty: &Type, errors: &mut Errors) {
    types::refuse_unportable(ty, "a variable that crosses", errors);
    if let Some(reference) = types::borrows(ty) {
        errors.at(
            reference,
            "a variable that crosses cannot hold references: both sides compile the type separately",
            "hold the data itself, or export a function that lends it: `fn table() -> &[u64]`",
        );
    }
    for (name, help) in [
        ("Mutex", "export functions that take the lock, or use atomics"),
        ("RwLock", "export functions that take the lock, or use atomics"),
        (
            "OnceLock",
            "export a function that returns a reference to the value",
        ),
        (
            "LazyLock",
            "export a function that returns a reference to the value",
        ),
        ("Vec", "use an array, or export a function that lends the slice"),
        (
            "String",
            "use an array of bytes, or export a function that lends the text",
        ),
    ] {
        if types::is_named(ty, name) {
            errors.at(ty, format_args!("a `{name}` has no fixed layout"), help);
        }
    }
}

/// Refuses a reserved name or one that C cannot spell.
pub(crate) fn check_name(name: &str, at: impl ToTokens, errors: &mut Errors) {
    let identifier = !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if name.is_empty() || !identifier || name.len() > 255 {
        errors.span(
            at.to_token_stream().span(),
            format_args!(
                "`{name}` is not a C identifier of at most 255 bytes, but the name becomes a C symbol"
            ),
            "use ASCII letters, digits and `_`, and no leading digit: `name = \"insert_v2\"`",
        );
    } else if name.starts_with("__ifunc") {
        errors.span(
            at.to_token_stream().span(),
            format_args!("names that begin with `__ifunc` are reserved"),
            "choose another name",
        );
    }
}
