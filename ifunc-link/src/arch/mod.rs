//! The seam between the linker and an architecture. Nothing above it knows an instruction or a relocation number.

mod x86_64;

/// What a relocation refers to, as far as its form depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TargetClass {
    /// Something in the image.
    Internal,
    /// An import.
    Import,
}

/// What the image needs beside the patched bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing: the distance to the target is written.
    Nothing,
    /// A thunk that jumps to the import through the slot; shared by all callers of the import.
    Thunk,
    /// Code of this site's own that loads the import's address through the slot and jumps back.
    Stub,
    /// Eight bytes that hold the target's address after install; shared by all users of the target.
    GotEntry,
    /// An install relocation at the place itself.
    Address,
}

/// The bytes that a relocation is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes<'b> {
    /// The section.
    pub(crate) bytes: &'b [u8],
    /// Where the relocation says that its field is.
    pub(crate) offset: usize,
    /// The section holds code: what stands before the field is an instruction.
    pub(crate) text: bool,
}

impl Bytes<'_> {
    /// Whether the section holds a field of so many bytes.
    pub(crate) fn holds(&self, len: usize) -> bool {
        self.offset
            .checked_add(len)
            .is_some_and(|end| end <= self.bytes.len())
    }

    /// The byte so many before the field.
    pub(crate) fn before(&self, back: usize) -> Option<u8> {
        let at = self.offset.checked_sub(back)?;
        self.bytes.get(at).copied().filter(|_| self.text)
    }
}

/// How an architecture patches one place. The number is its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form(pub(crate) u8);

/// What becomes of a relocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) form: Form,
    pub(crate) need: Need,
    /// What stands there, as far as the bytes of code tell: `call *[rip]`.
    pub(crate) place: &'static str,
    /// First byte that is rewritten.
    pub(crate) start: usize,
    /// One past the last byte that is rewritten.
    pub(crate) end: usize,
}

/// Why a relocation cannot be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It belongs to a thread-local variable.
    ThreadLocal,
    /// It writes an absolute address of 32 bits: code that is not position-independent.
    TextRelocation(&'static str),
    /// Code reaches an external symbol as if it were inside the image.
    DirectExternal(&'static str),
    /// It counts from the GOT of a linked file, which an image does not have.
    GotRelative(&'static str),
    /// The form is not one that this linker knows.
    Unsupported(&'static str),
    /// The number is not one that this linker knows.
    UnknownKind(u32),
    /// The bytes around it are not what such a relocation stands in.
    Malformed,
}

/// A place to be patched, and where everything lies.
pub(crate) struct Patch {
    /// Address of the byte at [`Plan::start`].
    pub(crate) address: u64,
    /// Address of what is referred to: the target, its thunk, its stub or its GOT entry.
    pub(crate) target: u64,
    /// The relocation's addend.
    pub(crate) addend: i64,
}

/// An architecture.
pub(crate) trait Arch: Sync {
    /// ELF `e_machine`.
    fn machine(&self) -> u16;

    /// Largest page of the architecture: the read-write part begins at a multiple of it.
    fn page(&self) -> u64;

    /// What fills the gaps between functions.
    fn text_fill(&self) -> u8;

    /// Code that ends the invocation, for what can never be reached.
    fn trap(&self) -> &'static [u8];

    /// Name of a relocation, for messages.
    fn relocation_name(&self, kind: u32) -> String;

    /// Whether a relocation's addend says where in its target it points, and nothing else.
    fn addend_is_part_of_target(&self, kind: u32) -> bool;

    /// Which bytes a relocation by a symbol may be about, counted from the symbol: several where the instruction leaves it
    /// open how far behind the field it ends.
    fn offsets_from_symbol(&self, kind: u32, at: Bytes<'_>, addend: i64) -> Vec<i64>;

    /// Validates the relocation of `kind` at `at`: bytes, addend and kind have to fit each other. `None`: nothing is to be
    /// done.
    fn plan(
        &self,
        kind: u32,
        at: Bytes<'_>,
        addend: i64,
        target: TargetClass,
    ) -> Result<Option<Plan>, Refused>;

    /// Rewrites `code`, the bytes from [`Plan::start`] to [`Plan::end`]. `None`: too far away.
    fn apply(&self, form: Form, code: &mut [u8], patch: &Patch) -> Option<()>;

    /// A thunk at address `at` that jumps to the entry at `got_offset` of the GOT that the slot points to; its length
    /// depends on `got_offset` alone. `None`: too far away.
    fn thunk(&self, at: u64, slot: u64, got_offset: u32) -> Option<Vec<u8>>;

    /// A stub for the place whose original bytes are `code`, which is at `place`; its length depends on `code` and
    /// `got_offset` alone. `None`: too far away.
    fn stub(
        &self,
        form: Form,
        code: &[u8],
        place: u64,
        at: u64,
        slot: u64,
        got_offset: u32,
    ) -> Option<Vec<u8>>;
}

/// The architecture of an ELF machine.
pub(crate) fn arch_of(machine: u16) -> Option<&'static dyn Arch> {
    (machine == x86_64::X86_64.machine()).then_some(&x86_64::X86_64 as &dyn Arch)
}
