//! `#[ifunc::interface]`: a trait that a host type exports and ifuncs take as their target.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::parse::Parser;
use syn::{
    Attribute, FnArg, ItemTrait, LitStr, ReceiverKind, Signature, TraitItem, TraitItemFn, TypeParamBound,
};

use crate::errors::{Errors, report, span_of};
use crate::host_fn::{self, HostFn, record};
use crate::import::name_params;
use crate::signature;

struct Model {
    item: ItemTrait,
    /// The name in texts and symbols.
    name: String,
    methods: Vec<Method>,
}

struct Method {
    cfgs: Vec<Attribute>,
    sig: Signature,
    host_fn: HostFn,
}

const METHODS: &str = "an interface has methods only: each becomes one C function";

impl Model {
    fn new(args: TokenStream, item: ItemTrait) -> syn::Result<Self> {
        let mut errors = Errors::default();
        let given = name(args, &mut errors);
        let name = match &given {
            Some(name) => name.value(),
            None => syn::ext::IdentExt::unraw(&item.ident).to_string(),
        };
        match &given {
            Some(literal) => signature::check_name(&name, literal, &mut errors),
            None => signature::check_name(&name, &item.ident, &mut errors),
        }
        if let Some(token) = &item.unsafety {
            errors.at(
                token,
                "an interface cannot be an `unsafe trait`: an ifunc cannot know what the host promised",
                "remove `unsafe`; mark single methods `unsafe fn`",
            );
        }
        if let Some(token) = &item.modifiers.auto_token {
            errors.at(token, "an auto trait has no methods", "remove `auto`");
        }
        for param in &item.generics.params {
            errors.at(
                param,
                "an interface cannot be generic: its methods are C functions of one signature each",
                "write one interface per type; a generic host type can export each of them",
            );
        }
        if let Some(clause) = &item.generics.where_clause {
            errors.at(clause, "an interface has no `where` clause", "remove it");
        }
        for bound in &item.supertraits {
            if !names_interface(bound) {
                errors.at(
                    bound,
                    "the supertraits of an interface are interfaces: an ifunc knows nothing else of the host's value",
                    "name traits with `#[ifunc::interface]`; `Send` and `Sync` are checked where the host serves on several threads",
                );
            }
        }
        let mut methods = Vec::new();
        for inner in &item.items {
            match inner {
                TraitItem::Fn(method) => methods.extend(Method::new(&name, method, &mut errors)),
                TraitItem::Const(inner) => errors.at(inner, METHODS, "write a method that returns the value"),
                TraitItem::Type(inner) => errors.at(
                    inner,
                    METHODS,
                    "name one type for all hosts: a fixed layout, or an opaque type",
                ),
                other => errors.at(other, METHODS, "write the methods out"),
            }
        }
        if methods.is_empty() && item.items.is_empty() && item.supertraits.is_empty() {
            errors.at(&item.ident, "the interface has no methods", METHODS);
        }
        errors.or(Self { item, name, methods })
    }

