//! Writes mutants into a source as branches: `a + b` becomes `(if on(7) { a - b } else { a + b })`.
//!
//! The branch of a mutant holds what was written, so that no mutant is inside another one; the other branch holds the mutants of its
//! parts. Around each mutant are two comments, by which an error of the compiler is traced to it.

use std::collections::HashMap;

use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};

use crate::list::{Genre, Mutant, Position};

/// A mutant and its number.
pub(crate) type Numbered<'a> = (u32, &'a Mutant);

/// A source with mutants in it.
pub(crate) struct Rewritten {
    pub(crate) text: String,
    /// Numbers of the mutants that are in it.
    pub(crate) placed: Vec<u32>,
}

/// Writes the mutants into their source.
pub(crate) fn rewrite(source: &str, mutants: &[Numbered<'_>]) -> Result<Rewritten, String> {
    let file = syn::parse_file(source).map_err(|error| error.to_string())?;
    let mut wanted: HashMap<(Genre, Position), Vec<Numbered<'_>>> = HashMap::new();
    for &(number, mutant) in mutants {
        wanted
            .entry((mutant.genre, mutant.span.start))
            .or_default()
            .push((number, mutant));
    }
    let mut finder = Finder {
        lines: Lines::new(source),
        wanted,
        sites: Vec::new(),
    };
    finder.visit_file(&file);
    let mut sites = finder.sites;
    // What is around others comes first; an insertion comes before what begins there.
    sites.sort_by_key(|site| (site.start, std::cmp::Reverse(site.end), site.what.rank()));
    sites.sort_by_key(|site| (site.start, site.start != site.end));
    let mut placed: Vec<u32> = sites.iter().flat_map(|site| site.what.numbers()).collect();
    placed.sort_unstable();
    Ok(Rewritten {
        text: render(source, &sites, 0, source.len()),
        placed,
    })
}

/// The numbers of the mutants whose text holds this byte of a rewritten source.
pub(crate) fn mutants_at(text: &str, byte: usize) -> Vec<u32> {
    let mut open = Vec::new();
    let mut rest = 0;
    while let Some(at) = text[rest..]
        .find("/*M")
        .map(|at| at + rest)
        .filter(|&at| at <= byte)
    {
        rest = at + 3;
        let end = text[rest..].find("*/").map_or(text.len(), |end| end + rest);
        let mark = &text[rest..end];
        match (mark.strip_suffix('<'), mark.strip_suffix('>')) {
            (Some(number), _) => open.extend(number.parse::<u32>()),
            (_, Some(number)) => open.retain(|open| Ok(*open) != number.parse()),
            _ => {}
        }
    }
    open
}

/// What happens at a place of the source.
enum What {
    /// Returns early with a value.
    Value(Vec<(u32, String)>),
    /// Another operator; the ranges are of the operands.
    Binary {
        left: (usize, usize),
        right: (usize, usize),
        operators: Vec<(u32, String)>,
    },
    /// No operator; the range is of the operand.
    Unary { operand: (usize, usize), number: u32 },
    /// A guard that is always true, one that is always false, and an arm that is not there.
    Guard { always: Vec<u32>, never: Vec<u32> },
    /// An arm without a guard that is not there.
    NoArm(u32),
}

impl What {
    fn rank(&self) -> u8 {
        match self {
            Self::Value(_) | Self::NoArm(_) => 0,
            Self::Guard { .. } => 1,
            Self::Binary { .. } | Self::Unary { .. } => 2,
        }
    }

    fn numbers(&self) -> Vec<u32> {
        match self {
            Self::Value(of) | Self::Binary { operators: of, .. } => {
                of.iter().map(|(number, _)| *number).collect()
            }
            Self::Unary { number, .. } | Self::NoArm(number) => vec![*number],
            Self::Guard { always, never } => [&always[..], never].concat(),
        }
    }
}

struct Site {
    start: usize,
    end: usize,
    what: What,
}

fn on(number: u32) -> String {
    format!("crate::ifunc_mutants::on({number})")
}

fn marked(number: u32, text: &str) -> String {
    format!("/*M{number}<*/{text}/*M{number}>*/")
}

/// The source from `from` to `to` with the mutants of these sites, which are in order.
fn render(source: &str, sites: &[Site], from: usize, to: usize) -> String {
    let (mut out, mut at, mut rest) = (String::new(), from, sites);
    while let [site, behind @ ..] = rest {
        let inside = behind.iter().take_while(|other| other.start < site.end).count();
        out += &source[at..site.start];
        out += &site.render(source, &behind[..inside]);
        at = site.end;
        rest = &behind[inside..];
    }
    out + &source[at..to]
}

impl Site {
    fn render(&self, source: &str, inside: &[Site]) -> String {
        let cut = |end: usize| {
            inside
                .iter()
                .position(|site| site.start >= end)
                .unwrap_or(inside.len())
        };
        match &self.what {
            What::Value(values) => values
                .iter()
                .map(|(number, value)| {
                    format!("if {} {{ return {}; }} ", on(*number), marked(*number, value))
                })
                .collect(),
            What::Binary {
                left,
                right,
                operators,
            } => {
                let (a, b) = (&source[left.0..left.1], &source[right.0..right.1]);
                let branches: String = operators
                    .iter()
                    .map(|(number, operator)| {
                        let changed = marked(*number, &format!("({a}) {operator} ({b})"));
                        format!("if {} {{ {changed} }} else ", on(*number))
                    })
                    .collect();
                let cut = cut(left.1);
                let a = render(source, &inside[..cut], self.start, left.1);
                let b = render(source, &inside[cut..], left.1, self.end);
                format!("({branches}{{ {a}{b} }})")
            }
            What::Unary { operand, number } => {
                let changed = marked(*number, &source[operand.0..operand.1]);
                let rest = render(source, inside, self.start, self.end);
                format!("(if {} {{ {changed} }} else {{ {rest} }})", on(*number))
            }
            What::Guard { always, never } => {
                let always: String = always
                    .iter()
                    .map(|&number| format!("{} || ", on(number)))
                    .collect();
                let never: String = never
                    .iter()
                    .map(|&number| format!("!{} && ", on(number)))
                    .collect();
                let rest = render(source, inside, self.start, self.end);
                format!("({always}{never}({rest}))")
            }
            What::NoArm(number) => marked(*number, &format!(" if !{}", on(*number))),
        }
    }
}

/// Finds where mutants are. It does not visit what is evaluated by the compiler, where no branch can ask.
struct Finder<'a> {
    lines: Lines<'a>,
    wanted: HashMap<(Genre, Position), Vec<Numbered<'a>>>,
    sites: Vec<Site>,
}

