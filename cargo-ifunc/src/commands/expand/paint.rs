//! Coloured Rust. `anstream` removes the colours if the output is not a terminal.

use std::io::{self, Write};
use std::ops::Range;

use anstyle::{AnsiColor, Style};
use proc_macro2::{TokenStream, TokenTree};

const KEYWORD: Style = AnsiColor::Magenta.on_default();
const LITERAL: Style = AnsiColor::Green.on_default();
const TYPE: Style = AnsiColor::Cyan.on_default();
const DOC: Style = Style::new().dimmed();

/// Writes `text`, uncoloured if it is not valid Rust.
pub(super) fn write(text: &str, out: &mut impl Write) -> io::Result<()> {
    let mut spans = Vec::new();
    if let Ok(tokens) = text.parse::<TokenStream>() {
        collect(text, tokens, &mut spans);
    }
    let mut at = 0;
    for (range, style) in spans {
        // All tokens of a doc comment have the comment's range.
        if range.start < at || range.is_empty() {
            continue;
        }
        let (before, word) = (&text[at..range.start], &text[range.clone()]);
        write!(out, "{before}{style}{word}{style:#}")?;
        at = range.end;
    }
    write!(out, "{}", &text[at..])
}

fn collect(text: &str, tokens: TokenStream, spans: &mut Vec<(Range<usize>, Style)>) {
    for token in tokens {
        let range = token.span().byte_range();
        let word = text.get(range.clone()).unwrap_or_default();
        if ["///", "//!", "/**"].iter().any(|start| word.starts_with(start)) {
            spans.push((range, DOC));
            continue;
        }
        match token {
            TokenTree::Group(group) => collect(text, group.stream(), spans),
            TokenTree::Literal(_) => spans.push((range, LITERAL)),
            TokenTree::Ident(_) if is_keyword(word) => spans.push((range, KEYWORD)),
            TokenTree::Ident(_) if word.starts_with(|c: char| c.is_ascii_uppercase()) => {
                spans.push((range, TYPE));
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
    }
}

fn is_keyword(word: &str) -> bool {
    // A word that is not a valid identifier is a keyword; `Self` is coloured as a type.
    word != "Self" && word != "_" && syn::parse_str::<syn::Ident>(word).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "/// Adds `1`.\npub fn add(a: &Self, b: Text) -> &'static str {\n    \"\u{fc}\" // ok\n}\n";

    #[test]
    fn painting_preserves_the_text() {
        for text in [TEXT, "no ) Rust \" at all", ""] {
            let mut out = Vec::new();
            write(text, &mut out).expect("writing to a `Vec` succeeds");
            let painted = String::from_utf8(out).expect("text");
            assert_eq!(anstream::adapter::strip_str(&painted).to_string(), text);
        }
    }

    #[test]
    fn words_have_colours() {
        let mut out = Vec::new();
        write(TEXT, &mut out).expect("writing to a `Vec` succeeds");
        let painted = String::from_utf8(out).expect("text");
        for (word, style) in [
            ("fn", KEYWORD),
            ("Text", TYPE),
            ("Self", TYPE),
            ("\"\u{fc}\"", LITERAL),
            ("/// Adds `1`.", DOC),
        ] {
            let wanted = format!("{style}{word}{style:#}");
            assert!(painted.contains(&wanted), "{word} in {painted:?}");
        }
    }
}
