//! Interpreters.

use alloc::string::ToString;
use alloc::vec::Vec;

use corpus_case::{Put, World, text};
use ifunc::prelude::*;

/// A scripting language.
#[ifunc]
pub fn scripts(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let mut engine = rhai::Engine::new();
    engine.set_max_operations(10_000).set_max_expr_depths(20, 20);
    let fixed = alloc::format!(
        "let sum = {}; for n in 0..20 {{ sum += n * n }} sum",
        world.seed % 1000
    );
    let any: alloc::string::String = text(input).chars().take(40).collect();
    for script in [
        &*fixed,
        "let x = [1, 2, 3]; x.len() + \"abc\".len()",
        "1 +",
        "while true {}",
        &any,
    ] {
        match engine.eval::<i64>(script) {
            Ok(value) => out.put(value),
            Err(error) => out.put(error.to_string()),
        }
    }
    out
}

/// A module with a function `add` of two numbers.
const ADD: &[u8] =
    b"\0asm\x01\0\0\0\x01\x07\x01\x60\x02\x7f\x7f\x01\x7f\x03\x02\x01\0\x07\x07\x01\x03add\0\0\
    \x0a\x09\x01\x07\0\x20\0\x20\x01\x6a\x0b";

/// WebAssembly.
#[ifunc]
pub fn web_assembly(input: &[u8], world: &mut World) -> Vec<u8> {
    let mut out = Vec::new();
    let engine = wasmi::Engine::default();
    for bytes in [ADD, &ADD[..20], input] {
        let Ok(module) = wasmi::Module::new(&engine, bytes) else {
            out.put(false);
            continue;
        };
        let mut store = wasmi::Store::new(&engine, ());
        let instance = wasmi::Linker::new(&engine).instantiate_and_start(&mut store, &module);
        let add = instance.and_then(|instance| instance.get_typed_func::<(i32, i32), i32>(&store, "add"));
        let sum = add.and_then(|add| add.call(&mut store, (world.seed as i32, input.len() as i32)));
        out.put(sum.unwrap_or_default());
    }
    out
}

corpus_case::cases! {
    scripts: "rhai";
    web_assembly: "wasmi";
}
