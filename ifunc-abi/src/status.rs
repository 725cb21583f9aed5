//! The outcome of an invocation, as the target reports it: a 32-bit code in the `handle` field of the
//! completion frame, and a body.
//!
//! | code | body |
//! |---|---|
//! | [`Status::Executed`] | the answer |
//! | [`Status::Failed`] with [`Failure::Panic`] | a [`PanicDetail`] |
//! | [`Status::Failed`] with [`Failure::Fault`] or [`Failure::Deadline`] | a [`FaultDetail`] |
//! | any other | a UTF-8 text that explains it; [`Rejection`] lists the reasons whose text has a format |

use core::fmt;

/// The outcome that a target reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// The invocation ran to its end and succeeded.
    Executed,
    /// The invocation started and failed.
    Failed(Failure),
    /// The target did not start the invocation.
    Rejected(Rejection),
}

macro_rules! reasons {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $code:literal, $say:literal;)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum $name { $($(#[$doc])* $variant = $code,)* }
        impl $name {
            /// Every reason, in order of its code.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
            /// The reason's name, such as `MissingImport`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => stringify!($variant),)* }
            }
            pub(crate) const fn from_code(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)* _ => None }
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => $say,)* })
            }
        }
    };
}

reasons! {
    /// Why an invocation that started failed.
    Failure {
        /// The payload did not decode as the type that the ifunc takes.
        Payload = 1, "the payload does not decode";
        /// The ifunc panicked.
        Panic = 2, "the ifunc panicked";
        /// The ifunc raised a fault: a signal such as SIGSEGV, or its stack overflowed. Targets of the level `Contained` report it.
        Fault = 3, "the ifunc raised a fault";
        /// The ifunc ran for longer than the target allows.
        Deadline = 4, "the ifunc ran over its execution deadline";
        /// A host function was called with too little stack left.
        StackLow = 5, "too little stack is left for a host function";
        /// A host function panicked.
        HostPanic = 6, "a host function panicked";
        /// The answer is larger than the connection allows, or does not encode.
        Answer = 7, "the answer does not fit";
        /// `X_main` returned a code that this version does not define.
        UnknownResult = 8, "the ifunc returned an unknown code";
        /// The node to which it was forwarded was lost before it reported that it had taken the invocation. It may have
        /// begun to run there.
        NodeLost = 9, "the node to which it was forwarded was lost";
        /// No answer came before the deadline. Body: the numbers of the nodes that were lost since the call began, in
        /// decimal, separated by blanks.
        Indeterminate = 10, "no answer came before the deadline";
        /// The ifunc forwarded the invocation and then ended with an answer or a failure of its own.
        EndedTwice = 11, "the ifunc forwarded the invocation and answered it, too";
        /// The source dropped the call. What was forwarded may run; its answer is dropped.
        Cancelled = 12, "the source dropped the call";
    }
}

reasons! {
    /// Why the target did not start an invocation or did not install an image.
    Rejection {
        /// The handle is bound to no image.
        Unbound = 1, "no image is bound to the handle";
        /// The target does not accept code from this source.
        Policy = 2, "the target's policy refuses the image";
        /// The image does not parse.
        BadImage = 3, "the image is malformed";
        /// The hash of the image's bytes differs from the id that the source sent.
        IdMismatch = 4, "the image's bytes do not have the id they were sent under";
        /// The image is for another ABI version.
        AbiVersion = 5, "the image has another ABI version";
        /// The image is for another architecture.
        Architecture = 6, "the image is for another architecture";
        /// The image needs a CPU feature that the target lacks.
        CpuFeature = 7, "the target's CPU lacks a feature";
        /// The image is for another type of target arguments. Body: the text of the target's type.
        TargetType = 8, "the image is for another type of target arguments";
        /// The target does not provide an import. Body: one symbol per line; after a blank, the name of a set
        /// that has it.
        MissingImport = 9, "the target does not provide an import";
        /// The target provides an import with another signature. Body: lines `SYMBOL SIGNATURE` with the
        /// target's signatures.
        ImportSignature = 10, "the target provides an import with another signature";
        /// The target does not allow or does not have a needed shared library. Body: one soname per line.
        NeededLibrary = 11, "the image needs a shared library that the target does not provide";
        /// The code cache is full and every image in it is in use.
        CacheFull = 12, "the target's code cache is full";
        /// The message exceeds a limit of the target. The body names the limit.
        TooLarge = 13, "a limit of the target is exceeded";
        /// The image's signature is missing or wrong, or of a key that the target does not know.
        Signature = 14, "the image's signature is not accepted";
        /// The image takes the target arguments by `&mut T`, and the target serves on several threads.
        NotShareable = 16, "the target runs shareable ifuncs only";
        /// The target could not map or write memory.
        Resources = 17, "the target is out of resources";
        /// A quota of the target, for this source or for all of them, is used up. The body names the quota, and the option
        /// that sets it.
        Quota = 24, "a quota of the target is used up";
        /// The group has no such node. Body: its number.
        NoNode = 18, "the group has no such node";
        /// The node was lost before the invocation was sent to it: it did not run there. Body: its number.
        NodeLost = 19, "the node was lost before the invocation was sent to it";
        /// The invocation made as many hops as it may.
        HopLimit = 20, "the hop limit is reached";
        /// The node's outbox is full.
        NodeBusy = 21, "the node's outbox is full";
        /// The deadline of the call had passed when the invocation arrived.
        TooLate = 22, "the deadline had passed before it could run";
        /// The image is signed by a key that the target's policy revoked.
        Revoked = 26, "the key that signed the image is revoked";
        /// The target's policy does not let the image's signer, or unsigned code, bind an import. The body names the imports.
        Import = 27, "the target's policy does not grant an import";
        /// The target's policy admits pure images only. The body names what the image imports.
        NotPure = 28, "the target's policy admits pure images only";
        /// The node does not know the node that awaits the answer, or holds the scope. Body: the number of that one.
        UnknownNode = 25, "the node does not know the node that awaits the answer";
    }
}

