//! `#[ifunc::import]`: host functions that an ifunc calls.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{
    Attribute, Expr, ForeignItem, ForeignItemFn, ItemForeignMod, Lit, Meta, Safety, Signature, Visibility,
};

use crate::errors::{Errors, report, span_of};
use crate::host_fn::{HostFn, Kind, Output, Reference, c_len, c_name, out};
use crate::signature;

struct Model {
    functions: Vec<Function>,
}

struct Function {
    /// The attributes without `link_name`.
    attrs: Vec<Attribute>,
    vis: Visibility,
    sig: Signature,
    host_fn: HostFn,
}

impl Model {
    fn new(args: TokenStream, block: ItemForeignMod) -> syn::Result<Self> {
        let mut errors = Errors::default();
        if !args.is_empty() {
            errors.at(
                &args,
                "`#[ifunc::import]` takes no arguments",
                "to import another symbol, put `#[link_name = \"..\"]` on the function",
            );
        }
        if block.unsafety.is_none() {
            errors.at(
                &block.abi,
                "the block must be `unsafe`: its author vouches for the signatures",
                "write `unsafe extern { safe fn name(..); }`",
            );
        }
        if let Some(abi) = &block.abi.name
            && abi.value() != "C"
        {
            errors.at(
                abi,
                "host functions use the C ABI only",
                "write `unsafe extern { .. }`",
            );
        }
        let mut functions = Vec::new();
        for item in block.items {
            match item {
                ForeignItem::Fn(item) => functions.push(Function::new(item, &block.attrs, &mut errors)),
                ForeignItem::Static(item) => errors.at(
                    &item.ident,
                    "a host's variable cannot be imported",
                    "export a function that returns it, or put it into the target's data",
                ),
                ForeignItem::Type(item) => errors.at(
                    &item.ident,
                    "a type cannot be imported",
                    "declare an opaque type: `#[derive(Opaque)] #[opaque(\"name/1\")] pub struct Name(ifunc::Foreign);`",
                ),
                other => errors.at(&other, "only functions can be imported", "write `safe fn name(..);`"),
            }
        }
        for (i, function) in functions.iter().enumerate() {
            let symbol = &function.host_fn.symbol;
            if functions[..i]
                .iter()
                .any(|earlier| earlier.host_fn.symbol == *symbol)
            {
                errors.at(
                    &function.sig.ident,
                    format_args!("`{symbol}` is imported twice"),
                    "remove one of them",
                );
            }
        }
        errors.or(Self { functions })
    }

    fn expand(self) -> TokenStream {
        self.functions.into_iter().map(Function::expand).collect()
    }
}

impl Function {
    fn new(item: ForeignItemFn, block: &[Attribute], errors: &mut Errors) -> Self {
        let ForeignItemFn { attrs, vis, sig, .. } = item;
        signature::refuse_common(&sig, "an imported function", errors);
        let mut symbol = None;
        let mut kept: Vec<Attribute> = block
            .iter()
            .filter(|attr| attr.path().is_ident("cfg"))
            .cloned()
            .collect();
        for attr in attrs {
            if !attr.path().is_ident("link_name") {
                kept.push(attr);
                continue;
            }
            match &attr.meta {
                Meta::NameValue(pair)
                    if let Expr::Lit(literal) = &pair.value
                        && let Lit::Str(name) = &literal.lit =>
                {
                    signature::check_name(&name.value(), name, errors);
                    symbol = Some(name.value());
                }
                other => errors.at(
                    other,
                    "expected the name of the symbol",
                    "`#[link_name = \"insert_v2\"]`",
                ),
            }
        }
        let symbol = symbol.unwrap_or_else(|| {
            let symbol = syn::ext::IdentExt::unraw(&sig.ident).to_string();
            signature::check_name(&symbol, &sig.ident, errors);
            symbol
        });
        // A function of an `unsafe extern` block is unsafe unless it says `safe`.
        let is_unsafe = !matches!(sig.safety, Safety::Safe(_));
        let host_fn = HostFn::new(&sig, symbol, is_unsafe, errors);
        Self {
            attrs: kept,
            vis,
            sig,
            host_fn,
        }
    }

