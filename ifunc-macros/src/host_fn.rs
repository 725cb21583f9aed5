//! The signature of a host function, shared by `#[ifunc::export]` and `#[ifunc::import]`: how each type
//! crosses, the canonical text, and the C prototype.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{FnArg, Pat, ReturnType, Safety, Signature, Type, TypeReference};

use crate::errors::{Errors, span_of};
use crate::types;

/// A host function.
pub(crate) struct HostFn {
    /// The C symbol.
    pub(crate) symbol: String,
    pub(crate) is_unsafe: bool,
    pub(crate) params: Vec<Param>,
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
    Scalar(Type),
    Reference(Reference),
    Slice { element: Type, mutable: bool },
    Str,
}

/// `&T`, `&mut T`, `Option<&T>`.
pub(crate) struct Reference {
    pub(crate) ty: Type,
    pub(crate) mutable: bool,
    pub(crate) optional: bool,
}

/// How the result crosses.
pub(crate) enum Output {
    Unit,
    Scalar(Type),
    Reference(Reference),
    /// The first type is `None` for `()`.
    Result(Option<Type>, Box<Type>),
    Option(Type),
}

impl HostFn {
    /// Reads a signature; reports types that cannot cross to `errors`.
    pub(crate) fn new(sig: &Signature, symbol: String, is_unsafe: bool, errors: &mut Errors) -> Self {
        let mut params = Vec::new();
        for (i, input) in sig.inputs.iter().enumerate() {
            // `refuse_common` has already refused a receiver.
            let FnArg::Typed(typed) = input else { continue };
            let name = match &*typed.pat {
                Pat::Ident(pat) => pat.ident.clone(),
                other => format_ident!("arg{i}", span = other.span()),
            };
            if let Some(kind) = kind(&typed.ty, errors) {
                params.push(Param { name, kind });
            }
        }
        Self {
            symbol,
            is_unsafe,
            params,
            output: output(&sig.output, errors),
        }
    }

    /// The parts of the canonical text, as expressions of type `&str`.
    pub(crate) fn text(&self) -> TokenStream {
        let Self {
            symbol,
            is_unsafe,
            params,
            output,
        } = self;
        let mut parts = Parts::default();
        parts.push(if *is_unsafe { "unsafe fn " } else { "fn " });
        parts.push(symbol);
        parts.push("(");
        for (i, param) in params.iter().enumerate() {
            parts.push(if i > 0 { "," } else { "" });
            match &param.kind {
                Kind::Scalar(ty) => parts.text(ty, &quote!(::ifunc::ffi::Scalar)),
                Kind::Reference(reference) => reference.text(&mut parts),
                Kind::Slice { element, mutable } => {
                    parts.push(if *mutable { "&mut [" } else { "&[" });
                    parts.text(element, &quote!(::ifunc::Layout));
                    parts.push("]");
                }
                Kind::Str => parts.push("&str"),
            }
        }
        parts.push(")");
        match output {
            Output::Unit => {}
            Output::Scalar(ty) => {
                parts.push("->");
                parts.text(ty, &quote!(::ifunc::ffi::Scalar));
            }
            Output::Reference(reference) => {
                parts.push("->");
                reference.text(&mut parts);
            }
            Output::Result(ok, error) => {
                parts.push("->Result<");
                match ok {
                    Some(ok) => parts.text(ok, &quote!(::ifunc::Layout)),
                    None => parts.push("()"),
                }
                parts.push(",");
                parts.text(error, &quote!(::ifunc::ffi::ErrorCode));
                parts.push(">");
            }
            Output::Option(ty) => {
                parts.push("->Option<");
                parts.text(ty, &quote!(::ifunc::Layout));
                parts.push(">");
            }
        }
        parts.finish()
    }

