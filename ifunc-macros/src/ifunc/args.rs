//! The arguments of `#[ifunc(...)]`.

use proc_macro2::{Span, TokenStream};
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Ident, LitStr, Token};

use crate::errors::Errors;

/// The codec that the author chose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CodecName {
    Zerocopy,
    Postcard,
    Raw,
    Custom,
}

/// The parsed arguments.
#[derive(Default)]
pub(crate) struct Args {
    pub(crate) name: Option<LitStr>,
    pub(crate) codec: Option<(CodecName, Span)>,
    /// That of the answer, if it is another one.
    pub(crate) answer: Option<(CodecName, Span)>,
    pub(crate) idempotent: bool,
    pub(crate) pinned: bool,
}

enum Arg {
    Name(Ident, LitStr),
    Codec(Ident, Ident),
    Flag(Ident),
    Unknown(Ident),
}

impl Parse for Arg {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let key: Ident = input.parse()?;
        if key == "name" {
            input.parse::<Token![=]>()?;
            return Ok(Self::Name(key, input.parse()?));
        }
        if key == "codec" || key == "answer" {
            input.parse::<Token![=]>()?;
            return Ok(Self::Codec(key, input.parse()?));
        }
        if key == "idempotent" || key == "pinned" {
            return Ok(Self::Flag(key));
        }
        // Skips the value of an unknown key, so that the arguments after it are still parsed.
        while !input.is_empty() && !input.peek(Token![,]) {
            input.parse::<proc_macro2::TokenTree>()?;
        }
        Ok(Self::Unknown(key))
    }
}

const KNOWN: &str = "the arguments are `name = \"..\"`, `codec = zerocopy | postcard | raw | custom`, `answer = zerocopy | postcard | raw`, `idempotent` and `pinned`";

impl Args {
    /// Parses the arguments; reports mistakes to `errors`.
    pub(crate) fn parse(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut args = Self::default();
        let list = match Punctuated::<Arg, Token![,]>::parse_terminated.parse2(tokens) {
            Ok(list) => list,
            Err(error) => {
                errors.span(error.span(), &error, KNOWN);
                return args;
            }
        };
        let mut seen = Vec::<Ident>::new();
        for arg in list {
            let (Arg::Name(key, _) | Arg::Codec(key, _) | Arg::Flag(key) | Arg::Unknown(key)) = &arg;
            if seen.contains(key) {
                errors.at(key, format_args!("`{key}` is given twice"), "keep one");
            }
            seen.push(key.clone());
            match arg {
                Arg::Name(_, name) => args.name = Some(name),
                Arg::Codec(key, codec) => {
                    let name = match codec.to_string().as_str() {
                        "zerocopy" => CodecName::Zerocopy,
                        "postcard" => CodecName::Postcard,
                        "raw" => CodecName::Raw,
                        "custom" => CodecName::Custom,
                        other => {
                            errors.at(
                                &codec,
                                format_args!("there is no codec `{other}`"),
                                "`zerocopy` (fixed layouts, the default), `postcard` (serde types), `raw` (`&[u8]`, `&str`) or \
                                 `custom` (a type with a `Payload` of its own)",
                            );
                            continue;
                        }
                    };
                    let chosen = Some((name, codec.span()));
                    if key == "codec" {
                        args.codec = chosen;
                    } else if name == CodecName::Custom {
                        errors.at(
                            &codec,
                            "there are no answers by hand",
                            "return nothing and call `ctx.answer(..)`, or `answer = zerocopy | postcard | raw`",
                        );
                    } else {
                        args.answer = chosen;
                    }
                }
                Arg::Flag(flag) if flag == "idempotent" => args.idempotent = true,
                Arg::Flag(_) => args.pinned = true,
                Arg::Unknown(key) => errors.at(&key, format_args!("unknown argument `{key}`"), KNOWN),
            }
        }
        args
    }
}
