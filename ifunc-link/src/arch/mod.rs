//! The seam between the linker and an architecture. No other module knows an instruction or a relocation number.

mod aarch64;
mod x86_64;

/// How a relocation reaches a target inside the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Internal {
    /// The distance to the target is written.
    Distance,
    /// The distance to the target's GOT entry in the image is written.
    GotEntry,
    /// An install relocation stores the target's address.
    InstallRelocation,
}

/// How a relocation reaches an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum External {
    /// By a thunk that jumps to the import through the slot; all calls of the import share it.
    Thunk,
    /// By a stub: code for this place alone that loads the import's address through the slot and jumps back.
    Stub,
    /// By the place itself, which loads the slot, or loads from the GOT that the slot points to. Where one of both is out of reach
    /// ([`Arch::reaches_slot`]), by the import's GOT entry in the image, in the form `far`.
    Slot { far: Form },
    /// By the import's GOT entry in the image.
    GotEntry,
    /// An install relocation stores the import's address.
    InstallRelocation,
}

/// The bytes around a relocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes<'b> {
    /// The section.
    pub(crate) bytes: &'b [u8],
    /// Offset of the relocation's field.
    pub(crate) offset: usize,
    /// The section holds code: an instruction precedes the field.
    pub(crate) text: bool,
}

impl Bytes<'_> {
    /// Whether the section holds a field of `len` bytes.
    pub(crate) fn holds(&self, len: usize) -> bool {
        self.offset
            .checked_add(len)
            .is_some_and(|end| end <= self.bytes.len())
    }

    /// The byte of code `back` bytes before the field.
    pub(crate) fn before(&self, back: usize) -> Option<u8> {
        let at = self.offset.checked_sub(back)?;
        self.bytes.get(at).copied().filter(|_| self.text)
    }
}

/// How an architecture patches one place. Each architecture numbers its own forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form(pub(crate) u8);

/// How a relocation reaches one kind of target, and which bytes that rewrites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resolution<M> {
    pub(crate) method: M,
    pub(crate) form: Form,
    /// First byte that is rewritten.
    pub(crate) start: usize,
    /// One past the last byte that is rewritten.
    pub(crate) end: usize,
}

/// All that the bytes and the number of a relocation decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Classified {
    /// The instruction that holds the field, as far as its bytes tell: `call *[rip]`.
    pub(crate) place: &'static str,
    /// The instruction is a call or a jump, as far as its bytes tell.
    pub(crate) is_branch: bool,
    /// For a target inside the image.
    pub(crate) internal: Resolution<Internal>,
    /// For an import.
    pub(crate) external: Result<Resolution<External>, Refused>,
}

