//! Finds the items that the attributes generated, by their form: `-Zunpretty=expanded` does not mark them.

use proc_macro2::{Group, Ident, Punct, Spacing, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Expr, File, Item, Pat, Stmt, Type};

/// Parses the compiler's output.
pub(super) fn parse(text: &str) -> syn::Result<File> {
    let tokens: TokenStream = text.parse().map_err(syn::Error::from)?;
    syn::parse2(as_macros(tokens))
}

/// Replaces the compiler-internal form `builtin # offset_of(..)` by `offset_of!(..)`.
fn as_macros(tokens: TokenStream) -> TokenStream {
    let mut out: Vec<TokenTree> = Vec::new();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Ident(name) if name == "builtin" && is_hash(tokens.peek()) => {
                tokens.next();
                out.extend(tokens.next());
                out.push(TokenTree::Punct(Punct::new('!', Spacing::Alone)));
            }
            TokenTree::Group(group) => {
                let mut new = Group::new(group.delimiter(), as_macros(group.stream()));
                new.set_span(group.span());
                out.push(TokenTree::Group(new));
            }
            other => out.push(other),
        }
    }
    out.into_iter().collect()
}

fn is_hash(token: Option<&TokenTree>) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == '#')
}

/// Keeps in `file` what the attributes generated, for `wanted` or for all items. Returns the names of all
/// items with generated code, in order.
pub(super) fn generated(file: &mut File, wanted: Option<&str>) -> Vec<String> {
    let mut names = Vec::new();
    file.attrs.clear();
    keep(&mut file.items, wanted, &mut names);
    names
}

fn keep(items: &mut Vec<Item>, wanted: Option<&str>, names: &mut Vec<String>) {
    // An unnamed item belongs to the named item before it.
    let mut last: Option<String> = None;
    items.retain_mut(|item| {
        if let Item::Mod(module) = item {
            let Some((_, inner)) = &mut module.content else {
                return false;
            };
            keep(inner, wanted, names);
            return !inner.is_empty();
        }
        let Some(owner) = owner(item, last.as_deref()) else {
            return false;
        };
        if !names.contains(&owner) {
            names.push(owner.clone());
        }
        let wanted = wanted.is_none_or(|wanted| wanted == owner);
        last = Some(owner);
        wanted
    });
}

/// The name of the item that `item` was generated for; `None` if no attribute generated it.
fn owner(item: &Item, last: Option<&str>) -> Option<String> {
    match item {
        // `impl ::ifunc::Layout for State`
        Item::Impl(block) => {
            let (path, _) = block.trait_.as_ref()?;
            let ours = path.leading_colon.is_some() && path.segments.first()?.ident == "ifunc";
            match (&*block.self_ty, ours) {
                (Type::Path(ty), true) => Some(ty.path.segments.last()?.ident.to_string()),
                _ => None,
            }
        }
        // The typed handle.
        Item::Enum(handle) if handle.variants.is_empty() => {
            let text = handle.attrs.iter().map(|attr| attr.to_token_stream().to_string());
            text.collect::<String>()
                .contains("The typed handle of the ifunc")
                .then(|| handle.ident.to_string())
        }
        // An import: the function that calls the host.
        Item::Fn(function) => {
            mentions(function.block.to_token_stream(), "__ifunc_host").then(|| function.sig.ident.to_string())
        }
        Item::Const(constant) if constant.ident == "_" => {
            let tokens = constant.expr.to_token_stream();
            let empty = matches!(&*constant.expr, Expr::Block(block) if block.block.stmts.is_empty());
            if empty || !(mentions(tokens.clone(), "ifunc") || mentions(tokens, "__IFUNC_RECORD")) {
                return None;
            }
            named(&constant.expr).or_else(|| last.map(Into::into))
        }
        _ => None,
    }
}

/// `NAME` of a block that begins with `let _ = NAME;`, by which the attributes mark a function as used.
fn named(expr: &Expr) -> Option<String> {
    let Expr::Block(block) = expr else { return None };
    let Stmt::Local(local) = block.block.stmts.first()? else {
        return None;
    };
    match (&local.pat, &local.init.as_ref()?.expr.as_ref()) {
        (Pat::Wild(_), Expr::Path(path)) => path.path.get_ident().map(Ident::to_string),
        _ => None,
    }
}

fn mentions(tokens: TokenStream, name: &str) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == name,
        TokenTree::Group(group) => mentions(group.stream(), name),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPANDED: &str = r#"
        #![feature(prelude_import)]
        extern crate core;
        pub struct Point { pub x: f64 }
        unsafe impl ::ifunc::Layout for Point {
            const TEXT: Text = Text::new().number(const { builtin # offset_of(Self, x) });
        }
        impl ::core::clone::Clone for Point { fn clone(&self) -> Self { Self { x: self.x } } }
        fn lookup(key: u64) -> u64 { let __ifunc_host = 1; __ifunc_host + key }
        #[allow(unexpected_cfgs)]
        const _: () = { static __IFUNC_RECORD: u8 = 0; };
        const _: () = {};
        pub mod inner {
            pub fn add(a: u64) -> u64 { a }
            #[doc = "\nThe typed handle of the ifunc `add`."]
            pub enum add {}
            const _: () = { let _ = add; impl ::ifunc::Ifunc for add {} };
            const _: () = { let _ = 1; };
        }
        mod empty { fn nothing() {} }
    "#;

    fn kept(wanted: Option<&str>) -> (String, Vec<String>) {
        let mut file = parse(EXPANDED).expect("it parses");
        let names = generated(&mut file, wanted);
        (prettyplease::unparse(&file), names)
    }

    #[test]
    fn only_generated_items_are_kept() {
        let (text, names) = kept(None);
        assert_eq!(names, ["Point", "lookup", "add"]);
        assert!(text.contains("offset_of!(Self, x)"), "{text}");
        for gone in [
            "Clone",
            "pub fn add",
            "nothing",
            "prelude_import",
            "let _ = 1",
            "struct Point",
        ] {
            assert!(!text.contains(gone), "{gone} in\n{text}");
        }
        assert_eq!(text.matches("const _: ()").count(), 2, "{text}");
    }

    #[test]
    fn one_item_is_kept_with_its_module() {
        let (text, names) = kept(Some("add"));
        assert_eq!(names, ["Point", "lookup", "add"]);
        assert!(text.starts_with("pub mod inner {"), "{text}");
        assert!(!text.contains("lookup"), "{text}");
        let (text, _) = kept(Some("lookup"));
        assert!(text.contains("__IFUNC_RECORD"), "{text}");
        assert_eq!(kept(Some("absent")).0, "");
    }
}
