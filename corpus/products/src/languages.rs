//! Parsers of languages and protocols.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use corpus_case::{Put, World, text};
use ifunc::prelude::*;
use logos::Logos;
use nom::bytes::complete::take_while1;
use nom::character::complete::{char, digit1};
use nom::multi::separated_list0;
use nom::sequence::separated_pair;
use nom::{IResult, Parser};
use sqlparser::dialect::GenericDialect;

fn settings(text: &str) -> IResult<&str, Vec<(&str, &str)>> {
    let name = take_while1(|c: char| c.is_alphanumeric());
    separated_list0(char('&'), separated_pair(name, char('='), digit1)).parse(text)
}

/// Parser combinators of the older kind.
#[ifunc]
pub fn query_strings(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let fixed = alloc::format!("seed={}&n={}&x", world.seed, input.len());
    for line in [&*fixed].into_iter().chain(text(input).lines().take(20)) {
        match settings(line) {
            Ok((rest, pairs)) => {
                out.put(rest.len());
                for (name, value) in pairs {
                    out.put(name.len());
                    out.put(value.len());
                }
            }
            Err(_) => out.put(false),
        }
    }
    out
}

#[derive(Logos, Clone, Copy)]
#[logos(skip r"[ \t\r\n]+")]
enum Token {
    #[regex("[a-zA-Z_]+")]
    Name,
    #[regex("[0-9]+")]
    Number,
    #[regex(r"[(){}\[\]]")]
    Bracket,
    #[token("==")]
    Equals,
}

/// A generated lexer.
#[ifunc]
pub fn lexer(input: &[u8], _world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    for line in ["while (x == 10) { y }", &text(input)] {
        let mut tokens = Token::lexer(line);
        while let Some(token) = tokens.next() {
            out.put(token.map_or(u8::MAX, |token| token as u8));
            out.put(tokens.span().start);
        }
    }
    out
}

/// Statements of SQL.
#[ifunc]
pub fn sql(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let fixed = alloc::format!(
        "SELECT a, count(*) AS n FROM t LEFT JOIN u ON t.id = u.id WHERE a > {} AND b IN (1, 2) GROUP BY a HAVING n > 3",
        world.seed
    );
    let any: String = text(input).chars().take(200).collect();
    for statement in [&*fixed, "INSERT INTO t VALUES (1, 'x')", "SELEC", &any] {
        match sqlparser::parser::Parser::parse_sql(&GenericDialect {}, statement) {
            Ok(statements) => statements.iter().for_each(|of| out.put(of.to_string())),
            Err(error) => out.put(error.to_string()),
        }
    }
    out
}

/// Requests of HTTP.
#[ifunc]
pub fn http_requests(input: &[u8], _world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let fixed = b"GET /a?b HTTP/1.1\r\nHost: example.org\r\nX: y\r\n\r\nbody";
    for bytes in [&fixed[..], &fixed[..20], input] {
        let mut headers = [httparse::EMPTY_HEADER; 16];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(bytes) {
            Ok(httparse::Status::Complete(len)) => out.put(len),
            Ok(httparse::Status::Partial) => out.put(true),
            Err(error) => out.put(error.to_string()),
        }
        out.put(
            request
                .headers
                .iter()
                .map(|header| header.value.len())
                .sum::<usize>(),
        );
    }
    out
}

corpus_case::cases! {
    query_strings: "nom";
    lexer: "logos";
    sql: "sqlparser";
    http_requests: "httparse";
}