const EXECUTED: u32 = 0;
const FAILED: u32 = 1;
const REJECTED: u32 = 2;

impl Status {
    /// The 32-bit code: class in bits 0–7, reason in bits 8–15.
    #[must_use]
    pub const fn code(self) -> u32 {
        match self {
            Self::Executed => EXECUTED,
            Self::Failed(why) => FAILED | (why as u32) << 8,
            Self::Rejected(why) => REJECTED | (why as u32) << 8,
        }
    }

    /// The status of a code; `None` for a code that this version does not define.
    #[must_use]
    pub const fn from_code(code: u32) -> Option<Self> {
        if code >> 16 != 0 {
            return None;
        }
        let reason = (code >> 8) as u8;
        match code & 0xff {
            EXECUTED if reason == 0 => Some(Self::Executed),
            FAILED => match Failure::from_code(reason) {
                Some(why) => Some(Self::Failed(why)),
                None => None,
            },
            REJECTED => match Rejection::from_code(reason) {
                Some(why) => Some(Self::Rejected(why)),
                None => None,
            },
            _ => None,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Executed => f.write_str("executed"),
            Self::Failed(why) => write!(f, "failed: {why}"),
            Self::Rejected(why) => write!(f, "rejected: {why}"),
        }
    }
}

/// Body of a [`Failure::Panic`]: four little-endian `u32`s (`line`, `column`, length of `file` in bytes,
/// number of `calls`), then `calls`, `file` and `message`. The message extends to the end of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PanicDetail<'a> {
    /// Line in `file`; 0 if the image's panic policy drops the location.
    pub line: u32,
    /// Column in the line; 0 if dropped.
    pub column: u32,
    /// Source file as the compiler saw it; empty if dropped.
    pub file: &'a str,
    /// The message; empty if dropped.
    pub message: &'a str,
    /// The backtrace: return addresses found on the image's stack, innermost first. Each is an offset in the
    /// image, four bytes, little-endian. Stale words of earlier calls may be among them.
    pub calls: &'a [u8],
}

/// Size of the fixed part of a [`PanicDetail`].
const PANIC_HEAD: usize = 16;

impl<'a> PanicDetail<'a> {
    /// The body.
    #[cfg(feature = "alloc")]
    #[must_use]
    pub fn encode(&self) -> alloc::vec::Vec<u8> {
        let (file, calls) = (self.file.len() as u32, (self.calls.len() / 4) as u32);
        let head = [self.line, self.column, file, calls].map(u32::to_le_bytes);
        [
            head.as_flattened(),
            self.calls,
            self.file.as_bytes(),
            self.message.as_bytes(),
        ]
        .concat()
    }

    /// Parses a body; `None` if it is too short or not UTF-8.
    #[must_use]
    pub fn parse(body: &'a [u8]) -> Option<Self> {
        let (head, rest) = body.split_at_checked(PANIC_HEAD)?;
        let word = |at: usize| Some(u32::from_le_bytes(head.get(at..at + 4)?.try_into().ok()?));
        let (calls, rest) = rest.split_at_checked((word(12)? as usize).checked_mul(4)?)?;
        let (file, message) = rest.split_at_checked(word(8)? as usize)?;
        Some(Self {
            line: word(0)?,
            column: word(4)?,
            file: core::str::from_utf8(file).ok()?,
            message: core::str::from_utf8(message).ok()?,
            calls,
        })
    }
}

impl PanicDetail<'_> {
    /// [`calls`](Self::calls) as numbers.
    pub fn offsets(&self) -> impl Iterator<Item = u32> {
        self.calls
            .as_chunks()
            .0
            .iter()
            .map(|bytes| u32::from_le_bytes(*bytes))
    }
}

