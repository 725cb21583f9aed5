//! Writes pages in the `man` macros of roff.

/// A page that is written line by line.
#[derive(Debug)]
pub(super) struct Page {
    text: String,
}

impl Page {
    pub(super) fn new(name: &str, section: u8, manual: &str) -> Self {
        let version = env!("CARGO_PKG_VERSION");
        Self {
            // Quotes are straight and words unbroken, as in the sources.
            text: format!(
                ".TH \"{}\" \"{section}\" \"\" \"ifunc {version}\" \"{manual}\"\n.nh\n.ad l\n",
                name.to_uppercase()
            ),
        }
    }

    pub(super) fn finish(self) -> String {
        self.text
    }

    pub(super) fn heading(&mut self, title: &str) {
        self.text.push_str(&format!(".SH {}\n", escaped(title)));
    }

    pub(super) fn subheading(&mut self, title: &str) {
        self.text.push_str(&format!(".SS {}\n", escaped(title)));
    }

    pub(super) fn line(&mut self, text: &str) {
        self.text.push_str(&line(text));
    }

    /// Lines that are shown as they are.
    pub(super) fn code<'a>(&mut self, lines: impl IntoIterator<Item = &'a str>) {
        self.text.push_str(".PP\n.nf\n");
        for text in lines {
            self.text.push_str(&raw_line(text));
        }
        self.text.push_str(".fi\n");
    }

    /// A term and what it means.
    pub(super) fn entry(&mut self, term: &str, text: &str) {
        self.text
            .push_str(&format!(".TP\n.B {}\n{}", escaped(term), line(text)));
    }

    /// The prose of a comment: paragraphs, lists that begin with `-` or `*`, and code that is indented or fenced. A line that begins with
    /// `#` is a heading.
    pub(super) fn prose(&mut self, text: &str) {
        let mut lines = text.lines().peekable();
        let mut is_after_blank = true;
        while let Some(text) = lines.next() {
            let is_code = |line: &&str| line.starts_with("    ") || line.is_empty();
            let trimmed = text.trim_start();
            if text.trim().is_empty() {
                is_after_blank = true;
                continue;
            }
            if trimmed.starts_with("```") {
                let mut code = Vec::new();
                for line in lines.by_ref() {
                    if line.trim_start().starts_with("```") {
                        break;
                    }
                    code.push(line);
                }
                self.code(code);
            } else if is_after_blank && text.starts_with("    ") {
                let mut code = vec![&text[4..]];
                while let Some(line) = lines.next_if(is_code) {
                    code.push(line.strip_prefix("    ").unwrap_or_default());
                }
                while code.last().is_some_and(|line| line.is_empty()) {
                    code.pop();
                }
                self.code(code);
                is_after_blank = true;
                continue;
            } else if let Some(title) = trimmed.strip_prefix('#') {
                self.subheading(title.trim_start_matches('#').trim());
            } else if let Some(item) = trimmed.strip_prefix("- ").or_else(|| trimmed.strip_prefix("* ")) {
                self.text.push_str(".IP \\(bu 2\n");
                self.line(item);
            } else {
                if is_after_blank {
                    self.text.push_str(".PP\n");
                }
                self.line(trimmed);
            }
            is_after_blank = false;
        }
    }
}

/// A page that shows another one.
pub(super) fn alias(of: &str, section: u8) -> String {
    format!(".so man{section}/{of}.{section}\n")
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\e"),
            '-' => out.push_str("\\-"),
            '\'' => out.push_str("\\(aq"),
            '`' => out.push_str("\\(ga"),
            '…' => out.push_str("..."),
            c => out.push(c),
        }
    }
    out
}

/// A line of prose: what is between backticks is bold.
fn line(text: &str) -> String {
    let mut out = String::new();
    let parts: Vec<&str> = text.split('`').collect();
    let is_paired = parts.len() % 2 == 1;
    for (n, part) in parts.iter().enumerate() {
        match n % 2 == 1 && is_paired {
            true => out.push_str(&format!("\\fB{}\\fR", escaped(part))),
            false => out.push_str(&escaped(part)),
        }
        if !is_paired && n + 1 < parts.len() {
            out.push_str("\\(ga");
        }
    }
    guarded(out)
}

fn raw_line(text: &str) -> String {
    guarded(escaped(text))
}

/// A line that begins with a dot would be a command.
fn guarded(mut text: String) -> String {
    if text.starts_with('.') {
        text.insert_str(0, "\\&");
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::{Page, alias};

    #[test]
    fn prose_becomes_roff() {
        let mut page = Page::new("all_open", 3, "ifunc");
        page.prose("Opens `a_b` - it's\n.here\n\n    x = '\\n';\n\n    y\n\n- one\n- two\n\n# Errors\nNone.\n```c\nz\n```");
        let text = page.finish();
        let (_, text) = text.split_once(".ad l\n").unwrap();
        assert_eq!(
            text,
            ".PP\nOpens \\fBa_b\\fR \\- it\\(aqs\n\\&.here\n.PP\n.nf\nx = \\(aq\\en\\(aq;\n\ny\n.fi\n.IP \\(bu 2\none\n.IP \\(bu 2\ntwo\n\
             .SS Errors\nNone.\n.PP\n.nf\nz\n.fi\n"
        );
        assert_eq!(alias("all_open", 3), ".so man3/all_open.3\n");
    }
}
