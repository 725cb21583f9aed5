//! Expansion of `#[ifunc]`: the typed handle and, in image builds, the C symbols.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::Attribute;

use super::model::{Answer, Model, Payload, Target};
use crate::errors::span_of;
use crate::types;

impl Model {
    /// The function, its handle and, under `cfg(ifunc_image)`, its three C symbols and its record.
    pub(crate) fn expand(self) -> TokenStream {
        let Self {
            function,
            name,
            name_span,
            payload,
            target,
            has_context,
            answer,
            idempotent,
            pinned,
        } = &self;
        let handle = &function.sig.ident;
        let vis = &function.vis;
        let cfgs: Vec<&Attribute> = attributes(&function.attrs, &["cfg"]);
        let about: Vec<&Attribute> = attributes(&function.attrs, &["cfg", "doc", "deprecated"]);
        let documented = function.attrs.iter().any(|attr| attr.path().is_ident("doc"));
        let summary = format!(
            "{}The typed handle of the ifunc `{name}`.",
            if documented { "\n" } else { "" }
        );
        let checks = checks(handle, payload);
        let implementation = implementation(
            handle,
            name,
            payload,
            target,
            *has_context,
            answer.as_ref(),
            *idempotent,
        );
        let entry = entry(
            handle,
            name,
            *name_span,
            payload,
            target,
            *has_context,
            answer.as_ref(),
        );
        let source = source(name, *name_span, payload);
        let record = record(handle, name, *idempotent, *pinned, target);

        quote! {
            #function

            #(#about)*
            #[doc = #summary]
            #[allow(non_camel_case_types, missing_debug_implementations, dead_code)]
            #vis enum #handle {}

            // The outer item allows `unexpected_cfgs`: on the item with the `cfg` itself, it would have no
            // effect.
            #(#cfgs)*
            #[allow(unexpected_cfgs, deprecated)]
            const _: () = {
                // Uses the function, so that it is not reported as dead code when it is only sent.
                let _ = #handle;
                #checks
                #implementation
                #entry
                #source
                #record
            };
        }
    }
}

fn attributes<'a>(all: &'a [Attribute], names: &[&str]) -> Vec<&'a Attribute> {
    all.iter()
        .filter(|attr| names.iter().any(|name| attr.path().is_ident(name)))
        .collect()
}