    /// The parts of the C prototype, as expressions of type `&str`.
    pub(crate) fn prototype(&self) -> TokenStream {
        let Self {
            symbol,
            is_unsafe: _,
            params,
            output,
        } = self;
        let mut parts = Parts::default();
        match output {
            Output::Unit => parts.push("void "),
            Output::Scalar(ty) => {
                parts.c_name(ty);
                parts.push(" ");
            }
            Output::Reference(reference) => parts.push(&pointer(&reference.ty, reference.mutable)),
            Output::Result(..) => parts.push("int32_t "),
            Output::Option(_) => parts.push("uint8_t "),
        }
        parts.push(symbol);
        parts.push("(");
        let mut first = true;
        let mut comma = |parts: &mut Parts| {
            parts.push(if first { "" } else { ", " });
            first = false;
        };
        for Param { name, kind } in params {
            let name = syn::ext::IdentExt::unraw(name);
            comma(&mut parts);
            match kind {
                Kind::Scalar(ty) => {
                    parts.c_name(ty);
                    parts.push(&format!(" {name}"));
                }
                Kind::Reference(reference) => {
                    parts.push(&format!("{}{name}", pointer(&reference.ty, reference.mutable)));
                }
                Kind::Slice { element, mutable } => {
                    parts.push(&format!(
                        "{}{name}, size_t {name}_len",
                        pointer(element, *mutable)
                    ));
                }
                Kind::Str => parts.push(&format!("const char *{name}, size_t {name}_len")),
            }
        }
        if let Output::Result(Some(ty), _) | Output::Option(ty) = output {
            comma(&mut parts);
            let taken = params.iter().any(|param| param.name == "out");
            parts.push(&format!(
                "{}{}",
                pointer(ty, true),
                if taken { "out_value" } else { "out" }
            ));
        } else if params.is_empty() {
            parts.push("void");
        }
        parts.push(");");
        parts.finish()
    }

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

