//! The seam between the listing and an architecture.

use std::rc::Rc;

use ifunc_abi::image::{ARCH_AARCH64, ARCH_X86_64, Image};

use super::aarch64::AArch64;
use super::names::Names;
use super::x86_64::X86_64;

/// Where an instruction continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Flow {
    /// At the next instruction.
    Next,
    /// There, and then at the next instruction.
    Call(Target),
    /// There or at the next instruction.
    Branch(u64),
    /// There.
    Jump(Target),
    /// Nowhere: it returns or traps, or it is no instruction.
    End,
}

/// What a call or a jump goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Target {
    Address(u64),
    /// An import, by its index.
    Import(usize),
    /// What a register or memory holds.
    Unknown,
}

impl Flow {
    /// The address that it names.
    pub(in super::super) fn target(self) -> Option<u64> {
        match self {
            Self::Call(Target::Address(to)) | Self::Jump(Target::Address(to)) | Self::Branch(to) => Some(to),
            _ => None,
        }
    }
}

/// What an instruction refers to, beside the target of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reference {
    /// The address of the GOT.
    Got,
    /// An entry of the GOT, by its index.
    Entry(usize),
    /// An address in the image that the instruction itself names.
    Named(u64),
    /// An address in the image that the instruction and those before it compute.
    Computed(u64),
}

/// What an instruction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Decoded {
    /// In bytes, at least 1.
    pub(in super::super) len: usize,
    /// The bytes are an instruction.
    pub(in super::super) is_valid: bool,
    pub(in super::super) flow: Flow,
    pub(super) reference: Option<Reference>,
}

/// Decodes instructions in the order in which they run. It knows which registers hold addresses that earlier ones loaded.
pub(in super::super) trait Decoder {
    /// Decodes the first instruction of `code`, which is at the address `at`.
    fn decode(&mut self, code: &[u8], at: u64) -> Decoded;

    /// The text of the instruction that was decoded last.
    fn text(&mut self) -> String;

    /// Forgets what registers hold: the next instruction may be reached from another place.
    fn forget(&mut self);

    /// The columns of the bytes of an instruction.
    fn bytes_width(&self) -> usize;
}

/// A decoder of the code of an image; `None` for an architecture that is not known.
pub(in super::super) fn of(image: &Image<'_>, names: &Rc<Names>) -> Option<Box<dyn Decoder>> {
    let slot = image.slot().map(u64::from);
    match image.arch() {
        ARCH_X86_64 => Some(Box::new(X86_64::new(slot, names))),
        ARCH_AARCH64 => Some(Box::new(AArch64::new(slot, names))),
        _ => None,
    }
}