/// Why a relocation cannot be resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It belongs to a thread-local variable.
    ThreadLocal,
    /// It writes an absolute address of 32 bits or less: the code is not position-independent.
    TextRelocation(&'static str),
    /// Code reaches an external symbol as if it were inside the image.
    DirectExternal(&'static str),
    /// It counts from the GOT of a linked file, which an image does not have.
    GotRelative(&'static str),
    /// This linker does not support its form.
    Unsupported(&'static str),
    /// This linker does not know its number.
    UnknownKind(u32),
    /// The bytes around it do not fit its number.
    Malformed,
}

/// The addresses that a patch needs.
pub(crate) struct Patch {
    /// Address of the byte at [`Resolution::start`].
    pub(crate) address: u64,
    /// Address of the target, its thunk, its stub, its GOT entry or the slot.
    pub(crate) target: u64,
    /// The relocation's addend.
    pub(crate) addend: i64,
    /// Offset of the import's entry in the GOT that the slot points to; 0 for what does not use the slot.
    pub(crate) got_offset: u32,
    /// Alignment of the image's base.
    pub(crate) base_align: u64,
}

/// Why a patch does not fit its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// The place does not reach the target: how far it reaches.
    TooFar(&'static str),
    /// The place can only name an address of the target's alignment: which.
    Misaligned(&'static str),
    /// The form is for other bytes.
    Form,
}

/// What a relocation of a debug section or of `.eh_frame` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataRelocation {
    /// Nothing, or something of a thread-local variable, which no image has.
    Nothing,
    /// An address, or an offset in a section, of eight bytes.
    Address64,
    /// The same, of four bytes.
    Address32,
    /// A distance of four bytes.
    Distance32,
}

/// An architecture.
pub(crate) trait Arch: Sync {
    /// ELF `e_machine`.
    fn machine(&self) -> u16;

    /// Largest page of the architecture: the read-write part begins at a multiple of it.
    fn page(&self) -> u64;

    /// Fills the gaps between functions.
    fn text_fill(&self) -> u8;

    /// Alignment of code that the linker adds.
    fn code_align(&self) -> u64;

    /// Alignment of the image's base that code needs whose image has `extent` bytes of address space.
    fn base_align(&self, extent: u64) -> u64;

    /// Whether the slot stands right after the text, for loads that reach it from there alone, and not among the constants.
    fn slot_follows_text(&self) -> bool;

    /// Whether [`External::Slot`] reaches an entry at `got_offset` of the GOT, in an image with at most `text` bytes of text.
    fn reaches_slot(&self, text: u64, got_offset: u32) -> bool;

    /// Code that ends the invocation, for calls that never run.
    fn trap(&self) -> &'static [u8];

    /// Whether no instruction of `code`, a section of text, writes what controls floating-point arithmetic. `false` also if not all
    /// of it is known.
    fn keeps_float_control(&self, code: &[u8]) -> bool;

    /// Name of a relocation, for messages.
    fn relocation_name(&self, kind: u32) -> String;

    /// What a relocation of a debug section or of `.eh_frame` writes; `None`: something else.
    fn data_relocation(&self, kind: u32) -> Option<DataRelocation>;

    /// Whether it is the second half of an address: one reason against both halves is enough.
    fn is_second_half(&self, kind: u32) -> bool;

    /// What to do about a refused relocation.
    fn help(&self, refused: Refused) -> &'static str;

    /// Whether a relocation's addend is an offset in its target and nothing else.
    fn addend_is_part_of_target(&self, kind: u32) -> bool;

    /// The bytes that a relocation by a symbol may refer to, as offsets from the symbol: several where the bytes do not
    /// show how far after the field its instruction ends.
    fn offsets_from_symbol(&self, kind: u32, at: Bytes<'_>, addend: i64) -> Vec<i64>;

    /// Classifies the relocation of `kind` at `at`: bytes, addend and kind have to fit each other. `None`: it changes
    /// nothing.
    fn classify(&self, kind: u32, at: Bytes<'_>, addend: i64) -> Result<Option<Classified>, Refused>;

    /// Rewrites `code`, the bytes from [`Resolution::start`] to [`Resolution::end`].
    fn apply(&self, form: Form, code: &mut [u8], patch: &Patch) -> Result<(), Unfit>;

    /// Length of [`thunk`](Self::thunk).
    fn thunk_len(&self, got_offset: u32) -> u64;

    /// A thunk at address `at` that jumps to the entry at `got_offset` of the GOT that the slot points to. `None`: too far
    /// away.
    fn thunk(&self, at: u64, slot: u64, got_offset: u32) -> Option<Vec<u8>>;

    /// Length of [`stub`](Self::stub).
    fn stub_len(&self, code: &[u8], got_offset: u32) -> u64;

    /// A stub for the place at address `place`, whose original bytes are `code`. `None`: too far away.
    fn stub(&self, code: &[u8], place: u64, at: u64, slot: u64, got_offset: u32) -> Option<Vec<u8>>;
}

/// The architecture of an ELF machine.
pub(crate) fn arch_of(machine: u16) -> Option<&'static dyn Arch> {
    let all: [&dyn Arch; 2] = [&x86_64::X86_64, &aarch64::AArch64];
    all.into_iter().find(|arch| arch.machine() == machine)
}