impl Finder<'_> {
    fn range(&self, node: &impl syn::spanned::Spanned) -> (usize, usize) {
        let span = node.span();
        (self.lines.byte(span.start()), self.lines.byte(span.end()))
    }

    fn take(&mut self, genre: Genre, at: proc_macro2::LineColumn) -> Vec<(u32, String)> {
        let at = Position {
            line: at.line,
            column: at.column + 1,
        };
        let taken = self.wanted.remove(&(genre, at)).unwrap_or_default();
        taken
            .into_iter()
            .map(|(number, mutant)| (number, mutant.replacement.clone()))
            .collect()
    }

    fn body(&mut self, signature: &syn::Signature, block: &syn::Block) {
        if signature.constness.is_some() {
            return;
        }
        if let Some(first) = block.stmts.first() {
            let values = self.take(Genre::FnValue, first.span().start());
            let (start, _) = self.range(first);
            if !values.is_empty() {
                self.sites.push(Site {
                    start,
                    end: start,
                    what: What::Value(values),
                });
            }
        }
        self.visit_block(block);
    }
}

/// Whether an operand of a chain of `&&` is `let`: such a chain is no expression.
fn has_let(expr: &syn::Expr) -> bool {
    match expr {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        if !has_let(&binary.left) && !has_let(&binary.right) {
            let operators = self.take(Genre::BinaryOperator, binary.op.span().start());
            if !operators.is_empty() {
                let (left, right) = (self.range(&binary.left), self.range(&binary.right));
                let what = What::Binary {
                    left,
                    right,
                    operators,
                };
                self.sites.push(Site {
                    start: left.0,
                    end: right.1,
                    what,
                });
            }
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_unary(&mut self, unary: &'ast syn::ExprUnary) {
        for (number, _) in self.take(Genre::UnaryOperator, unary.op.span().start()) {
            let operand = self.range(&unary.expr);
            let (start, end) = self.range(unary);
            self.sites.push(Site {
                start,
                end,
                what: What::Unary { operand, number },
            });
        }
        visit::visit_expr_unary(self, unary);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        let guard = arm.guard.as_ref().map(|(_, guard)| &**guard);
        if guard.is_none_or(|guard| !has_let(guard)) {
            let deleted = self.take(Genre::MatchArm, arm.span().start());
            match guard {
                Some(guard) => {
                    let guards = self.take(Genre::MatchArmGuard, guard.span().start());
                    let (always, mut never): (Vec<_>, Vec<_>) = guards
                        .into_iter()
                        .partition(|(_, replacement)| replacement == "true");
                    never.extend(deleted);
                    let numbers =
                        |of: Vec<(u32, String)>| of.into_iter().map(|(number, _)| number).collect::<Vec<_>>();
                    let (always, never) = (numbers(always), numbers(never));
                    if !always.is_empty() || !never.is_empty() {
                        let (start, end) = self.range(guard);
                        self.sites.push(Site {
                            start,
                            end,
                            what: What::Guard { always, never },
                        });
                    }
                }
                None => {
                    let (_, end) = self.range(&arm.pat);
                    let arms = deleted.into_iter().map(|(number, _)| What::NoArm(number));
                    self.sites.extend(arms.map(|what| Site {
                        start: end,
                        end,
                        what,
                    }));
                }
            }
        }
        visit::visit_arm(self, arm);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.body(&item.sig, &item.block);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.body(&item.sig, &item.block);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.body(&item.sig, block);
        }
    }

    fn visit_expr_repeat(&mut self, repeat: &'ast syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
    }

    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}
    fn visit_item_enum(&mut self, _: &'ast syn::ItemEnum) {}
}

/// Where the lines of a source begin.
pub(crate) struct Lines<'a> {
    source: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(source: &'a str) -> Self {
        let behind = source.match_indices('\n').map(|(at, _)| at + 1);
        Self {
            source,
            starts: std::iter::once(0).chain(behind).collect(),
        }
    }

    /// The byte at a position whose line counts from 1 and whose column from 0, in characters.
    fn byte(&self, at: proc_macro2::LineColumn) -> usize {
        let start = self.starts[at.line - 1];
        let line = &self.source[start..];
        start
            + line
                .char_indices()
                .nth(at.column)
                .map_or(line.len(), |(byte, _)| byte)
    }

    pub(crate) fn byte_of(&self, at: Position) -> usize {
        self.byte(proc_macro2::LineColumn {
            line: at.line,
            column: at.column - 1,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Numbered, mutants_at, rewrite};
    use crate::list::{Genre, Mutant, Position, Span};

    fn mutant(source: &str, genre: Genre, what: &str, replacement: &str) -> Mutant {
        let byte = source.find(what).unwrap();
        let line = source[..byte].matches('\n').count() + 1;
        let column = source[..byte].chars().rev().take_while(|&c| c != '\n').count() + 1;
        let at = Position { line, column };
        Mutant {
            file: String::new(),
            genre,
            name: String::new(),
            replacement: replacement.into(),
            span: Span { start: at, end: at },
        }
    }

    fn one_line(text: &str) -> String {
        let text = text.replace("crate::ifunc_mutants::", "");
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn nested_operators_have_a_branch_each() {
        let source = "fn f(a: u8) -> bool {\n    a + 1 == 2\n}";
        let mutants = [
            mutant(source, Genre::BinaryOperator, "+", "-"),
            mutant(source, Genre::BinaryOperator, "==", "!="),
            mutant(source, Genre::FnValue, "a + 1", "true"),
        ];
        let numbered: Vec<Numbered<'_>> = (1..).zip(&mutants).collect();
        let rewritten = rewrite(source, &numbered).unwrap();
        assert_eq!(rewritten.placed, [1, 2, 3]);
        assert_eq!(
            one_line(&rewritten.text),
            "fn f(a: u8) -> bool { if on(3) { return /*M3<*/true/*M3>*/; } \
             (if on(2) { /*M2<*/(a + 1) != (2)/*M2>*/ } else \
             { (if on(1) { /*M1<*/(a) - (1)/*M1>*/ } else { a + 1 }) == 2 }) }"
        );
        syn::parse_file(&rewritten.text).unwrap();
        let at = rewritten.text.find("(a) -").unwrap();
        assert_eq!(mutants_at(&rewritten.text, at), [1]);
        assert!(mutants_at(&rewritten.text, rewritten.text.len() - 1).is_empty());
    }

    #[test]
    fn guards_and_arms_can_be_missing() {
        let source = "fn f(a: u8) { match a { 1 if a > 0 => {} 2 => {} _ => {} } }";
        let mutants = [
            mutant(source, Genre::MatchArmGuard, "a > 0", "true"),
            mutant(source, Genre::MatchArmGuard, "a > 0", "false"),
            mutant(source, Genre::MatchArm, "1 if", ""),
            mutant(source, Genre::MatchArm, "2 =>", ""),
            mutant(source, Genre::BinaryOperator, ">", "<"),
        ];
        let numbered: Vec<Numbered<'_>> = (1..).zip(&mutants).collect();
        let rewritten = rewrite(source, &numbered).unwrap();
        assert_eq!(rewritten.placed, [1, 2, 3, 4, 5]);
        assert_eq!(
            one_line(&rewritten.text),
            "fn f(a: u8) { match a { 1 if (on(1) || !on(2) && !on(3) && \
             ((if on(5) { /*M5<*/(a) < (0)/*M5>*/ } else { a > 0 }))) => {} \
             2/*M4<*/ if !on(4)/*M4>*/ => {} _ => {} } }"
        );
        syn::parse_file(&rewritten.text).unwrap();
    }

    #[test]
    fn what_the_compiler_evaluates_has_no_branch() {
        for source in [
            "const fn f() -> u8 { 1 + 2 }",
            "const A: u8 = 1 + 2;",
            "fn f() { [0; 1 + 2]; }",
            "fn f(a: [u8; 1 + 2]) {}",
            "fn f() { if let Some(_) = g() && 1 + 2 == h() && i() {} }",
        ] {
            let what = if source.contains("&&") { "&& i" } else { "+" };
            let mutants = [mutant(source, Genre::BinaryOperator, what, "||")];
            let rewritten = rewrite(source, &[(1, &mutants[0])]).unwrap();
            assert!(rewritten.placed.is_empty(), "{source}");
            assert_eq!(rewritten.text, source);
        }
    }
}
