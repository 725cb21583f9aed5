//! Where in its source an attribute is. The compiler does not tell an attribute what is around its item, so the source is read.

use syn::visit_mut::{self, VisitMut};
use syn::{Attribute, Ident};

/// The item that holds a function which is no item of a module, as a message names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    Impl,
    Trait,
}

impl Holder {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Impl => "an `impl`",
            Self::Trait => "a `trait`",
        }
    }
}

/// What holds the function that the current attribute is on. `None`: a module, or the source is not known, as in the expansion of a
/// macro.
///
/// What begins its line is in no `impl`: for it, which are nearly all, nothing is read.
pub(crate) fn holder(attribute: &str, function: &Ident) -> Option<Holder> {
    // Not in the tests of this crate.
    if !proc_macro::is_available() {
        return None;
    }
    let at = proc_macro::Span::call_site();
    let file = at.local_file().filter(|_| at.column() > 1)?;
    holder_in(&std::fs::read_to_string(file).ok()?, attribute, function)
}

/// What holds the function of this name with this attribute in the text of a file.
fn holder_in(text: &str, attribute: &str, function: &Ident) -> Option<Holder> {
    let mut find = Find {
        attribute,
        function,
        found: None,
    };
    find.visit_file_mut(&mut syn::parse_file(text).ok()?);
    find.found
}

struct Find<'a> {
    attribute: &'a str,
    function: &'a Ident,
    found: Option<Holder>,
}

impl Find<'_> {
    fn look_at(&mut self, attributes: &[Attribute], name: &Ident, holder: Holder) {
        let is_it = |attribute: &Attribute| {
            let last = attribute.path().segments.last();
            last.is_some_and(|last| last.ident == self.attribute)
        };
        if name == self.function && attributes.iter().any(is_it) {
            self.found = Some(holder);
        }
    }
}

impl VisitMut for Find<'_> {
    fn visit_impl_item_fn_mut(&mut self, item: &mut syn::ImplItemFn) {
        self.look_at(&item.attrs, &item.sig.ident, Holder::Impl);
        visit_mut::visit_impl_item_fn_mut(self, item);
    }

    fn visit_trait_item_fn_mut(&mut self, item: &mut syn::TraitItemFn) {
        self.look_at(&item.attrs, &item.sig.ident, Holder::Trait);
        visit_mut::visit_trait_item_fn_mut(self, item);
    }
}

#[cfg(test)]
mod tests {
    use proc_macro2::Span;

    use super::*;

    #[test]
    fn the_item_around_a_function_is_found() {
        let text = "
            mod a { #[ifunc] fn of_module() {} impl T { fn of_module() {} } }
            impl T {
                #[ifunc(idempotent)] pub fn of_impl() {}
                fn other() { #[ifunc] fn inner() {} }
                #[other] fn of_other() {}
            }
            trait U { #[ifunc::ifunc] fn of_trait(); }
        ";
        let of = |name| holder_in(text, "ifunc", &Ident::new(name, Span::call_site()));
        assert_eq!(of("of_impl"), Some(Holder::Impl));
        assert_eq!(of("of_trait"), Some(Holder::Trait));
        for name in ["of_module", "inner", "of_other", "nowhere"] {
            assert_eq!(of(name), None, "{name}");
        }
        assert_eq!(
            holder_in("no Rust {", "ifunc", &Ident::new("x", Span::call_site())),
            None
        );
    }
}
