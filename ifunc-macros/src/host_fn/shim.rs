//! The host's side: the body of the C function that calls the author's function.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};

use super::convert::{from_c, to_c};
use super::{
    Callback, CallbackOutput, HostFn, Kind, Output, Returned, Slice, c_len, c_name, out, out_len, receiver,
};
use crate::errors::span_of;
use crate::types;

impl HostFn {
    /// The call of `function`: converts C arguments and a C result.
    pub(crate) fn shim(&self, function: &TokenStream) -> TokenStream {
        // The arguments borrow from `scope`, which ends after the call; the borrow checker enforces it.
        let scope = Ident::new("scope", Span::mixed_site());
        let mut before = TokenStream::new();
        let mut arguments = Vec::new();
        if let Some(mutable) = self.receiver {
            let receiver = receiver();
            let borrow = if mutable {
                quote!(reference_mut)
            } else {
                quote!(reference)
            };
            arguments.push(quote!(unsafe { ::ifunc::__private::#borrow(&#scope, #receiver, "self") }));
        }
        for (i, param) in self.params.iter().enumerate() {
            if let Kind::Callback(callback) = &param.kind {
                let name = callback_name(i);
                let closure = callback.closure(i, &param.name.to_string());
                before.extend(quote!(let mut #name = #closure;));
                arguments.push(if callback.mutable {
                    quote!(&mut #name)
                } else {
                    quote!(&#name)
                });
            } else {
                arguments.push(from_c(i, param, &scope));
            }
        }
        let call = quote!(#function(#(#arguments),*));
        // SAFETY (of the emitted code): an ifunc passes what the signature states. The target compared the
        // fingerprints at install; for a C ifunc without a known signature, the host explicitly allowed the
        // import.
        let call = if self.is_unsafe {
            quote!(unsafe { #call })
        } else {
            call
        };
        let converted = self.result(&call);
        quote! {
            let #scope = ();
            #before
            #converted
        }
    }

    fn result(&self, call: &TokenStream) -> TokenStream {
        let out = out();
        let value = Ident::new("value", Span::mixed_site());
        match &self.output {
            Output::Unit | Output::Plain(Returned::Raw(_)) => call.clone(),
            Output::Plain(Returned::Value(ty)) => {
                quote_spanned!(span_of(ty)=> <#ty as ::ifunc::ffi::Value>::into_c(#call))
            }
            Output::Plain(Returned::Reference(reference)) => {
                let cast = from(reference.mutable);
                let ty = &reference.ty;
                quote!(#cast::<#ty>(#call))
            }
            Output::Plain(Returned::Slice(slice)) => {
                let (store, pointer) = slice.returned(&value);
                quote!({ let #value = #call; #store #pointer })
            }
            Output::Option(Returned::Value(ty) | Returned::Raw(ty)) => {
                let handed = handed_over(ty, &value);
                quote! {
                    match #call {
                        ::core::option::Option::Some(#value) => { unsafe { #out.write(#handed) }; 1 }
                        ::core::option::Option::None => 0,
                    }
                }
            }
            Output::Option(Returned::Reference(reference)) => {
                let (cast, null) = (from(reference.mutable), null(reference.mutable));
                let ty = &reference.ty;
                quote!(#call.map_or(#null, #cast::<#ty>))
            }
            Output::Option(Returned::Slice(slice)) => {
                let null = null(slice.mutable);
                let (store, pointer) = slice.returned(&value);
                quote! {
                    match #call {
                        ::core::option::Option::Some(#value) => { #store #pointer }
                        ::core::option::Option::None => #null,
                    }
                }
            }
            Output::Result(ok, error) => {
                let store = match ok {
                    None => TokenStream::new(),
                    Some(Returned::Value(ty) | Returned::Raw(ty)) => {
                        let handed = handed_over(ty, &value);
                        quote!(unsafe { #out.write(#handed) };)
                    }
                    Some(Returned::Reference(reference)) => {
                        let cast = from(reference.mutable);
                        let ty = &reference.ty;
                        quote!(unsafe { #out.write(#cast::<#ty>(#value)) };)
                    }
                    Some(Returned::Slice(slice)) => {
                        let (store, pointer) = slice.returned(&value);
                        quote!(#store unsafe { #out.write(#pointer) };)
                    }
                };
                let pattern = match ok {
                    None => quote!(()),
                    Some(_) => quote!(#value),
                };
                quote! {
                    match #call {
                        ::core::result::Result::Ok(#pattern) => { #store 0 }
                        ::core::result::Result::Err(error) => <#error as ::ifunc::ffi::ErrorCode>::into_code(error),
                    }
                }
            }
        }
    }
}

/// The value that an `Option` or a `Result` holds, for the ifunc.
fn handed_over(ty: &syn::Type, value: &Ident) -> TokenStream {
    if types::is_named(ty, "Owned") {
        quote!(::ifunc::__private::hand_over(#value))
    } else {
        quote!(#value)
    }
}

fn from(mutable: bool) -> TokenStream {
    if mutable {
        quote!(::core::ptr::from_mut)
    } else {
        quote!(::core::ptr::from_ref)
    }
}

fn null(mutable: bool) -> TokenStream {
    if mutable {
        quote!(::core::ptr::null_mut())
    } else {
        quote!(::core::ptr::null())
    }
}

impl Slice {
    /// Stores the length of the slice `value`, and its pointer.
    fn returned(&self, value: &Ident) -> (TokenStream, TokenStream) {
        let len = out_len();
        let store = quote!(unsafe { #len.write(#value.len()) };);
        let pointer = if self.mutable {
            quote!(#value.as_mut_ptr())
        } else {
            quote!(#value.as_ptr())
        };
        (store, pointer)
    }
}

fn callback_name(i: usize) -> Ident {
    Ident::new(&format!("callback{i}"), Span::mixed_site())
}

impl Callback {
    /// The closure that the host calls: it passes the call gate to the ifunc's side. `i` is the number of the parameter.
    fn closure(&self, i: usize, name: &str) -> TokenStream {
        let (function, data) = (c_name(i), c_len(i));
        let values: Vec<Ident> = (0..self.params.len())
            .map(|i| Ident::new(&format!("value{i}"), Span::mixed_site()))
            .collect();
        let types = &self.types;
        let mut before = TokenStream::new();
        let mut arguments = Vec::new();
        for (i, (param, value)) in self.params.iter().zip(&values).enumerate() {
            let (prepare, converted) = to_c(i, &param.kind, value);
            before.extend(prepare);
            arguments.extend(converted);
        }
        let out = out();
        let (ty, declare, outcome) = match &self.output {
            CallbackOutput::Unit => (
                quote!(()),
                None,
                quote!(::core::option::Option::unwrap_or_default(outcome)),
            ),
            CallbackOutput::ControlFlow => (
                quote!(::core::ops::ControlFlow<()>),
                None,
                quote! {
                    match outcome {
                        ::core::option::Option::Some(0) => ::core::ops::ControlFlow::Continue(()),
                        _ => ::core::ops::ControlFlow::Break(()),
                    }
                },
            ),
            CallbackOutput::Option(ty) => {
                arguments.push(quote!(#out.as_mut_ptr()));
                (
                    quote!(::core::option::Option<#ty>),
                    Some(quote!(let mut #out = ::core::mem::MaybeUninit::<#ty>::uninit();)),
                    quote! {
                        match outcome {
                            // SAFETY: the ifunc writes the value before it returns another number than 0.
                            ::core::option::Option::Some(1..) => ::core::option::Option::Some(unsafe { #out.assume_init() }),
                            _ => ::core::option::Option::None,
                        }
                    },
                )
            }
        };
        // Other names than the closure's: its parameters are numbered, too.
        let [called, its_data] = ["function", "data"].map(|name| Ident::new(name, Span::mixed_site()));
        quote! {
            {
                let (#called, #its_data) = (::ifunc::__private::callback(#function, #name), #data);
                move |#(#values: #types),*| -> #ty {
                    #before
                    #declare
                    // SAFETY: the ifunc passed the function with its data, and waits for the host function.
                    let outcome = ::ifunc::host::call_back(|| unsafe { #called(#its_data #(, #arguments)*) });
                    #outcome
                }
            }
        }
    }
}
