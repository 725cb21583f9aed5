//! The ifunc's side: the call of the C function.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};

use super::convert::{from_c, to_c};
use super::{Callback, CallbackOutput, HostFn, Kind, Output, Returned, Slice, c_len, c_name, out, out_len};
use crate::errors::span_of;
use crate::types;

impl HostFn {
    /// The call of the C function `host`: converts Rust arguments and a Rust result. `receiver` is the first argument of a
    /// method.
    pub(crate) fn stub(&self, host: &TokenStream, receiver: Option<TokenStream>) -> TokenStream {
        let mut before = TokenStream::new();
        let mut arguments: Vec<TokenStream> = receiver.into_iter().collect();
        for (i, param) in self.params.iter().enumerate() {
            let value = &param.name;
            if let Kind::Callback(callback) = &param.kind {
                let (function, data) = (c_name(i), c_len(i));
                let item = callback.trampoline(&function);
                let ty = types::with_lifetime(&callback.ty, "'_");
                before.extend(quote! {
                    #item
                    let mut #data: #ty = #value;
                });
                arguments.push(quote!(::core::option::Option::Some(#function)));
                arguments.push(quote!((&raw mut #data).cast()));
            } else {
                let (prepare, converted) = to_c(i, &param.kind, value);
                before.extend(prepare);
                arguments.extend(converted);
            }
        }
        let (out, out_len) = (out(), out_len());
        let result = Ident::new("result", Span::mixed_site());
        let mut declare = |name: &Ident, ty: TokenStream| {
            before.extend(quote!(let mut #name = ::core::mem::MaybeUninit::<#ty>::uninit();));
            arguments.push(quote!(#name.as_mut_ptr()));
        };
        let convert = match &self.output {
            Output::Unit | Output::Plain(Returned::Raw(_)) => quote!(#result),
            Output::Plain(Returned::Value(ty)) => {
                quote_spanned!(span_of(ty)=> <#ty as ::ifunc::ffi::Value>::from_c(#result))
            }
            Output::Plain(Returned::Reference(reference)) => {
                let borrowed = borrowed(&quote!(#result), reference.mutable);
                quote!(#borrowed.expect("the host function returned a null pointer"))
            }
            Output::Plain(Returned::Slice(slice)) => {
                declare(&out_len, quote!(usize));
                slice.borrowed(&quote!(#result))
            }
            Output::Option(Returned::Reference(reference)) => borrowed(&quote!(#result), reference.mutable),
            Output::Option(Returned::Slice(slice)) => {
                declare(&out_len, quote!(usize));
                let borrowed = slice.borrowed(&quote!(#result));
                quote! {
                    if #result.is_null() {
                        ::core::option::Option::None
                    } else {
                        ::core::option::Option::Some(#borrowed)
                    }
                }
            }
            Output::Option(Returned::Value(ty) | Returned::Raw(ty)) => {
                declare(&out, quote!(#ty));
                quote! {
                    if #result != 0 {
                        // SAFETY: the host writes the value before it returns 1.
                        ::core::option::Option::Some(unsafe { #out.assume_init() })
                    } else {
                        ::core::option::Option::None
                    }
                }
            }
            Output::Result(ok, error) => {
                // SAFETY (of the emitted code): the host writes the value before it returns 0.
                let written = quote!(unsafe { #out.assume_init() });
                let ok = match ok {
                    None => quote!(()),
                    Some(Returned::Value(ty) | Returned::Raw(ty)) => {
                        declare(&out, quote!(#ty));
                        written
                    }
                    Some(Returned::Reference(reference)) => {
                        declare(&out, quote!(_));
                        let borrowed = borrowed(&written, reference.mutable);
                        quote!(#borrowed.expect("the host function returned a null pointer"))
                    }
                    Some(Returned::Slice(slice)) => {
                        declare(&out, quote!(_));
                        declare(&out_len, quote!(usize));
                        slice.borrowed(&written)
                    }
                };
                quote! {
                    if #result == 0 {
                        ::core::result::Result::Ok(#ok)
                    } else {
                        ::core::result::Result::Err(<#error as ::ifunc::ffi::ErrorCode>::from_code(#result))
                    }
                }
            }
        };
        quote! {
            #before
            // SAFETY: the target compares the signature's fingerprint with that of the function it provides.
            let #result = unsafe { #host(#(#arguments),*) };
            #convert
        }
    }
}

/// The reference of a pointer that the host returned.
// SAFETY (of the emitted code): the host returned a reference of the lifetime that the signature states.
fn borrowed(pointer: &TokenStream, mutable: bool) -> TokenStream {
    if mutable {
        quote!(unsafe { #pointer.as_mut() })
    } else {
        quote!(unsafe { #pointer.as_ref() })
    }
}

impl Slice {
    /// The slice of a pointer that the host returned.
    // SAFETY (of the emitted code): as for references; the host writes the length before it returns.
    fn borrowed(&self, pointer: &TokenStream) -> TokenStream {
        let len = out_len();
        match self {
            Self { element: None, .. } => {
                quote!(unsafe { ::ifunc::__private::returned_str(#pointer, #len.assume_init()) })
            }
            Self { mutable: false, .. } => {
                quote!(unsafe { ::ifunc::__private::returned(#pointer, #len.assume_init()) })
            }
            Self { mutable: true, .. } => {
                quote!(unsafe { ::ifunc::__private::returned_mut(#pointer, #len.assume_init()) })
            }
        }
    }
}

impl Callback {
    /// The C function that calls the closure, whose reference its data points to.
    fn trampoline(&self, name: &Ident) -> TokenStream {
        let (names, types, result) = self.c_signature();
        let scope = Ident::new("scope", Span::mixed_site());
        let data = Ident::new("data", Span::mixed_site());
        let callback = Ident::new("callback", Span::mixed_site());
        let value = Ident::new("value", Span::mixed_site());
        let ty = types::with_lifetime(&self.ty, "'_");
        let arguments = self
            .params
            .iter()
            .enumerate()
            .map(|(i, param)| from_c(i, param, &scope));
        let call = quote!(#callback(#(#arguments),*));
        let out = out();
        let convert = match &self.output {
            CallbackOutput::Unit => call,
            CallbackOutput::ControlFlow => quote!(u8::from(#call.is_break())),
            CallbackOutput::Option(_) => quote! {
                match #call {
                    ::core::option::Option::Some(#value) => { unsafe { #out.write(#value) }; 1 }
                    ::core::option::Option::None => 0,
                }
            },
        };
        quote! {
            unsafe extern "C-unwind" fn #name(#data: *mut ::core::ffi::c_void #(, #names: #types)*) -> #result {
                let #scope = ();
                // SAFETY: the host calls with the data that it was given, before its function returns.
                let #callback = unsafe { &mut *#data.cast::<#ty>() };
                #convert
            }
        }
    }
}
