//! The operations as a WebAssembly module, which wasmtime runs beside the records.

use anyhow::{Context, Result};
use ifunc_bench_ifuncs::kv::Records as _;
use wasmtime::{Caller, Extern, Instance, Linker, Memory, Module, Store, TypedFunc};

use super::operation::{record, words};
use super::pages::Map;
use crate::kv::Kind;

/// The operation is at 0 of the module's memory, and its answer at 1024. Each function returns the number of the answer's words.
const MODULE: &str = include_str!("operations.wat");
const ANSWER: usize = 1024;

/// An instance, and the records.
pub(super) struct Engine {
    store: Store<Map>,
    memory: Memory,
    functions: [TypedFunc<(), i32>; Kind::ALL.len()],
}

impl Engine {
    pub(super) fn new() -> Result<Self> {
        Self::try_new().map_err(into_anyhow)
    }

    fn try_new() -> wasmtime::Result<Self> {
        let engine = wasmtime::Engine::default();
        let module = Module::new(&engine, MODULE)?;
        let mut store = Store::new(&engine, Map::new());
        let mut linker = Linker::new(&engine);
        linker.func_wrap("records", "get", get)?;
        linker.func_wrap("records", "put", put)?;
        linker.func_wrap("records", "scan", scan)?;
        let instance: Instance = linker.instantiate(&mut store, &module)?;
        let memory = instance
            .get_memory(&mut store, "memory")
            .ok_or_else(|| wasmtime::Error::msg("the module has no memory"))?;
        let mut function = |name| instance.get_typed_func(&mut store, name);
        let functions = [
            function("get")?,
            function("put")?,
            function("scan")?,
            function("add")?,
        ];
        Ok(Self {
            store,
            memory,
            functions,
        })
    }

    #[inline]
    pub(super) fn run(&mut self, kind: Kind, words: &[u64], answer: &mut dyn FnMut(u64)) -> Result<()> {
        let memory = self.memory.data_mut(&mut self.store);
        for (to, word) in memory.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *to = word.to_le_bytes();
        }
        let len = self.functions[kind as usize]
            .call(&mut self.store, ())
            .map_err(into_anyhow)?;
        let memory = self.memory.data(&self.store);
        let answers = memory.get(ANSWER..ANSWER + 8 * usize::try_from(len)?);
        let answers = answers.context("an answer outside of the module's memory")?;
        for word in answers.as_chunks::<8>().0 {
            answer(u64::from_le_bytes(*word));
        }
        Ok(())
    }
}

/// The bytes of records in the module's memory.
const RECORD: usize = 64;

/// The module's memory from an address on, and the records.
fn at<'c>(caller: &'c mut Caller<'_, Map>, at: i32) -> wasmtime::Result<(&'c mut [[u8; 8]], &'c mut Map)> {
    let Some(Extern::Memory(memory)) = caller.get_export("memory") else {
        return Err(wasmtime::Error::msg("the module has no memory"));
    };
    let (memory, map) = memory.data_and_store_mut(caller);
    let from = at.cast_unsigned() as usize;
    let memory = memory
        .get_mut(from..)
        .ok_or_else(|| wasmtime::Error::msg("an address outside of the module's memory"))?;
    Ok((memory.as_chunks_mut::<8>().0, map))
}

fn get(mut caller: Caller<'_, Map>, key: i64, to: i32) -> wasmtime::Result<i32> {
    let (memory, map) = at(&mut caller, to)?;
    let Some(record) = map.get(key.cast_unsigned()) else {
        return Ok(0);
    };
    for (to, word) in memory.iter_mut().zip(words(&record)) {
        *to = word.to_le_bytes();
    }
    Ok(1)
}

fn put(mut caller: Caller<'_, Map>, key: i64, from: i32) -> wasmtime::Result<()> {
    let (memory, map) = at(&mut caller, from)?;
    let words = memory.first_chunk::<{ RECORD / 8 }>();
    let words = words.ok_or_else(|| wasmtime::Error::msg("half a record"))?;
    let record = record(&words.map(u64::from_le_bytes)).expect("as many words as a record has");
    map.put(key.cast_unsigned(), &record);
    Ok(())
}

/// Copies the records of a range. Returns how many.
fn scan(mut caller: Caller<'_, Map>, first: i64, end: i64, to: i32) -> wasmtime::Result<i32> {
    let (memory, map) = at(&mut caller, to)?;
    let mut copied = 0;
    let places = memory.as_chunks_mut::<{ RECORD / 8 }>().0;
    for (place, record) in places
        .iter_mut()
        .zip(map.range(first.cast_unsigned()..end.cast_unsigned()))
    {
        *place = words(record).map(u64::to_le_bytes);
        copied += 1;
    }
    Ok(copied)
}

/// Converts wasmtime's error type.
fn into_anyhow(error: wasmtime::Error) -> anyhow::Error {
    anyhow::anyhow!("{error:?}")
}
