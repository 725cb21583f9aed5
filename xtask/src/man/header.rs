//! Reads a C header: its declarations, each with the comment in front of it.

/// A header.
#[derive(Debug, Default)]
pub(super) struct Header {
    /// The first comment.
    pub(super) about: String,
    pub(super) items: Vec<Item>,
}

/// Declarations that share a comment: they follow each other without a blank line or another comment.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) kind: Kind,
    pub(super) names: Vec<String>,
    pub(super) declarations: Vec<String>,
    pub(super) comment: String,
    /// The title of the part of the header.
    pub(super) part: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Function,
    Type,
    /// A macro with parameters.
    Macro,
    Constant,
}

/// Reads a header. What only C++ compilers see is left out, and so are names with two underscores in front and what is
/// private to macros.
pub(super) fn read(text: &str) -> Header {
    let mut reader = Reader {
        rest: text,
        ..Reader::default()
    };
    while reader.next() {}
    reader.header
}

#[derive(Debug, Default)]
struct Reader<'a> {
    rest: &'a str,
    header: Header,
    comment: Option<String>,
    part: String,
    /// The next declaration may join the last item.
    is_open: bool,
}

impl<'a> Reader<'a> {
    /// Reads one comment, directive or declaration. Returns whether there was one.
    fn next(&mut self) -> bool {
        let rest = self.rest.trim_start();
        let blank = &self.rest[..self.rest.len() - rest.len()];
        let is_on_same_line = !blank.contains('\n');
        self.is_open &= blank.matches('\n').count() < 2;
        self.rest = rest;
        if rest.is_empty() {
            return false;
        }
        if rest.starts_with("/*") {
            let end = rest.find("*/").map_or(rest.len(), |end| end + 2);
            let text = uncommented(self.take(end));
            self.comment_read(text, is_on_same_line);
        } else if rest.starts_with("//") {
            let text = self.line_comments();
            self.comment_read(text, is_on_same_line);
        } else if rest.starts_with('#') {
            self.directive();
        } else if rest.starts_with('}') {
            // The end of `extern "C"`.
            self.take(1);
        } else if rest.starts_with("extern \"C\" {") {
            self.take("extern \"C\" {".len());
        } else {
            self.declaration();
        }
        true
    }

    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }

    fn line_comments(&mut self) -> String {
        let mut lines = Vec::new();
        while let Some(line) = self.rest.trim_start_matches([' ', '\t']).strip_prefix("//") {
            let (line, rest) = line.split_once('\n').unwrap_or((line, ""));
            lines.push(line.trim_start_matches('/'));
            self.rest = rest;
        }
        dedented(&lines)
    }

    fn comment_read(&mut self, text: String, is_on_same_line: bool) {
        if let Some(title) = text.strip_prefix("----") {
            // `---- Title: what it is. ----`
            let title = title.trim().trim_end_matches('-').trim();
            self.part = title.to_owned();
            self.comment = None;
            self.is_open = false;
        } else if self.header.about.is_empty() && self.header.items.is_empty() {
            self.header.about = text;
        } else if is_on_same_line
            && self.is_open
            && let Some(item) = self.header.items.last_mut()
        {
            // Behind a declaration.
            if !item.comment.is_empty() {
                item.comment.push('\n');
            }
            item.comment.push_str(&text);
        } else {
            self.comment = Some(text);
            self.is_open = false;
        }
    }

    fn directive(&mut self) {
        let mut end = 0;
        for line in self.rest.split_inclusive('\n') {
            end += line.len();
            if !line.trim_end().ends_with('\\') {
                break;
            }
        }
        // The line's end stays: a comment behind it is on another line.
        let line = self.take(self.rest[..end].trim_end().len());
        let is_for_cpp = line == "#ifdef __cplusplus" || line.starts_with("#if defined(__cplusplus)");
        if is_for_cpp {
            self.skip_branch();
        } else if let Some(definition) = line.strip_prefix("#define ") {
            let name: String = definition.chars().take_while(|&c| is_name(c)).collect();
            let is_guard = definition.trim() == name;
            if !is_guard {
                let kind = match definition[name.len()..].starts_with('(') {
                    true => Kind::Macro,
                    false => Kind::Constant,
                };
                self.add(kind, name, line.to_owned());
                return;
            }
        }
        self.comment = None;
        self.is_open = false;
    }

    /// Skips to the `#else` or `#endif` of the condition that was read.
    fn skip_branch(&mut self) {
        let mut depth = 0;
        while !self.rest.is_empty() {
            let end = self.rest.find('\n').map_or(self.rest.len(), |end| end + 1);
            let line = self.take(end).trim();
            match line {
                _ if line.starts_with("#if") => depth += 1,
                _ if line.starts_with("#endif") && depth > 0 => depth -= 1,
                _ if (line.starts_with("#endif") || line.starts_with("#else")) && depth == 0 => return,
                _ => {}
            }
        }
    }

    fn declaration(&mut self) {
        let (mut depth, mut body, mut end) = (0_usize, None, self.rest.len());
        let is_inline = self.rest.starts_with("static ") && !self.rest.starts_with("static const");
        let mut comments_end = 0;
        for (at, c) in self.rest.char_indices() {
            if at < comments_end {
                continue;
            }
            match c {
                '/' if self.rest[at..].starts_with("/*") => {
                    comments_end = self.rest[at..]
                        .find("*/")
                        .map_or(self.rest.len(), |end| at + end + 2);
                }
                '/' if self.rest[at..].starts_with("//") => {
                    comments_end = self.rest[at..].find('\n').map_or(self.rest.len(), |end| at + end);
                }
                '{' | '(' | '[' => {
                    if c == '{' && is_inline && depth == 0 {
                        body = Some(at);
                    }
                    depth += 1;
                }
                '}' | ')' | ']' => {
                    depth = depth.saturating_sub(1);
                    if c == '}' && body.is_some() && depth == 0 {
                        end = at + 1;
                        break;
                    }
                }
                ';' if depth == 0 => {
                    end = at + 1;
                    break;
                }
                _ => {}
            }
        }
        let whole = self.take(end);
        let text = match body {
            Some(body) => format!("{};", whole[..body].trim_end()),
            None => whole.trim_end().to_owned(),
        };
        let (kind, name) = named(&text);
        self.add(kind, name, text);
    }

    fn add(&mut self, kind: Kind, name: String, declaration: String) {
        let comment = self.comment.take();
        let is_private = match &comment {
            Some(comment) => comment.starts_with("Private to"),
            // What the header needs itself, before its first part.
            None => !self.is_open && self.part.is_empty() && matches!(kind, Kind::Macro | Kind::Constant),
        };
        if name.is_empty() || name.starts_with("__") || is_private {
            self.is_open = false;
            return;
        }
        let header = &mut self.header;
        match (&comment, header.items.last_mut()) {
            (None, Some(item)) if self.is_open && item.kind == kind => {
                item.names.push(name);
                item.declarations.push(declaration);
            }
            _ => header.items.push(Item {
                kind,
                names: vec![name],
                declarations: vec![declaration],
                comment: comment.unwrap_or_default(),
                part: self.part.clone(),
            }),
        }
        self.is_open = true;
    }
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// What is declared.
fn named(text: &str) -> (Kind, String) {
    let code = without_comments(text);
    let code = code.trim_end_matches(';').trim_end();
    let last_name = |code: &str| -> String {
        let end = code.trim_end_matches(|c| !is_name(c)).len();
        let start = code[..end].rfind(|c| !is_name(c)).map_or(0, |at| at + 1);
        code[start..end].to_owned()
    };
    if let Some(of_pointer) = code
        .strip_prefix("typedef")
        .and_then(|code| code.split_once("(*"))
    {
        let name = of_pointer.1.chars().take_while(|&c| is_name(c)).collect();
        return (Kind::Type, name);
    }
    if code.starts_with("typedef") {
        let code = code.rfind('}').map_or(code, |at| &code[at..]);
        return (Kind::Type, last_name(code));
    }
    for word in ["struct ", "enum ", "union "] {
        let Some(rest) = code.strip_prefix(word) else {
            continue;
        };
        let name: String = rest.trim_start().chars().take_while(|&c| is_name(c)).collect();
        let behind = rest.trim_start()[name.len()..].trim_start();
        if behind.is_empty() || behind.starts_with('{') {
            return (Kind::Type, name);
        }
    }
    match code.find('(') {
        Some(at) => (Kind::Function, last_name(&code[..at])),
        None => (Kind::Type, last_name(code)),
    }
}

