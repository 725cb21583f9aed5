//! The signature of a host function, shared by `#[ifunc::export]`, `#[ifunc::import]` and `#[ifunc::interface]`: how
//! each type crosses (`parse`), the canonical text (`text`), the C prototype and the C types (`c`), and the conversions on
//! both sides (`convert`, `shim`, `stub`).

mod c;
mod convert;
mod parse;
mod shim;
mod stub;
mod text;

pub(crate) use self::c::variable as variable_declaration;
pub(crate) use self::text::of_variable as variable_text;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::{Safety, Signature, Type};

use crate::errors::span_of;

/// A host function.
pub(crate) struct HostFn {
    /// The C symbol.
    pub(crate) symbol: String,
    pub(crate) is_unsafe: bool,
    /// The receiver of a method of an interface: whether it is `&mut self`.
    pub(crate) receiver: Option<bool>,
    pub(crate) params: Vec<Param>,
    pub(crate) is_variadic: bool,
    pub(crate) output: Output,
}

/// One parameter.
pub(crate) struct Param {
    /// The parameter's name in the C prototype.
    pub(crate) name: Ident,
    pub(crate) kind: Kind,
}

/// How a parameter crosses.
pub(crate) enum Kind {
    /// An integer, a float, a `bool`, or a fixed layout by value.
    Value(Type),
    /// `Option<T>` of a fixed layout.
    OptionValue(Type),
    Reference(Reference),
    Slice(Slice),
    /// `&mut dyn FnMut(..)`.
    Callback(Box<Callback>),
    /// A raw or function pointer, passed as it is. In `unsafe` functions only.
    Raw(Type),
}

/// `&T`, `&mut T`, `Option<&T>`.
pub(crate) struct Reference {
    pub(crate) ty: Type,
    pub(crate) mutable: bool,
    pub(crate) optional: bool,
}

/// `&[T]`, `&mut [T]`, `&str`, and those in an `Option`.
pub(crate) struct Slice {
    /// `None`: `str`.
    pub(crate) element: Option<Type>,
    pub(crate) mutable: bool,
    pub(crate) optional: bool,
}

/// A function of the ifunc that the host calls.
pub(crate) struct Callback {
    /// As the author wrote it: `&mut dyn FnMut(..) -> ..`.
    pub(crate) ty: Type,
    /// `FnMut`, not `Fn`.
    pub(crate) mutable: bool,
    pub(crate) params: Vec<Param>,
    /// The types of the parameters as the author wrote them.
    pub(crate) types: Vec<Type>,
    pub(crate) output: CallbackOutput,
}

/// What a callback returns. Each has a value for a callback that panicked.
pub(crate) enum CallbackOutput {
    Unit,
    ControlFlow,
    Option(Box<Type>),
}

/// How the result crosses.
pub(crate) enum Output {
    Unit,
    Plain(Returned),
    Option(Returned),
    /// `None` for `()`.
    Result(Option<Returned>, Box<Type>),
}

/// What is returned, by itself or inside an `Option` or a `Result`.
pub(crate) enum Returned {
    Value(Type),
    Reference(Reference),
    Slice(Slice),
    Raw(Type),
}

impl HostFn {
    /// Checks of the types beyond their traits, with errors at their spans.
    pub(crate) fn checks(&self) -> TokenStream {
        let Output::Result(_, error) = &self.output else {
            return TokenStream::new();
        };
        quote_spanned! {span_of(error)=>
            const _: () = assert!(
                <#error as ::ifunc::ffi::ErrorCode>::VALID,
                "an error crosses as an `int32_t`, in which 0 means `Ok`; help: give every variant a value that is not 0 and fits",
            );
        }
    }
}

/// A `static` of the name `bytes` with the concatenated `parts`, which the constant `name` holds.
pub(crate) fn static_text(name: &Ident, bytes: &Ident, parts: &TokenStream) -> TokenStream {
    quote! {
        const #name: &[&str] = #parts;
        static #bytes: [u8; ::ifunc::__private::total(#name)] = ::ifunc::__private::concat(#name);
    }
}

/// The record of an import that the builder reads: see `ifunc_abi::meta`. `text` is an expression of type `&str`.
pub(crate) fn record(symbol: &str, text: &TokenStream) -> TokenStream {
    let record = format!("import 1\nsymbol {symbol}\ncrate ");
    quote! {
        const __IFUNC_RECORD: &[&str] = &[
            #record,
            ::core::env!("CARGO_CRATE_NAME"),
            "\nsignature ",
            #text,
            "\n\0",
        ];
        #[used]
        #[unsafe(link_section = ".ifunc.meta")]
        static __IFUNC_META: [u8; ::ifunc::__private::total(__IFUNC_RECORD)] = ::ifunc::__private::concat(__IFUNC_RECORD);
    }
}

/// The C name of parameter `i`.
pub(crate) fn c_name(i: usize) -> Ident {
    Ident::new(&format!("arg{i}"), Span::mixed_site())
}

/// Name of the parameter that holds the length of parameter `i`, or the data of a callback.
pub(crate) fn c_len(i: usize) -> Ident {
    Ident::new(&format!("arg{i}_len"), Span::mixed_site())
}

/// Name of the receiver.
pub(crate) fn receiver() -> Ident {
    Ident::new("receiver", Span::mixed_site())
}

/// Name of the out pointer.
pub(crate) fn out() -> Ident {
    Ident::new("out", Span::mixed_site())
}

/// Name of the pointer to the length of a slice that is returned.
pub(crate) fn out_len() -> Ident {
    Ident::new("out_len", Span::mixed_site())
}

/// Whether a signature is `unsafe`.
pub(crate) fn is_unsafe(sig: &Signature) -> bool {
    matches!(sig.safety, Safety::Unsafe(_))
}

/// Expressions of type `&str`; adjacent literals are merged.
#[derive(Default)]
pub(crate) struct Parts {
    done: Vec<TokenStream>,
    literal: String,
    /// For each type that may be opaque, its function `named_type`.
    named: Vec<TokenStream>,
    /// The type that the host lends, and which of the expressions is its text: later builds may add fields to it.
    lent: Option<(usize, Type)>,
}

impl Parts {
    pub(crate) fn push(&mut self, s: &str) {
        self.literal.push_str(s);
    }

    /// Adds an expression of type `&str`.
    fn expression(&mut self, expression: TokenStream) {
        self.flush();
        self.done.push(expression);
    }

    fn flush(&mut self) {
        if !self.literal.is_empty() {
            self.done
                .push(std::mem::take(&mut self.literal).to_token_stream());
        }
    }

    pub(crate) fn finish(mut self) -> TokenStream {
        self.flush();
        let parts = self.done;
        quote!(&[#(#parts),*])
    }

    pub(crate) fn named_types(self) -> TokenStream {
        let named = self.named;
        quote!(&[#(#named),*])
    }

    /// A function that returns the texts of earlier builds; `parts` is the result of [`finish`](Self::finish), as a constant.
    pub(crate) fn earlier(self, parts: &Ident) -> TokenStream {
        match self.lent {
            None => quote!(::ifunc::host::no_earlier),
            Some((at, ty)) => quote_spanned! {span_of(&ty)=>
                || ::ifunc::host::earlier_texts(#parts, #at, <#ty as ::ifunc::TargetArgs>::EARLIER)
            },
        }
    }
}