/// Body of a [`Failure::Fault`] or a [`Failure::Deadline`]: two little-endian `u32`s (whether the first of `calls` is
/// that of the instruction, number of `calls`), then `calls` and `text`. The text extends to the end of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultDetail<'a> {
    /// The first of [`calls`](Self::calls) is the offset of the instruction plus 1, as if it were a return address. Otherwise the
    /// program counter was not in the image.
    pub is_placed: bool,
    /// The backtrace, as [`PanicDetail::calls`].
    pub calls: &'a [u8],
    /// What happened, as the target describes it.
    pub text: &'a str,
}

/// Size of the fixed part of a [`FaultDetail`].
const FAULT_HEAD: usize = 8;

impl<'a> FaultDetail<'a> {
    /// The body.
    #[cfg(feature = "alloc")]
    #[must_use]
    pub fn encode(&self) -> alloc::vec::Vec<u8> {
        let head = [u32::from(self.is_placed), (self.calls.len() / 4) as u32].map(u32::to_le_bytes);
        [head.as_flattened(), self.calls, self.text.as_bytes()].concat()
    }

    /// Parses a body; `None` if it is too short or not UTF-8.
    #[must_use]
    pub fn parse(body: &'a [u8]) -> Option<Self> {
        let (head, rest) = body.split_at_checked(FAULT_HEAD)?;
        let word = |at: usize| Some(u32::from_le_bytes(head.get(at..at + 4)?.try_into().ok()?));
        let (calls, text) = rest.split_at_checked((word(4)? as usize).checked_mul(4)?)?;
        Some(Self {
            is_placed: word(0)? == 1,
            calls,
            text: core::str::from_utf8(text).ok()?,
        })
    }

    /// [`calls`](Self::calls) as numbers.
    pub fn offsets(&self) -> impl Iterator<Item = u32> {
        self.calls
            .as_chunks()
            .0
            .iter()
            .map(|bytes| u32::from_le_bytes(*bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_a_bijection() {
        let mut known = 0;
        for code in 0..=0xffff {
            if let Some(status) = Status::from_code(code) {
                assert_eq!(status.code(), code);
                known += 1;
            }
        }
        assert_eq!(known, 1 + Failure::ALL.len() + Rejection::ALL.len());
        assert_eq!(Status::from_code(0x1_0000), None);
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn the_detail_of_a_fault_is_parsed_or_refused() {
        let detail = FaultDetail {
            is_placed: true,
            calls: &[1, 0, 0, 0, 2, 0, 0, 0],
            text: "SIGSEGV",
        };
        let body = detail.encode();
        assert_eq!(FaultDetail::parse(&body), Some(detail));
        assert!(detail.offsets().eq([1, 2]));
        for len in 0..16 {
            assert_eq!(FaultDetail::parse(&body[..len]), None, "{len}");
        }
        assert_eq!(FaultDetail::parse(&[0, 0, 0, 0, 255, 255, 255, 255]), None);
        assert_eq!(FaultDetail::parse(&[0, 0, 0, 0, 0, 0, 0, 0, 0xff]), None);
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn the_detail_of_a_panic_is_parsed_or_refused() {
        let detail = PanicDetail {
            line: 1,
            column: 2,
            file: "a.rs",
            message: "no",
            calls: &[1, 0, 0, 0, 2, 0, 0, 0],
        };
        let body = detail.encode();
        assert_eq!(body[..16], [1, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(PanicDetail::parse(&body), Some(detail));
        assert!(detail.offsets().eq([1, 2]));
        for len in 0..28 {
            assert_eq!(PanicDetail::parse(&body[..len]), None, "{len}");
        }
    }

    #[test]
    fn codes_have_their_bits() {
        assert_eq!(Status::Executed.code(), 0);
        assert_eq!(
            Status::Rejected(Rejection::NotPure).code(),
            2 | (Rejection::NotPure as u32) << 8
        );
        assert_eq!(Status::from_code(0x100), None);
        for code in [0x8000_0000, 0x1_0000, 0x1_0001, 3, 0xff] {
            assert_eq!(Status::from_code(code), None, "{code:#x}");
        }
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn a_status_is_told_by_its_class_and_its_reason() {
        use alloc::string::ToString as _;
        assert_eq!(Status::Executed.to_string(), "executed");
        for (status, class, why) in [
            (
                Status::Failed(Failure::Panic),
                "failed: ",
                Failure::Panic.to_string(),
            ),
            (
                Status::Rejected(Rejection::Policy),
                "rejected: ",
                Rejection::Policy.to_string(),
            ),
        ] {
            assert!(!why.is_empty());
            assert_eq!(status.to_string(), [class, &why].concat());
        }
    }
}