fn without_comments(text: &str) -> String {
    let (mut code, mut rest) = (String::new(), text);
    while let Some(start) = rest.find("/*") {
        code.push_str(&rest[..start]);
        rest = rest[start..]
            .find("*/")
            .map_or("", |end| &rest[start + end + 2..]);
    }
    code + rest
}

/// The text of a comment between `/*` and `*/`.
fn uncommented(comment: &str) -> String {
    let inner = comment.trim_start_matches("/**").trim_start_matches("/*");
    let inner = inner.strip_suffix("*/").unwrap_or(inner);
    let lines: Vec<&str> = inner
        .lines()
        .map(|line| match line.trim_start().strip_prefix('*') {
            Some(line) => line,
            None => line,
        })
        .collect();
    dedented(&lines)
}

/// Lines without the blank that follows each comment sign.
fn dedented(lines: &[&str]) -> String {
    let lines = lines
        .iter()
        .map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end());
    lines.collect::<Vec<_>>().join("\n").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::{Kind, read};

    const HEADER: &str = r#"/* all.h: everything.
 *
 *     all_open(1);
 */
#ifndef ALL_H
#define ALL_H

#include <stdint.h>

#ifdef __cplusplus
template <class A> struct ignored { static const bool value = true; };
extern "C" {
#endif

/* ---- Doors ---- */

/** Which door. */
typedef enum all_door {
    ALL_FRONT = 0, /* the front; the only one */
} all_door;

typedef void (*all_fn)(int, void *);
struct all;

/* Opens it.
 *
 * Returns 0. */
int all_open(all_door door);
int all_close(all_door door); /* Never fails. */

// Counts.
// Twice.
uint64_t
all_count(const struct all *all,
          all_fn each);

/* The most. */
#define ALL_MOST 3
/* Twice. */
#define ALL_TWICE(n) \
    ((n) + (n))
/* Private to the macro above. */
#define ALL_HIDDEN 4

/* Inline. */
static inline int all_two(void)
{
    return (1 + 1);
}
int __all_private(void);

#ifdef __cplusplus
}
#endif
#endif
"#;

    #[test]
    fn declarations_have_their_comments() {
        let header = read(HEADER);
        assert_eq!(header.about, "all.h: everything.\n\n    all_open(1);");
        let all: Vec<_> = header
            .items
            .iter()
            .map(|item| (item.kind, item.names.join(" ")))
            .collect();
        let expected = [
            (Kind::Type, "all_door"),
            (Kind::Type, "all_fn all"),
            (Kind::Function, "all_open all_close"),
            (Kind::Function, "all_count"),
            (Kind::Constant, "ALL_MOST"),
            (Kind::Macro, "ALL_TWICE"),
            (Kind::Function, "all_two"),
        ];
        assert_eq!(all, expected.map(|(kind, names)| (kind, names.to_owned())));
        let comments: Vec<_> = header.items.iter().map(|item| item.comment.as_str()).collect();
        assert_eq!(
            comments,
            [
                "Which door.",
                "",
                "Opens it.\n\nReturns 0.\nNever fails.",
                "Counts.\nTwice.",
                "The most.",
                "Twice.",
                "Inline."
            ]
        );
        assert!(header.items.iter().all(|item| item.part == "Doors"));
        assert_eq!(header.items[6].declarations, ["static inline int all_two(void);"]);
        assert!(header.items[3].declarations[0].contains("all_fn each"));
    }
}
