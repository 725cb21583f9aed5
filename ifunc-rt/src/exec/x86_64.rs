//! What is x86-64 about running injected code: the entry shim and the CPU features.

use ifunc_abi::image::ARCH_X86_64;

/// ELF `e_machine` of images that run here.
pub(crate) const ARCH: u16 = ARCH_X86_64;

const LEVELS: [&str; 3] = ["x86-64-v2", "x86-64-v3", "x86-64-v4"];

/// The feature bits of this CPU: see `ifunc_abi::image::RawHeader::cpu_features`.
pub(crate) fn cpu_features() -> u64 {
    use std::arch::is_x86_feature_detected as has;
    let v2 = has!("sse3")
        && has!("ssse3")
        && has!("sse4.1")
        && has!("sse4.2")
        && has!("popcnt")
        && has!("cmpxchg16b");
    let v3 = v2
        && has!("avx")
        && has!("avx2")
        && has!("bmi1")
        && has!("bmi2")
        && has!("f16c")
        && has!("fma")
        && has!("lzcnt")
        && has!("movbe");
    let v4 =
        v3 && has!("avx512f") && has!("avx512bw") && has!("avx512cd") && has!("avx512dq") && has!("avx512vl");
    u64::from(v2) | u64::from(v3) << 1 | u64::from(v4) << 2
}

/// The names of feature bits, for people.
pub(crate) fn describe_cpu_features(bits: u64) -> String {
    let mut names: Vec<String> = LEVELS
        .iter()
        .enumerate()
        .filter(|(i, _)| bits >> i & 1 == 1)
        .map(|(_, name)| (*name).into())
        .collect();
    if bits >> LEVELS.len() != 0 {
        names.push(format!(
            "unknown bits {:#x}",
            bits >> LEVELS.len() << LEVELS.len()
        ));
    }
    names.join(", ")
}

// The entry shim. `Frame` begins with `saved_rsp` (+0) and `stack_top` (+8).
//
// In:  saves the callee-saved registers, MXCSR and the x87 control word on the host's stack, leaves the host's stack
//      pointer in the frame, switches to the injected stack and calls `X_main(payload, size, target, ctx)`.
// Out: by return, with the code in eax; or by `ifunc_rt_escape`, from any depth of the injected stack, which restores
//      what was saved and returns from the same call. No frame in between has anything to drop: images are
//      `panic=abort`, and the host functions that escape see to their own.
//
// The unwinder is told that there is nothing behind the shim: backtraces of injected code end here.
core::arch::global_asm!(
    ".pushsection .text.ifunc_rt_enter,\"ax\",@progbits",
    ".p2align 4",
    ".hidden ifunc_rt_enter",
    ".globl ifunc_rt_enter",
    ".type ifunc_rt_enter,@function",
    "ifunc_rt_enter:",
    ".cfi_startproc",
    ".cfi_undefined rip",
    "push rbp",
    "push rbx",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "sub rsp, 8",
    "stmxcsr [rsp]",
    "fnstcw [rsp + 4]",
    "mov [rdi], rsp",
    "mov rbx, rdi",
    "mov rax, rsi",
    "mov rsp, [rdi + 8]",
    "mov rdi, rdx",
    "mov rsi, rcx",
    "mov rdx, r8",
    "mov rcx, r9",
    "xor ebp, ebp",
    "call rax",
    "mov rdi, rbx",
    "mov rsp, [rdi]",
    "2:",
    "ldmxcsr [rsp]",
    "fldcw [rsp + 4]",
    "add rsp, 8",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbx",
    "pop rbp",
    "ret",
    ".hidden ifunc_rt_escape",
    ".globl ifunc_rt_escape",
    ".type ifunc_rt_escape,@function",
    "ifunc_rt_escape:",
    "xor eax, eax",
    "mov rsp, [rdi]",
    "cld",
    "fninit",
    "jmp 2b",
    ".cfi_endproc",
    ".size ifunc_rt_enter, . - ifunc_rt_enter",
    ".popsection",
);