    /// Parameters and result of the C function, and the names of the parameters.
    pub(crate) fn c_signature(&self) -> (Vec<Ident>, Vec<TokenStream>, TokenStream) {
        let mut names = Vec::new();
        let mut types = Vec::new();
        for (i, Param { kind, .. }) in self.params.iter().enumerate() {
            let name = c_name(i);
            match kind {
                Kind::Scalar(ty) => {
                    let scalar = quote_spanned!(span_of(ty)=> <#ty as ::ifunc::ffi::Scalar>::C);
                    types.push(scalar);
                }
                Kind::Reference(Reference { ty, mutable, .. }) => types.push(raw(ty, *mutable)),
                Kind::Slice { element, mutable } => types.push(raw(element, *mutable)),
                Kind::Str => types.push(quote!(*const u8)),
            }
            names.push(name);
            if matches!(kind, Kind::Slice { .. } | Kind::Str) {
                names.push(c_len(i));
                types.push(quote!(usize));
            }
        }
        let result = match &self.output {
            Output::Unit => quote!(()),
            Output::Scalar(ty) => quote_spanned!(span_of(ty)=> <#ty as ::ifunc::ffi::Scalar>::C),
            Output::Reference(Reference { ty, mutable, .. }) => raw(ty, *mutable),
            Output::Result(ok, _) => {
                if let Some(ty) = ok {
                    names.push(out());
                    types.push(quote!(*mut #ty));
                }
                quote!(i32)
            }
            Output::Option(ty) => {
                names.push(out());
                types.push(quote!(*mut #ty));
                quote!(u8)
            }
        };
        (names, types, result)
    }
}

impl Reference {
    fn text(&self, parts: &mut Parts) {
        parts.push(match (self.optional, self.mutable) {
            (false, false) => "&",
            (false, true) => "&mut ",
            (true, false) => "Option<&",
            (true, true) => "Option<&mut ",
        });
        parts.text(&self.ty, &quote!(::ifunc::TargetArgs));
        parts.push(if self.optional { ">" } else { "" });
    }
}

/// Name of parameter `i` of the C function.
pub(crate) fn c_name(i: usize) -> Ident {
    Ident::new(&format!("arg{i}"), Span::mixed_site())
}

/// Name of the parameter that holds the length of parameter `i`.
pub(crate) fn c_len(i: usize) -> Ident {
    Ident::new(&format!("arg{i}_len"), Span::mixed_site())
}

/// Name of the out pointer.
pub(crate) fn out() -> Ident {
    Ident::new("out", Span::mixed_site())
}

fn raw(ty: &Type, mutable: bool) -> TokenStream {
    // The text of a signature states no lifetimes, and a pointer has none.
    let ty = types::with_lifetime(ty, "'static");
    if mutable {
        quote!(*mut #ty)
    } else {
        quote!(*const #ty)
    }
}

fn reference(reference: &TypeReference, optional: bool) -> Reference {
    Reference {
        ty: types::bare(&reference.elem).clone(),
        mutable: reference.mutability.is_some(),
        optional,
    }
}

fn kind(ty: &Type, errors: &mut Errors) -> Option<Kind> {
    match types::bare(ty) {
        Type::Reference(inner) => match types::bare(&inner.elem) {
            Type::Slice(slice) => Some(Kind::Slice {
                element: types::bare(&slice.elem).clone(),
                mutable: inner.mutability.is_some(),
            }),
            elem if types::is_named(elem, "str") => {
                if let Some(token) = &inner.mutability {
                    errors.at(token, "`&mut str` does not cross", "take `&mut [u8]`");
                }
                Some(Kind::Str)
            }
            Type::Path(path) => {
                if let Some(help) = owned(path) {
                    errors.at(ty, "the layout of this type differs between builds", help);
                    return None;
                }
                Some(Kind::Reference(reference(inner, false)))
            }
            Type::Array(_) => Some(Kind::Reference(reference(inner, false))),
            other => {
                refuse(ty, other, errors);
                None
            }
        },
        whole @ Type::Path(path) => {
            if let Some(arguments) = types::arguments_of(whole, "Option") {
                if let [inner] = arguments[..]
                    && let Type::Reference(inner) = types::bare(inner)
                    && !matches!(types::bare(&inner.elem), Type::Slice(_))
                    && !types::is_named(&inner.elem, "str")
                {
                    return Some(Kind::Reference(reference(inner, true)));
                }
                errors.at(
                    ty,
                    "the only option that crosses as a parameter is `Option<&T>`, a nullable pointer",
                    "take a reference, or an empty slice instead of `None`",
                );
                return None;
            }
            if let Some(help) = owned(path) {
                errors.at(ty, "a value that owns memory cannot cross", help);
                return None;
            }
            Some(Kind::Scalar(whole.clone()))
        }
        Type::Array(_) => {
            errors.at(
                ty,
                "an array cannot cross by value: C has no such parameter",
                "take a reference: `&[T; N]`",
            );
            None
        }
        other => {
            refuse(ty, other, errors);
            None
        }
    }
}

fn output(output: &ReturnType, errors: &mut Errors) -> Output {
    let ReturnType::Type(_, ty) = output else {
        return Output::Unit;
    };
    types::refuse_static(ty, errors);
    let ty = types::bare(ty);
    if types::is_unit(ty) {
        return Output::Unit;
    }
    if let Some(arguments) = types::arguments_of(ty, "Result") {
        let [ok, error] = arguments[..] else {
            errors.at(
                ty,
                "both types of the `Result` must be named",
                "write `Result<T, E>` with `E`: `i32` or a C-like enum",
            );
            return Output::Unit;
        };
        let value = (!types::is_unit(ok)).then(|| value(ok, errors)).flatten();
        return Output::Result(value, Box::new(types::bare(error).clone()));
    }
    if let Some(arguments) = types::arguments_of(ty, "Option") {
        let [inner] = arguments[..] else {
            return Output::Unit;
        };
        if let Type::Reference(reference) = types::bare(inner)
            && let Some(Kind::Reference(_)) = kind(inner, errors)
        {
            return Output::Reference(self::reference(reference, true));
        }
        return value(inner, errors).map_or(Output::Unit, Output::Option);
    }
    match ty {
        Type::Reference(inner) => match kind(ty, errors) {
            Some(Kind::Reference(_)) => Output::Reference(reference(inner, false)),
            Some(_) => {
                errors.at(
                    ty,
                    "a slice is two words, and a C function returns one",
                    "take a `&mut [T]` to fill, and return the number of elements written: `Result<usize, i32>`",
                );
                Output::Unit
            }
            None => Output::Unit,
        },
        _ => match kind(ty, errors) {
            Some(Kind::Scalar(ty)) => Output::Scalar(ty),
            _ => Output::Unit,
        },
    }
}

/// The type of the value that an out pointer points to.
fn value(ty: &Type, errors: &mut Errors) -> Option<Type> {
    match types::bare(ty) {
        Type::Array(_) => Some(types::bare(ty).clone()),
        Type::Reference(_) => {
            errors.at(
                ty,
                "a reference does not cross inside this type",
                "return `Option<&T>`, or a value of fixed layout, or fill a `&mut [T]`",
            );
            None
        }
        _ => match kind(ty, errors) {
            Some(Kind::Scalar(ty)) => Some(ty),
            _ => None,
        },
    }
}

/// Help for a type that owns memory or needs to be dropped.
fn owned(path: &syn::TypePath) -> Option<&'static str> {
    let last = path.path.segments.last()?;
    Some(match last.ident.to_string().as_str() {
        "String" => "take `&str`; to return text, take a `&mut [u8]` to fill and return its length",
        "Vec" | "VecDeque" => {
            "take `&[T]`; to return several values, take a `&mut [T]` to fill and return their number"
        }
        "Box" | "Rc" | "Arc" => "take `&T`; the host keeps owned values inside an opaque type",
        "HashMap" | "BTreeMap" | "HashSet" | "BTreeSet" => {
            "keep it in the host inside an opaque type, and export functions that use it"
        }
        "MutexGuard" | "RwLockReadGuard" | "RwLockWriteGuard" | "Ref" | "RefMut" => {
            "take the lock inside the host function: an ifunc that ends early would never unlock it"
        }
        _ => return None,
    })
}

fn refuse(at: &Type, ty: &Type, errors: &mut Errors) {
    const HELP: &str = "integers, floats, `bool`, `&T` and `&mut T` of shared layouts and opaque types, `&[T]`, `&mut [T]`, \
                        `&str` and `Option<&T>` cross, and are returned in `Result` or `Option` too";
    let what = match ty {
        Type::Tuple(_) => "a tuple has no fixed layout",
        Type::Slice(_) => "a slice has no size of its own",
        Type::ImplTrait(_) => "`impl Trait` cannot cross: both sides must name the same type",
        Type::TraitObject(_) => "a trait object cannot cross: its vtable exists on one side only",
        Type::FnPtr(_) => "a function pointer does not cross yet",
        Type::Ptr(_) => "a raw pointer does not cross: its type does not state what it points to",
        Type::Never(_) => "a host function must return to the ifunc",
        Type::Reference(_) => "a reference to a reference does not cross",
        _ => "this type does not cross",
    };
    errors.at(at, what, HELP);
}

/// The C pointer type, such as `const uint8_t *`; types of the author become `struct NAME`.
fn pointer(ty: &Type, mutable: bool) -> String {
    let name = match types::bare(ty) {
        Type::Array(array) => return pointer(&array.elem, mutable),
        Type::Path(path) => path
            .path
            .segments
            .last()
            .map(|last| last.ident.to_string())
            .unwrap_or_default(),
        _ => String::new(),
    };
    let name = match name.as_str() {
        "u8" | "bool" => "uint8_t",
        "u16" => "uint16_t",
        "u32" | "char" => "uint32_t",
        "u64" => "uint64_t",
        "usize" => "size_t",
        "i8" => "int8_t",
        "i16" => "int16_t",
        "i32" => "int32_t",
        "i64" => "int64_t",
        "isize" => "ptrdiff_t",
        "f32" => "float",
        "f64" => "double",
        "" => "void",
        other => &format!("struct {other}"),
    };
    format!("{}{name} *", if mutable { "" } else { "const " })
}

/// Expressions of type `&str`; adjacent literals are merged.
#[derive(Default)]
struct Parts {
    done: Vec<TokenStream>,
    literal: String,
}

impl Parts {
    fn push(&mut self, s: &str) {
        self.literal.push_str(s);
    }

    fn flush(&mut self) {
        if !self.literal.is_empty() {
            self.done
                .push(std::mem::take(&mut self.literal).to_token_stream());
        }
    }

    fn text(&mut self, ty: &Type, implements: &TokenStream) {
        self.flush();
        let ty = types::with_lifetime(ty, "'static");
        self.done
            .push(quote_spanned!(span_of(&ty)=> <#ty as #implements>::TEXT.as_str()));
    }

    fn c_name(&mut self, ty: &Type) {
        self.flush();
        self.done
            .push(quote_spanned!(span_of(ty)=> <#ty as ::ifunc::ffi::Scalar>::C_NAME));
    }

    fn finish(mut self) -> TokenStream {
        self.flush();
        let parts = self.done;
        quote!(&[#(#parts),*])
    }
}

/// Whether a signature is `unsafe`.
pub(crate) fn is_unsafe(sig: &Signature) -> bool {
    matches!(sig.safety, Safety::Unsafe(_))
}
