//! `#[ifunc::import]`: functions and variables of the host that an ifunc uses.

mod function;
mod variable;

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::{Attribute, Expr, ForeignItem, ItemForeignMod, Lit, Meta, Visibility};

use self::function::Function;
pub(crate) use self::function::name_params;
use self::variable::Variable;
use crate::errors::{Errors, report};
use crate::signature;

struct Model {
    functions: Vec<Function>,
    variables: Vec<Variable>,
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
        let mut variables = Vec::new();
        for item in block.items {
            match item {
                ForeignItem::Fn(item) => functions.push(Function::new(item, &block.attrs, &mut errors)),
                ForeignItem::Static(item) => variables.push(Variable::new(item, &block.attrs, &mut errors)),
                ForeignItem::Type(item) => errors.at(
                    &item.ident,
                    "a type cannot be imported",
                    "declare an opaque type: `#[derive(Opaque)] #[opaque(\"name/1\")] pub struct Name(ifunc::Foreign);`",
                ),
                other => errors.at(
                    &other,
                    "only functions and variables can be imported",
                    "write `safe fn name(..);` or `safe static NAME: T;`",
                ),
            }
        }
        let functions_named = functions
            .iter()
            .map(|function| (function.symbol(), function.ident()));
        let variables_named = variables
            .iter()
            .map(|variable| (variable.symbol(), variable.ident()));
        let named: Vec<(&str, &Ident)> = functions_named.chain(variables_named).collect();
        for (i, (symbol, ident)) in named.iter().enumerate() {
            if named[..i].iter().any(|(earlier, _)| earlier == symbol) {
                errors.at(
                    ident,
                    format_args!("`{symbol}` is imported twice"),
                    "remove one of them",
                );
            }
        }
        errors.or(Self { functions, variables })
    }

    fn expand(self) -> TokenStream {
        let Self { functions, variables } = self;
        let functions = functions.into_iter().map(Function::expand);
        functions
            .chain(variables.into_iter().map(Variable::expand))
            .collect()
    }
}

/// A type of the import's name, with its text: `#[ifunc::export(import = ..)]` compares it.
fn described(vis: &Visibility, ident: &Ident, cfgs: &[&Attribute], text: &TokenStream) -> TokenStream {
    quote! {
        #(#cfgs)*
        #[doc(hidden)]
        #[allow(non_camel_case_types, dead_code)]
        #vis enum #ident {}
        #(#cfgs)*
        #[automatically_derived]
        impl ::ifunc::ffi::Import for #ident {
            const SIGNATURE: &'static [&'static str] = #text;
        }
    }
}

/// The symbol of an item, and its attributes without `link_name`.
fn symbol(
    ident: &Ident,
    attrs: Vec<Attribute>,
    block: &[Attribute],
    errors: &mut Errors,
) -> (String, Vec<Attribute>) {
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
        let symbol = syn::ext::IdentExt::unraw(ident).to_string();
        signature::check_name(&symbol, ident, errors);
        symbol
    });
    (symbol, kept)
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