    fn expand(self) -> TokenStream {
        let Self { item, name, methods } = self;
        let ident = &item.ident;
        let cfgs: Vec<&Attribute> = item
            .attrs
            .iter()
            .filter(|attr| attr.path().is_ident("cfg"))
            .collect();
        let text = format!("interface {name}");
        let supertraits = item.supertraits.iter().map(|bound| {
            quote_spanned!(span_of(bound)=> const _: () = ::ifunc::__private::is_interface::<dyn #bound>();)
        });
        let checks = methods.iter().map(|method| {
            let (cfgs, checks) = (&method.cfgs, method.host_fn.checks());
            quote!(#(#cfgs)* const _: () = { #checks };)
        });
        let texts = methods.iter().enumerate().map(|(i, method)| method.texts(i));
        let shims = methods
            .iter()
            .enumerate()
            .map(|(i, method)| method.shim(i, ident));
        let exports = methods.iter().enumerate().map(|(i, method)| method.export(i));
        let stubs = methods.iter().map(Method::stub);
        let records = methods.iter().enumerate().map(|(i, method)| {
            let (cfgs, bytes) = (&method.cfgs, signature_text(i).1);
            let record = record(&method.host_fn.symbol, &quote!(::ifunc::__private::text(&#bytes)));
            quote!(#(#cfgs)* const _: () = { #record };)
        });
        quote! {
            #item

            #(#cfgs)*
            #[allow(unexpected_cfgs, deprecated, unused_unsafe, improper_ctypes, improper_ctypes_definitions)]
            const _: () = {
                // SAFETY: an ifunc reaches the host's value through the methods only: in an image, the type behind the
                // trait object has no contents.
                unsafe impl ::ifunc::TargetArgs for dyn #ident {
                    const TEXT: ::ifunc::abi::text::Text = ::ifunc::abi::text::Text::new().str(#text);
                }

                #(#supertraits)*
                #(#checks)*
                #(#texts)*

                #[cfg(not(ifunc_image))]
                const _: () = {
                    #(#shims)*

                    // SAFETY: the shims take a pointer to an `__IfuncHost`, and have the prototypes of their texts.
                    unsafe impl<__IfuncHost: #ident + 'static> ::ifunc::host::Interface<__IfuncHost> for dyn #ident {
                        const METHODS: &'static [::ifunc::host::Export] = &[#(#exports),*];
                    }
                };

                #[cfg(ifunc_image)]
                const _: () = {
                    #(#records)*

                    /// The host's value, as an ifunc sees it.
                    pub struct __IfuncGuest {
                        _foreign: ::ifunc::Foreign,
                    }

                    impl ::ifunc::__private::GuestValue for __IfuncGuest {}

                    // The value of every interface that has this one as a supertrait: each method is an import, whose first argument
                    // is the host's value. The target refuses an image with methods of another type than it serves.
                    impl<__IfuncValue: ::ifunc::__private::GuestValue> #ident for __IfuncValue {
                        #(#stubs)*
                    }

                    impl ::ifunc::__private::Guest for dyn #ident {
                        type Guest = __IfuncGuest;
                    }
                };
            };
        }
    }
}

/// Whether a bound of the trait may be an interface.
fn names_interface(bound: &TypeParamBound) -> bool {
    let TypeParamBound::Trait(bound) = bound else {
        return false;
    };
    let is_marker = ["Send", "Sync", "Sized", "Unpin"].iter().any(|marker| {
        let last = bound.path.segments.last();
        last.is_some_and(|last| last.ident == marker)
    });
    !is_marker
}

/// Names of the constant and the `static` with a method's signature.
fn signature_text(i: usize) -> (Ident, Ident) {
    (
        format_ident!("__IFUNC_SIGNATURE_{i}"),
        format_ident!("__IFUNC_SIGNATURE_TEXT_{i}"),
    )
}

/// Names of the constant and the `static` with a method's prototype.
fn prototype_text(i: usize) -> (Ident, Ident) {
    (
        format_ident!("__IFUNC_PROTOTYPE_{i}"),
        format_ident!("__IFUNC_PROTOTYPE_TEXT_{i}"),
    )
}

fn shim_name(i: usize) -> Ident {
    format_ident!("__ifunc_shim_{i}")
}

impl Method {
    fn new(interface: &str, method: &TraitItemFn, errors: &mut Errors) -> Option<Self> {
        let sig = &method.sig;
        let name = syn::ext::IdentExt::unraw(&sig.ident).to_string();
        let symbol = format!("{interface}_{name}");
        signature::check_name(&symbol, &sig.ident, errors);
        signature::refuse_common(sig, "a method of an interface", errors);
        signature::refuse_abi(sig, "a method of an interface", errors);
        signature::refuse_variadic(sig, "a method of an interface", errors);
        if let Some(body) = &method.default {
            errors.at(
                body,
                "a method of an interface has no body here: an ifunc would run this one even if the host overrides it",
                "remove the body, or write a function outside the trait that takes `&dyn` of it",
            );
        }
        let receiver = receiver(sig, errors);
        let mut host_fn = HostFn::new(sig, symbol, host_fn::is_unsafe(sig), errors);
        host_fn.receiver = Some(receiver?);
        let cfgs = method
            .attrs
            .iter()
            .filter(|attr| attr.path().is_ident("cfg"))
            .cloned()
            .collect();
        Some(Self {
            cfgs,
            sig: sig.clone(),
            host_fn,
        })
    }

    /// The texts of signature and prototype.
    fn texts(&self, i: usize) -> TokenStream {
        let cfgs = &self.cfgs;
        let ((signature, signature_bytes), signature_parts) = (signature_text(i), self.host_fn.text());
        let ((prototype, prototype_bytes), prototype_parts) = (prototype_text(i), self.host_fn.prototype());
        quote! {
            #(#cfgs)*
            const #signature: &[&str] = #signature_parts;
            #(#cfgs)*
            static #signature_bytes: [u8; ::ifunc::__private::total(#signature)] = ::ifunc::__private::concat(#signature);
            // An image holds no prototypes.
            #(#cfgs)*
            #[cfg(not(ifunc_image))]
            const #prototype: &[&str] = #prototype_parts;
            #(#cfgs)*
            #[cfg(not(ifunc_image))]
            static #prototype_bytes: [u8; ::ifunc::__private::total(#prototype)] = ::ifunc::__private::concat(#prototype);
        }
    }

    /// The C function that calls the method of a host type.
    fn shim(&self, i: usize, interface: &Ident) -> TokenStream {
        let (cfgs, shim, method) = (&self.cfgs, shim_name(i), &self.sig.ident);
        let (names, types, result) = self.host_fn.c_signature(&quote!(__IfuncHost));
        let call = self.host_fn.shim(&quote!(<__IfuncHost as #interface>::#method));
        quote! {
            #(#cfgs)*
            unsafe extern "C-unwind" fn #shim<__IfuncHost: #interface>(#(#names: #types),*) -> #result {
                ::ifunc::host::through_gate(move || { #call })
            }
        }
    }

    fn export(&self, i: usize) -> TokenStream {
        let (cfgs, shim, symbol) = (&self.cfgs, shim_name(i), &self.host_fn.symbol);
        let ((_, signature), (_, prototype)) = (signature_text(i), prototype_text(i));
        let named = self.host_fn.named_types();
        let earlier = self.host_fn.earlier(&signature_text(i).0);
        quote! {
            #(#cfgs)*
            // SAFETY: text, prototype and shim come from one signature.
            unsafe {
                ::ifunc::host::Export::method(
                    #symbol,
                    ::ifunc::__private::text(&#signature),
                    ::ifunc::__private::text(&#prototype),
                    #shim::<__IfuncHost> as *const (),
                    ::ifunc::host::HostType::of::<__IfuncHost>(),
                )
                .with_types(#named)
                .with_earlier(#earlier)
            }
        }
    }

    /// The method of the ifunc's side, which calls the import.
    fn stub(&self) -> TokenStream {
        let cfgs = &self.cfgs;
        let mut sig = self.sig.clone();
        name_params(&mut sig, &self.host_fn);
        let symbol = &self.host_fn.symbol;
        let (names, types, result) = self.host_fn.c_signature(&quote!(::core::ffi::c_void));
        let host = Ident::new("__ifunc_host", Span::mixed_site());
        let receiver = if self.host_fn.receiver == Some(true) {
            quote!((&raw mut *self).cast())
        } else {
            quote!((&raw const *self).cast())
        };
        let body = self.host_fn.stub(&quote!(#host), Some(receiver));
        quote! {
            #(#cfgs)*
            #[inline]
            #sig {
                unsafe extern "C" {
                    #[link_name = #symbol]
                    fn #host(#(#names: #types),*) -> #result;
                }
                #body
            }
        }
    }
}

/// Whether the receiver is `&mut self`.
fn receiver(sig: &Signature, errors: &mut Errors) -> Option<bool> {
    const WRITE: &str = "take `&self` or `&mut self`";
    let Some(FnArg::Receiver(receiver)) = sig.inputs.first() else {
        errors.at(
            &sig.ident,
            "a method of an interface has a receiver: the host's value is its first argument",
            "take `&self` or `&mut self`, or export a function: `#[ifunc::export] fn`",
        );
        return None;
    };
    match &receiver.kind {
        ReceiverKind::Reference(_, _, mutability) => Some(mutability.is_some()),
        ReceiverKind::Value => {
            errors.at(
                receiver,
                "a method of an interface cannot consume the host's value",
                WRITE,
            );
            None
        }
        _ => {
            errors.at(receiver, "this receiver does not cross", WRITE);
            None
        }
    }
}

/// The `name = ".."` of the attribute.
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
        errors.span(
            error.span(),
            &error,
            "the only argument is `name = \"..\"`, the name of the interface in symbols and texts",
        );
    }
    name
}

/// Expands the attribute.
pub(crate) fn interface(args: TokenStream, item: TokenStream) -> TokenStream {
    let parsed: ItemTrait = match syn::parse2(item.clone()) {
        Ok(parsed) => parsed,
        Err(error) => {
            let mut errors = Errors::default();
            if syn::parse2::<syn::Item>(item.clone()).is_ok() {
                errors.at(
                    &item,
                    "`#[ifunc::interface]` goes on a trait",
                    "the `impl` of the host's type gets `#[ifunc::export]`",
                );
            } else {
                errors.push(error);
            }
            return errors
                .or(())
                .map_or_else(|error| report(&error, item.clone()), |()| item.clone());
        }
    };
    match Model::new(args, parsed) {
        Ok(model) => model.expand(),
        Err(error) => report(&error, item),
    }
}