    fn expand(self) -> TokenStream {
        let Self {
            attrs,
            vis,
            mut sig,
            host_fn,
        } = self;
        let cfgs: Vec<&Attribute> = attrs.iter().filter(|attr| attr.path().is_ident("cfg")).collect();
        sig.safety = if host_fn.is_unsafe {
            Safety::Unsafe(Default::default())
        } else {
            Safety::Default
        };
        rename_wild(&mut sig, &host_fn);
        let symbol = &host_fn.symbol;
        let text = host_fn.text();
        let (names, types, result) = host_fn.c_signature();
        let host = Ident::new("__ifunc_host", Span::mixed_site());
        let body = body(&host_fn, &host);
        let checks = host_fn.checks();
        let record = format!("import 1\nsymbol {symbol}\ncrate ");
        quote! {
            #(#attrs)*
            #[allow(unexpected_cfgs, unused_unsafe, improper_ctypes)]
            #[inline]
            #vis #sig {
                #[cfg(ifunc_image)]
                unsafe extern "C" {
                    #[link_name = #symbol]
                    fn #host(#(#names: #types),*) -> #result;
                }
                #[cfg(not(ifunc_image))]
                let #host = {
                    const __IFUNC_SIGNATURE: &[&str] = #text;
                    static __IFUNC_TEXT: [u8; ::ifunc::__private::total(__IFUNC_SIGNATURE)] = ::ifunc::__private::concat(__IFUNC_SIGNATURE);
                    let address = ::ifunc::__private::resolve(#symbol, ::ifunc::__private::text(&__IFUNC_TEXT));
                    // SAFETY: the shim of an export with the same signature has this type.
                    unsafe {
                        ::core::mem::transmute::<*const (), unsafe extern "C-unwind" fn(#(#types),*) -> #result>(address)
                    }
                };
                #body
            }

            #(#cfgs)*
            #[allow(unexpected_cfgs)]
            const _: () = {
                #checks
                #[cfg(ifunc_image)]
                const __IFUNC_SIGNATURE: &[&str] = #text;
                #[cfg(ifunc_image)]
                static __IFUNC_TEXT: [u8; ::ifunc::__private::total(__IFUNC_SIGNATURE)] = ::ifunc::__private::concat(__IFUNC_SIGNATURE);
                #[cfg(ifunc_image)]
                const __IFUNC_RECORD: &[&str] = &[
                    #record,
                    ::core::env!("CARGO_CRATE_NAME"),
                    "\nsignature ",
                    ::ifunc::__private::text(&__IFUNC_TEXT),
                    "\n\0",
                ];
                #[cfg(ifunc_image)]
                #[used]
                #[unsafe(link_section = ".ifunc.meta")]
                static __IFUNC_META: [u8; ::ifunc::__private::total(__IFUNC_RECORD)] = ::ifunc::__private::concat(__IFUNC_RECORD);
            };
        }
    }
}

