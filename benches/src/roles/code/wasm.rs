//! Another peer of code that arrives: compiles, instantiates and calls a WebAssembly module.

use std::time::Instant;

use anyhow::{Result, ensure};
use wasmtime::{Engine, Instance, Module, Store};

use crate::program::Starter;
use crate::slots::{Sample, Slot, median, quantile};

/// A module that counts as `count` does, in a variable of its own, because it cannot access the host's
/// memory.
///
/// ```wat
/// (module (global (mut i64) i64.const 0)
///   (func (export "count") (param i64) (result i64)
///     (global.set 0 (i64.add (global.get 0) (local.get 0)))
///     (global.get 0)))
/// ```
const COUNT: &[u8] = &[
    0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00, // magic, version
    0x01, 0x06, 0x01, 0x60, 0x01, 0x7e, 0x01, 0x7e, // types: (i64) -> i64
    0x03, 0x02, 0x01, 0x00, // functions: of type 0
    0x06, 0x06, 0x01, 0x7e, 0x01, 0x42, 0x00, 0x0b, // globals: (mut i64) 0
    0x07, 0x09, 0x01, 0x05, b'c', b'o', b'u', b'n', b't', 0x00, 0x00, // exports: count
    0x0a, 0x0d, 0x01, 0x0b, 0x00, // code: one body of 11 bytes, no locals
    0x23, 0x00, 0x20, 0x00, 0x7c, 0x24, 0x00, 0x23, 0x00, 0x0b, // its instructions
];

/// The `size` of a slot is that of the module. An ignored custom section pads it.
pub(in crate::roles) fn run(mut starter: Starter) -> Result<()> {
    let engine = Engine::default();
    let mut number = 0;
    while let Some(slot) = starter.next::<Slot>()? {
        let mut took = Vec::with_capacity(slot.operations as usize);
        for _ in 0..slot.operations {
            number += 1;
            let bytes = padded(slot.size, number)?;
            let begin = Instant::now();
            let module = Module::new(&engine, &bytes).map_err(into_anyhow)?;
            let mut store = Store::new(&engine, ());
            let instance = Instance::new(&mut store, &module, &[]).map_err(into_anyhow)?;
            let count = instance
                .get_typed_func::<i64, i64>(&mut store, "count")
                .map_err(into_anyhow)?;
            let counted = count.call(&mut store, 1).map_err(into_anyhow)?;
            took.push(begin.elapsed().as_nanos() as f64);
            ensure!(counted == 1, "the module counted {counted}, not 1");
        }
        starter.reply(&Sample {
            ns: median(took.clone()),
            percentiles: Some([0.5, 0.99, 0.999].map(|at| quantile(took.clone(), at))),
        })?;
    }
    Ok(())
}

/// Converts wasmtime's error type.
fn into_anyhow(error: wasmtime::Error) -> anyhow::Error {
    anyhow::anyhow!("{error:?}")
}

/// The module, followed by a custom section that ends with the number.
fn padded(size: usize, number: u64) -> Result<Vec<u8>> {
    // The section's id, its length in five bytes, and an empty name.
    let head = 1 + 5 + 1;
    let section = size.checked_sub(COUNT.len() + head);
    let Some(filling) = section.and_then(|section| section.checked_sub(8)) else {
        anyhow::bail!("a module of {size} bytes is too short")
    };
    let mut bytes = COUNT.to_vec();
    bytes.push(0);
    let len = u32::try_from(1 + filling + 8)?;
    bytes.extend((0..5u32).map(|at| (len >> (7 * at)) as u8 & 0x7f | u8::from(at < 4) << 7));
    bytes.push(0);
    bytes.resize(bytes.len() + filling, 0x5a);
    bytes.extend(number.to_le_bytes());
    Ok(bytes)
}
