//! x86-64: the entry shim, floating-point control, CPU features, calls of any signature, and what a signal interrupts.

mod call;
mod code;
#[cfg(test)]
pub(crate) mod testing;
mod trap;

use std::mem::offset_of;

use ifunc::host::GateState;
use ifunc_abi::image::ARCH_X86_64;

pub(crate) use self::call::{ARGUMENT_WORDS, forwarding_function, function_of_any_signature};
pub(crate) use self::code::{
    ABSOLUTE_64, CALLEE_SAVED, PROBES, RETURN_ADDRESS, RETURNS_BY_REGISTER, STACK_POINTER, USUAL_CIE,
    WRITTEN_CODE_NEEDS_BARRIER, callee, enter_session, publish_code, return_address, synchronize_at_sessions,
};
pub(crate) use self::trap::{FAULTS, Trap, enter_handler};
use crate::gate::{Gate, SIDE_OFFSET};

/// ELF `e_machine` of images that run here.
pub const ARCH: u16 = ARCH_X86_64;

/// What the shim expects at the top of a stack: `stack_top` of the gate is so many bytes below it.
pub(crate) const BELOW_TOP: usize = 8;
/// What the shim pushes on the injected stack before it calls `X_main`.
pub(crate) const PUSHED: usize = 8;

/// The name of a level of the architecture, and of each of its features whether this CPU and its operating system have it.
type Level = (&'static str, &'static [(&'static str, bool)]);

/// The levels from v2 on.
fn levels() -> [Level; 3] {
    macro_rules! has {
        ($($feature:tt)*) => {{
            use std::sync::LazyLock;
            static HERE: LazyLock<Vec<(&'static str, bool)>> =
                LazyLock::new(|| vec![$(($feature, std::arch::is_x86_feature_detected!($feature)),)*]);
            &**HERE
        }};
    }
    [
        (
            "x86-64-v2",
            has!("sse3" "ssse3" "sse4.1" "sse4.2" "popcnt" "cmpxchg16b"),
        ),
        (
            "x86-64-v3",
            has!("avx" "avx2" "bmi1" "bmi2" "f16c" "fma" "lzcnt" "movbe"),
        ),
        (
            "x86-64-v4",
            has!("avx512f" "avx512bw" "avx512cd" "avx512dq" "avx512vl"),
        ),
    ]
}

/// The feature bits of this CPU, as in [`RawHeader::cpu_features`](ifunc_abi::image::RawHeader::cpu_features).
#[must_use]
pub fn cpu_features() -> u64 {
    features_of(&levels())
}

fn features_of(levels: &[Level]) -> u64 {
    let is_here = |(_, features): &&Level| features.iter().all(|(_, here)| *here);
    let count = levels.iter().take_while(is_here).count();
    (1 << count) - 1
}

/// Why an image that needs these bits cannot run where there are those, and what to do; `None` if it can.
pub(crate) fn explain_lacking_cpu(needed: u64, here: u64) -> Option<String> {
    explain_lacking(&levels(), needed, here)
}

fn explain_lacking(levels: &[Level], needed: u64, here: u64) -> Option<String> {
    let lacking = needed & !here;
    if lacking == 0 {
        return None;
    }
    if lacking >> levels.len() != 0 {
        return Some(format!(
            "the image needs features that this version does not know (bits {lacking:#x}); help: build both sides from one version of ifunc"
        ));
    }
    let highest = |bits: u64| (0..levels.len()).rev().find(|bit| bits >> bit & 1 == 1);
    let built_for = highest(needed).map_or("x86-64-v1", |bit| levels[bit].0);
    let has = highest(here).map_or("x86-64-v1", |bit| levels[bit].0);
    let features: Vec<&str> = levels
        .iter()
        .enumerate()
        .filter(|(bit, _)| lacking >> bit & 1 == 1)
        .flat_map(|(_, (_, features))| features.iter())
        .filter(|(_, here)| !here)
        .map(|(name, _)| *name)
        .collect();
    let features = match &features[..] {
        [] => String::new(),
        some => format!(" (no {})", some.join(", ")),
    };
    Some(format!(
        "the image was built for {built_for}, this CPU is {has}{features}; help: `cargo ifunc build --cpu {has}`, and nothing higher in `[package.metadata.ifunc] cpu`, in `-march` or in `$CC`"
    ))
}

const _: () = assert!(
    offset_of!(Gate, saved_sp) < 64,
    "one byte of call frame information"
);

// The entry shim. `stack_top` of the gate is 8 below a multiple of 16.
//
// In:  called as `enter(payload, size, target, ctx, main, gate)`, so that the arguments of `X_main` are in their registers.
//      It saves the callee-saved registers on the host's stack, leaves the host's stack pointer and `ctx` in the gate, switches
//      to the injected stack and calls `X_main(payload, size, target, ctx)`. If the image may set the control of floats, it
//      saves MXCSR and the x87 control word, too, in the lowest word of its frame, whose last two bytes say that it did.
//      Storing the four control words of each invocation takes longer than everything else here.
// Out: by return, with the code in eax. `X_main` has preserved the callee-saved registers, as every C function does; rbp,
//      which began as 0, is restored. MXCSR and the x87 control word, where they were saved, are restored only if they were
//      changed: loading them costs more than comparing.
//      Or by `ifunc_exec_escape`, from any depth of the injected stack, which restores all that was saved and returns 1 from the
//      same call; the handler of a signal goes the same way (`contain`). That is no success, so the caller asks for an escape
//      only then. No frame in between has anything to drop: images are `panic=abort`, and the host functions that escape own
//      nothing.
//
// The host's stack pointer also lies at the top of the injected stack, and the call frame information finds it there: a
// debugger that unwound an image (`debug/`) goes on into the frames of the host. An unwinder of the process never comes here
// from above, because images have no tables for it: it ends at the image.
core::arch::global_asm!(
    ".pushsection .text.ifunc_exec_enter,\"ax\",@progbits",
    ".p2align 4",
    ".hidden ifunc_exec_enter",
    ".globl ifunc_exec_enter",
    ".type ifunc_exec_enter,@function",
    "ifunc_exec_enter:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "push rbx",
    ".cfi_def_cfa_offset 24",
    ".cfi_offset rbx, -24",
    "push r12",
    ".cfi_def_cfa_offset 32",
    ".cfi_offset r12, -32",
    "push r13",
    ".cfi_def_cfa_offset 40",
    ".cfi_offset r13, -40",
    "push r14",
    ".cfi_def_cfa_offset 48",
    ".cfi_offset r14, -48",
    "push r15",
    ".cfi_def_cfa_offset 56",
    ".cfi_offset r15, -56",
    "push 0",
    ".cfi_def_cfa_offset 64",
    ".cfi_remember_state",
    "test byte ptr [r9 + {side}], {sets_float_control}",
    "jne 5f",
    "2:",
    "mov [r9 + {saved_sp}], rsp",
    "mov [r9 + {context}], rcx",
    // DW_CFA_def_cfa_expression: *(r9 + saved_sp) + 64, as DW_OP_breg9, DW_OP_deref, DW_OP_plus_uconst 64.
    ".cfi_escape 0x0f, 5, 0x79, {saved_sp}, 0x06, 0x23, 0x40",
    "mov rsp, [r9 + {stack_top}]",
    "push qword ptr [r9 + {saved_sp}]",
    // DW_CFA_def_cfa_expression: *(rsp) + 64, as DW_OP_breg7 0, DW_OP_deref, DW_OP_plus_uconst 64.
    ".cfi_escape 0x0f, 5, 0x77, 0x00, 0x06, 0x23, 0x40",
    "xor ebp, ebp",
    "call r8",
    "mov rsp, [rsp]",
    ".cfi_def_cfa rsp, 64",
    "cmp word ptr [rsp + 6], 0",
    "jne 4f",
    "3:",
    ".cfi_remember_state",
    "mov rbp, [rsp + 48]",
    ".cfi_restore rbp",
    ".cfi_restore rbx",
    ".cfi_restore r12",
    ".cfi_restore r13",
    ".cfi_restore r14",
    ".cfi_restore r15",
    "add rsp, 56",
    ".cfi_def_cfa_offset 8",
    "ret",
    "4:",
    ".cfi_restore_state",
    "stmxcsr [rsp - 8]",
    "fnstcw [rsp - 4]",
    "mov ecx, [rsp - 8]",
    "cmp ecx, [rsp]",
    "jne 6f",
    "movzx ecx, word ptr [rsp - 4]",
    "cmp cx, [rsp + 4]",
    "je 3b",
    "6:",
    "ldmxcsr [rsp]",
    "fldcw [rsp + 4]",
    "jmp 3b",
    "5:",
    ".cfi_restore_state",
    "stmxcsr [rsp]",
    "fnstcw [rsp + 4]",
    "mov word ptr [rsp + 6], 1",
    "jmp 2b",
    ".cfi_endproc",
    ".size ifunc_exec_enter, . - ifunc_exec_enter",
    ".hidden ifunc_exec_escape",
    ".globl ifunc_exec_escape",
    ".type ifunc_exec_escape,@function",
    "ifunc_exec_escape:",
    ".cfi_startproc",
    "mov eax, 1",
    "mov rsp, [rdi + {saved_sp}]",
    ".cfi_def_cfa rsp, 64",
    ".cfi_offset rbp, -16",
    ".cfi_offset rbx, -24",
    ".cfi_offset r12, -32",
    ".cfi_offset r13, -40",
    ".cfi_offset r14, -48",
    ".cfi_offset r15, -56",
    "cld",
    // An image that does not set the control of floats left it as the host has it. `fninit` empties the registers of the x87.
    "cmp word ptr [rsp + 6], 0",
    "jne 7f",
    "stmxcsr [rsp]",
    "fnstcw [rsp + 4]",
    "7:",
    "fninit",
    "ldmxcsr [rsp]",
    "fldcw [rsp + 4]",
    "add rsp, 8",
    ".cfi_def_cfa_offset 56",
    "pop r15",
    ".cfi_restore r15",
    ".cfi_def_cfa_offset 48",
    "pop r14",
    ".cfi_restore r14",
    ".cfi_def_cfa_offset 40",
    "pop r13",
    ".cfi_restore r13",
    ".cfi_def_cfa_offset 32",
    "pop r12",
    ".cfi_restore r12",
    ".cfi_def_cfa_offset 24",
    "pop rbx",
    ".cfi_restore rbx",
    ".cfi_def_cfa_offset 16",
    "pop rbp",
    ".cfi_restore rbp",
    ".cfi_def_cfa_offset 8",
    "ret",
    ".cfi_endproc",
    ".size ifunc_exec_escape, . - ifunc_exec_escape",
    ".popsection",
    side = const SIDE_OFFSET,
    sets_float_control = const GateState::SETS_FLOAT_CONTROL,
    saved_sp = const offset_of!(Gate, saved_sp),
    stack_top = const offset_of!(Gate, stack_top),
    context = const offset_of!(Gate, context),
);

// The way back into injected code, for a callback: `call_back(data, call, gate)`. It leaves the same frame as
// `ifunc_exec_enter`, on the stack that host and ifunc share, so that `ifunc_exec_escape` ends the innermost of them. Returns 0 by
// return and 1 by escape.
core::arch::global_asm!(
    ".pushsection .text.ifunc_exec_call_back,\"ax\",@progbits",
    ".p2align 4",
    ".hidden ifunc_exec_call_back",
    ".globl ifunc_exec_call_back",
    ".type ifunc_exec_call_back,@function",
    "ifunc_exec_call_back:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "push rbx",
    ".cfi_def_cfa_offset 24",
    ".cfi_offset rbx, -24",
    "push r12",
    ".cfi_def_cfa_offset 32",
    ".cfi_offset r12, -32",
    "push r13",
    ".cfi_def_cfa_offset 40",
    ".cfi_offset r13, -40",
    "push r14",
    ".cfi_def_cfa_offset 48",
    ".cfi_offset r14, -48",
    "push r15",
    ".cfi_def_cfa_offset 56",
    ".cfi_offset r15, -56",
    "push 0",
    ".cfi_def_cfa_offset 64",
    ".cfi_remember_state",
    "test byte ptr [rdx + {side}], {sets_float_control}",
    "jne 5f",
    "2:",
    "mov [rdx + {saved_sp}], rsp",
    "call rsi",
    // The callback has preserved the callee-saved registers. It may have changed how floats are computed.
    "cmp word ptr [rsp + 6], 0",
    "jne 4f",
    "3:",
    "xor eax, eax",
    "add rsp, 8",
    ".cfi_def_cfa_offset 56",
    "pop r15",
    ".cfi_restore r15",
    ".cfi_def_cfa_offset 48",
    "pop r14",
    ".cfi_restore r14",
    ".cfi_def_cfa_offset 40",
    "pop r13",
    ".cfi_restore r13",
    ".cfi_def_cfa_offset 32",
    "pop r12",
    ".cfi_restore r12",
    ".cfi_def_cfa_offset 24",
    "pop rbx",
    ".cfi_restore rbx",
    ".cfi_def_cfa_offset 16",
    "pop rbp",
    ".cfi_restore rbp",
    ".cfi_def_cfa_offset 8",
    "ret",
    "4:",
    ".cfi_restore_state",
    ".cfi_remember_state",
    "ldmxcsr [rsp]",
    "fldcw [rsp + 4]",
    "jmp 3b",
    "5:",
    ".cfi_restore_state",
    "stmxcsr [rsp]",
    "fnstcw [rsp + 4]",
    "mov word ptr [rsp + 6], 1",
    "jmp 2b",
    ".cfi_endproc",
    ".size ifunc_exec_call_back, . - ifunc_exec_call_back",
    ".popsection",
    side = const SIDE_OFFSET,
    sets_float_control = const GateState::SETS_FLOAT_CONTROL,
    saved_sp = const offset_of!(Gate, saved_sp),
);

// `__ifunc_panic` as images know it. The seventh argument that it passes on is where it found its return address: the
// words there and above are what a backtrace is made of. The push also aligns the stack for the call.
core::arch::global_asm!(
    ".pushsection .text.ifunc_exec_panic,\"ax\",@progbits",
    ".p2align 4",
    ".hidden ifunc_exec_panic",
    ".globl ifunc_exec_panic",
    ".type ifunc_exec_panic,@function",
    "ifunc_exec_panic:",
    ".cfi_startproc",
    "mov rax, rsp",
    "push rax",
    ".cfi_def_cfa_offset 16",
    "call {panicked}",
    "ud2",
    ".cfi_endproc",
    ".size ifunc_exec_panic, . - ifunc_exec_panic",
    ".popsection",
    panicked = sym crate::imports::panicked,
);

unsafe extern "C" {
    /// Ends the invocation that called it: see `ifunc_abi::symbols::RUNTIME_IMPORTS`.
    #[link_name = "ifunc_exec_panic"]
    pub(crate) fn panic();
}

/// What controls floating-point arithmetic: rounding, denormals, which exceptions trap. Injected code may change it
/// (`fesetround`), and functions of the host were compiled for what it is there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FloatControl {
    pub(crate) mxcsr: u32,
    pub(crate) x87: u16,
}

impl FloatControl {
    /// Bits of MXCSR that only record exceptions.
    const STATUS: u32 = 0x3f;

    /// As it is now.
    pub(crate) fn current() -> Self {
        let (mut mxcsr, mut x87) = (0u32, 0u16);
        // SAFETY: each of the two writes the local that it is given, and nothing else.
        unsafe {
            core::arch::asm!(
                "stmxcsr [{}]",
                "fnstcw [{}]",
                in(reg) &raw mut mxcsr,
                in(reg) &raw mut x87,
                options(nostack, preserves_flags)
            );
        }
        Self { mxcsr, x87 }
    }

    /// As the shim found it.
    ///
    /// # Safety
    /// `saved_sp` must be what the shim left in the gate of an invocation that runs and may set the control of floats.
    pub(crate) unsafe fn saved(saved_sp: usize) -> Self {
        let words = std::ptr::with_exposed_provenance::<u32>(saved_sp);
        // SAFETY: the caller's promise: the shim has stored both there.
        unsafe {
            Self {
                mxcsr: words.read(),
                x87: words.add(1).cast::<u16>().read(),
            }
        }
    }

    /// As a word that [`remembered`](Self::remembered) makes one of again: MXCSR in bits 0–31, the control word of the x87 in 32–47,
    /// and a bit that is always set.
    pub(crate) fn remember(self) -> u64 {
        1 << 48 | u64::from(self.x87) << 32 | u64::from(self.mxcsr)
    }

    /// Of a word of [`remember`](Self::remember).
    pub(crate) fn remembered(word: u64) -> Self {
        Self {
            mxcsr: word as u32,
            x87: (word >> 32) as u16,
        }
    }

    /// Whether arithmetic is the same.
    pub(crate) fn is_as(self, other: Self) -> bool {
        (self.mxcsr ^ other.mxcsr) & !Self::STATUS == 0 && self.x87 == other.x87
    }

    /// Sets it.
    ///
    /// # Safety
    /// The caller must be in the call gate: compiled code of the host expects the host's control, which is restored before
    /// any of it computes.
    pub(crate) unsafe fn set(self) {
        let Self { mxcsr, x87 } = self;
        // SAFETY: both were read from the registers, so no reserved bit is set; the rest is the caller's promise.
        unsafe {
            core::arch::asm!(
                "ldmxcsr [{}]",
                "fldcw [{}]",
                in(reg) &raw const mxcsr,
                in(reg) &raw const x87,
                options(nostack, preserves_flags)
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lacking_cpu_is_explained_with_what_to_build() {
        assert_eq!(explain_lacking_cpu(0b011, 0b111), None);
        assert_eq!(explain_lacking_cpu(cpu_features(), cpu_features()), None);
        let why = explain_lacking_cpu(0b111, 0b001).unwrap();
        assert!(
            why.starts_with("the image was built for x86-64-v4, this CPU is x86-64-v2"),
            "{why}"
        );
        assert!(why.contains("help: `cargo ifunc build --cpu x86-64-v2`"), "{why}");
        let why = explain_lacking_cpu(0b001, 0).unwrap();
        assert!(why.contains("x86-64-v2, this CPU is x86-64-v1"), "{why}");
        let why = explain_lacking_cpu(1 << 40, 0b111).unwrap();
        assert!(
            why.contains("bits 0x10000000000") && why.contains("help: "),
            "{why}"
        );
    }

    #[test]
    fn each_level_includes_the_ones_below() {
        const ALL: Level = ("all", &[("a", true), ("b", true)]);
        const SOME: Level = ("some", &[("c", true), ("d", false), ("e", false)]);
        for (levels, features) in [
            ([ALL, ALL, ALL], 0b111),
            ([ALL, ALL, SOME], 0b11),
            ([ALL, SOME, ALL], 0b1),
            ([SOME, ALL, ALL], 0),
        ] {
            assert_eq!(features_of(&levels), features);
        }
        assert_eq!(cpu_features(), features_of(&levels()));
        // What the CPU lacks of the levels that it lacks, and of no other.
        let why = |needed, here| explain_lacking(&[ALL, SOME, SOME], needed, here).unwrap();
        let begin = "the image was built for some, this CPU is all (no d, e); help: ";
        assert!(why(0b11, 0b1).starts_with(begin), "{}", why(0b11, 0b1));
        assert!(why(0b111, 0b1).contains("(no d, e, d, e);"));
        assert!(why(0b1, 0).starts_with("the image was built for all, this CPU is x86-64-v1; help: "));
    }

    #[test]
    fn any_control_of_floats_is_remembered() {
        for (mxcsr, x87) in [(0, 0), (0x1f80, 0x037f), (u32::MAX, u16::MAX)] {
            let word = FloatControl { mxcsr, x87 }.remember();
            assert!(![0, u64::MAX].contains(&word), "words of the gate's own");
            let control = FloatControl::remembered(word);
            assert_eq!((control.mxcsr, control.x87), (mxcsr, x87));
        }
    }

    #[test]
    fn the_status_of_floating_point_is_no_part_of_its_control() {
        let control = |mxcsr, x87| FloatControl { mxcsr, x87 };
        let first = control(0x1f80, 0x037f);
        for (other, is_same) in [
            (first, true),
            // Exceptions that were raised.
            (control(0x1fbf, 0x037f), true),
            (control(0x7f80, 0x037f), false),
            (control(0x0000, 0x037f), false),
            (control(0x1f80, 0x0f7f), false),
            (control(0x1fc0, 0x037f), false),
        ] {
            assert_eq!(first.is_as(other), is_same, "{other:x?}");
            assert_eq!(other.is_as(first), is_same, "{other:x?}");
        }
    }
}
