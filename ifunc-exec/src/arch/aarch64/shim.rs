//! The entry shim, the way out of an invocation, and the way back into injected code.
//!
//! In:  called as `enter(payload, size, target, ctx, main, gate)`, so that the arguments of `X_main` are in their registers.
//!      It saves the registers that functions preserve on the host's stack, leaves the host's stack pointer and `ctx` in the gate,
//!      switches to the injected stack and calls `X_main(payload, size, target, ctx)`. If the image may set the control of floats, it
//!      saves FPCR, too, in the last words of its frame, of which the second says that it did.
//! Out: by return, with the code in w0. `X_main` has preserved what every function does; x29, which began as 0, is restored, and
//!      FPCR, where it was saved, only if it was changed: writing it costs more than comparing.
//!      Or by `ifunc_exec_escape`, from any depth of the injected stack, which restores all that was saved and returns 1 from the
//!      same call; the handler of a signal goes the same way (`contain`). No frame in between has anything to drop: images are
//!      `panic=abort`, and the host functions that escape own nothing.
//!
//! The host's stack pointer also lies at the top of the injected stack, and the call frame information finds it there: a debugger that
//! unwound an image (`debug/`) goes on into the frames of the host. Above it lies the address that `X_main` returns to, for a
//! debugger that knows nothing of the frames of the image, and so not where they keep it.

use std::mem::offset_of;

use ifunc::host::GateState;

use crate::gate::{Gate, SIDE_OFFSET};

/// What the shim expects at the top of a stack: `stack_top` of the gate is so many bytes below it.
pub(crate) const BELOW_TOP: usize = 0;
/// What the shim pushes on the injected stack before it calls `X_main`.
pub(crate) const PUSHED: usize = 16;

/// Offset in the frame of FPCR, and of the word that says whether it was saved.
pub(super) const SAVED_CONTROL: usize = 160;

const _: () = assert!(
    offset_of!(Gate, saved_sp) < 64,
    "one byte of call frame information"
);
const _: () = assert!(GateState::SETS_FLOAT_CONTROL == 1 << 2, "the bit that is tested");

/// Begins a function whose frame holds what functions preserve, and 16 bytes for the control of floats.
macro_rules! begin {
    ($name:literal) => {
        concat!(
            ".pushsection .text.",
            $name,
            ",\"ax\",@progbits\n",
            ".p2align 4\n",
            ".hidden ",
            $name,
            "\n",
            ".globl ",
            $name,
            "\n",
            ".type ",
            $name,
            ",@function\n",
            $name,
            ":\n",
            ".cfi_startproc\n",
            "hint #34\n", // bti c
        )
    };
}

/// The registers of the frame, as call frame information has them.
macro_rules! saved_registers {
    () => {
        ".cfi_offset x29, -176
        .cfi_offset x30, -168
        .cfi_offset x19, -160
        .cfi_offset x20, -152
        .cfi_offset x21, -144
        .cfi_offset x22, -136
        .cfi_offset x23, -128
        .cfi_offset x24, -120
        .cfi_offset x25, -112
        .cfi_offset x26, -104
        .cfi_offset x27, -96
        .cfi_offset x28, -88
        .cfi_offset d8, -80
        .cfi_offset d9, -72
        .cfi_offset d10, -64
        .cfi_offset d11, -56
        .cfi_offset d12, -48
        .cfi_offset d13, -40
        .cfi_offset d14, -32
        .cfi_offset d15, -24"
    };
}