/// Names a parameter `_: T`, so that the body can pass it on.
fn rename_wild(sig: &mut Signature, host_fn: &HostFn) {
    for (input, param) in sig.inputs.iter_mut().zip(&host_fn.params) {
        if let syn::FnArg::Typed(typed) = input
            && !matches!(*typed.pat, syn::Pat::Ident(_))
        {
            let name = &param.name;
            *typed.pat = syn::parse_quote!(#name);
        }
    }
}

/// The call of the host function: converts Rust arguments and a Rust result.
fn body(host_fn: &HostFn, host: &Ident) -> TokenStream {
    let mut before = TokenStream::new();
    let mut arguments = Vec::new();
    for (i, param) in host_fn.params.iter().enumerate() {
        let value = &param.name;
        let pointer = c_name(i);
        match &param.kind {
            Kind::Scalar(ty) => {
                arguments.push(quote_spanned!(span_of(ty)=> <#ty as ::ifunc::ffi::Scalar>::into_c(#value)))
            }
            Kind::Reference(Reference {
                optional: false,
                mutable: false,
                ..
            }) => {
                arguments.push(quote!(::core::ptr::from_ref(#value).cast()));
            }
            Kind::Reference(Reference {
                optional: false,
                mutable: true,
                ..
            }) => {
                arguments.push(quote!(::core::ptr::from_mut(#value).cast()));
            }
            Kind::Reference(Reference {
                optional: true,
                mutable: false,
                ..
            }) => {
                arguments.push(
                    quote!(#value.map_or(::core::ptr::null(), |value| ::core::ptr::from_ref(value).cast())),
                );
            }
            Kind::Reference(Reference {
                optional: true,
                mutable: true,
                ..
            }) => {
                arguments.push(quote!(#value.map_or(::core::ptr::null_mut(), |value| ::core::ptr::from_mut(value).cast())));
            }
            Kind::Slice { .. } | Kind::Str => {
                let len = c_len(i);
                let address = match &param.kind {
                    Kind::Slice { mutable: true, .. } => quote!(#value.as_mut_ptr()),
                    _ => quote!(#value.as_ptr()),
                };
                before.extend(quote!(let (#pointer, #len) = (#address, #value.len());));
                arguments.push(quote!(#pointer));
                arguments.push(quote!(#len));
            }
        }
    }
    let out = out();
    if let Output::Result(Some(ty), _) | Output::Option(ty) = &host_fn.output {
        before.extend(quote!(let mut #out = ::core::mem::MaybeUninit::<#ty>::uninit();));
        arguments.push(quote!(#out.as_mut_ptr()));
    }
    let result = Ident::new("result", Span::mixed_site());
    let convert = match &host_fn.output {
        Output::Unit => quote!(#result),
        Output::Scalar(ty) => quote_spanned!(span_of(ty)=> <#ty as ::ifunc::ffi::Scalar>::from_c(#result)),
        Output::Reference(Reference {
            mutable, optional, ..
        }) => {
            let method = if *mutable { quote!(as_mut) } else { quote!(as_ref) };
            let unwrap = (!optional).then(|| quote!(.expect("the host function returned a null pointer")));
            // SAFETY (of the emitted code): the host returned a reference of the lifetime that the signature
            // states.
            quote!(unsafe { #result.#method() } #unwrap)
        }
        Output::Result(value, error) => {
            let value = match value {
                // SAFETY (of the emitted code): the host writes the value before it returns 0.
                Some(_) => quote!(unsafe { #out.assume_init() }),
                None => quote!(()),
            };
            quote! {
                if #result == 0 {
                    ::core::result::Result::Ok(#value)
                } else {
                    ::core::result::Result::Err(<#error as ::ifunc::ffi::ErrorCode>::from_code(#result))
                }
            }
        }
        Output::Option(_) => quote! {
            if #result != 0 {
                ::core::option::Option::Some(unsafe { #out.assume_init() })
            } else {
                ::core::option::Option::None
            }
        },
    };
    quote! {
        #before
        // SAFETY: the target compares the signature's fingerprint with that of the function it provides.
        let #result = unsafe { #host(#(#arguments),*) };
        #convert
    }
}

/// Expands the attribute.
pub(crate) fn import(args: TokenStream, item: TokenStream) -> TokenStream {
    let block: ItemForeignMod = match syn::parse2(item.clone()) {
        Ok(block) => block,
        Err(error) => {
            let mut errors = Errors::default();
            if syn::parse2::<syn::Item>(item.clone()).is_ok() {
                errors.at(
                    &item,
                    "`#[ifunc::import]` goes on an `extern` block",
                    "`#[ifunc::import] unsafe extern { safe fn name(..); }`",
                );
            } else {
                errors.push(error);
            }
            return errors
                .or(())
                .map_or_else(|error| report(&error, item.clone()), |()| item.clone());
        }
    };
    match Model::new(args, block.clone()) {
        Ok(model) => model.expand(),
        // The error output still declares the functions, so that calls resolve; it drops a block that is not
        // even `unsafe extern`.
        Err(error) => report(
            &error,
            if block.unsafety.is_some() {
                item
            } else {
                TokenStream::new()
            },
        ),
    }
}