/// Checks of limits, with errors at the type's span. In an image, where the record needs the whole handle, they ask the handle,
/// too: a type that is not a payload yields one error in either build.
fn checks(handle: &Ident, payload: &Payload) -> TokenStream {
    let ty = types::with_lifetime(&payload.ty, "'static");
    let codec = &payload.codec;
    let span = span_of(&payload.ty);
    let of_image = quote!(<#handle as ::ifunc::Ifunc>::ALIGN);
    quote_spanned! {span=>
        #[cfg(not(ifunc_image))]
        const __IFUNC_ALIGN: usize = <#ty as ::ifunc::Payload<'static, #codec>>::ALIGN;
        #[cfg(ifunc_image)]
        const __IFUNC_ALIGN: usize = #of_image;
        const _: () = assert!(
            __IFUNC_ALIGN <= ::ifunc::abi::frame::BODY_ALIGN,
            "a payload is aligned to at most 64 bytes; help: lower the `align` of this type, or take it by `codec = postcard`",
        );
    }
}

fn implementation(
    handle: &Ident,
    name: &str,
    payload: &Payload,
    target: &Target,
    has_context: bool,
    answer: Option<&Answer>,
    idempotent: bool,
) -> TokenStream {
    let main = main_of(name);
    let codec = &payload.codec;
    let any = types::with_lifetime(&payload.ty, "'ifunc");
    let fixed = types::with_lifetime(&payload.ty, "'static");
    let assumed = assumed(payload);
    let target = &target.ty;
    let (answer_ty, answer_text, decode) = match answer {
        Some(Answer { ty, codec, .. }) => {
            let span = span_of(ty);
            (
                quote!(#ty),
                quote_spanned!(span=> &<#ty as ::ifunc::Answer<#codec>>::TEXT),
                quote!(<#ty as ::ifunc::Answer<#codec>>::decode(bytes)),
            )
        }
        // Callers that ask for bytes read an answer given by `ctx.answer(..)`.
        None if has_context => (
            quote!(()),
            quote!(&::ifunc::__private::RAW_BYTES),
            quote!(::core::result::Result::Ok(())),
        ),
        None => (
            quote!(()),
            quote!(&<() as ::ifunc::Layout>::TEXT),
            quote!(<() as ::ifunc::Answer<::ifunc::codec::Zerocopy>>::decode(bytes)),
        ),
    };
    quote! {
        impl ::ifunc::Ifunc for #handle #assumed {
            type Payload<'ifunc> = <#any as ::ifunc::Payload<'ifunc, #codec>>::Source;
            type Target = #target;
            type Answer = #answer_ty;
            const NAME: &'static str = #name;
            const PAYLOAD: &'static ::ifunc::abi::text::Text = &<#fixed as ::ifunc::Payload<'static, #codec>>::TEXT;
            const TARGET: &'static ::ifunc::abi::text::Text = ::ifunc::__private::target_text::<Self>();
            const ANSWER: &'static ::ifunc::abi::text::Text = #answer_text;
            const ALIGN: usize = <#fixed as ::ifunc::Payload<'static, #codec>>::ALIGN;
            const IDEMPOTENT: bool = #idempotent;

            #[inline]
            fn bound<'ifunc>(payload: &Self::Payload<'ifunc>) -> usize {
                <#any as ::ifunc::Payload<'ifunc, #codec>>::bound(payload)
            }

            #[inline]
            fn encode<'ifunc>(
                payload: &Self::Payload<'ifunc>,
                out: &mut [u8],
            ) -> ::core::result::Result<usize, ::ifunc::EncodeError> {
                <#any as ::ifunc::Payload<'ifunc, #codec>>::encode(payload, out)
            }

            #[inline]
            fn decode_answer(bytes: &[u8]) -> ::core::result::Result<Self::Answer, ::ifunc::DecodeError> {
                #decode
            }

            #[cfg(ifunc_image)]
            fn entry() -> ::core::option::Option<*const ()> {
                ::core::option::Option::Some(#main as *const ())
            }
        }
    }
}

/// The function that is exported as `X_main`. Debuggers show its name in a backtrace, not its symbol.
fn main_of(name: &str) -> Ident {
    Ident::new(&[name, "_main"].concat(), Span::mixed_site())
}

/// `X_main`.
fn entry(
    handle: &Ident,
    name: &str,
    span: Span,
    payload: &Payload,
    target: &Target,
    has_context: bool,
    answer: Option<&Answer>,
) -> TokenStream {
    let symbol = symbol(name, "_main", span);
    let section = format!(".text.{name}_main");
    let entry = main_of(name);
    let batch_symbol = syn::LitStr::new(&["__ifunc_batch_", name].concat(), symbol.span());
    let batch = Ident::new(&[name, "_batch"].concat(), Span::mixed_site());
    let ty = types::with_lifetime(&payload.ty, "'_");
    let codec = &payload.codec;
    let assumed = assumed(payload);
    let lent = payload.lend.then(|| quote!(&));
    // Hygienic names: the author's function may itself be called `payload`.
    let [scope, bytes, value, data, ctx, result] = ["scope", "payload", "value", "target", "ctx", "answer"]
        .map(|name| Ident::new(name, Span::mixed_site()));
    let target_ty = &target.ty;
    // Coerced to the trait object where the function is called.
    let target_ty = if target.is_interface {
        quote!(<#target_ty as ::ifunc::__private::Guest>::Guest)
    } else {
        quote!(#target_ty)
    };
    let borrow = if target.mutable {
        quote!(target_mut)
    } else {
        quote!(target)
    };
    let context = (has_context || answer.is_some()).then(|| {
        quote! {
            // SAFETY: the target passes a context that is null, or valid and exclusive to this invocation.
            let mut #ctx = unsafe { ::ifunc::Context::from_raw(&#scope, #ctx) };
        }
    });
    let third = has_context.then(|| quote!(, &mut #ctx));
    let call = quote!(#handle(#lent #value, #data #third));
    let finish = match answer {
        Some(Answer { codec, is_onward, .. }) => {
            let finish = format_ident!("{}", if *is_onward { "finish_onward" } else { "finish" });
            quote! {
                let #result = #call;
                ::ifunc::__private::#finish::<#codec, _>(&mut #ctx, &#result)
            }
        }
        None if has_context => quote!(#call; ::ifunc::__private::finish_by_context(&#ctx)),
        None => quote!(#call; ::ifunc::__private::MAIN_OK),
    };
    let run_batch = if has_context || answer.is_some() {
        quote!(run_batch(batch, ctx, |payload, size, ctx| #entry(payload, size, target, ctx)))
    } else {
        quote!(run_batch_without_answers(batch, |payload, size| #entry(payload, size, target, ctx)))
    };
    quote! {
        // A section of its own keeps the compiler from merging two ifuncs that do the same: an image tells its entries apart by
        // their addresses.
        #[cfg(ifunc_image)]
        #[unsafe(export_name = #symbol)]
        #[unsafe(link_section = #section)]
        unsafe extern "C" fn #entry(
            #bytes: *const ::core::ffi::c_void,
            payload_size: usize,
            #data: *mut ::core::ffi::c_void,
            #ctx: *mut ::ifunc::__private::RawContext,
        ) -> u32 #assumed {
            // Everything borrowed below ends with `scope`; the borrow checker enforces it.
            let #scope = ();
            // SAFETY: the target passes a payload that is not written while the ifunc runs.
            let #bytes = unsafe { ::ifunc::__private::bytes(&#scope, #bytes, payload_size) };
            let ::core::result::Result::Ok(#value) = <#ty as ::ifunc::Payload<'_, #codec>>::decode(#bytes) else {
                return ::ifunc::__private::MAIN_BAD_PAYLOAD;
            };
            #context
            // SAFETY: the target compared the fingerprint of this type with that of its own data. It lends
            // the data as the image's flags state: exclusively unless the image is shared.
            let #data = unsafe { ::ifunc::__private::#borrow::<#target_ty>(&#scope, #data) };
            #finish
        }

        #[cfg(ifunc_image)]
        #[unsafe(export_name = #batch_symbol)]
        unsafe extern "C" fn #batch(
            batch: *mut ::ifunc::__private::RawBatch,
            _: usize,
            target: *mut ::core::ffi::c_void,
            ctx: *mut ::ifunc::__private::RawContext,
        ) -> u32 #assumed {
            // SAFETY: the target passes a valid batch and context of its own; each entry is called as the target calls one.
            unsafe { ::ifunc::__private::#run_batch }
        }
    }
}

/// `X_payload_bound` and `X_payload_init`.
fn source(name: &str, span: Span, payload: &Payload) -> TokenStream {
    let bound = symbol(name, "_payload_bound", span);
    let init = symbol(name, "_payload_init", span);
    let assumed = assumed(payload);
    let ty = types::with_lifetime(&payload.ty, "'_");
    let codec = &payload.codec;
    quote! {
        #[cfg(ifunc_image)]
        #[unsafe(export_name = #bound)]
        unsafe extern "C" fn __ifunc_bound(args: *const ::core::ffi::c_void, len: usize) -> usize #assumed {
            let scope = ();
            // SAFETY: the caller passes arguments of `len` bytes.
            let args = unsafe { ::ifunc::__private::bytes(&scope, args, len) };
            <#ty as ::ifunc::Payload<'_, #codec>>::bound_from_args(args)
        }

        #[cfg(ifunc_image)]
        #[unsafe(export_name = #init)]
        unsafe extern "C" fn __ifunc_init(
            args: *const ::core::ffi::c_void,
            len: usize,
            payload: *mut ::core::ffi::c_void,
            payload_size: *mut usize,
        ) -> ::core::ffi::c_int #assumed {
            let scope = ();
            // SAFETY: the caller passes arguments of `len` bytes, and a buffer of `*payload_size` bytes that
            // it owns.
            unsafe {
                let args = ::ifunc::__private::bytes(&scope, args, len);
                ::ifunc::__private::init(
                    payload,
                    payload_size,
                    |out| <#ty as ::ifunc::Payload<'_, #codec>>::encode_from_args(args, out),
                    |payload| <#ty as ::ifunc::Payload<'_, #codec>>::decode(payload).is_ok(),
                )
            }
        }
    }
}

/// The record that the builder reads: see `ifunc_abi::meta`.
fn record(handle: &Ident, name: &str, idempotent: bool, pinned: bool, target: &Target) -> TokenStream {
    let head = format!("ifunc 1\nname {name}\ncrate ");
    let mut flags = "\nflags".to_owned();
    for (flag, set) in [(" idempotent", idempotent), (" pinned", pinned)] {
        flags.push_str(if set { flag } else { "" });
    }
    // `&T` marks the image as shareable between serving threads if `T` is `Sync`.
    let shared = (!target.mutable).then(|| {
        let ty = &target.ty;
        quote! {
            {
                #[allow(unused_imports)]
                use ::ifunc::__private::NotShared as _;
                ::ifunc::__private::Shared::<#ty>::FLAG
            },
        }
    });
    quote! {
        #[cfg(ifunc_image)]
        const __IFUNC_RECORD: &[&str] = &[
            #head,
            ::core::env!("CARGO_CRATE_NAME"),
            "\npayload ",
            <#handle as ::ifunc::Ifunc>::PAYLOAD.as_str(),
            "\ntarget ",
            <#handle as ::ifunc::Ifunc>::TARGET.as_str(),
            "\nanswer ",
            <#handle as ::ifunc::Ifunc>::ANSWER.as_str(),
            "\nalign ",
            ::ifunc::abi::text::Text::new().number(<#handle as ::ifunc::Ifunc>::ALIGN).as_str(),
            #flags,
            #shared
            "\n\0",
        ];
        #[cfg(ifunc_image)]
        #[used]
        #[unsafe(link_section = ".ifunc.meta")]
        static __IFUNC_META: [u8; ::ifunc::__private::total(__IFUNC_RECORD)] = ::ifunc::__private::concat(__IFUNC_RECORD);
    }
}

/// Bounds on what `checks` has already checked: a type that is not a payload yields one error, at the type.
fn assumed(payload: &Payload) -> TokenStream {
    let any = types::with_lifetime(&payload.ty, "'ifunc");
    let codec = &payload.codec;
    quote!(where for<'ifunc> #any: ::ifunc::Payload<'ifunc, #codec>)
}

fn symbol(name: &str, suffix: &str, span: Span) -> syn::LitStr {
    syn::LitStr::new(&format!("{name}{suffix}"), span.resolved_at(Span::call_site()))
}