/// Saves what functions preserve.
macro_rules! save {
    () => {
        concat!(
            "stp x29, x30, [sp, #-176]!
            .cfi_def_cfa_offset 176
            stp x19, x20, [sp, #16]
            stp x21, x22, [sp, #32]
            stp x23, x24, [sp, #48]
            stp x25, x26, [sp, #64]
            stp x27, x28, [sp, #80]
            stp d8, d9, [sp, #96]
            stp d10, d11, [sp, #112]
            stp d12, d13, [sp, #128]
            stp d14, d15, [sp, #144]\n",
            saved_registers!()
        )
    };
}

/// Returns from a function that has preserved all but the frame's own registers.
macro_rules! leave {
    () => {
        "ldp x29, x30, [sp], #176
        .cfi_def_cfa_offset 0
        .cfi_restore x29
        .cfi_restore x30
        .cfi_restore x19
        .cfi_restore x20
        .cfi_restore x21
        .cfi_restore x22
        .cfi_restore x23
        .cfi_restore x24
        .cfi_restore x25
        .cfi_restore x26
        .cfi_restore x27
        .cfi_restore x28
        .cfi_restore d8
        .cfi_restore d9
        .cfi_restore d10
        .cfi_restore d11
        .cfi_restore d12
        .cfi_restore d13
        .cfi_restore d14
        .cfi_restore d15
        ret"
    };
}

macro_rules! end {
    ($name:literal) => {
        concat!(".cfi_endproc\n.size ", $name, ", . - ", $name, "\n.popsection\n")
    };
}

core::arch::global_asm!(
    begin!("ifunc_exec_enter"),
    save!(),
    ".cfi_remember_state",
    "ldrb w9, [x5, #{side}]",
    "tbnz w9, #2, 5f",
    "str xzr, [sp, #168]",
    "2:",
    "mov x9, sp",
    "str x9, [x5, #{saved_sp}]",
    "str x3, [x5, #{context}]",
    // DW_CFA_def_cfa_expression: *(x5 + saved_sp) + 176, as DW_OP_breg5, DW_OP_deref, DW_OP_plus_uconst 176.
    ".cfi_escape 0x0f, 6, 0x75, {saved_sp}, 0x06, 0x23, 0xb0, 0x01",
    "ldr x10, [x5, #{stack_top}]",
    "adr x11, 3f",
    "stp x9, x11, [x10, #-16]!",
    "mov sp, x10",
    // DW_CFA_def_cfa_expression: *(sp) + 176, as DW_OP_breg31 0, DW_OP_deref, DW_OP_plus_uconst 176.
    ".cfi_escape 0x0f, 6, 0x8f, 0x00, 0x06, 0x23, 0xb0, 0x01",
    "mov x29, xzr",
    "blr x4",
    "3:",
    "ldr x9, [sp]",
    "mov sp, x9",
    ".cfi_def_cfa sp, 176",
    "ldr x9, [sp, #168]",
    "cbnz x9, 4f",
    "6:",
    ".cfi_remember_state",
    leave!(),
    "4:",
    ".cfi_restore_state",
    "mrs x10, fpcr",
    "ldr x9, [sp, #160]",
    "cmp x9, x10",
    "b.eq 6b",
    "msr fpcr, x9",
    "b 6b",
    "5:",
    ".cfi_restore_state",
    "mrs x9, fpcr",
    "mov w10, #1",
    "stp x9, x10, [sp, #160]",
    "b 2b",
    end!("ifunc_exec_enter"),
    side = const SIDE_OFFSET,
    saved_sp = const offset_of!(Gate, saved_sp),
    stack_top = const offset_of!(Gate, stack_top),
    context = const offset_of!(Gate, context),
);

core::arch::global_asm!(
    begin!("ifunc_exec_escape"),
    "ldr x9, [x0, #{saved_sp}]",
    "mov sp, x9",
    ".cfi_def_cfa sp, 176",
    saved_registers!(),
    // An image that does not set the control of floats left it as the host has it.
    "ldr x9, [sp, #168]",
    "cbz x9, 7f",
    "ldr x9, [sp, #160]",
    "msr fpcr, x9",
    "7:",
    "mov w0, #1",
    "ldp x19, x20, [sp, #16]",
    "ldp x21, x22, [sp, #32]",
    "ldp x23, x24, [sp, #48]",
    "ldp x25, x26, [sp, #64]",
    "ldp x27, x28, [sp, #80]",
    "ldp d8, d9, [sp, #96]",
    "ldp d10, d11, [sp, #112]",
    "ldp d12, d13, [sp, #128]",
    "ldp d14, d15, [sp, #144]",
    leave!(),
    end!("ifunc_exec_escape"),
    saved_sp = const offset_of!(Gate, saved_sp),
);

// The way back into injected code, for a callback: `call_back(data, call, gate)`. It leaves the same frame as
// `ifunc_exec_enter`, on the stack that host and ifunc share, so that `ifunc_exec_escape` ends the innermost of them. Returns 0 by
// return and 1 by escape.
core::arch::global_asm!(
    begin!("ifunc_exec_call_back"),
    save!(),
    ".cfi_remember_state",
    "ldrb w9, [x2, #{side}]",
    "tbnz w9, #2, 5f",
    "str xzr, [sp, #168]",
    "2:",
    "mov x9, sp",
    "str x9, [x2, #{saved_sp}]",
    "mov x29, sp",
    "blr x1",
    // The callback has preserved what every function does. It may have changed how floats are computed.
    "ldr x9, [sp, #168]",
    "cbnz x9, 4f",
    "3:",
    "mov w0, wzr",
    leave!(),
    "4:",
    ".cfi_restore_state",
    ".cfi_remember_state",
    "ldr x9, [sp, #160]",
    "msr fpcr, x9",
    "b 3b",
    "5:",
    ".cfi_restore_state",
    "mrs x9, fpcr",
    "mov w10, #1",
    "stp x9, x10, [sp, #160]",
    "b 2b",
    end!("ifunc_exec_call_back"),
    side = const SIDE_OFFSET,
    saved_sp = const offset_of!(Gate, saved_sp),
);

// `__ifunc_panic` as images know it. The seventh argument that it passes on is where it left its return address: the
// words there and above are what a backtrace is made of.
core::arch::global_asm!(
    begin!("ifunc_exec_panic"),
    "stp x30, x29, [sp, #-16]!",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset x30, -16",
    ".cfi_offset x29, -8",
    "mov x6, sp",
    "bl {panicked}",
    "brk #1",
    end!("ifunc_exec_panic"),
    panicked = sym crate::imports::panicked,
);

unsafe extern "C" {
    /// Ends the invocation that called it: see `ifunc_abi::symbols::RUNTIME_IMPORTS`.
    #[link_name = "ifunc_exec_panic"]
    pub(crate) fn panic();
}
