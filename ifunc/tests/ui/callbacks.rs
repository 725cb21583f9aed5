#![allow(unused)]
use core::ops::ControlFlow;
use ifunc::prelude::*;

#[ifunc::interface]
trait Scan {
    fn compares(&self, each: &mut dyn FnMut(&[u8]) -> bool);
    fn breaks(&self, each: &mut dyn FnMut(&[u8]) -> ControlFlow<u64>);
    fn once(&self, each: &mut dyn FnOnce(&[u8]));
    fn shared(&self, each: &dyn FnMut(&[u8]));
    fn sent(&self, each: &mut (dyn FnMut(&[u8]) + Send));
    fn owned(&self, each: &mut dyn FnMut(Vec<u8>));
    fn boxed(&self, each: Box<dyn FnMut(&[u8])>);
    fn generic(&self, each: impl FnMut(&[u8]));
    fn nested(&self, each: &mut dyn FnMut(&mut dyn FnMut(u64)));
    fn optional(&self, each: Option<&mut dyn FnMut(u64)>);
    fn kept<'a>(&self, each: &mut dyn FnMut(&'a [u8]));
    fn returned(&self) -> &dyn Fn(u64);
    fn lends(&self, each: &mut dyn FnMut() -> Option<&[u8]>);
}

fn main() {}
