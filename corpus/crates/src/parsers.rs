//! Parsers.

use alloc::string::ToString;
use alloc::vec::Vec;

use corpus_case::{Put, World, text};
use ifunc::prelude::*;
use winnow::ascii::{digit1, multispace0};
use winnow::combinator::{alt, delimited, preceded, repeat};
use winnow::prelude::*;

fn value(input: &mut &str) -> winnow::Result<i64> {
    let number = digit1.try_map(str::parse::<i64>);
    let bracketed = delimited('(', sum, ')');
    let negated = preceded('-', value).map(i64::wrapping_neg);
    delimited(multispace0, alt((number, bracketed, negated)), multispace0).parse_next(input)
}

fn product(input: &mut &str) -> winnow::Result<i64> {
    let first = value.parse_next(input)?;
    let rest = (alt(('*', '/')), value);
    repeat(0.., rest)
        .fold(
            move || first,
            |left, (operator, right)| match operator {
                '*' => left.wrapping_mul(right),
                _ => left.checked_div(right).unwrap_or(0),
            },
        )
        .parse_next(input)
}

fn sum(input: &mut &str) -> winnow::Result<i64> {
    let first = product.parse_next(input)?;
    let rest = (alt(('+', '-')), product);
    repeat(0.., rest)
        .fold(
            move || first,
            |left, (operator, right)| match operator {
                '+' => left.wrapping_add(right),
                _ => left.wrapping_sub(right),
            },
        )
        .parse_next(input)
}

/// Parser combinators.
#[ifunc]
pub fn parser_combinators(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let text = text(input);
    let fixed = alloc::format!("{} * (3 + -4) / 2 - (({}))", world.seed % 1000, input.len());
    for line in [&*fixed, "1 + ", "7 / 0", "((1)"]
        .into_iter()
        .chain(text.lines().take(30))
    {
        match sum.parse(line) {
            Ok(value) => out.put(value),
            Err(error) => out.put(error.offset()),
        }
    }
    out
}

/// Versions and version requirements.
#[ifunc]
pub fn versions(input: &[u8], _world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let text = text(input);
    let numbers = alloc::format!(
        "{}.{}.0-alpha.{}+build",
        input.len() % 3,
        input.len(),
        input.len()
    );
    let fixed = ["1.0.0", "1.2.3-rc.1", "0.4", &numbers, "2.0.0-a.b.c"];
    for piece in fixed.into_iter().chain(text.split_whitespace().take(50)) {
        match semver::Version::parse(piece) {
            Ok(version) => {
                for wanted in [">=1.0, <2", "^0.3", "~1.2.3-rc.0", "*"] {
                    out.put(semver::VersionReq::parse(wanted).is_ok_and(|wanted| wanted.matches(&version)));
                }
                out.put(version.to_string());
            }
            Err(error) => out.put(error.to_string()),
        }
    }
    out
}

corpus_case::cases! {
    parser_combinators: "winnow";
    versions: "semver";
}
