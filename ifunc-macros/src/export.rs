//! `#[ifunc::export]`: a host function that ifuncs may import.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::parse::Parser;
use syn::{ItemFn, LitStr};

use crate::errors::{Errors, report, span_of};
use crate::host_fn::{self, HostFn, Kind, Output, Reference, c_len, c_name, out};
use crate::signature;

struct Model {
    function: ItemFn,
    host_fn: HostFn,
}

impl Model {
    fn new(args: TokenStream, function: ItemFn) -> syn::Result<Self> {
        let mut errors = Errors::default();
        let sig = &function.sig;
        let name = name(args, &mut errors);
        let symbol = match &name {
            Some(name) => name.value(),
            None => syn::ext::IdentExt::unraw(&sig.ident).to_string(),
        };
        match &name {
            Some(name) => signature::check_name(&symbol, name, &mut errors),
            None => signature::check_name(&symbol, &sig.ident, &mut errors),
        }
        signature::refuse_common(sig, "an exported function", &mut errors);
        signature::refuse_abi(sig, "an exported function", &mut errors);
        let host_fn = HostFn::new(sig, symbol, host_fn::is_unsafe(sig), &mut errors);
        errors.or(Self { function, host_fn })
    }

    fn expand(self) -> TokenStream {
        let Self { function, host_fn } = self;
        let cfgs = function.attrs.iter().filter(|attr| attr.path().is_ident("cfg"));
        let symbol = &host_fn.symbol;
        let ident = &function.sig.ident;
        let (names, types, result) = host_fn.c_signature();
        let call = call(&function, &host_fn);
        let text = host_fn.text();
        let prototype = host_fn.prototype();
        let checks = host_fn.checks();
        quote! {
            #function

            #(#cfgs)*
            #[allow(unexpected_cfgs, deprecated)]
            const _: () = {
                let _ = #ident;
                #checks

                // Unwinds only without a runtime: in a unit test.
                #[cfg(not(ifunc_image))]
                unsafe extern "C-unwind" fn __ifunc_shim(#(#names: #types),*) -> #result {
                    ::ifunc::host::through_gate(move || { #call })
                }

                #[cfg(not(ifunc_image))]
                const __IFUNC_SIGNATURE: &[&str] = #text;
                #[cfg(not(ifunc_image))]
                static __IFUNC_SIGNATURE_TEXT: [u8; ::ifunc::__private::total(__IFUNC_SIGNATURE)] = ::ifunc::__private::concat(__IFUNC_SIGNATURE);
                #[cfg(not(ifunc_image))]
                const __IFUNC_PROTOTYPE: &[&str] = #prototype;
                #[cfg(not(ifunc_image))]
                static __IFUNC_PROTOTYPE_TEXT: [u8; ::ifunc::__private::total(__IFUNC_PROTOTYPE)] = ::ifunc::__private::concat(__IFUNC_PROTOTYPE);

                #[cfg(not(ifunc_image))]
                #[::ifunc::__private::linkme::distributed_slice(::ifunc::host::EXPORTS)]
                #[linkme(crate = ::ifunc::__private::linkme)]
                // SAFETY: the shim above has this prototype: the macro derived both from one signature.
                static __IFUNC_EXPORT: ::ifunc::host::Export = unsafe {
                    ::ifunc::host::Export::function(
                        #symbol,
                        ::ifunc::__private::text(&__IFUNC_SIGNATURE_TEXT),
                        ::ifunc::__private::text(&__IFUNC_PROTOTYPE_TEXT),
                        __ifunc_shim as *const (),
                    )
                };
            };
        }
    }
}

/// The call of the author's function: converts C arguments and a C result.
fn call(function: &ItemFn, host_fn: &HostFn) -> TokenStream {
    let ident = &function.sig.ident;
    // The arguments borrow from `scope`, which ends after the call; the borrow checker enforces it.
    let scope = Ident::new("scope", Span::mixed_site());
    let arguments = host_fn.params.iter().enumerate().map(|(i, param)| {
        let value = c_name(i);
        let len = c_len(i);
        let name = param.name.to_string();
        match &param.kind {
            Kind::Scalar(ty) => quote_spanned!(span_of(ty)=> <#ty as ::ifunc::ffi::Scalar>::from_c(#value)),
            Kind::Reference(Reference {
                optional: true,
                mutable: false,
                ..
            }) => quote!(unsafe { ::ifunc::__private::optional(&#scope, #value) }),
            Kind::Reference(Reference {
                optional: true,
                mutable: true,
                ..
            }) => quote!(unsafe { ::ifunc::__private::optional_mut(&#scope, #value) }),
            Kind::Reference(Reference { mutable: false, .. }) => {
                quote!(unsafe { ::ifunc::__private::reference(&#scope, #value, #name) })
            }
            Kind::Reference(Reference { mutable: true, .. }) => {
                quote!(unsafe { ::ifunc::__private::reference_mut(&#scope, #value, #name) })
            }
            Kind::Slice { mutable: false, .. } => {
                quote!(unsafe { ::ifunc::__private::slice(&#scope, #value, #len) })
            }
            Kind::Slice { mutable: true, .. } => {
                quote!(unsafe { ::ifunc::__private::slice_mut(&#scope, #value, #len) })
            }
            Kind::Str => quote!(unsafe { ::ifunc::__private::string(&#scope, #value, #len, #name) }),
        }
    });
    let call = quote!(#ident(#(#arguments),*));
    // SAFETY (of the emitted code): an ifunc passes what the signature states. The target compared the
    // fingerprints at install; for a C ifunc without a known signature, the host explicitly allowed the
    // import.
    let call = if host_fn.is_unsafe {
        quote!(unsafe { #call })
    } else {
        call
    };
    let out = out();
    let converted = match &host_fn.output {
        Output::Unit => quote!(#call),
        Output::Scalar(ty) => quote_spanned!(span_of(ty)=> <#ty as ::ifunc::ffi::Scalar>::into_c(#call)),
        Output::Reference(Reference {
            ty,
            mutable,
            optional,
        }) => {
            let (cast, null) = if *mutable {
                (
                    quote!(::core::ptr::from_mut::<#ty>),
                    quote!(::core::ptr::null_mut()),
                )
            } else {
                (quote!(::core::ptr::from_ref::<#ty>), quote!(::core::ptr::null()))
            };
            if *optional {
                quote!(#call.map_or(#null, #cast))
            } else {
                quote!(#cast(#call))
            }
        }
        Output::Result(value, error) => {
            let store = value.as_ref().map(|_| quote!(unsafe { #out.write(value) };));
            quote! {
                match #call {
                    ::core::result::Result::Ok(value) => { #store 0 }
                    ::core::result::Result::Err(error) => <#error as ::ifunc::ffi::ErrorCode>::into_code(error),
                }
            }
        }
        Output::Option(_) => quote! {
            match #call {
                ::core::option::Option::Some(value) => { unsafe { #out.write(value) }; 1 }
                ::core::option::Option::None => 0,
            }
        },
    };
    quote! {
        let #scope = ();
        #converted
    }
}

fn name(args: TokenStream, errors: &mut Errors) -> Option<LitStr> {
    let mut name = None;
    let parser = syn::meta::parser(|meta| {
        if meta.path.is_ident("name") {
            name = Some(meta.value()?.parse()?);
            return Ok(());
        }
        Err(meta.error("unknown argument"))
    });
    if let Err(error) = parser.parse2(args) {
        errors.span(error.span(), &error, "the only argument is `name = \"..\"`");
    }
    name
}

/// Expands the attribute.
pub(crate) fn export(args: TokenStream, item: TokenStream) -> TokenStream {
    let function: ItemFn = match syn::parse2(item.clone()) {
        Ok(function) => function,
        Err(error) => {
            let mut errors = Errors::default();
            if syn::parse2::<syn::Item>(item.clone()).is_ok() {
                errors.at(
                    &item,
                    "`#[ifunc::export]` goes on a function",
                    "move it to the function that ifuncs may call",
                );
            } else {
                errors.push(error);
            }
            return errors
                .or(())
                .map_or_else(|error| report(&error, item.clone()), |()| item.clone());
        }
    };
    match Model::new(args, function) {
        Ok(model) => model.expand(),
        Err(error) => report(&error, item),
    }
}
