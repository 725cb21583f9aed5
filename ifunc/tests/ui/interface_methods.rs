#![allow(unused)]
use ifunc::prelude::*;

#[ifunc::interface]
trait Kv {
    fn open(name: &str) -> u64;
    fn close(self);
    fn boxed(self: Box<Self>);
    async fn later(&self);
    fn with<T>(&self, value: u64);
    fn count(&self) -> usize {
        0
    }
    extern "C" fn raw(&self);
    fn keys(&self) -> Vec<u8>;
    fn name(&self) -> &'static str;
    fn pair(&self) -> (u64, u64);
    fn nested(&self) -> Option<Result<u64, i32>>;
    fn pointer(&self) -> *const u8;
    fn any(&self, value: &dyn core::fmt::Debug);
}

fn main() {}
