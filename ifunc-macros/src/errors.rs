//! Collecting errors, so that one compilation reports all of them.

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;
use syn::spanned::Spanned;

/// Collects errors, each at its span.
#[derive(Default)]
pub(crate) struct Errors(Option<syn::Error>);

impl Errors {
    /// Adds an error that covers `at`; `help` says what to do instead.
    pub(crate) fn at(
        &mut self,
        at: impl ToTokens,
        message: impl core::fmt::Display,
        help: impl core::fmt::Display,
    ) {
        self.push(syn::Error::new_spanned(at, with_help(message, help)));
    }

    /// Adds an error at a span.
    pub(crate) fn span(
        &mut self,
        span: Span,
        message: impl core::fmt::Display,
        help: impl core::fmt::Display,
    ) {
        self.push(syn::Error::new(span, with_help(message, help)));
    }

    pub(crate) fn push(&mut self, error: syn::Error) {
        match &mut self.0 {
            Some(all) => all.combine(error),
            None => self.0 = Some(error),
        }
    }

    /// Returns `value` if there are no errors.
    pub(crate) fn or<T>(self, value: T) -> syn::Result<T> {
        match self.0 {
            Some(errors) => Err(errors),
            None => Ok(value),
        }
    }
}

fn with_help(message: impl core::fmt::Display, help: impl core::fmt::Display) -> String {
    format!("{message}\n\nhelp: {help}")
}

/// The errors, followed by the user's item, so that the rest of the program still resolves it.
pub(crate) fn report(errors: &syn::Error, item: TokenStream) -> TokenStream {
    let mut out = errors.to_compile_error();
    out.extend(item);
    out
}

/// The span of all of `tokens`, resolved at the macro call site: lints then recognise macro output.
pub(crate) fn span_of(tokens: &impl ToTokens) -> Span {
    tokens.to_token_stream().span().resolved_at(Span::call_site())
}
